//! Spreads rows that wait for the same thing.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use longshore::UnitId;

/// The duration times 0.75 to 1.25, by a hash of the unit, so that rows that were parked together
/// do not poll together.
pub(crate) fn with_jitter(span: Duration, unit: UnitId) -> Duration {
    let mut hasher = DefaultHasher::new();
    unit.hash(&mut hasher);
    let part = (hasher.finish() % 1_000) as f64 / 1_000.0;
    span.mul_f64(0.75 + part / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_were_parked_together_look_at_different_times() {
        let span = Duration::from_secs(900);
        let waits: Vec<Duration> = (0..100).map(|_| with_jitter(span, UnitId::new())).collect();
        assert!(waits.iter().all(|wait| (675..=1125).contains(&wait.as_secs())), "{waits:?}");
        let spread = *waits.iter().max().unwrap() - *waits.iter().min().unwrap();
        assert!(spread > Duration::from_secs(200), "{spread:?}");
    }
}
