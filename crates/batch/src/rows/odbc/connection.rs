//! ODBC connections and their connection string.

use std::panic::{AssertUnwindSafe, catch_unwind};

use longshore_pool::database::odbc::connection_string;
use longshore_pool::database::odbc::dialect::Dialect;
use odbc_api::Connection;

use super::error;
use crate::rows::SourceError;

/// Timeout of a connection attempt, if the driver supports one.
const CONNECT_TIMEOUT_SECONDS: u32 = 10;

/// Whether a connection reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AccessMode {
    Read,
    Write,
}

/// The database to connect to.
pub(super) struct OdbcTarget(connection_string::ConnectionString);

impl OdbcTarget {
    pub(super) fn new(string: &str) -> Self {
        Self(connection_string::ConnectionString::new(string))
    }

    pub(super) fn connect(&self, access: AccessMode) -> Result<OdbcConnection, SourceError> {
        self.try_connect(access).map_err(|error| self.without_secrets(error::of_connect(error)))
    }

    fn try_connect(&self, access: AccessMode) -> Result<OdbcConnection, odbc_api::Error> {
        let connection = self.0.connect(CONNECT_TIMEOUT_SECONDS)?;
        let dialect = Dialect::of(&connection.database_management_system_name()?);
        let quote = connection.identifier_quote_char().ok().flatten();
        match access {
            AccessMode::Read => {
                if let Some(sql) = dialect.read_only_statement() {
                    connection.execute(sql, (), None)?;
                }
            }
            AccessMode::Write => connection.set_autocommit(false)?,
        }
        Ok(OdbcConnection { connection: Some(connection), dialect, quote: quote.unwrap_or('"') })
    }

    /// Removes secrets from an error: drivers repeat the connection string in their messages.
    pub(super) fn without_secrets(&self, error: SourceError) -> SourceError {
        let hide = |message| self.0.redact(message);
        match error {
            SourceError::Unavailable(message) => SourceError::Unavailable(hide(message)),
            SourceError::Busy(message) => SourceError::Busy(hide(message)),
            SourceError::TimedOut(message) => SourceError::TimedOut(hide(message)),
            SourceError::Data(message) => SourceError::Data(hide(message)),
            SourceError::Statement { message, offset } => {
                SourceError::Statement { message: hide(message), offset }
            }
            error => error,
        }
    }

    /// The attributes that identify the database and are not secret.
    pub(super) fn display_name(&self) -> String {
        let public_attributes = ["DSN", "DRIVER", "SERVER", "SYSTEM", "HOST", "DATABASE"];
        let known = self.0.attributes().filter(|(name, _)| public_attributes.contains(&name.as_str()));
        known.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(";")
    }
}

/// A connection and its dialect.
pub(super) struct OdbcConnection {
    /// `None` only during drop.
    connection: Option<Connection<'static>>,
    pub(super) dialect: Dialect,
    /// The quote character of identifiers.
    pub(super) quote: char,
}

impl OdbcConnection {
    pub(super) fn handle(&self) -> Result<&Connection<'static>, SourceError> {
        self.connection
            .as_ref()
            .ok_or_else(|| SourceError::Unavailable("the connection is closed".to_owned()))
    }

    /// On a lost connection, any error of a statement becomes `Unavailable`: the statement is not
    /// at fault.
    pub(super) fn reclassify(&self, error: SourceError) -> SourceError {
        match error {
            SourceError::Data(message) | SourceError::Statement { message, .. } if self.is_dead() => {
                SourceError::Unavailable(message)
            }
            error => error,
        }
    }

    /// Whether the driver reports the connection as lost. Not all drivers do.
    pub(super) fn is_dead(&self) -> bool {
        self.connection.as_ref().is_none_or(|connection| connection.is_dead().unwrap_or(false))
    }
}

impl Drop for OdbcConnection {
    fn drop(&mut self) {
        // The library panics if the server is gone when the connection is closed.
        let connection = self.connection.take();
        if catch_unwind(AssertUnwindSafe(|| drop(connection))).is_err() {
            tracing::debug!("closing an ODBC connection failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_hidden_wherever_a_driver_repeats_it() {
        let target = OdbcTarget::new("DRIVER={Some; {Driver}}};Server=db; Pwd={a;b}}c};UID=me;Token=t0k");
        let error = SourceError::Unavailable("no login for me with a;b}c and t0k at db".to_owned());
        let hidden = target.without_secrets(error).to_string();
        assert!(hidden.ends_with("no login for me with *** and *** at db"), "{hidden}");
        assert_eq!(target.display_name(), "DRIVER=Some; {Driver};SERVER=db");
    }

    #[test]
    fn a_string_without_secrets_hides_nothing() {
        let target = OdbcTarget::new("DSN=orders;PWD=");
        assert_eq!(target.without_secrets(SourceError::Data("no".into())).to_string(), "no");
        assert_eq!(OdbcTarget::new("nonsense").display_name(), "");
    }
}
