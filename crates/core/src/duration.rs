//! Durations as people write them, `500ms` or `1h30m`, and as they read them, `3 min` or `4.2 s`.
//!
//! Arguments, configuration, batch files, payloads and providers' headers are all parsed here. A
//! configuration struct holds a [`Duration`] and names this module in `#[serde(with)]`.

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::time::Timestamp;

/// A duration in an argument or a document; a number without a unit is in seconds, and `1:30:00` and
/// `2-12:00:00` are read as batch systems write them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HumanDuration(pub Duration);

/// The text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a length of time, as 500ms, 30s, 5m, 1h30m, 2d or 1:30:00")]
pub struct ParseDurationError(String);

/// The error for zero where a duration must be positive; it follows the key's name.
pub const NOT_POSITIVE: &str = "must be longer than zero";

const UNITS: [(&str, f64); 9] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("min", 60.0),
    ("h", 3600.0),
    ("d", 86400.0),
];

/// A thousand years: a longer duration is a typing error.
const MAX_SECONDS: f64 = 1000.0 * 366.0 * 86400.0;

/// Parses a duration. A number without a unit is an error.
pub fn parse(text: &str) -> Result<Duration, ParseDurationError> {
    checked(text, parse_seconds(text))
}

/// The sum of the parts of `1h30m` in seconds. `None` if a number or a unit is invalid or missing.
pub fn parse_seconds(text: &str) -> Option<f64> {
    let (mut rest, mut seconds) = (text.trim(), None);
    while !rest.is_empty() {
        let (number, after) = split_while(rest, |c| c.is_ascii_digit() || c == '.');
        let (unit, after) = split_while(after.trim_start(), char::is_alphabetic);
        let (_, scale) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
        seconds = Some(seconds.unwrap_or(0.0) + number.parse::<f64>().ok()? * scale);
        rest = after.trim_start();
    }
    seconds
}

/// The seconds of `H:MM:SS` or `D-HH:MM:SS`. `1:30` is none: it is minutes to Slurm and hours to LSF.
fn parse_clock(text: &str) -> Option<f64> {
    let number = |text: &str| {
        let is_number = (1..=6).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u32>().ok().filter(|_| is_number)
    };
    let below_sixty = |text: &str| number(text).filter(|number| text.len() == 2 && *number < 60);
    let (days, time) = match text.split_once('-') {
        Some((days, time)) => (number(days)?, time),
        None => (0, text),
    };
    let mut parts = time.split(':');
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    let (hours, minutes, seconds) = (number(hours)?, below_sixty(minutes)?, below_sixty(seconds)?);
    let is_complete = parts.next().is_none();
    let hours = f64::from(days) * 24.0 + f64::from(hours);
    is_complete.then(|| hours * 3600.0 + f64::from(minutes * 60 + seconds))
}

fn split_while(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

fn checked(text: &str, seconds: Option<f64>) -> Result<Duration, ParseDurationError> {
    let seconds = seconds.filter(|seconds| (0.0..=MAX_SECONDS).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| ParseDurationError(text.to_owned()))
}

impl FromStr for HumanDuration {
    type Err = ParseDurationError;

    fn from_str(text: &str) -> Result<Self, ParseDurationError> {
        let seconds = text.parse().ok().or_else(|| parse_clock(text)).or_else(|| parse_seconds(text));
        checked(text, seconds).map(Self)
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
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
        text.parse().map_err(de::Error::custom)
    }
}

/// In seconds.
impl Serialize for HumanDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0.as_secs_f64())
    }
}

/// Deserializes a duration, for `#[serde(with = "longshore::duration")]`.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    HumanDuration::deserialize(deserializer).map(|HumanDuration(time)| time)
}

/// Deserializes a duration above zero.
pub fn positive<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    match deserialize(deserializer)? {
        Duration::ZERO => Err(de::Error::custom(NOT_POSITIVE)),
        time => Ok(time),
    }
}

/// A duration by its two largest units.
pub fn format(time: Duration) -> String {
    let seconds = time.as_secs();
    let [large, small] = match seconds {
        0 if time.is_zero() => return "0 s".to_owned(),
        0 if time < Duration::from_millis(1) => return format!("{} µs", time.as_micros()),
        0 => return format!("{} ms", time.as_millis()),
        1..10 => return format!("{:.1} s", time.as_secs_f64()),
        10..60 => return format!("{seconds} s"),
        60..3_600 => [(seconds / 60, "min"), (seconds % 60, "s")],
        3_600..86_400 => [(seconds / 3_600, "h"), (seconds / 60 % 60, "min")],
        _ => [(seconds / 86_400, "d"), (seconds / 3_600 % 24, "h")],
    };
    match small.0 {
        0 => format!("{} {}", large.0, large.1),
        rest => format!("{} {} {rest} {}", large.0, large.1, small.1),
    }
}

/// The distance of `time` from `now`.
pub fn format_ago(time: Timestamp, now: Timestamp) -> String {
    if time > now {
        return format!("in {}", format(time.since(now)));
    }
    let past = now.since(time);
    if past < Duration::from_secs(1) { "just now".into() } else { format!("{} ago", format(past)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_read_as_people_write_them() {
        for (text, millis) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("1h 30min", 5_400_000),
            ("2d", 172_800_000),
            ("1.5 s", 1_500),
            ("0s", 0),
            ("1000µs", 1),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
            assert_eq!(text.parse(), Ok(HumanDuration(Duration::from_millis(millis))), "{text}");
        }
        for bad in [
            "",
            " ",
            "s",
            "ns",
            "5x",
            "-3s",
            "1s-",
            "1e300",
            "nan",
            "inf",
            "5m3",
            "1..2s",
            "2s ago",
            "1 fortnight",
            "9999999d",
        ] {
            assert!(bad.parse::<HumanDuration>().is_err(), "{bad}");
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_number_alone_is_seconds_only_where_that_is_said() {
        for (text, millis) in [("30", 30_000), ("1.5", 1_500)] {
            assert_eq!(text.parse(), Ok(HumanDuration(Duration::from_millis(millis))), "{text}");
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_of_batch_systems_are_read_where_they_are_unambiguous() {
        for (text, seconds) in
            [("1:30:00", 5_400), ("01:00:05", 3_605), ("100:00:00", 360_000), ("2-12:00:00", 216_000)]
        {
            assert_eq!(text.parse(), Ok(HumanDuration(Duration::from_secs(seconds))), "{text}");
            assert!(parse(text).is_err(), "{text} may be a time of day");
        }
        for bad in
            ["1:30", "1:60:00", "1:00:60", "1:0:0", ":00:00", "1:00:00:00", "1-2", "-1:00:00", "1h:00:00"]
        {
            assert!(bad.parse::<HumanDuration>().is_err(), "{bad}");
        }
    }

    #[test]
    fn zero_is_refused_where_a_length_must_be_positive() {
        let read = |text: &str| positive(de::value::StrDeserializer::<de::value::Error>::new(text));
        assert_eq!(read("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(read("0s").unwrap_err().to_string(), NOT_POSITIVE);
    }

    #[test]
    fn a_length_is_shown_by_its_two_largest_units() {
        for (micros, text) in [
            (0, "0 s"),
            (10, "10 µs"),
            (12_000, "12 ms"),
            (1_250_000, "1.2 s"),
            (59_900_000, "59 s"),
            (75_000_000, "1 min 15 s"),
            (3_600_000_000, "1 h"),
            (11_100_000_000, "3 h 5 min"),
            (90_061_000_000, "1 d 1 h"),
        ] {
            assert_eq!(format(Duration::from_micros(micros)), text);
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
            match text.parse::<HumanDuration>() {
                Ok(HumanDuration(time)) => {
                    proptest::prop_assert!(time.as_secs_f64() <= MAX_SECONDS);
                }
                Err(error) => proptest::prop_assert!(error.to_string().contains(&text)),
            }
        }

        #[test]
        fn any_json_is_read_or_explained(number: f64, text: String) {
            use serde_json::json;
            for value in [json!(number), json!(text), json!([1])] {
                if let Err(error) = serde_json::from_value::<HumanDuration>(value) {
                    let error = error.to_string();
                    proptest::prop_assert!(error.contains("length of time"), "{}", error);
                }
            }
        }
    }
}
