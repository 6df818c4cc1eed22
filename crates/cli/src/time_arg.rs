//! Parses points in time: `7d` ago, a day, or a time.

use longshore::Timestamp;

use crate::duration_arg::DurationArg;

/// A point in time as typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeArg {
    /// This long before now.
    Ago(DurationArg),
    /// At this time.
    At(Timestamp),
}

impl std::str::FromStr for TimeArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A number alone is a duration elsewhere; here it might as well be a year.
        let counted = text.ends_with(|c: char| c.is_ascii_alphabetic() && c != 'Z');
        if let (true, Ok(span)) = (counted, text.parse()) {
            return Ok(Self::Ago(span));
        }
        let day = || Timestamp::parse(&format!("{text}T00:00:00Z"));
        Timestamp::parse(text).or_else(|_| day()).map(Self::At).map_err(|_| {
            format!("`{text}` is not a time: as 7d (ago), 2026-11-01 (UTC) or 2026-11-01T12:00:00Z")
        })
    }
}

impl TimeArg {
    /// The point in time.
    pub fn time(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Ago(DurationArg(span)) => now - span,
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
            assert_eq!(parsed.time(now), Timestamp::parse(time).unwrap(), "{text}");
        }
        for bad in ["", "7", "2026", "2026-13-01", "yesterday", "7 moons"] {
            assert!(bad.parse::<TimeArg>().unwrap_err().contains(bad), "{bad}");
        }
    }
}
