//! Errors of the API client: reported by the server, not Longshore's API, or unreachable.

use std::time::Duration;

use longshore::Error;
use reqwest::Url;

use crate::problem::{ProblemDetails, URN};

/// Delay before a retry, if the server does not say.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApiError {
    /// The server's URL is invalid.
    #[error("invalid server URL: {problem}")]
    InvalidUrl {
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The token cannot be sent in a header.
    #[error("invalid token: it contains line breaks or non-ASCII characters")]
    InvalidToken,
    /// The given PEM file contains no certificate.
    #[error("there is no certificate in the PEM file")]
    NoCertificate,
    /// The request cannot be sent over HTTP.
    #[error("{reason}")]
    Unsupported {
        /// The reason.
        reason: String,
    },
    /// The server returned a problem.
    #[error("{}", .problem.detail)]
    Problem {
        /// The problem.
        problem: Box<ProblemDetails>,
        /// When to retry.
        retry_after: Option<Duration>,
    },
    /// The connection failed.
    #[error("cannot reach the server at {url}")]
    Unreachable {
        /// The server's URL.
        url: Url,
        /// The cause.
        source: reqwest::Error,
    },
    /// The TLS handshake failed.
    #[error("no secure connection to {url}: {reason}")]
    Tls {
        /// The server's URL.
        url: Url,
        /// The reason.
        reason: String,
    },
    /// The response was incomplete.
    #[error("the server at {url} closed the connection before its response was complete")]
    Incomplete {
        /// The server's URL.
        url: Url,
        /// The cause.
        source: reqwest::Error,
    },
    /// The server ended the event stream: it stops, or the token was revoked.
    #[error("the server at {url} closed the event stream")]
    StreamEnded {
        /// The server's URL.
        url: Url,
    },
    /// A proxy reports that the server is unavailable.
    #[error("the server behind {url} is unavailable: the proxy responds {status}")]
    BadGateway {
        /// The server's URL.
        url: Url,
        /// The proxy's status.
        status: u16,
    },
    /// The response is not from Longshore's API.
    #[error("the service at {url} is not Longshore's API: {reason}")]
    NotLongshore {
        /// The server's URL.
        url: Url,
        /// The reason.
        reason: String,
    },
}

impl ApiError {
    /// Classifies an error of the HTTP client.
    pub(super) fn of(url: &Url, source: reqwest::Error) -> Self {
        let url = url.clone();
        if let Some(reason) = longshore_ai::tls_error(&source) {
            return Self::Tls { url, reason };
        }
        match source.is_connect() || source.is_builder() {
            true => Self::Unreachable { url, source: source.without_url() },
            false => Self::Incomplete { url, source: source.without_url() },
        }
    }

    /// The kind of the server's problem, such as `not-found`.
    pub fn kind(&self) -> Option<&str> {
        match self {
            Self::Problem { problem, .. } => problem.urn.strip_prefix(URN),
            _ => None,
        }
    }

    /// The delay before a retry of an idempotent request; `None` if a retry would not help.
    pub fn retry_delay(&self) -> Option<Duration> {
        match self {
            Self::Problem { problem, retry_after } => match problem.status {
                // A retry would count as another wrong token.
                429 if self.kind() == Some("too-many-requests") => None,
                429 | 503 => Some(retry_after.unwrap_or(RETRY_DELAY)),
                408 => Some(RETRY_DELAY),
                _ => None,
            },
            Self::Unreachable { .. }
            | Self::Incomplete { .. }
            | Self::StreamEnded { .. }
            | Self::BadGateway { .. } => Some(RETRY_DELAY),
            Self::InvalidUrl { .. }
            | Self::InvalidToken
            | Self::NoCertificate
            | Self::Unsupported { .. }
            | Self::Tls { .. }
            | Self::NotLongshore { .. } => None,
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::InvalidUrl { .. } => "write it as https://HOST:7717 or http://127.0.0.1:7717".to_owned(),
            Self::InvalidToken => {
                "`longshore token add` prints one line; keep that, and nothing else".to_owned()
            }
            Self::NoCertificate => {
                "name the file of the server's certificate or of its certificate authority".to_owned()
            }
            Self::Unreachable { url, .. } => {
                format!("is `longshore serve` up there, and is {url} right? (--server, LONGSHORE_SERVER)")
            }
            Self::Tls { url, .. } => format!(
                "if its certificate is your own, name it with --ca-file FILE; if {} has no TLS, \
                 write http://",
                url.authority()
            ),
            Self::Incomplete { url, .. } if url.scheme() == "http" => {
                "it may have been restarted: try again; or it has TLS only: write https://".to_owned()
            }
            Self::Incomplete { .. } | Self::StreamEnded { .. } | Self::BadGateway { .. } => {
                "it may have been restarted: try again".to_owned()
            }
            Self::NotLongshore { url, .. } => {
                format!("is {url} the address that `longshore serve` printed? is a proxy in front of it?")
            }
            Self::Unsupported { .. } => return None,
            Self::Problem { .. } => return self.problem_hint(),
        })
    }

    /// What the user can do about a problem.
    fn problem_hint(&self) -> Option<String> {
        let hint = match self.kind()? {
            "unauthorized" => {
                "put a token into LONGSHORE_TOKEN, or name its file with --token-file; \
                 `longshore token add` on the server's machine creates one"
            }
            "forbidden" => "ask for a token with a higher role (`longshore token add --role`)",
            "too-many-requests" => "wait a minute, and check the token",
            "broken" => "the server's log says why",
            "unavailable" => "the server runs, but its store is unavailable: try again later",
            "not-found" => {
                "check the name; resources of other tenants are not visible to the token (`longshore … list` \
                 shows its own)"
            }
            "conflict" | "refused" | "duplicate" => {
                "its state has changed or does not allow this: show it, then decide"
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }

    /// Converts to the store's error type; `what` and `name` say what was not found.
    pub fn into_store_error(self, what: &'static str, name: impl ToString) -> Error {
        let message = self.to_string();
        match (self.kind(), self.retry_delay()) {
            (Some("not-found"), _) => Error::not_found(what, name),
            (Some("unauthorized" | "forbidden" | "too-many-requests"), _) => {
                Error::PermissionDenied { message, source: Some(self.into()) }
            }
            (Some("unsupported"), _) => Error::Unsupported(message),
            (Some("broken"), _) => Error::Broken { message, source: Some(self.into()) },
            (_, Some(_)) => Error::Unavailable { message, source: Some(self.into()) },
            (Some(_), None) => Error::Invalid(message),
            (None, None) if matches!(self, Self::Unsupported { .. }) => Error::Invalid(message),
            (None, None) => Error::PermissionDenied { message, source: Some(self.into()) },
        }
    }
}
