//! What caller and worker both hold of a call: who has it, and which of the two had the last word.
//!
//! One atomic word decides it. A worker begins a call only if nobody gave it up before; its answer
//! counts only if nobody gave it up meanwhile; and who gives it up learns which of these it was.

use crate::sync::{AtomicU64, Ordering};

/// The call was answered: it can be given up no more.
const ANSWERED: u64 = 1 << 63;
/// Nobody wants the answer any more.
const GIVEN_UP: u64 = 1 << 62;
/// The rest: which worker has it, 0 for none.
const WORKER: u64 = GIVEN_UP - 1;

/// What caller and worker both hold of a call.
#[derive(Debug, Default)]
pub(crate) struct Reins(AtomicU64);

/// What giving a call up met with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GivenUp {
    /// It had not begun, and never will.
    Unbegun,
    /// This worker has it.
    With(u64),
    /// Too late: its answer is there, or will be in a moment.
    Answered,
}

impl Reins {
    /// A worker has it from now on. False if it was given up: then it is not to be begun.
    pub(crate) fn begin(&self, worker: u64) -> bool {
        self.change(|word| (word == 0).then_some(worker & WORKER)).is_ok()
    }

    /// Its worker never began it. False if it was given up.
    pub(crate) fn unbegin(&self) -> bool {
        self.change(|word| (word <= WORKER).then_some(0)).is_ok()
    }

    /// It is about to be answered. True for one only, and only while somebody wants it.
    pub(crate) fn settle(&self) -> bool {
        self.change(|word| (word <= WORKER).then_some(word | ANSWERED)).is_ok()
    }

    /// Nobody wants it any more.
    pub(crate) fn give_up(&self) -> GivenUp {
        match self.change(|word| (word <= WORKER).then_some(word | GIVEN_UP)) {
            Ok(0) => GivenUp::Unbegun,
            Ok(worker) => GivenUp::With(worker),
            Err(_) => GivenUp::Answered,
        }
    }

    /// Which worker has it, or had it last.
    pub(crate) fn worker(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Acquire) & WORKER).filter(|worker| *worker > 0)
    }

    /// Whether nobody wants it any more.
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
