//! Maps Redis errors to [`Error`].

use longshore_core::Error;
use redis::{ErrorKind, RedisError, ServerErrorKind};

/// Maps a driver error to a store error.
pub(crate) fn translate(error: RedisError) -> Error {
    let code = error.code().unwrap_or_default().to_owned();
    match (error.kind(), code.as_str()) {
        _ if error.is_timeout() => unavailable("Redis did not answer in time", error),
        (ErrorKind::Io, _) => match certificate(&error) {
            Some(problem) => {
                broken(&format!("TLS certificate verification failed for Redis: {problem}"), error)
            }
            None => unavailable("the connection to Redis was lost", error),
        },
        (ErrorKind::AuthenticationFailed, _) | (_, "WRONGPASS" | "NOAUTH") => {
            broken("Redis refused user or password", error)
        }
        (ErrorKind::InvalidClientConfig, _) => Error::Invalid(words(&error)),
        (ErrorKind::Parse | ErrorKind::UnexpectedReturnType, _) => {
            broken("the server does not speak the Redis protocol", error)
        }
        (ErrorKind::Server(kind), _) => refused(kind, error),
        (_, "OOM") => unavailable("Redis has no memory left", error),
        (_, "MISCONF") => unavailable("Redis cannot write to its disk", error),
        (_, "BUSY") => unavailable("Redis is running another client's script", error),
        (_, "NOREPLICAS") => unavailable("Redis has too few replicas", error),
        _ => broken("Redis refused a command", error),
    }
}

fn refused(kind: ServerErrorKind, error: RedisError) -> Error {
    match kind {
        ServerErrorKind::BusyLoading => unavailable("Redis is loading its data", error),
        ServerErrorKind::ReadOnly => unavailable("this Redis is a replica", error),
        ServerErrorKind::MasterDown | ServerErrorKind::ClusterDown | ServerErrorKind::TryAgain => {
            unavailable("Redis has lost its master or part of its cluster", error)
        }
        ServerErrorKind::Moved | ServerErrorKind::Ask | ServerErrorKind::CrossSlot => Error::Unsupported(
            "this is a node of a Redis cluster, which is not supported: use a standalone Redis".to_owned(),
        ),
        ServerErrorKind::NoPerm => broken("the Redis user may not do this", error),
        _ => broken("Redis refused a command", error),
    }
}

/// The problem with the server's certificate, if that is the cause. Retrying does not help.
fn certificate(error: &RedisError) -> Option<String> {
    let words = error.to_string();
    words.contains("certificate").then_some(words)
}

fn unavailable(message: &str, source: RedisError) -> Error {
    let message = format!("{message}: {}", words(&source));
    Error::Unavailable { message, source: Some(Box::new(source)) }
}

fn broken(message: &str, source: RedisError) -> Error {
    let message = format!("{message}: {}", words(&source));
    Error::Broken { message, source: Some(Box::new(source)) }
}

/// The server's message, else the driver's.
fn words(error: &RedisError) -> String {
    error.detail().map_or_else(|| error.to_string(), str::to_owned)
}

/// A reply, or stored data, that this program could not have written.
pub(crate) fn damaged(what: impl std::fmt::Display) -> Error {
    Error::Broken { message: format!("invalid data from Redis: {what}"), source: None }
}

/// Maps driver errors with `?`.
pub(crate) trait Translate<T> {
    /// Maps the error, keeps the value.
    fn or_translate(self) -> Result<T, Error>;
}

impl<T> Translate<T> for Result<T, RedisError> {
    fn or_translate(self) -> Result<T, Error> {
        self.map_err(translate)
    }
}
