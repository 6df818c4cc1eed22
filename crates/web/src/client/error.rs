//! Why a server did not do what it was asked: it said so, it is no server of ours, or nobody is there.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use longshore::Error;
use reqwest::Url;

use crate::problem::{ProblemDetails, URN};

/// Between tries, if the server does not say.
const AGAIN: Duration = Duration::from_millis(500);

/// Why a server did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApiError {
    /// The URL leads to no server.
    #[error("the server's URL is not one: {problem}")]
    Address {
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The token cannot be sent.
    #[error("the token holds what no token has: line ends, or letters that are not ASCII")]
    Token,
    /// There is no certificate in what should hold some.
    #[error("there is no certificate in PEM to trust")]
    Roots,
    /// It cannot be sent.
    #[error("{reason}")]
    Unfit {
        /// Why.
        reason: String,
    },
    /// The server says what went wrong.
    #[error("{}", .problem.detail)]
    Problem {
        /// What it said.
        problem: Box<ProblemDetails>,
        /// When it is worth another try.
        retry_after: Option<Duration>,
    },
    /// Nobody is there, or the way is blocked.
    #[error("cannot reach the server at {url}")]
    Unreachable {
        /// Where.
        url: Url,
        /// What the machine said.
        source: reqwest::Error,
    },
    /// It cannot prove who it is, or does not speak TLS.
    #[error("no secure connection to {url}: {reason}")]
    Tls {
        /// Where.
        url: Url,
        /// Why.
        reason: String,
    },
    /// It was there and fell silent.
    #[error("the server at {url} gave no whole answer")]
    BrokenOff {
        /// Where.
        url: Url,
        /// What the machine said.
        source: reqwest::Error,
    },
    /// It ended the line over which it told what changes: it stops, or the token was revoked.
    #[error("the server at {url} hung up")]
    Ended {
        /// Where.
        url: Url,
    },
    /// What is before it, a proxy, says that it is away.
    #[error("the server behind {url} is away: what is before it answers {status}")]
    Behind {
        /// Where.
        url: Url,
        /// What it answers.
        status: u16,
    },
    /// Somebody answers, but not as we would.
    #[error("what answers at {url} is not Longshore's API: {reason}")]
    NotLongshore {
        /// Where.
        url: Url,
        /// How it can be told.
        reason: String,
    },
}

impl ApiError {
    /// What the HTTP client said.
    pub(super) fn of(url: &Url, source: reqwest::Error) -> Self {
        let url = url.clone();
        if let Some(reason) = tls(&source) {
            return Self::Tls { url, reason };
        }
        match source.is_connect() || source.is_builder() {
            true => Self::Unreachable { url, source: source.without_url() },
            false => Self::BrokenOff { url, source: source.without_url() },
        }
    }

    /// The kind of problem, as `not-found`, if the server named one.
    pub fn kind(&self) -> Option<&str> {
        match self {
            Self::Problem { problem, .. } => problem.urn.strip_prefix(URN),
            _ => None,
        }
    }

    /// How long to wait before what may be repeated is worth another try; `None` if that would not help.
    pub fn worth_another_try(&self) -> Option<Duration> {
        match self {
            Self::Problem { problem, retry_after } => match problem.status {
                // Guessing on would only make it worse.
                429 if self.kind() == Some("too-many-requests") => None,
                429 | 503 => Some(retry_after.unwrap_or(AGAIN)),
                408 => Some(AGAIN),
                _ => None,
            },
            Self::Unreachable { .. }
            | Self::BrokenOff { .. }
            | Self::Ended { .. }
            | Self::Behind { .. } => Some(AGAIN),
            Self::Address { .. }
            | Self::Token
            | Self::Roots
            | Self::Unfit { .. }
            | Self::Tls { .. }
            | Self::NotLongshore { .. } => None,
        }
    }

    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Address { .. } => "as https://HOST:7717, or http://127.0.0.1:7717".to_owned(),
            Self::Token => {
                "`longshore token add` prints one line; keep that, and nothing else".to_owned()
            }
            Self::Roots => {
                "name the file of the server's certificate, or of who signed it".to_owned()
            }
            Self::Unreachable { url, .. } => format!(
                "is `longshore serve` up there, and is {url} right? (--server, LONGSHORE_SERVER)"
            ),
            Self::Tls { url, .. } => format!(
                "if its certificate is your own, name it with --ca-file FILE; if {} speaks no TLS, \
                 write http://",
                url.authority()
            ),
            Self::BrokenOff { url, .. } if url.scheme() == "http" => {
                "it may have been restarted: try again; or it speaks TLS only: write https://"
                    .to_owned()
            }
            Self::BrokenOff { .. } | Self::Ended { .. } | Self::Behind { .. } => {
                "it may have been restarted: try again".to_owned()
            }
            Self::NotLongshore { url, .. } => {
                format!(
                    "is {url} the address that `longshore serve` printed? is a proxy before it?"
                )
            }
            Self::Unfit { .. } => return None,
            Self::Problem { .. } => return self.against(),
        })
    }

    /// What helps against a problem.
    fn against(&self) -> Option<String> {
        let words = match self.kind()? {
            "unauthorized" => {
                "put a token into LONGSHORE_TOKEN, or name its file with --token-file; \
                 `longshore token add` on the server's machine makes one"
            }
            "forbidden" => "ask for a token whose role includes it (`longshore token add --role`)",
            "too-many-requests" => "wait a minute, and check the token",
            "broken" => "the server's log says why",
            "unavailable" => "the server is there, its store is not: try again in a while",
            "not-found" => "what belongs to another tenant than the token's does not exist for it",
            _ => return None,
        };
        Some(words.to_owned())
    }

    /// The same as a store would say it, of something called `name`.
    pub fn into_store(self, what: &'static str, name: impl ToString) -> Error {
        let message = self.to_string();
        match (self.kind(), self.worth_another_try()) {
            (Some("not-found"), _) => Error::not_found(what, name),
            (Some("unauthorized" | "forbidden" | "too-many-requests"), _) => {
                Error::Denied { message, source: Some(self.into()) }
            }
            (Some("unsupported"), _) => Error::Unsupported(message),
            (Some("broken"), _) => Error::Broken { message, source: Some(self.into()) },
            (_, Some(_)) => Error::Unavailable { message, source: Some(self.into()) },
            (Some(_), None) => Error::Invalid(message),
            (None, None) if matches!(self, Self::Unfit { .. }) => Error::Invalid(message),
            (None, None) => Error::Denied { message, source: Some(self.into()) },
        }
    }
}

/// What rustls said, if it was rustls that did not go on. It stands inside errors of I/O, which do not
/// name what they carry as their source.
fn tls(error: &reqwest::Error) -> Option<String> {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(one) = cause {
        let inside = one.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let found = inside.and_then(|inside| inside.downcast_ref::<rustls::Error>());
        if let Some(found) = found.or_else(|| one.downcast_ref()) {
            return Some(found.to_string());
        }
        cause = match inside {
            Some(inside) => Some(inside),
            None => one.source(),
        };
    }
    None
}
