//! The connection string.

use odbc_api::{Connection, ConnectionOptions, environment};

use crate::error::DbError;

/// Attributes of a connection string that must not be shown.
const SECRET_ATTRIBUTES: [&str; 3] = ["PWD", "PASSWORD", "TOKEN"];

/// A parsed connection string.
pub(crate) struct ConnectionString {
    string: String,
}

impl ConnectionString {
    /// From a connection string.
    pub(crate) fn new(string: &str) -> Self {
        Self { string: string.trim().to_owned() }
    }

    /// Connects, with a timeout in seconds where the driver supports it.
    pub(crate) fn connect(&self, timeout: u32) -> Result<Connection<'static>, odbc_api::Error> {
        let options = ConnectionOptions { login_timeout_sec: Some(timeout), packet_size: None };
        environment()?.connect_with_connection_string(&self.string, options)
    }

    fn redact(&self, message: String) -> String {
        let secrets = self.attributes().filter(|(name, _)| is_secret(name));
        let secrets = secrets.map(|(_, value)| value).filter(|value| !value.is_empty());
        secrets.fold(message, |message, secret| message.replace(&*secret, "***"))
    }

    /// Removes secrets from a driver's message: drivers repeat the connection string in their errors.
    pub(super) fn redact_error(&self, error: DbError) -> DbError {
        DbError { message: self.redact(error.message.clone()), ..error }
    }

    /// The attributes that identify the database and are not secret.
    pub(crate) fn display_name(&self) -> String {
        let public_attributes = ["DSN", "DRIVER", "SERVER", "SYSTEM", "HOST", "DATABASE"];
        let known = self.attributes().filter(|(name, _)| public_attributes.contains(&name.as_str()));
        known.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(";")
    }

    /// The attributes: names in capitals, values without their braces.
    fn attributes(&self) -> impl Iterator<Item = (String, String)> {
        let mut rest = self.string.as_str();
        std::iter::from_fn(move || {
            let (name, after) = rest.split_once('=')?;
            let (value, after) = value(after);
            rest = after;
            let name = name.trim_matches([';', ' ']).to_uppercase();
            Some((name, value))
        })
    }
}

fn is_secret(name: &str) -> bool {
    SECRET_ATTRIBUTES.iter().any(|secret| name.ends_with(secret))
}

/// The value at the beginning of `text`, and the rest. It ends at a semicolon, or is in braces, in
/// which a doubled brace stands for itself.
fn value(text: &str) -> (String, &str) {
    let Some(inside) = text.strip_prefix('{') else {
        let (value, after) = text.split_once(';').unwrap_or((text, ""));
        return (value.to_owned(), after);
    };
    let mut at = 0;
    while let Some(found) = inside[at..].find('}') {
        at += found + 1;
        if !inside[at..].starts_with('}') {
            return (inside[..at - 1].replace("}}", "}"), &inside[at..]);
        }
        at += 1;
    }
    (inside.to_owned(), "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Reason;

    #[test]
    fn a_secret_is_hidden_wherever_a_driver_repeats_it() {
        let string =
            ConnectionString::new("DRIVER={Some; {Driver}}};Server=db; Pwd={a;b}}c};UID=me;Token=t0k");
        let error = DbError::new(Reason::Unreachable, "no login for me with a;b}c and t0k at db");
        let message = string.redact_error(error).to_string();
        assert_eq!(message, "no login for me with *** and *** at db");
        assert_eq!(string.display_name(), "DRIVER=Some; {Driver};SERVER=db");
        assert_eq!(ConnectionString::new("nonsense").display_name(), "");
    }
}
