//! The state of a call that caller and worker share: which worker has it, and whether it was
//! answered or cancelled first.
//!
//! One atomic word decides. A worker starts a call only if it was not cancelled before; its answer
//! counts only if the call was not cancelled meanwhile; and the caller that cancels learns which of
//! these happened.

use crate::sync::{AtomicU64, Ordering};

/// The call was answered, so it can no longer be cancelled.
const ANSWERED: u64 = 1 << 63;
/// The caller no longer wants the answer.
const GIVEN_UP: u64 = 1 << 62;
/// The remaining bits: the worker that has the call, 0 for none.
const WORKER: u64 = GIVEN_UP - 1;

/// The state of a call that caller and worker share.
#[derive(Debug, Default)]
pub(crate) struct Reins(AtomicU64);

/// The state in which a cancellation found the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GivenUp {
    /// It had not started, and never will.
    Unbegun,
    /// This worker has it.
    With(u64),
    /// Too late: it is answered, or will be in a moment.
    Answered,
}

impl Reins {
    /// Assigns the call to a worker. False if it was cancelled: then it must not start.
    pub(crate) fn begin(&self, worker: u64) -> bool {
        self.change(|word| (word == 0).then_some(worker & WORKER)).is_ok()
    }

    /// Takes the call from a worker that never started it. False if it was cancelled.
    pub(crate) fn unbegin(&self) -> bool {
        self.change(|word| (word <= WORKER).then_some(0)).is_ok()
    }

    /// Claims the right to answer. True for one caller only, and only if the call was not
    /// cancelled.
    pub(crate) fn settle(&self) -> bool {
        self.change(|word| (word <= WORKER).then_some(word | ANSWERED)).is_ok()
    }

    /// Cancels the call.
    pub(crate) fn give_up(&self) -> GivenUp {
        match self.change(|word| (word <= WORKER).then_some(word | GIVEN_UP)) {
            Ok(0) => GivenUp::Unbegun,
            Ok(worker) => GivenUp::With(worker),
            Err(_) => GivenUp::Answered,
        }
    }

    /// The worker that has the call, or had it last.
    pub(crate) fn worker(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Acquire) & WORKER).filter(|worker| *worker > 0)
    }

    /// Whether it was cancelled.
    pub(crate) fn is_given_up(&self) -> bool {
        self.0.load(Ordering::Acquire) & GIVEN_UP != 0
    }

    fn change(&self, to: impl Fn(u64) -> Option<u64>) -> Result<u64, u64> {
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, to)
    }
}

#[cfg(all(test, not(feature = "_shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn a_call_given_up_before_it_began_never_begins() {
        let reins = Reins::default();
        assert_eq!(reins.give_up(), GivenUp::Unbegun);
        assert!(!reins.begin(7));
        assert!(!reins.settle());
    }

    #[test]
    fn an_answer_comes_once_and_ends_the_time_for_giving_up() {
        let reins = Reins::default();
        assert!(reins.begin(7));
        assert!(reins.settle());
        assert!(!reins.settle());
        assert_eq!(reins.give_up(), GivenUp::Answered);
        assert!(!reins.is_given_up());
        assert_eq!(reins.worker(), Some(7));
    }

    #[test]
    fn who_gives_up_in_the_middle_learns_which_worker_is_at_it() {
        let reins = Reins::default();
        assert!(reins.begin(7) && reins.unbegin() && reins.begin(8));
        assert_eq!(reins.give_up(), GivenUp::With(8));
        assert!(!reins.settle() && !reins.unbegin());
    }
}
