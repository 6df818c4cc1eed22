//! What Redis says, as what the caller can do about it.

use longshore_core::Error;
use redis::{ErrorKind, RedisError, ServerErrorKind};

/// Translates the driver's error.
pub(crate) fn translate(error: RedisError) -> Error {
    let code = error.code().unwrap_or_default().to_owned();
    match (error.kind(), code.as_str()) {
        _ if error.is_timeout() => unavailable("Redis did not answer in time", error),
        (ErrorKind::Io, _) => match certificate(&error) {
            Some(doubt) => broken(&format!("Redis may be somebody else: {doubt}"), error),
            None => unavailable("the connection to Redis was lost", error),
        },
        (ErrorKind::AuthenticationFailed, _) | (_, "WRONGPASS" | "NOAUTH") => {
            broken("Redis refused user or password", error)
        }
        (ErrorKind::InvalidClientConfig, _) => Error::Invalid(words(&error)),
        (ErrorKind::Parse | ErrorKind::UnexpectedReturnType, _) => {
            broken("this does not answer as Redis does", error)
        }
        (ErrorKind::Server(kind), _) => refused(kind, error),
        (_, "OOM") => unavailable("Redis has no memory left", error),
        (_, "MISCONF") => unavailable("Redis cannot write to its disk", error),
        (_, "BUSY") => unavailable("Redis is busy with somebody's script", error),
        (_, "NOREPLICAS") => unavailable("Redis misses its replicas", error),
        _ => broken("Redis refused a command", error),
    }
}

fn refused(kind: ServerErrorKind, error: RedisError) -> Error {
    match kind {
        ServerErrorKind::BusyLoading => unavailable("Redis is reading its data", error),
        ServerErrorKind::ReadOnly => unavailable("this Redis is a replica", error),
        ServerErrorKind::MasterDown | ServerErrorKind::ClusterDown | ServerErrorKind::TryAgain => {
            unavailable("Redis is not whole at the moment", error)
        }
        ServerErrorKind::Moved | ServerErrorKind::Ask | ServerErrorKind::CrossSlot => {
            Error::Unsupported(
                "this is one node of a Redis cluster, which has pools on several: name a Redis of \
                 its own"
                    .to_owned(),
            )
        }
        ServerErrorKind::NoPerm => broken("the Redis user may not do this", error),
        _ => broken("Redis refused a command", error),
    }
}

/// What is wrong with the server's certificate. It stays so, however often it is looked at.
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

/// What the server said, or else the driver.
fn words(error: &RedisError) -> String {
    error.detail().map_or_else(|| error.to_string(), str::to_owned)
}

/// An answer, or data, that this program could not have made.
pub(crate) fn damaged(what: impl std::fmt::Display) -> Error {
    Error::Broken { message: format!("Redis holds {what}"), source: None }
}

/// `?` from the driver's error to ours.
pub(crate) trait Translate<T> {
    /// Translates the error, keeps the value.
    fn or_translate(self) -> Result<T, Error>;
}

impl<T> Translate<T> for Result<T, RedisError> {
    fn or_translate(self) -> Result<T, Error> {
        self.map_err(translate)
    }
}
