//! Rates, percentiles and medians.

use std::time::Duration;

/// The figures of one run.
#[derive(Debug, Clone, Copy, serde::Deserialize)]
pub(crate) struct Figures {
    /// Pairs per second.
    pub(crate) rate: f64,
    /// Median duration of a pair, in microseconds.
    pub(crate) p50: f64,
    /// 99th percentile, in microseconds.
    pub(crate) p99: f64,
}

impl Figures {
    /// Computes the figures from the durations of all pairs.
    #[expect(clippy::cast_precision_loss, reason = "counts of pairs")]
    pub(crate) fn of(mut took: Vec<Duration>, all: Duration) -> Self {
        took.sort_unstable();
        let at = |percent: usize| {
            let place = took.len().saturating_sub(1) * percent / 100;
            took.get(place).map_or(0.0, |took| took.as_secs_f64() * 1e6)
        };
        Self { rate: took.len() as f64 / all.as_secs_f64(), p50: at(50), p99: at(99) }
    }

    /// Formats a row, with the ratio to the plain pair.
    pub(crate) fn print(&self, name: &str, plain: &Self) {
        let Self { rate, p50, p99 } = self;
        let (more, longer) = (rate / plain.rate, p50 / plain.p50);
        println!(
            "  {name:<16} {rate:>8.0} pairs/s ({more:.2}x)   p50 {p50:>7.0} us ({longer:.2}x)   p99 {p99:>7.0} us"
        );
    }
}

/// The median of each figure.
pub(crate) fn median(runs: &[Figures]) -> Figures {
    let middle = |figure: fn(&Figures) -> f64| {
        let mut all: Vec<f64> = runs.iter().map(figure).collect();
        all.sort_unstable_by(f64::total_cmp);
        all[all.len() / 2]
    };
    Figures { rate: middle(|run| run.rate), p50: middle(|run| run.p50), p99: middle(|run| run.p99) }
}
