//! Durations as people write them: `50ms`, `60s`, `1h30m`, `1d`.

use std::time::Duration;

const UNITS: [(&str, f64); 5] =
    [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0)];

/// A thousand years: a longer duration is a typing error.
const MAX_SECONDS: f64 = 1000.0 * 366.0 * 86400.0;

/// Parses a duration. A number without a unit is an error.
pub fn parse(text: &str) -> Result<Duration, String> {
    let invalid = || format!("`{text}` is not a length of time, as 50ms, 60s, 10m, 8h or 1d");
    let seconds =
        sum_seconds(text.trim()).filter(|seconds| *seconds <= MAX_SECONDS).ok_or_else(invalid)?;
    Ok(Duration::from_secs_f64(seconds))
}

fn sum_seconds(mut rest: &str) -> Option<f64> {
    let mut seconds = None;
    while !rest.is_empty() {
        let (number, after) = split_while(rest, |c| c.is_ascii_digit() || c == '.');
        let (unit, after) = split_while(after.trim_start(), |c| c.is_ascii_alphabetic());
        let (_, scale) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
        seconds = Some(seconds.unwrap_or(0.0) + number.parse::<f64>().ok()? * scale);
        rest = after.trim_start();
    }
    seconds
}

fn split_while(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}
