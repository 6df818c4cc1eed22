//! What becomes of a queue, as the dashboard and `longshore top` say it.

use serde::Serialize;

/// Whether more comes than is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trend {
    /// Nothing waits.
    Idle,
    /// More comes than is done.
    Growing,
    /// As much comes as is done.
    Steady,
    /// More is done than comes.
    Draining,
}

impl Trend {
    /// Judges a backlog by what it was and what it is: whether that is a tenth more or less, and not only
    /// by a unit or two.
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
