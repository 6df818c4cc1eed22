//! Priorities, and the rank that orders ready units.
//!
//! `rank = ready_at + priority × STEP`, stored once, smallest first. The rank never changes while a
//! unit waits, so it can be indexed. It contains the time, so a low-priority unit that has waited
//! long enough passes every newer high-priority one: aging is linear and no unit starves.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// How long a unit must wait to make up for one priority level. An hour: long enough that `high`
/// overtakes an evening's backlog, short enough that `low` runs the same day.
pub const AGING_PER_LEVEL: Duration = Duration::from_secs(3600);

/// 1 (first) to 9 (last). `high` = 1, `normal` = 5, `low` = 9.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Priority(u8);

inline_schema!(Priority, { "type": "integer", "minimum": 1, "maximum": 9 });

/// A priority outside 1 to 9.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("priority `{0}` is not high, normal, low or a number from 1 to 9")]
pub struct PriorityError(String);

impl Priority {
    /// First.
    pub const HIGH: Self = Self(1);
    /// The default.
    pub const NORMAL: Self = Self(5);
    /// Last.
    pub const LOW: Self = Self(9);

    /// Validates and wraps a number.
    pub fn new(level: u8) -> Result<Self, PriorityError> {
        if (1..=9).contains(&level) { Ok(Self(level)) } else { Err(PriorityError(level.to_string())) }
    }

    /// The number.
    pub const fn level(self) -> u8 {
        self.0
    }

    /// The rank of a unit that became ready at `ready_at`.
    pub fn rank(self, ready_at: Timestamp) -> Timestamp {
        ready_at + AGING_PER_LEVEL * u32::from(self.0)
    }

    /// When a unit with this priority and `rank` became ready: the inverse of [`Self::rank`].
    pub fn ready_at(self, rank: Timestamp) -> Timestamp {
        rank - AGING_PER_LEVEL * u32::from(self.0)
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self::NORMAL
    }
}

impl TryFrom<u8> for Priority {
    type Error = PriorityError;
    fn try_from(level: u8) -> Result<Self, PriorityError> {
        Self::new(level)
    }
}

impl From<Priority> for u8 {
    fn from(priority: Priority) -> Self {
        priority.0
    }
}

impl FromStr for Priority {
    type Err = PriorityError;
    fn from_str(text: &str) -> Result<Self, PriorityError> {
        match text {
            "high" => Ok(Self::HIGH),
            "normal" => Ok(Self::NORMAL),
            "low" => Ok(Self::LOW),
            other => {
                let level = other.parse().map_err(|_| PriorityError(other.to_owned()))?;
                Self::new(level)
            }
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::HIGH => f.pad("high"),
            Self::NORMAL => f.pad("normal"),
            Self::LOW => f.pad("low"),
            Self(level) => f.pad(&level.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn high_passes_normal_until_normal_has_aged() {
        let sent = Timestamp::from_micros(1_000_000_000);
        let normal = Priority::NORMAL.rank(sent);
        assert!(Priority::HIGH.rank(sent + AGING_PER_LEVEL) < normal);
        assert!(Priority::HIGH.rank(sent + AGING_PER_LEVEL * 5) > normal);
    }

    #[test]
    fn priorities_are_read_by_name_and_by_number() {
        assert_eq!("high".parse::<Priority>().unwrap(), Priority::HIGH);
        assert_eq!("3".parse::<Priority>().unwrap().level(), 3);
        for bad in ["0", "10", "", "urgent", "-1"] {
            assert!(bad.parse::<Priority>().is_err(), "{bad}");
        }
    }
}
