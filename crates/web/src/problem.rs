//! Errors as `application/problem+json` (RFC 9457).

use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Response, StatusCode};
use axum::response::IntoResponse;
use longshore::store::SendRejection;
use longshore::{Error, SendError, WaitError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Suggested delay before a retry when a queue is full or the store is unavailable.
const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);

/// Prefix of every problem's `type`.
pub(crate) const URN: &str = "urn:longshore:problem:";

/// The JSON form of a problem: written by the server, read by the client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProblemDetails {
    /// A stable identifier, such as `urn:longshore:problem:not-found`.
    #[serde(rename = "type")]
    pub urn: String,
    /// The status text.
    pub title: String,
    /// The status.
    pub status: u16,
    /// What went wrong.
    pub detail: String,
    /// Why a unit was refused, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<SendRejection>,
    /// The partial result of a stream or chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub so_far: Option<Value>,
}

/// An error response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    status: StatusCode,
    /// Short and stable, such as `not-found`.
    kind: &'static str,
    detail: String,
    retry_after: Option<Duration>,
    /// Why a unit was refused.
    refusal: Option<Box<SendRejection>>,
    /// Further details for programs.
    more: Option<Value>,
}

impl Problem {
    fn new(status: StatusCode, kind: &'static str, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { status, kind, detail, retry_after: None, refusal: None, more: None }
    }

    /// The request is invalid.
    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", detail)
    }

    /// No token, or an invalid one.
    pub(crate) fn unauthorized(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", detail)
    }

    /// The caller is not allowed to do this.
    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    /// The resource does not exist, or is not visible to the caller.
    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", detail)
    }

    /// The resource's state does not allow this.
    pub(crate) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", detail)
    }

    /// The path exists, but not with this method.
    pub(crate) fn method_not_allowed(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", detail)
    }

    /// The body did not arrive in time, or the answer took too long.
    pub(crate) fn timeout(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "timeout", detail)
    }

    /// The server or its store is temporarily unavailable.
    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail);
        Self { retry_after: Some(RETRY_AFTER_DEFAULT), ..problem }
    }

    /// The body is too large.
    pub(crate) fn too_large(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", detail)
    }

    /// The body has an unsupported content type.
    pub(crate) fn unsupported_media_type(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", detail)
    }

    /// The caller exceeded a limit.
    pub(crate) fn too_many(detail: impl Into<String>, after: Duration) -> Self {
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "too-many-requests", detail);
        Self { retry_after: Some(after), ..problem }
    }

    /// The HTTP status.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// What went wrong.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// Prefixes the detail with a location.
    pub(crate) fn with_location(self, location: &str) -> Self {
        Self { detail: format!("{location}: {}", self.detail), ..self }
    }

    /// Adds details for programs, as `so_far`.
    pub(crate) fn with_details(self, more: &impl Serialize) -> Self {
        Self { more: serde_json::to_value(more).ok(), ..self }
    }

    /// The response for a refused unit.
    pub(crate) fn from_refusal(refusal: &SendRejection) -> Self {
        let detail = refusal.to_string();
        let problem = match refusal {
            SendRejection::Full { .. } => {
                let full = Self::new(StatusCode::TOO_MANY_REQUESTS, "full", detail);
                Self { retry_after: Some(RETRY_AFTER_DEFAULT), ..full }
            }
            SendRejection::Duplicate(_) => Self::new(StatusCode::CONFLICT, "duplicate", detail),
            SendRejection::Suspended(_) => Self::new(StatusCode::FORBIDDEN, "suspended", detail),
            _ => Self::new(StatusCode::CONFLICT, "refused", detail),
        };
        Self { refusal: Some(Box::new(refusal.clone())), ..problem }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let detail = error.to_string();
        match error {
            Error::Unavailable { .. } | Error::TimedOut { .. } | Error::DiskFull { .. } => {
                tracing::warn!(%error, "the store cannot answer a request");
                Self::unavailable("the store is unavailable")
            }
            Error::NotFound { .. } => Self::not_found(detail),
            Error::Invalid(_) => Self::bad_request(detail),
            Error::Rejected { .. } => {
                tracing::warn!(%error, "the store rejected data of a request");
                Self::bad_request("the store rejected the data")
            }
            Error::TooLarge { .. } => Self::too_large(detail),
            Error::UnitState(_)
            | Error::BatchStatus(_)
            | Error::ReplyQueueOpen(_)
            | Error::SessionGone(_) => Self::conflict(detail),
            Error::Unsupported(_) => Self::new(StatusCode::NOT_IMPLEMENTED, "unsupported", detail),
            // Details of a broken store are for the log, not for the caller.
            _ => {
                tracing::error!(%error, "the store is broken");
                let detail = "the store cannot answer; its server's log says why";
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "broken", detail)
            }
        }
    }
}

impl From<SendError> for Problem {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Rejected(refusal) => Self::from_refusal(&refusal),
            SendError::Store(error) => error.into(),
            other => Self::new(StatusCode::CONFLICT, "conflict", other.to_string()),
        }
    }
}

impl From<WaitError> for Problem {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::Store(error) => error.into(),
            other => Self::timeout(other.to_string()),
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
        // Serialising these fields cannot fail.
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
