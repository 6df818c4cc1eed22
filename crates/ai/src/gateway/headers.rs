//! The headers of a request: its id and its timeout.

use std::time::Duration;

use axum::http::HeaderMap;
use longshore::CallId;
use tokio::time::Instant;

use super::error::GatewayError;

/// The request id, in requests and responses.
pub(super) const REQUEST_ID: &str = "x-request-id";

/// A request's timeout, in milliseconds.
const TIMEOUT_HEADER: &str = "x-longshore-timeout-ms";

/// Timeout of a request that sets none: what the official clients wait.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

/// Longest timeout.
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// The request id: the client's, if it is safe in logs and in the ledger, or else a new one.
pub(super) fn request_id(headers: &HeaderMap) -> String {
    let sane = |id: &&str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        (1..=128).contains(&id.len()) && id.bytes().all(plain)
    };
    let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).filter(sane);
    given.map_or_else(|| CallId::new().to_string(), str::to_owned)
}

/// The request's deadline.
pub(super) fn deadline(headers: &HeaderMap, now: Instant) -> Result<Instant, GatewayError> {
    let Some(given) = headers.get(TIMEOUT_HEADER) else { return Ok(now + DEFAULT_TIMEOUT) };
    let millis = given.to_str().ok().and_then(|text| text.parse().ok()).filter(|ms| *ms > 0);
    let millis = millis.ok_or_else(|| {
        GatewayError::of(TIMEOUT_HEADER, format!("{TIMEOUT_HEADER} must be a whole number above 0"))
    })?;
    Ok(now + Duration::from_millis(millis).min(MAX_TIMEOUT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())])
    }

    #[test]
    fn a_request_keeps_its_id_if_that_is_sane() {
        assert_eq!(request_id(&with(REQUEST_ID, "job-7.a:b_c")), "job-7.a:b_c");
        for bad in ["", "a b", "a;b", "x".repeat(129).as_str()] {
            let id = request_id(&with(REQUEST_ID, bad));
            assert_eq!(id.len(), 36, "{bad}: {id}");
        }
        assert_ne!(request_id(&HeaderMap::new()), request_id(&HeaderMap::new()));
    }

    #[test]
    fn a_request_says_how_long_it_may_take() {
        let now = Instant::now();
        assert_eq!(deadline(&HeaderMap::new(), now).unwrap(), now + DEFAULT_TIMEOUT);
        let soon = deadline(&with(TIMEOUT_HEADER, "1500"), now).unwrap();
        assert_eq!(soon, now + Duration::from_millis(1500));
        let most = deadline(&with(TIMEOUT_HEADER, "18446744073709551615"), now).unwrap();
        assert_eq!(most, now + MAX_TIMEOUT);
        for bad in ["0", "-1", "soon", "1.5"] {
            assert!(deadline(&with(TIMEOUT_HEADER, bad), now).is_err(), "{bad}");
        }
    }
}
