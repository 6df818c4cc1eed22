//! Rules of writers that record many results in one call: how much goes into a call, and what follows a failed one.
//!
//! The completer, the dispatch server and the call journal keep results that cannot be made again. One result that the
//! store cannot record must neither block the others nor make them lost.

use crate::call::CallRecord;
use crate::error::Error;
use crate::outcome::{Effect, Outcome, Params, SqlValue};
use crate::unit::Payload;

/// The bytes after which a call takes no further result. PostgreSQL closes the connection at a message over 1 GB.
const MAX_CALL_BYTES: usize = 32 << 20;

/// Failed calls after which the next ones record only one result each.
const TRIES_WITH_ALL: usize = 5;

/// Upper bound of a call record: most of its texts are short.
const CALL_RECORD_BYTES: usize = 2_000;

/// How many results go into one call: at least one, and no further one after 32 MiB.
pub fn batch_len(sizes: impl IntoIterator<Item = usize>, max_len: usize) -> usize {
    let mut bytes = 0_usize;
    let fits = |size: &usize| {
        let full = bytes >= MAX_CALL_BYTES;
        bytes = bytes.saturating_add(*size);
        !full
    };
    sizes.into_iter().take(max_len).take_while(fits).count()
}

/// The bytes that the end of one run sends to the store.
pub fn finish_bytes(
    outcome: &Outcome,
    effects: &[Effect],
    checkpoint: Option<&Payload>,
    calls: &[CallRecord],
) -> usize {
    let result = match outcome {
        Outcome::Done(Some(result)) => result.len(),
        Outcome::Retry { failure, .. } | Outcome::Fail(failure) => failure.message.len(),
        _ => 0,
    };
    let effects: usize = effects.iter().map(effect_bytes).sum();
    result + effects + checkpoint.map_or(0, Payload::len) + calls.len() * CALL_RECORD_BYTES
}

fn effect_bytes(effect: &Effect) -> usize {
    let params: usize = match &effect.params {
        Params::Ordered(values) => values.iter().map(value_bytes).sum(),
        Params::Named(values) => values.iter().map(|(_, value)| value_bytes(value)).sum(),
    };
    effect.sql.len() + params
}

fn value_bytes(value: &SqlValue) -> usize {
    match value {
        SqlValue::Text(text) => text.len(),
        SqlValue::Blob(bytes) => bytes.len(),
        _ => 8,
    }
}

/// What a writer does after a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterError {
    /// Call again after a wait.
    Retry,
    /// Retry half of the results at a time beside other results, so that one that fails or is slow delays only itself.
    Halve,
    /// The store rejects the results of this call for good: retry half of them at a time, and replace a lone one.
    Reject,
}

/// The failed calls of one batch.
///
/// An outage fails calls of any length; a result that the store cannot record fails only its own call. So after some
/// failed calls the writer tries one result at a time: if one is recorded, the store is available and the others are
/// tried in halves.
#[derive(Debug, Default)]
pub struct BatchTries {
    failed: usize,
}

impl BatchTries {
    /// How many of a batch's `len` results the next call records: all, or only the first.
    pub fn call_len(&self, len: usize) -> usize {
        if self.failed < TRIES_WITH_ALL { len } else { len.min(1) }
    }

    /// Whether the next call records only the first of several results. After it failed, the writer moves that result
    /// to the batch's end.
    pub fn is_probe(&self, len: usize) -> bool {
        self.call_len(len) < len
    }

    /// Decides what follows a failed call of a batch with `len` results.
    pub fn on_error(&mut self, error: &Error, len: usize) -> AfterError {
        let probe = self.is_probe(len);
        self.failed += 1;
        match error {
            Error::TimedOut { .. } => AfterError::Halve,
            error if error.is_final() && !probe => AfterError::Reject,
            error if error.is_final() => AfterError::Halve,
            // No result of the batch is recorded alone.
            _ if self.failed > TRIES_WITH_ALL + len => AfterError::Halve,
            _ => AfterError::Retry,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_takes_results_up_to_a_count_and_a_number_of_bytes() {
        assert_eq!(batch_len([], 9), 0);
        assert_eq!(batch_len([1; 20], 9), 9);
        assert_eq!(batch_len([16 << 20; 2_000], 2_000), 2);
        assert_eq!(batch_len([100 << 20, 1], 9), 1, "a large result is sent alone");
    }

    #[test]
    fn after_repeated_errors_results_are_tried_alone_and_a_slow_or_rejected_call_is_halved_at_once() {
        let (mut tries, lost) = (BatchTries::default(), Error::unavailable("connection closed"));
        for _ in 0..TRIES_WITH_ALL {
            assert_eq!((tries.call_len(3), tries.on_error(&lost, 3)), (3, AfterError::Retry));
        }
        for _ in 0..3 {
            assert_eq!((tries.call_len(3), tries.on_error(&lost, 3)), (1, AfterError::Retry));
        }
        assert_eq!(tries.on_error(&lost, 3), AfterError::Halve, "each was tried alone");
        assert_eq!(BatchTries::default().on_error(&Error::timed_out("60 s"), 3), AfterError::Halve);
        let rejected = Error::Rejected { message: "22021".to_owned(), source: None };
        assert_eq!(BatchTries::default().on_error(&rejected, 3), AfterError::Reject);
        assert_eq!(tries.on_error(&rejected, 3), AfterError::Halve, "a probe tells of one result only");
    }
}
