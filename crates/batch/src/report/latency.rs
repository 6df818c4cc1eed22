//! The latency histogram and its quantiles.

use longshore::batch::Sums;
use serde::Serialize;

use super::format;
use crate::checkpoint::{LATENCY_BOUNDS, latency_name};

/// Answers by latency.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Latency {
    /// Upper bounds in milliseconds (`None`: no bound) and the number of answers in each bucket.
    pub parts: Vec<(Option<u64>, u64)>,
}

/// A latency quantile, as exact as the histogram's buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Quantile {
    /// At most this many milliseconds.
    AtMost(u64),
    /// More than this many milliseconds.
    Above(u64),
}

impl Latency {
    pub(super) fn of(sums: &Sums) -> Self {
        let bounds = LATENCY_BOUNDS.into_iter().map(Some).chain([None]);
        let count = |bound| {
            let sum = sums.get(&latency_name(bound)).copied().unwrap_or_default();
            (bound, u64::try_from(sum).unwrap_or_default())
        };
        Self { parts: bounds.map(count).collect() }
    }

    /// The number of answers.
    pub fn total(&self) -> u64 {
        self.parts.iter().map(|(_, count)| count).sum()
    }

    /// The latency of the fastest `percent` of the answers; `None` without answers.
    pub fn quantile(&self, percent: u64) -> Option<Quantile> {
        let total = self.total();
        let wanted = (total * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let reached = self.parts.iter().find(|(_, count)| {
            seen += count;
            seen >= wanted
        })?;
        let highest = LATENCY_BOUNDS[LATENCY_BOUNDS.len() - 1];
        Some(reached.0.map_or(Quantile::Above(highest), Quantile::AtMost))
    }

    /// The buckets from the first to the last with answers.
    pub(super) fn used(&self) -> &[(Option<u64>, u64)] {
        let used = |part: &(Option<u64>, u64)| part.1 > 0;
        match (self.parts.iter().position(used), self.parts.iter().rposition(used)) {
            (Some(first), Some(last)) => &self.parts[first..=last],
            _ => &[],
        }
    }
}

/// A bucket's label: its upper bound.
pub(super) fn label(bound: Option<u64>) -> String {
    let highest = LATENCY_BOUNDS[LATENCY_BOUNDS.len() - 1];
    bound.map_or(Quantile::Above(highest), Quantile::AtMost).to_string()
}

impl std::fmt::Display for Quantile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtMost(bound) => write!(f, "≤ {}", format::millis(*bound)),
            Self::Above(bound) => write!(f, "> {}", format::millis(*bound)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_read_from_the_histogram() {
        let sums = [(Some(10), 90), (Some(50), 9), (None, 1)];
        let sums = sums.map(|(bound, count)| (latency_name(bound), count));
        let latency = Latency::of(&Sums::from(sums));
        let read = |percent| latency.quantile(percent).unwrap().to_string();
        assert_eq!([read(50), read(90), read(99)], ["≤ 10 ms", "≤ 10 ms", "≤ 50 ms"]);
        assert_eq!(read(100), "> 50 s");
        assert_eq!(latency.used().len(), 13, "from 10 ms to beyond all, the gaps included");
    }

    #[test]
    fn without_answers_there_is_nothing_to_read() {
        let none = Latency::of(&Sums::new());
        assert_eq!(none.quantile(50), None);
        assert!(none.used().is_empty());
    }
}
