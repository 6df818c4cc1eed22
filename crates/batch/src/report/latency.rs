//! How long answers took: a histogram, and what can be read from it.

use longshore::batch::Sums;
use serde::Serialize;

use super::words;
use crate::checkpoint::{LATENCY_BOUNDS, latency_name};

/// Answers by how long they took.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Latency {
    /// Upper bounds in milliseconds (`None`: beyond all) and how many answers are below each and
    /// above the one before.
    pub parts: Vec<(Option<u64>, u64)>,
}

/// What a share of the answers stayed below. As exact as the histogram's bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Quantile {
    /// At most so many milliseconds.
    AtMost(u64),
    /// More than so many.
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

    /// How many answers there were.
    pub fn total(&self) -> u64 {
        self.parts.iter().map(|(_, count)| count).sum()
    }

    /// What `percent` of the answers stayed below; `None` without answers.
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

    /// The parts from the first to the last that has answers.
    pub(super) fn used(&self) -> &[(Option<u64>, u64)] {
        let used = |part: &(Option<u64>, u64)| part.1 > 0;
        match (self.parts.iter().position(used), self.parts.iter().rposition(used)) {
            (Some(first), Some(last)) => &self.parts[first..=last],
            _ => &[],
        }
    }
}

/// A part's name: its upper bound.
pub(super) fn label(bound: Option<u64>) -> String {
    let highest = LATENCY_BOUNDS[LATENCY_BOUNDS.len() - 1];
    bound.map_or(Quantile::Above(highest), Quantile::AtMost).to_string()
}

impl std::fmt::Display for Quantile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtMost(bound) => write!(f, "≤ {}", words::millis(*bound)),
            Self::Above(bound) => write!(f, "> {}", words::millis(*bound)),
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
