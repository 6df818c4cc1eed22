//! Connections, and the string that says where to.

use std::panic::{AssertUnwindSafe, catch_unwind};

use longshore_pool::database::odbc::dialect::Dialect;
use longshore_pool::database::odbc::target;
use odbc_api::Connection;

use super::error;
use crate::rows::SourceError;

/// How long a server may take to let us in, where the driver can be told.
const PATIENCE_SECONDS: u32 = 10;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// Where to connect to.
pub(super) struct Target(target::Target);

impl Target {
    pub(super) fn new(string: &str) -> Self {
        Self(target::Target::new(string))
    }

    pub(super) fn connect(&self, access: Access) -> Result<Live, SourceError> {
        self.try_connect(access).map_err(|error| self.without_secrets(error::of_connect(error)))
    }

    fn try_connect(&self, access: Access) -> Result<Live, odbc_api::Error> {
        let connection = self.0.connect(PATIENCE_SECONDS)?;
        let dialect = Dialect::of(&connection.database_management_system_name()?);
        let quote = connection.identifier_quote_char().ok().flatten();
        match access {
            Access::Read => {
                if let Some(sql) = dialect.forbids_writing() {
                    connection.execute(sql, (), None)?;
                }
            }
            Access::Write => connection.set_autocommit(false)?,
        }
        Ok(Live { connection: Some(connection), dialect, quote: quote.unwrap_or('"') })
    }

    /// Drivers repeat in their errors what they were told.
    pub(super) fn without_secrets(&self, error: SourceError) -> SourceError {
        let hide = |words| self.0.hide(words);
        match error {
            SourceError::Away(words) => SourceError::Away(hide(words)),
            SourceError::Data(words) => SourceError::Data(hide(words)),
            SourceError::Statement { message, offset } => {
                SourceError::Statement { message: hide(message), offset }
            }
        }
    }

    /// What is not secret, and says which database it is.
    pub(super) fn shown(&self) -> String {
        let telling = ["DSN", "DRIVER", "SERVER", "SYSTEM", "HOST", "DATABASE"];
        let known = self.0.attributes().filter(|(name, _)| telling.contains(&name.as_str()));
        known.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(";")
    }
}

/// A connection and what it is to.
pub(super) struct Live {
    /// There until it is dropped.
    connection: Option<Connection<'static>>,
    pub(super) dialect: Dialect,
    /// What names are quoted with.
    pub(super) quote: char,
}

impl Live {
    pub(super) fn connection(&self) -> Result<&Connection<'static>, SourceError> {
        self.connection.as_ref().ok_or_else(|| SourceError::Away("it is closed".to_owned()))
    }

    /// Whatever a statement met with on a lost connection, it was not the statement's fault.
    pub(super) fn blame(&self, error: SourceError) -> SourceError {
        match error {
            SourceError::Data(words) | SourceError::Statement { message: words, .. }
                if self.is_dead() =>
            {
                SourceError::Away(words)
            }
            error => error,
        }
    }

    /// Whether the driver knows that the connection is lost. Not all drivers know.
    pub(super) fn is_dead(&self) -> bool {
        self.connection.as_ref().is_none_or(|connection| connection.is_dead().unwrap_or(false))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // The library panics where a server is gone that should be told of the parting.
        let connection = self.connection.take();
        if catch_unwind(AssertUnwindSafe(|| drop(connection))).is_err() {
            tracing::debug!("an ODBC connection could not be closed in order");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_hidden_wherever_a_driver_repeats_it() {
        let target =
            Target::new("DRIVER={Some; {Driver}}};Server=db; Pwd={a;b}}c};UID=me;Token=t0k");
        let error = SourceError::Away("no login for me with a;b}c and t0k at db".to_owned());
        let told = target.without_secrets(error).to_string();
        assert!(told.ends_with("no login for me with *** and *** at db"), "{told}");
        assert_eq!(target.shown(), "DRIVER=Some; {Driver};SERVER=db");
    }

    #[test]
    fn a_string_without_secrets_hides_nothing() {
        let target = Target::new("DSN=orders;PWD=");
        assert_eq!(target.without_secrets(SourceError::Data("no".into())).to_string(), "no");
        assert_eq!(Target::new("nonsense").shown(), "");
    }
}
