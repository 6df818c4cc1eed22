//! Timestamps and clocks.
//!
//! A [`Timestamp`] is wall-clock time in microseconds: it orders units and is shown to people.
//! Liveness never depends on it, but on monotonic clocks (see [`crate::failure_detector`]), so a clock that
//! jumps an hour shifts schedules but revokes no lease.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Microseconds since 1970-01-01T00:00:00Z. Shown and serialised as RFC 3339.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The epoch: the smallest time that can be shown.
    pub const ZERO: Self = Self(0);

    /// From microseconds since the epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the epoch.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Time passed since `earlier`, or zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Parses RFC 3339, as [`fmt::Display`] writes it.
    pub fn parse(text: &str) -> Result<Self, jiff::Error> {
        text.parse::<jiff::Timestamp>().map(|t| Self(t.as_microsecond()))
    }

    /// Parses RFC 3339, or a day such as `2026-11-01`, which means its start in UTC.
    pub fn parse_time_or_day(text: &str) -> Result<Self, jiff::Error> {
        Self::parse(text).or_else(|_| Self::parse(&format!("{text}T00:00:00Z")))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(micros(by)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(micros(by)))
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(time) => write!(f, "{time:.3}"),
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

inline_schema!(Timestamp, { "type": "string", "format": "date-time" });

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(time) => serializer.collect_str(&time),
            Err(_) => serializer.serialize_i64(self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// Where a store reads the time. Tests pass a clock that they can move.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// The machine's wall clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp(jiff::Timestamp::now().as_microsecond())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_survives_json() {
        let time = Timestamp::from_micros(1_763_178_300_123_456);
        let json = serde_json::to_string(&time).unwrap();
        assert_eq!(json, "\"2025-11-15T03:45:00.123456Z\"");
        assert_eq!(serde_json::from_str::<Timestamp>(&json).unwrap(), time);
    }

    #[test]
    fn arithmetic_saturates_instead_of_overflowing() {
        let far = Timestamp::from_micros(i64::MAX);
        assert_eq!(far + Duration::from_secs(1), far);
        assert_eq!(Timestamp::ZERO.since(far), Duration::ZERO);
    }
}
