//! Parses points in time: a time, a day, or a distance from now.

use std::time::Duration;

use longshore::{Timestamp, duration};

/// A point in time as typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeArg {
    /// This far from now; the argument's meaning decides the direction.
    Distance(Duration),
    /// At this time.
    At(Timestamp),
}

impl std::str::FromStr for TimeArg {
    type Err = String;

    // A number alone is a duration elsewhere; here it might as well be a year.
    fn from_str(text: &str) -> Result<Self, String> {
        let time = Timestamp::parse_time_or_day(text).map(Self::At);
        time.or_else(|_| duration::parse(text).map(Self::Distance))
            .map_err(|_| format!("`{text}` is not a time, as 7d, 2026-11-01 (UTC) or 2026-11-01T12:00:00Z"))
    }
}

impl TimeArg {
    /// The time; a distance counts into the past.
    pub fn before(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Distance(distance) => now - distance,
            Self::At(time) => time,
        }
    }

    /// The time; a distance counts into the future.
    pub fn after(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Distance(distance) => now + distance,
            Self::At(time) => time,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_while_ago_a_day_or_a_time() {
        let now = Timestamp::parse("2026-11-08T12:00:00Z").unwrap();
        for (text, time) in [
            ("7d", "2026-11-01T12:00:00Z"),
            ("1h30m", "2026-11-08T10:30:00Z"),
            ("2026-11-01", "2026-11-01T00:00:00Z"),
            ("2026-11-01T02:00:00+02:00", "2026-11-01T00:00:00Z"),
        ] {
            let parsed: TimeArg = text.parse().unwrap();
            assert_eq!(parsed.before(now), Timestamp::parse(time).unwrap(), "{text}");
        }
        assert_eq!("30s".parse::<TimeArg>().unwrap().after(now), now + Duration::from_secs(30));
        for bad in ["", "7", "2026", "2026-13-01", "yesterday", "7 moons"] {
            assert!(bad.parse::<TimeArg>().unwrap_err().contains(bad), "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_moment_is_read_or_named_in_the_error(
            text in r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z?|[0-9]{1,3}[a-z]|\PC*",
        ) {
            match text.parse::<TimeArg>() {
                Ok(moment) => _ = (moment.before(Timestamp::ZERO), moment.after(Timestamp::ZERO)),
                Err(error) => proptest::prop_assert!(error.contains(&text)),
            }
        }
    }
}
