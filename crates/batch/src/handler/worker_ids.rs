//! Numbers for `:worker_id`, so that two rows that run at once never have the same.
//!
//! The smallest free number is used: twenty slots give twenty worker ids, not one per row.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Allocates numbers from 1.
#[derive(Debug, Default)]
pub(super) struct WorkerIdPool(Mutex<FreeIds>);

#[derive(Debug, Default)]
struct FreeIds {
    /// Released numbers, each at most `highest`.
    returned: BTreeSet<u32>,
    /// The highest number ever used.
    highest: u32,
}

/// A number in use; released on drop.
#[derive(Debug)]
pub(super) struct PooledWorkerId {
    value: u32,
    pool: Arc<WorkerIdPool>,
}

impl WorkerIdPool {
    /// Acquires the smallest free number.
    pub(super) fn acquire(self: &Arc<Self>) -> PooledWorkerId {
        let mut free = self.free();
        let value = free.returned.pop_first().unwrap_or_else(|| {
            free.highest += 1;
            free.highest
        });
        drop(free);
        PooledWorkerId { value, pool: Arc::clone(self) }
    }

    fn free(&self) -> MutexGuard<'_, FreeIds> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Display for PooledWorkerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.value.fmt(f)
    }
}

impl Drop for PooledWorkerId {
    fn drop(&mut self) {
        self.pool.free().returned.insert(self.value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_free_number_is_taken() {
        let pool = Arc::new(WorkerIdPool::default());
        let (one, two, three) = (pool.acquire(), pool.acquire(), pool.acquire());
        assert_eq!([one.value, two.value, three.value], [1, 2, 3]);
        drop(two);
        let again = pool.acquire();
        assert_eq!(again.value, 2, "a number given back comes before a new one");
        assert_eq!(pool.acquire().value, 4);
        drop((one, three, again));
    }
}
