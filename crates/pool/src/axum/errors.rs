//! Errors of calls as HTTP responses: a status and a fixed text, without internal details.
//!
//! The worker's message and the arguments go only to the log. The response carries the
//! [`CallError`] in its extensions, so that a layer of the app can render its own page.

use ::axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use ::axum::http::{HeaderValue, StatusCode};
use ::axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::error::{CallError, ErrorKind};
use crate::metrics::outcome_label;

/// An error, as the HTTP client sees it: `application/problem+json` (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Problem {
    /// The reason phrase of the status.
    pub title: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// A description for people.
    pub detail: &'static str,
    /// The error for programs: the name of the [`ErrorKind`], or the kind of database error
    /// (`time_limit`, `unreachable`, `lost`, `busy`, `constraint`, `expected_rows`).
    pub kind: &'static str,
    /// Seconds after which a retry may succeed, if at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u32>,
}

/// `Retry-After` in seconds where the queue moves on in a moment.
pub(super) const RETRY_SOON: Option<u32> = Some(1);

/// `Retry-After` in seconds where a worker or a server must be started first.
pub(super) const RETRY_LATER: Option<u32> = Some(5);

/// The parts of a response to an error.
pub(super) struct ErrorResponse {
    pub(super) status: StatusCode,
    pub(super) detail: &'static str,
    pub(super) kind: &'static str,
    pub(super) retry_after: Option<u32>,
}

impl From<ErrorResponse> for Problem {
    fn from(ErrorResponse { status, detail, kind, retry_after }: ErrorResponse) -> Self {
        let title = status.canonical_reason().unwrap_or_default();
        Self { title, status: status.as_u16(), detail, kind, retry_after }
    }
}

impl From<&ErrorKind> for Problem {
    fn from(kind: &ErrorKind) -> Self {
        let (status, detail, retry_after) = response_parts(kind);
        ErrorResponse { status, detail, kind: outcome_label(Some(kind)), retry_after }.into()
    }
}

/// More specific than the kind alone: database errors are mapped by their reason.
impl From<&CallError> for Problem {
    fn from(error: &CallError) -> Self {
        #[cfg(feature = "database")]
        if let Some(response) = super::database::response(error) {
            return response.into();
        }
        Self::from(&error.kind)
    }
}

fn response_parts(kind: &ErrorKind) -> (StatusCode, &'static str, Option<u32>) {
    use StatusCode as Status;
    match kind {
        ErrorKind::UnknownOperation { .. } => (Status::NOT_FOUND, "There is no such operation.", None),
        ErrorKind::BadArguments { .. } => {
            (Status::BAD_REQUEST, "The operation does not accept these arguments.", None)
        }
        ErrorKind::TooLarge { .. } => {
            (Status::PAYLOAD_TOO_LARGE, "The arguments or the result are too large.", None)
        }
        ErrorKind::Handler { .. } | ErrorKind::Panic { .. } | ErrorKind::BadResult { .. } => {
            (Status::INTERNAL_SERVER_ERROR, "The operation failed.", None)
        }
        ErrorKind::WorkerDied { .. } | ErrorKind::Interrupted | ErrorKind::Protocol { .. } => {
            (Status::BAD_GATEWAY, "The worker died during the call; the call may have taken effect.", None)
        }
        ErrorKind::Timeout { .. } => (Status::GATEWAY_TIMEOUT, "The call took too long.", None),
        ErrorKind::Full { .. } => (Status::SERVICE_UNAVAILABLE, "The queue is full.", RETRY_SOON),
        ErrorKind::Cancelled { .. } => (Status::SERVICE_UNAVAILABLE, "The call was cancelled.", RETRY_SOON),
        ErrorKind::StartFailed { .. } => {
            (Status::SERVICE_UNAVAILABLE, "No worker is available at the moment.", RETRY_LATER)
        }
        ErrorKind::ShuttingDown => {
            (Status::SERVICE_UNAVAILABLE, "The service is shutting down.", RETRY_LATER)
        }
    }
}

impl Problem {
    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let form = [(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"))];
        let mut response = (status, form, self.to_json()).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}

impl IntoResponse for CallError {
    fn into_response(self) -> Response {
        let mut response = to_logged_problem(&self).into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Converts an error to its response, and logs the details, which the response does not contain.
pub(super) fn to_logged_problem(error: &CallError) -> Problem {
    let problem = Problem::from(error);
    match problem.status {
        500.. => tracing::warn!(status = problem.status, %error, "a call failed"),
        _ => tracing::debug!(status = problem.status, %error, "a call was rejected"),
    }
    problem
}

#[cfg(all(test, not(feature = "_shuttle")))]
mod tests {
    use super::*;
    use crate::error::CancelEffect;

    fn secret() -> String {
        "hunter2".to_owned()
    }

    fn kinds() -> Vec<(ErrorKind, u16)> {
        let (after, effect) = (std::time::Duration::from_secs(1), CancelEffect::Killed);
        let data = Some(serde_json::json!({"password": secret()}));
        vec![
            (ErrorKind::UnknownOperation { known: vec![secret()] }, 404),
            (ErrorKind::BadArguments { message: secret() }, 400),
            (ErrorKind::TooLarge { bytes: 2, limit: 1 }, 413),
            (ErrorKind::Handler { message: secret(), chain: vec![secret()], data }, 500),
            (ErrorKind::Panic { message: secret() }, 500),
            (ErrorKind::BadResult { message: secret() }, 500),
            (ErrorKind::WorkerDied { exit: Some(3), signal: None, stderr: secret() }, 502),
            (ErrorKind::Interrupted, 502),
            (ErrorKind::Protocol { message: secret() }, 502),
            (ErrorKind::Timeout { after, effect }, 504),
            (ErrorKind::Full { depth: 1, limit: 1 }, 503),
            (ErrorKind::Cancelled { effect }, 503),
            (ErrorKind::StartFailed { message: secret(), stderr: secret() }, 503),
            (ErrorKind::ShuttingDown, 503),
        ]
    }

    #[test]
    fn every_error_has_its_status_and_gives_nothing_away() {
        for (kind, status) in kinds() {
            let problem = Problem::from(&kind);
            assert_eq!(problem.status, status, "{kind:?}");
            let json = problem.to_json();
            assert!(!json.contains(&secret()), "{json}");
        }
    }

    #[test]
    fn whoever_may_try_again_is_told_when() {
        for (kind, status) in kinds() {
            let error = crate::job::call_error("pool", "operation", kind.clone(), None);
            let response = error.into_response();
            let has_header = response.headers().contains_key(RETRY_AFTER);
            assert_eq!(has_header, status == 503, "{kind:?}");
            assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
            let stored = response.extensions().get::<CallError>().map(|error| &error.kind);
            assert_eq!(stored, Some(&kind), "a layer can still read it");
        }
    }
}
