//! What a request's headers say: by what it is recognised, and how long it may take.

use std::time::Duration;

use axum::http::HeaderMap;
use longshore::CallId;
use tokio::time::Instant;

use super::refusal::Refusal;

/// Recognises a request, on the way in and out.
pub(super) const REQUEST_ID: &str = "x-request-id";

/// How long a request may take, in milliseconds.
const TIMEOUT: &str = "x-longshore-timeout-ms";

/// How long a request may take that does not say: as long as the official clients wait.
const USUAL: Duration = Duration::from_secs(600);

/// How long one may take at most.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// By what a request is recognised: what it says itself, if that can be written in books and logs.
pub(super) fn request_id(headers: &HeaderMap) -> String {
    let sane = |id: &&str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        (1..=128).contains(&id.len()) && id.bytes().all(plain)
    };
    let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).filter(sane);
    given.map_or_else(|| CallId::new().to_string(), str::to_owned)
}

/// When the answer is of no use any more.
pub(super) fn until(headers: &HeaderMap, now: Instant) -> Result<Instant, Refusal> {
    let Some(given) = headers.get(TIMEOUT) else { return Ok(now + USUAL) };
    let millis = given.to_str().ok().and_then(|text| text.parse().ok()).filter(|ms| *ms > 0);
    let millis = millis.ok_or_else(|| Refusal::of(TIMEOUT, format!("{TIMEOUT} is no number")))?;
    Ok(now + Duration::from_millis(millis).min(LONGEST))
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
        assert_eq!(until(&HeaderMap::new(), now).unwrap(), now + USUAL);
        let soon = until(&with(TIMEOUT, "1500"), now).unwrap();
        assert_eq!(soon, now + Duration::from_millis(1500));
        let most = until(&with(TIMEOUT, "18446744073709551615"), now).unwrap();
        assert_eq!(most, now + LONGEST);
        for bad in ["0", "-1", "soon", "1.5"] {
            assert!(until(&with(TIMEOUT, bad), now).is_err(), "{bad}");
        }
    }
}
