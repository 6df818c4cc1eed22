//! Parses `Retry-After` in all its forms, and the headers for the remaining rate limit.
//!
//! Dates are compared with the `Date` of the same response, so that a wrong clock, on either side,
//! does not make a wait longer.

use std::time::Duration;

use hyper::HeaderMap;
use jiff::Timestamp;
use longshore::duration::parse_seconds;

use crate::model_api::{Headroom, RemainingLimit};

/// How long the server asks to wait.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let millis = ["retry-after-ms", "x-ms-retry-after-ms"]
        .into_iter()
        .find_map(|name| text(headers, name)?.parse::<f64>().ok());
    if let Some(wait) = millis.and_then(|ms| seconds(ms / 1000.0)) {
        return Some(wait);
    }
    let value = text(headers, "retry-after")?;
    match value.parse::<f64>() {
        Ok(wait) => seconds(wait),
        Err(_) => Some(until(http_date(value)?, headers)),
    }
}

/// The header names of a limit: its size, what remains, when it is reset.
type Names = [&'static str; 3];

const REQUESTS: [Names; 2] = [
    ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"],
    [
        "anthropic-ratelimit-requests-limit",
        "anthropic-ratelimit-requests-remaining",
        "anthropic-ratelimit-requests-reset",
    ],
];
const TOKENS: [Names; 4] = [
    ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"],
    [
        "anthropic-ratelimit-tokens-limit",
        "anthropic-ratelimit-tokens-remaining",
        "anthropic-ratelimit-tokens-reset",
    ],
    [
        "anthropic-ratelimit-input-tokens-limit",
        "anthropic-ratelimit-input-tokens-remaining",
        "anthropic-ratelimit-input-tokens-reset",
    ],
    [
        "anthropic-ratelimit-output-tokens-limit",
        "anthropic-ratelimit-output-tokens-remaining",
        "anthropic-ratelimit-output-tokens-reset",
    ],
];

/// The remaining rate limits. A self-hosted server reports none: this is detected by one scan, not
/// by a lookup of each name.
pub(crate) fn headroom(headers: &HeaderMap) -> Headroom {
    if !headers.keys().any(|name| name.as_str().contains("ratelimit")) {
        return Headroom::default();
    }
    let smallest =
        |all: &[Names]| all.iter().filter_map(|names| remaining_limit(headers, names)).reduce(smaller);
    Headroom { requests: smallest(&REQUESTS), tokens: smallest(&TOKENS) }
}

/// One limit. Some servers send -1, or a limit of 0, if there is none.
fn remaining_limit(headers: &HeaderMap, [limit, remaining, reset]: &Names) -> Option<RemainingLimit> {
    let left = text(headers, remaining)?.parse().ok()?;
    let limit = text(headers, limit).and_then(|limit| limit.parse().ok());
    let reset = text(headers, reset)
        .and_then(|reset| duration(reset).or_else(|| Some(until(reset.parse().ok()?, headers))));
    (limit != Some(0)).then_some(RemainingLimit { limit, left, reset })
}

/// The limit of which the smaller share remains.
fn smaller(one: RemainingLimit, other: RemainingLimit) -> RemainingLimit {
    let share = |of: &RemainingLimit| of.left as f64 / of.limit.unwrap_or(u64::MAX).max(1) as f64;
    if share(&other) < share(&one) { other } else { one }
}

/// Parses a duration as Go writes it (`6m0s`, `11ms`, `1h2m3.5s`), or plain seconds.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    seconds(text.parse().ok().or_else(|| parse_seconds(text))?)
}

/// Longest wait that is read, so that sums cannot overflow.
const MAX_WAIT: Duration = Duration::from_secs(365 * 86_400);

/// Negative values become zero, NaN becomes `None`.
fn seconds(seconds: f64) -> Option<Duration> {
    (!seconds.is_nan()).then(|| Duration::from_secs_f64(seconds.clamp(0.0, MAX_WAIT.as_secs_f64())))
}

fn until(then: Timestamp, headers: &HeaderMap) -> Duration {
    let now = text(headers, "date").and_then(http_date).unwrap_or_else(Timestamp::now);
    Duration::try_from(then.duration_since(now)).unwrap_or_default().min(MAX_WAIT)
}

/// Parses the time of an HTTP header.
pub fn http_date(text: &str) -> Option<Timestamp> {
    Some(jiff::fmt::rfc2822::parse(text).ok()?.timestamp())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    fn headers(of: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs =
            of.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        pairs.collect()
    }

    #[test]
    fn retry_after_is_read_in_all_its_forms() {
        let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        for (of, millis) in [
            (&[("retry-after", "2")][..], Some(2000)),
            (&[("retry-after", " 0.25 ")], Some(250)),
            (&[("retry-after", "-3")], Some(0)),
            (&[("retry-after-ms", "1500"), ("retry-after", "9")], Some(1500)),
            (&[("x-ms-retry-after-ms", "70")], Some(70)),
            (&[("retry-after", "Sun, 06 Nov 1994 08:50:37 GMT"), date], Some(60_000)),
            (&[("retry-after", "Sun, 06 Nov 1994 08:49:00 GMT"), date], Some(0)),
            // Not in seventy years.
            (&[("retry-after", "Fri, 06 Nov 2099 08:49:00 GMT"), date], Some(365 * 86_400_000)),
            (&[("retry-after", "1e12")], Some(365 * 86_400_000)),
            // In the past by our own clock, too.
            (&[("retry-after", "Sun, 06 Nov 1994 08:49:00 GMT")], Some(0)),
            (&[("retry-after", "soon")], None),
            (&[("retry-after", "NaN")], None),
            (&[], None),
        ] {
            let expected = millis.map(Duration::from_millis);
            assert_eq!(retry_after(&headers(of)), expected, "{of:?}");
        }
    }

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, millis) in [
            ("1s", Some(1000)),
            ("6m0s", Some(360_000)),
            ("11ms", Some(11)),
            ("1h2m3.5s", Some(3_723_500)),
            ("34.5s", Some(34_500)),
            ("12", Some(12_000)),
            ("", None),
            ("s", None),
            ("5 days", None),
            ("1s2", None),
        ] {
            assert_eq!(duration(text), millis.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn what_is_left_is_read_from_either_family_of_headers() {
        let openai = headroom(&headers(&[
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-remaining-requests", "59"),
            ("x-ratelimit-reset-requests", "1s"),
            ("x-ratelimit-remaining-tokens", "-1"),
        ]));
        let requests = RemainingLimit { limit: Some(60), left: 59, reset: Some(Duration::from_secs(1)) };
        assert_eq!(openai, Headroom { requests: Some(requests), tokens: None });

        let anthropic = headroom(&headers(&[
            ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("anthropic-ratelimit-requests-remaining", "3"),
            ("anthropic-ratelimit-requests-reset", "1994-11-06T08:49:57Z"),
            ("anthropic-ratelimit-input-tokens-limit", "1000"),
            ("anthropic-ratelimit-input-tokens-remaining", "900"),
            ("anthropic-ratelimit-output-tokens-limit", "100"),
            ("anthropic-ratelimit-output-tokens-remaining", "10"),
        ]));
        assert_eq!(anthropic.requests.unwrap().reset, Some(Duration::from_secs(20)));
        assert_eq!(anthropic.tokens.unwrap().left, 10, "the smaller of the two");
        assert_eq!(headroom(&headers(&[])), Headroom::default());
    }
}
