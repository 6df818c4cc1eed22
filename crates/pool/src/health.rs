//! Whether a pool can serve calls, as a status and a reason.

use serde::{Deserialize, Serialize};

use crate::error::ErrorKind;
use crate::scheduler::PoolCounts;

/// Whether a pool can serve calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Health {
    /// It can.
    Ok,
    /// It can, but with a problem.
    Degraded {
        /// The problem.
        reason: String,
    },
    /// It cannot.
    Failed {
        /// Why.
        reason: String,
    },
}

impl Health {
    /// Whether calls can be expected to succeed.
    pub fn is_serving(&self) -> bool {
        !matches!(self, Self::Failed { .. })
    }

    pub(crate) fn of(counts: &PoolCounts, limit: usize, start_error: Option<&ErrorKind>) -> Self {
        match failure(counts, start_error) {
            Some(reason) => Self::Failed { reason },
            None => match degradation(counts, limit, start_error) {
                Some(reason) => Self::Degraded { reason },
                None => Self::Ok,
            },
        }
    }
}

fn failure(counts: &PoolCounts, start_error: Option<&ErrorKind>) -> Option<String> {
    match start_error {
        _ if counts.closing => Some(ErrorKind::ShuttingDown.to_string()),
        Some(error) if counts.serving == 0 => Some(error.to_string()),
        _ => None,
    }
}

fn degradation(counts: &PoolCounts, limit: usize, start_error: Option<&ErrorKind>) -> Option<String> {
    let PoolCounts { serving, min, abandoned, queue, overflow, .. } = *counts;
    if let Some(error) = start_error {
        return Some(error.to_string());
    }
    if abandoned > 0 {
        return Some(format!("{abandoned} abandoned threads still run their calls"));
    }
    if serving < min {
        return Some(format!("{serving} workers are ready, of at least {min}"));
    }
    (queue + overflow >= limit.max(1)).then(|| format!("{} calls wait, limit {limit}", queue + overflow))
}

#[cfg(all(test, not(feature = "_shuttle")))]
mod tests {
    use super::*;

    fn counts() -> PoolCounts {
        PoolCounts { workers: 2, serving: 2, min: 2, ..PoolCounts::default() }
    }

    #[test]
    fn a_pool_with_its_workers_is_well() {
        assert_eq!(Health::of(&counts(), 10, None), Health::Ok);
    }

    #[test]
    fn a_pool_that_cannot_start_anybody_has_failed_and_says_why() {
        let error = crate::shared::start_failed("no such file");
        let health = Health::of(&PoolCounts { serving: 0, ..counts() }, 10, Some(&error));
        let Health::Failed { reason } = health else { panic!("{health:?}") };
        assert!(reason.contains("no such file"), "{reason}");
        assert!(Health::of(&counts(), 10, Some(&error)).is_serving());
    }

    #[test]
    fn a_full_queue_or_a_missing_or_lost_worker_is_trouble() {
        let troubled = |counts: PoolCounts| matches!(Health::of(&counts, 10, None), Health::Degraded { .. });
        assert!(troubled(PoolCounts { queue: 10, ..counts() }));
        assert!(!troubled(PoolCounts { queue: 9, ..counts() }));
        assert!(troubled(PoolCounts { abandoned: 1, ..counts() }));
        assert!(troubled(PoolCounts { serving: 1, ..counts() }));
    }

    #[test]
    fn a_closing_pool_serves_nobody() {
        assert!(!Health::of(&PoolCounts { closing: true, ..counts() }, 10, None).is_serving());
    }
}
