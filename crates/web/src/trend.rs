//! The trend of a queue's backlog, for the dashboard and `longshore top`.

use serde::Serialize;

/// Whether a queue grows or drains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trend {
    /// No units wait.
    Idle,
    /// More units are enqueued than completed.
    Growing,
    /// About as many units are enqueued as completed.
    Steady,
    /// More units are completed than enqueued.
    Draining,
}

impl Trend {
    /// Compares two backlogs. A change counts if it is more than a tenth and more than 3 units.
    pub fn of(then: u64, now: u64) -> Self {
        let margin = (then.max(now) / 10).max(3);
        match () {
            () if now == 0 => Self::Idle,
            () if now > then.saturating_add(margin) => Self::Growing,
            () if then > now.saturating_add(margin) => Self::Draining,
            () => Self::Steady,
        }
    }

    /// Its name, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Growing => "growing",
            Self::Steady => "steady",
            Self::Draining => "draining",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_little_up_and_down_is_steady() {
        for (then, now, judged) in [
            (1000, 1100, Trend::Steady),
            (1000, 900, Trend::Steady),
            (1000, 1200, Trend::Growing),
            (1000, 800, Trend::Draining),
            (0, 3, Trend::Steady),
            (0, 4, Trend::Growing),
            (4, 0, Trend::Idle),
            (0, 0, Trend::Idle),
        ] {
            assert_eq!(Trend::of(then, now), judged, "{then} to {now}");
        }
    }
}
