//! Translates PostgreSQL's errors into errors that tell what the caller can do.

use deadpool::managed::HookError;
use longshore_core::Error;
use tokio_postgres::error::SqlState;

/// Translates the driver's error.
pub(crate) fn translate(error: tokio_postgres::Error) -> Error {
    let Some(code) = error.code() else {
        if let Some(reason) = certificate_error(&error) {
            let message = format!("TLS certificate verification failed: {reason}");
            return Error::Broken { message, source: Some(Box::new(error)) };
        }
        return match is_connection_error(&error) {
            true => unavailable("the connection to PostgreSQL was lost", error),
            false => broken("PostgreSQL protocol error", error),
        };
    };
    match code.code() {
        // Deadlock, serialization failure: nothing was changed, so a retry is safe.
        "40P01" | "40001" => unavailable("another transaction holds a lock that is needed", error),
        "55P03" => timed_out("another transaction holds a lock that is needed", error),
        "53100" => Error::DiskFull { source: Some(Box::new(error)) },
        "53300" => unavailable("PostgreSQL has reached its connection limit", error),
        "25006" => unavailable("PostgreSQL is read-only: a standby, or in recovery", error),
        "28P01" | "28000" => broken("PostgreSQL refused user or password", error),
        "3D000" => broken("PostgreSQL has no such database", error),
        "42501" => broken("the PostgreSQL user lacks a privilege", error),
        data if Error::is_data_sqlstate(data) => Error::Rejected {
            message: with_server_message("PostgreSQL refused a value", &error),
            source: Some(Box::new(error)),
        },
        // Constraints on several rows, unknown schemas and tables, exceptions of functions.
        other if ["23", "3F", "42", "P0"].iter().any(|class| other.starts_with(class)) => {
            broken("PostgreSQL refused a statement", error)
        }
        "57014" | "25P03" => timed_out("PostgreSQL cancelled a statement that took too long", error),
        // Shutdown, start-up, crash of another backend, resources, I/O errors, internal errors, and
        // codes that are not known here.
        other => unavailable(&format!("PostgreSQL is unavailable (SQLSTATE {other})"), error),
    }
}

/// Whether the connection failed and not the request: only then does a retry help. The driver does
/// not expose the kinds of its errors, so their texts are compared.
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

/// What is wrong with the server's certificate. A retry does not help.
fn certificate_error(error: &tokio_postgres::Error) -> Option<String> {
    let text = std::error::Error::source(error)?.to_string();
    text.contains("certificate").then_some(text)
}

fn unavailable(message: &str, source: tokio_postgres::Error) -> Error {
    Error::Unavailable { message: with_server_message(message, &source), source: Some(Box::new(source)) }
}

fn timed_out(message: &str, source: tokio_postgres::Error) -> Error {
    Error::TimedOut { message: with_server_message(message, &source), source: Some(Box::new(source)) }
}

fn broken(message: &str, source: tokio_postgres::Error) -> Error {
    Error::Broken { message: with_server_message(message, &source), source: Some(Box::new(source)) }
}

/// Adds the server's message: the driver's own text is only "db error".
fn with_server_message(message: &str, source: &tokio_postgres::Error) -> String {
    match source.as_db_error() {
        Some(server) => format!("{message}: {}", server.message()),
        // For example, a value that does not fit its type.
        None if !is_connection_error(source) => format!("{message}: {source}"),
        None => message.to_owned(),
    }
}

/// Whether nothing was changed and an immediate retry may succeed.
pub(crate) fn is_conflict(error: &Error) -> bool {
    let Error::Unavailable { source: Some(source), .. } = error else { return false };
    if source.is::<ConcurrentInsert>() {
        return true;
    }
    let code = source.downcast_ref::<tokio_postgres::Error>().and_then(tokio_postgres::Error::code);
    code == Some(&SqlState::T_R_DEADLOCK_DETECTED) || code == Some(&SqlState::T_R_SERIALIZATION_FAILURE)
}

/// Whether the server accepts no writes, as a standby. The connection stays there, so it must not be used again.
pub(crate) fn is_read_only(error: &Error) -> bool {
    let Error::Unavailable { source: Some(source), .. } = error else { return false };
    let code = source.downcast_ref::<tokio_postgres::Error>().and_then(tokio_postgres::Error::code);
    code == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
}

/// Whether a lock was not acquired in time.
pub(crate) fn is_lock_timeout(error: &Error) -> bool {
    let Error::TimedOut { source: Some(source), .. } = error else { return false };
    let code = source.downcast_ref::<tokio_postgres::Error>().and_then(tokio_postgres::Error::code);
    code == Some(&SqlState::LOCK_NOT_AVAILABLE)
}

/// A concurrent transaction inserted the same id or key, so the decisions are outdated.
#[derive(Debug)]
struct ConcurrentInsert;

impl std::fmt::Display for ConcurrentInsert {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a concurrent transaction inserted the same id or key")
    }
}

impl std::error::Error for ConcurrentInsert {}

/// The error for a conflict with a concurrent insert. A retry sees the other transaction's rows.
pub(crate) fn conflict() -> Error {
    let message = "every attempt conflicted with a concurrent insert".to_owned();
    Error::Unavailable { message, source: Some(Box::new(ConcurrentInsert)) }
}

/// Whether a unique constraint was violated.
pub(crate) fn is_unique_violation(error: &Error) -> bool {
    let Error::Broken { source: Some(source), .. } = error else { return false };
    let code = source.downcast_ref::<tokio_postgres::Error>().and_then(tokio_postgres::Error::code);
    code == Some(&SqlState::UNIQUE_VIOLATION)
}

/// Translates an error of the connection pool.
pub(crate) fn from_pool(error: longshore_postgres_url::PoolError) -> Error {
    match error {
        longshore_postgres_url::PoolError::Backend(error) => translate(error),
        longshore_postgres_url::PoolError::PostCreateHook(HookError::Message(reason)) => {
            Error::unavailable(reason)
        }
        other => Error::Unavailable {
            message: "timed out waiting for a connection to PostgreSQL".to_owned(),
            source: Some(Box::new(other)),
        },
    }
}

pub(crate) use longshore_core::sql_row::damaged;

/// Converts the driver's errors to the store's.
pub(crate) trait Translate<T> {
    /// Translates the error and keeps the value.
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
