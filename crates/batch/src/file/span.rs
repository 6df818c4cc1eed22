//! Lengths of time as people write them: `50ms`, `60s`, `1h30m`, `1d`.

use std::time::Duration;

const UNITS: [(&str, f64); 5] =
    [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0)];

/// A thousand years: what is longer is a slip of the keyboard.
const LONGEST: f64 = 1000.0 * 366.0 * 86400.0;

/// Reads a length of time. A unit is needed: a bare number would be guessed at.
pub fn parse(text: &str) -> Result<Duration, String> {
    let bad = || format!("`{text}` is not a length of time, as 50ms, 60s, 10m, 8h or 1d");
    let seconds = sum(text.trim()).filter(|seconds| *seconds <= LONGEST).ok_or_else(bad)?;
    Ok(Duration::from_secs_f64(seconds))
}

fn sum(mut rest: &str) -> Option<f64> {
    let mut seconds = None;
    while !rest.is_empty() {
        let (number, after) = take(rest, |c| c.is_ascii_digit() || c == '.');
        let (unit, after) = take(after.trim_start(), |c| c.is_ascii_alphabetic());
        let (_, scale) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
        seconds = Some(seconds.unwrap_or(0.0) + number.parse::<f64>().ok()? * scale);
        rest = after.trim_start();
    }
    seconds
}

fn take(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}
