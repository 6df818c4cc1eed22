//! What went wrong, as `application/problem+json` (RFC 9457).

use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Response, StatusCode};
use axum::response::IntoResponse;
use longshore::store::Refusal;
use longshore::{Error, SendError, WaitError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Until a full queue or a store that is away is worth another try.
const AGAIN: Duration = Duration::from_secs(1);

/// What every `type` of a problem begins with.
pub(crate) const URN: &str = "urn:longshore:problem:";

/// A problem as it travels: written by the server, read by the client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProblemDetails {
    /// Stable, as `urn:longshore:problem:not-found`.
    #[serde(rename = "type")]
    pub urn: String,
    /// The status in words.
    pub title: String,
    /// The status.
    pub status: u16,
    /// What went wrong this time.
    pub detail: String,
    /// Why a unit was not taken, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Refusal>,
    /// How far a stream came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub so_far: Option<Value>,
}

/// What went wrong, for whoever asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    status: StatusCode,
    /// Short and stable, as `not-found`.
    kind: &'static str,
    detail: String,
    retry_after: Option<Duration>,
    /// Why a unit was not taken.
    refusal: Option<Box<Refusal>>,
    /// What else a program may want to know.
    more: Option<Value>,
}

impl Problem {
    fn new(status: StatusCode, kind: &'static str, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { status, kind, detail, retry_after: None, refusal: None, more: None }
    }

    /// What was sent makes no sense.
    pub(crate) fn bad(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", detail)
    }

    /// Nobody said who they are, or not rightly.
    pub(crate) fn stranger(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", detail)
    }

    /// Whoever it is may not do that.
    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    /// There is no such thing.
    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", detail)
    }

    /// Its state does not allow it.
    pub(crate) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", detail)
    }

    /// The path is known, the method is not.
    pub(crate) fn method(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", detail)
    }

    /// The body took too long to come, or the answer to be found.
    pub(crate) fn slow(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "timeout", detail)
    }

    /// Not now.
    pub(crate) fn away(detail: impl Into<String>) -> Self {
        let away = Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail);
        Self { retry_after: Some(AGAIN), ..away }
    }

    /// The body is longer than is read.
    pub(crate) fn too_large(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", detail)
    }

    /// The body is of another type.
    pub(crate) fn media(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", detail)
    }

    /// Too much of it.
    pub(crate) fn too_many(detail: impl Into<String>, after: Duration) -> Self {
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "too-many-requests", detail);
        Self { retry_after: Some(after), ..problem }
    }

    /// Its status.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// What it says.
    pub(crate) fn words(&self) -> &str {
        &self.detail
    }

    /// Says where it is.
    pub(crate) fn at(self, place: &str) -> Self {
        Self { detail: format!("{place}: {}", self.detail), ..self }
    }

    /// Adds what a program may want to know, under a name of its own.
    pub(crate) fn with(self, more: &impl Serialize) -> Self {
        Self { more: serde_json::to_value(more).ok(), ..self }
    }

    /// The answer of a refused unit.
    pub(crate) fn refused(refusal: &Refusal) -> Self {
        let detail = refusal.to_string();
        let problem = match refusal {
            Refusal::Full { .. } => {
                let full = Self::new(StatusCode::TOO_MANY_REQUESTS, "full", detail);
                Self { retry_after: Some(AGAIN), ..full }
            }
            Refusal::Duplicate(_) => Self::new(StatusCode::CONFLICT, "duplicate", detail),
            Refusal::Suspended(_) => Self::new(StatusCode::FORBIDDEN, "suspended", detail),
            _ => Self::new(StatusCode::CONFLICT, "refused", detail),
        };
        Self { refusal: Some(Box::new(refusal.clone())), ..problem }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let words = error.to_string();
        match error {
            Error::Unavailable { .. } | Error::DiskFull { .. } => {
                tracing::warn!(%error, "the store cannot answer a request");
                Self::away("the store is unavailable")
            }
            Error::NotFound { .. } => Self::not_found(words),
            Error::Invalid(_) => Self::bad(words),
            Error::TooLarge { .. } => Self::too_large(words),
            Error::UnitRefuses(_) | Error::BatchRefuses(_) | Error::SessionGone(_) => {
                Self::conflict(words)
            }
            Error::Unsupported(_) => Self::new(StatusCode::NOT_IMPLEMENTED, "unsupported", words),
            // What is wrong with the store is not a caller's business.
            _ => {
                tracing::error!(%error, "the store is broken");
                let words = "the store cannot answer; its server's log says why";
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "broken", words)
            }
        }
    }
}

impl From<SendError> for Problem {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Refused(refusal) => Self::refused(&refusal),
            SendError::Store(error) => error.into(),
            other => Self::new(StatusCode::CONFLICT, "conflict", other.to_string()),
        }
    }
}

impl From<WaitError> for Problem {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::Store(error) => error.into(),
            other => Self::slow(other.to_string()),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response<Body> {
        let Self { status, kind, detail, retry_after, refusal, more } = self;
        let body = ProblemDetails {
            urn: format!("{URN}{kind}"),
            title: status.canonical_reason().unwrap_or("Problem").to_owned(),
            status: status.as_u16(),
            detail,
            refusal: refusal.map(|refusal| *refusal),
            so_far: more,
        };
        // Nothing in it can fail to be written.
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(after) = retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
        }
        response
    }
}
