//! What PostgreSQL says, as what the caller can do about it.

use longshore_core::Error;
use tokio_postgres::error::SqlState;

/// Translates the driver's error.
pub(crate) fn translate(error: tokio_postgres::Error) -> Error {
    let Some(code) = error.code() else {
        if let Some(reason) = certificate_error(&error) {
            let message = format!("PostgreSQL may be somebody else: {reason}");
            return Error::Broken { message, source: Some(Box::new(error)) };
        }
        return match is_connection_error(&error) {
            true => unavailable("the connection to PostgreSQL was lost", error),
            false => broken("PostgreSQL and this program do not understand each other", error),
        };
    };
    match code.code() {
        // Deadlock, serialization, lock timeout: nothing was changed, try again.
        "40P01" | "40001" | "55P03" => unavailable("others held what was needed", error),
        "53100" => Error::DiskFull { source: Some(Box::new(error)) },
        "53300" => unavailable("PostgreSQL has no connection left for us", error),
        "25006" => unavailable("PostgreSQL is read-only: a standby, or in recovery", error),
        "28P01" | "28000" => broken("PostgreSQL refused user or password", error),
        "3D000" => broken("PostgreSQL has no such database", error),
        "42501" => broken("the PostgreSQL user may not do this", error),
        // Statement and idle timeouts, shutdown, crash of a neighbour, start-up, resources.
        "57014" | "25P03" => {
            unavailable("PostgreSQL gave up on a statement that took too long", error)
        }
        other if other.starts_with("57") || other.starts_with("53") || other.starts_with("08") => {
            unavailable("PostgreSQL is not there at the moment", error)
        }
        _ => broken("PostgreSQL refused a statement", error),
    }
}

/// Whether the way to the server is at fault and not what was said: only then does it help to say
/// it again. The driver keeps its kinds of errors to itself; their words are all there is.
fn is_connection_error(error: &tokio_postgres::Error) -> bool {
    let text = error.to_string();
    let prefixes = [
        "error communicating with the server",
        "error connecting to server",
        "error performing TLS handshake",
        "timeout waiting for server",
    ];
    error.is_closed() || prefixes.iter().any(|prefix| text.starts_with(prefix))
}

/// What is wrong with the server's certificate. It stays so, however often it is looked at.
fn certificate_error(error: &tokio_postgres::Error) -> Option<String> {
    let text = std::error::Error::source(error)?.to_string();
    text.contains("certificate").then_some(text)
}

fn unavailable(message: &str, source: tokio_postgres::Error) -> Error {
    Error::Unavailable {
        message: with_server_message(message, &source),
        source: Some(Box::new(source)),
    }
}

fn broken(message: &str, source: tokio_postgres::Error) -> Error {
    Error::Broken { message: with_server_message(message, &source), source: Some(Box::new(source)) }
}

/// The driver's own text is only "db error"; what the server said is inside.
fn with_server_message(message: &str, source: &tokio_postgres::Error) -> String {
    match source.as_db_error() {
        Some(server) => format!("{message}: {}", server.message()),
        // A value that does not fit its type, say.
        None if !is_connection_error(source) => format!("{message}: {source}"),
        None => message.to_owned(),
    }
}

/// Whether nothing was changed and the same again may work at once.
pub(crate) fn is_conflict(error: &Error) -> bool {
    let Error::Unavailable { source: Some(source), .. } = error else { return false };
    if source.is::<ConcurrentInsert>() {
        return true;
    }
    let code = source.downcast_ref::<tokio_postgres::Error>().and_then(tokio_postgres::Error::code);
    code == Some(&SqlState::T_R_DEADLOCK_DETECTED)
        || code == Some(&SqlState::T_R_SERIALIZATION_FAILURE)
}

/// Another sender was a moment earlier, and what was decided no longer holds.
#[derive(Debug)]
struct ConcurrentInsert;

impl std::fmt::Display for ConcurrentInsert {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("another sender was a moment earlier")
    }
}

impl std::error::Error for ConcurrentInsert {}

/// The same again will see what came in between.
pub(crate) fn conflict() -> Error {
    let message = "others were faster, again and again".to_owned();
    Error::Unavailable { message, source: Some(Box::new(ConcurrentInsert)) }
}

/// Whether a row could not be written because another has its key.
pub(crate) fn is_unique_violation(error: &Error) -> bool {
    let Error::Broken { source: Some(source), .. } = error else { return false };
    let code = source.downcast_ref::<tokio_postgres::Error>().and_then(tokio_postgres::Error::code);
    code == Some(&SqlState::UNIQUE_VIOLATION)
}

/// No connection could be had.
pub(crate) fn from_pool(error: longshore_postgres_address::PoolError) -> Error {
    match error {
        longshore_postgres_address::PoolError::Backend(error) => translate(error),
        other => Error::Unavailable {
            message: "no connection to PostgreSQL came free in time".to_owned(),
            source: Some(Box::new(other)),
        },
    }
}

/// Data in the database that this program could not have written.
pub(crate) fn damaged(what: impl std::fmt::Display) -> Error {
    Error::Broken { message: format!("the database holds {what}"), source: None }
}

/// `?` from the driver's error to ours.
pub(crate) trait Translate<T> {
    /// Translates the error, keeps the value.
    fn or_translate(self) -> Result<T, Error>;
}

impl<T> Translate<T> for Result<T, tokio_postgres::Error> {
    fn or_translate(self) -> Result<T, Error> {
        self.map_err(translate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_wrongly_is_not_said_again() {
        let nonsense = "port=none".parse::<tokio_postgres::Config>().unwrap_err();
        let error = translate(nonsense);
        assert!(matches!(error, Error::Broken { .. }), "{error:?}");
        assert!(!error.is_retryable());
    }

    #[test]
    fn a_server_that_does_not_answer_is_asked_again() {
        let error = translate(tokio_postgres::Error::__private_api_timeout());
        assert!(error.is_retryable(), "{error:?}");
    }
}
