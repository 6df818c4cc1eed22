//! Counts how often each prompt was asked before: the `n` of scripts.
//!
//! Bounded: only the latest prompts are remembered, by a hash. A prompt that returns after so many
//! others counts from 0 again.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

/// Prompts remembered. A few megabytes at most; enough for the retries of a batch: its rows
/// return soon or not at all.
pub(crate) const MAX_PROMPTS: usize = 100_000;

/// Counts prompts.
#[derive(Debug, Default)]
pub(crate) struct PromptCounter {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    counts: HashMap<u64, u64>,
    /// By first occurrence.
    order: VecDeque<u64>,
}

impl PromptCounter {
    /// Counts a prompt; returns how often it was asked before.
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
        if self.order.len() == MAX_PROMPTS
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
        let prompt_counter = PromptCounter::default();
        assert_eq!(["a", "a", "b", "a"].map(|prompt| prompt_counter.count(prompt)), [0, 1, 0, 2]);
    }

    #[test]
    fn the_oldest_prompt_is_forgotten_when_there_are_too_many() {
        let mut state = State::default();
        for prompt in 0..MAX_PROMPTS as u64 {
            state.count(prompt);
        }
        assert_eq!(state.count(0), 1, "full, and the first is still known");
        state.count(u64::MAX);
        assert_eq!(state.count(1), 1, "the second is known");
        assert_eq!(state.count(0), 0, "the first was forgotten");
        assert_eq!(state.counts.len(), MAX_PROMPTS);
        assert_eq!(state.order.len(), MAX_PROMPTS);
    }
}
