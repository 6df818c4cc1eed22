//! Worker numbers: who works on a row, so that two rows worked on at once never have the same.
//!
//! The smallest free number is taken, so that twenty slots are twenty workers and not as many as
//! there are rows.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Hands out numbers from 1.
#[derive(Debug, Default)]
pub(super) struct Numbers(Mutex<Free>);

#[derive(Debug, Default)]
struct Free {
    /// Given back, each smaller than or equal to `highest`.
    returned: BTreeSet<u32>,
    /// The highest ever taken.
    highest: u32,
}

/// A number in use; free again when dropped.
#[derive(Debug)]
pub(super) struct Number {
    value: u32,
    numbers: Arc<Numbers>,
}

impl Numbers {
    /// Takes the smallest free number.
    pub(super) fn take(self: &Arc<Self>) -> Number {
        let mut free = self.free();
        let value = free.returned.pop_first().unwrap_or_else(|| {
            free.highest += 1;
            free.highest
        });
        drop(free);
        Number { value, numbers: Arc::clone(self) }
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.value.fmt(f)
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        self.numbers.free().returned.insert(self.value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_free_number_is_taken() {
        let numbers = Arc::new(Numbers::default());
        let (one, two, three) = (numbers.take(), numbers.take(), numbers.take());
        assert_eq!([one.value, two.value, three.value], [1, 2, 3]);
        drop(two);
        let again = numbers.take();
        assert_eq!(again.value, 2, "a number given back comes before a new one");
        assert_eq!(numbers.take().value, 4);
        drop((one, three, again));
    }
}
