//! Splits questions into batches: by count, by bytes, and by model.

use std::ops::Range;

/// The limits of one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Questions.
    pub items: usize,
    /// Bytes of the request.
    pub bytes: usize,
    /// Whether all must ask the same model.
    pub models: Models,
}

/// Limits for one process's memory: further questions go into other batches.
const MAX_ITEMS: usize = 10_000;
const MAX_BYTES: usize = 64_000_000;

impl BatchLimits {
    /// The limits, capped by what one process should hold in memory.
    #[must_use]
    pub fn bounded(self) -> Self {
        let (items, bytes) = (self.items.min(MAX_ITEMS), self.bytes.min(MAX_BYTES));
        Self { items, bytes, ..self }
    }
}

/// Whether one batch may contain questions to different models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Models {
    /// It may.
    Any,
    /// It may not.
    One,
}

/// The size of a question within a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemSize {
    /// Bytes of the request.
    pub bytes: usize,
    /// The model that it asks.
    pub model: String,
}

/// Splits a list into batches, in its order. A question that is too large for any batch goes alone:
/// the provider rejects it by itself, and not the others with it.
pub fn split(items: &[ItemSize], limits: BatchLimits) -> Vec<Range<usize>> {
    let mut chunks = Vec::new();
    let (mut start, mut bytes) = (0, 0_usize);
    for (at, item) in items.iter().enumerate() {
        let more = bytes.saturating_add(item.bytes);
        let other = limits.models == Models::One && items[start].model != item.model;
        if at > start && (at - start >= limits.items || more > limits.bytes || other) {
            chunks.push(start..at);
            (start, bytes) = (at, 0);
        }
        bytes = bytes.saturating_add(item.bytes);
    }
    if start < items.len() {
        chunks.push(start..items.len());
    }
    chunks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn item(bytes: usize, model: &str) -> ItemSize {
        ItemSize { bytes, model: model.to_owned() }
    }

    fn limits(items: usize, bytes: usize, models: Models) -> BatchLimits {
        BatchLimits { items, bytes, models }
    }

    #[test]
    fn nothing_makes_no_batch() {
        assert!(split(&[], limits(3, 100, Models::Any)).is_empty());
    }

    #[test]
    fn a_batch_ends_at_its_count_at_its_bytes_and_at_another_model() {
        let small = vec![item(1, "m"); 7];
        assert_eq!(split(&small, limits(3, 100, Models::One)), [0..3, 3..6, 6..7]);
        let large = [40, 40, 20, 1, 99].map(|bytes| item(bytes, "m"));
        assert_eq!(split(&large, limits(9, 100, Models::One)), [0..3, 3..5]);
        let mixed = ["a", "a", "b", "a"].map(|model| item(1, model));
        assert_eq!(split(&mixed, limits(9, 100, Models::One)), [0..2, 2..3, 3..4]);
        assert_eq!(split(&mixed, limits(9, 100, Models::Any)).len(), 1);
    }

    #[test]
    fn what_is_too_large_for_any_goes_alone() {
        let items = [10, 101, 10].map(|bytes| item(bytes, "m"));
        assert_eq!(split(&items, limits(9, 100, Models::Any)), [0..1, 1..2, 2..3]);
    }

    proptest! {
        #[test]
        fn every_question_is_in_one_batch_and_no_batch_is_too_large(
            sizes in prop::collection::vec((1_usize..150, 0_u8..3), 0..60),
            most in 1_usize..10,
        ) {
            let items: Vec<ItemSize> =
                sizes.iter().map(|(bytes, model)| item(*bytes, &model.to_string())).collect();
            let limits = limits(most, 100, Models::One);
            let chunks = split(&items, limits);
            let all: Vec<usize> = chunks.iter().cloned().flatten().collect();
            prop_assert_eq!(all, (0..items.len()).collect::<Vec<_>>());
            for chunk in chunks {
                let part = &items[chunk];
                prop_assert!(part.len() <= most);
                prop_assert!(part.len() == 1 || part.iter().map(|i| i.bytes).sum::<usize>() <= 100);
                prop_assert!(part.iter().all(|item| item.model == part[0].model));
            }
        }
    }
}
