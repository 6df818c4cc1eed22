//! Parses and formats durations: `1h30m`, `500ms`, `3 min ago`.

use std::time::Duration;

use longshore::Timestamp;
use serde::{Deserialize, Deserializer};

/// A duration as written in arguments and configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurationArg(pub Duration);

const UNITS: [(&str, f64); 6] =
    [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("min", 60.0), ("h", 3600.0), ("d", 86400.0)];

/// A thousand years: anything longer is a typing error.
const MAX_SECONDS: f64 = 1000.0 * 366.0 * 86400.0;

impl std::str::FromStr for DurationArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not a length of time, as 500ms, 30s, 5m, 1h30m or 2d");
        let seconds = match text.parse::<f64>() {
            Ok(seconds) => seconds,
            Err(_) => sum(text).ok_or_else(bad)?,
        };
        if !(0.0..=MAX_SECONDS).contains(&seconds) {
            return Err(bad());
        }
        Ok(Self(Duration::from_secs_f64(seconds)))
    }
}

/// Adds up the parts of `1h30m`.
fn sum(text: &str) -> Option<f64> {
    let (mut rest, mut seconds) = (text.trim(), 0.0);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (number, after) = split(rest, |c| c.is_ascii_digit() || c == '.');
        let (unit, after) = split(after.trim_start(), |c| c.is_ascii_alphabetic());
        let (_, scale) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
        seconds += number.parse::<f64>().ok()? * scale;
        rest = after.trim_start();
    }
    Some(seconds)
}

fn split(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

impl<'de> Deserialize<'de> for DurationArg {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a length of time: seconds, or text as \"30s\" or \"1h30m\"")]
        enum SecondsOrText {
            Seconds(f64),
            Text(String),
        }
        let text = match SecondsOrText::deserialize(deserializer)? {
            SecondsOrText::Seconds(seconds) => seconds.to_string(),
            SecondsOrText::Text(text) => text,
        };
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A duration in one or two words.
pub fn format_duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        s if s < 0.001 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} h", s / 3600.0),
        s => format!("{:.0} days", s / 86400.0),
    }
}

/// The distance of `time` from `now`.
pub fn format_ago(time: Timestamp, now: Timestamp) -> String {
    if time > now {
        return format!("in {}", format_duration(time.since(now)));
    }
    let past = now.since(time);
    if past < Duration::from_secs(1) {
        "just now".into()
    } else {
        format!("{} ago", format_duration(past))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_read_as_people_write_them() {
        for (text, millis) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("30", 30_000),
            ("1.5", 1_500),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("1h 30min", 5_400_000),
            ("2d", 172_800_000),
        ] {
            let DurationArg(time) = text.parse().unwrap();
            assert_eq!(time, Duration::from_millis(millis), "{text}");
        }
        for bad in ["", "s", "5x", "-3s", "1e300", "nan", "inf", "5m3", "1..2s"] {
            assert!(bad.parse::<DurationArg>().is_err(), "{bad}");
        }
    }

    #[test]
    fn times_are_told_from_now() {
        let now = Timestamp::from_micros(10_000_000_000);
        assert_eq!(format_ago(now - Duration::from_secs(180), now), "3 min ago");
        assert_eq!(format_ago(now + Duration::from_secs(5), now), "in 5.0 s");
        assert_eq!(format_ago(now, now), "just now");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_named_in_the_error(
            text in r"([0-9.]{0,4} ?(ms|[a-z]{0,2}) ?){0,3}|\PC*",
        ) {
            match text.parse::<DurationArg>() {
                Ok(DurationArg(time)) => proptest::prop_assert!(time.as_secs_f64() <= MAX_SECONDS),
                Err(error) => proptest::prop_assert!(error.contains(&text)),
            }
        }

        #[test]
        fn any_json_is_read_or_explained(number: f64, text: String) {
            use serde_json::json;
            for value in [json!(number), json!(text), json!([1])] {
                if let Err(error) = serde_json::from_value::<DurationArg>(value) {
                    let error = error.to_string();
                    proptest::prop_assert!(error.contains("length of time"), "{}", error);
                }
            }
        }
    }
}
