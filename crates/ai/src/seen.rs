//! How often each prompt was asked before: the `n` of scripts.
//!
//! Bounded: only the prompts that came last are remembered, by a hash. A prompt that comes again
//! after so many others counts from 0 once more.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

/// How many different prompts are remembered. A few megabytes at most; enough for the retries of
/// a batch, whose rows come again soon or not at all.
pub(crate) const MOST: usize = 100_000;

/// Counts prompts.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    counts: HashMap<u64, u64>,
    /// In the order in which they came first.
    order: VecDeque<u64>,
}

impl Seen {
    /// Counts a prompt and says how often it had come before.
    pub(crate) fn count(&self, prompt: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        prompt.hash(&mut hasher);
        self.state.lock().unwrap_or_else(PoisonError::into_inner).count(hasher.finish())
    }
}

impl State {
    fn count(&mut self, prompt: u64) -> u64 {
        if let Some(count) = self.counts.get_mut(&prompt) {
            *count += 1;
            return *count;
        }
        if self.order.len() == MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.counts.remove(&oldest);
        }
        self.order.push_back(prompt);
        self.counts.insert(prompt, 0);
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_counts_from_zero_and_apart_from_others() {
        let seen = Seen::default();
        assert_eq!(["a", "a", "b", "a"].map(|prompt| seen.count(prompt)), [0, 1, 0, 2]);
    }

    #[test]
    fn the_oldest_prompt_is_forgotten_when_there_are_too_many() {
        let mut state = State::default();
        for prompt in 0..MOST as u64 {
            state.count(prompt);
        }
        assert_eq!(state.count(0), 1, "full, and the first is still known");
        state.count(u64::MAX);
        assert_eq!(state.count(1), 1, "the second is known");
        assert_eq!(state.count(0), 0, "the first was forgotten");
        assert_eq!(state.counts.len(), MOST);
        assert_eq!(state.order.len(), MOST);
    }
}
