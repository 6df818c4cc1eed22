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
const CANCELLED: u64 = 1 << 62;
/// The remaining bits: the worker that has the call, 0 for none.
const WORKER_MASK: u64 = CANCELLED - 1;

/// The state of a call that caller and worker share.
#[derive(Debug, Default)]
pub(crate) struct CallState(AtomicU64);

/// The state in which a cancellation found the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CancelResult {
    /// It had not started, and never will.
    NotStarted,
    /// This worker has it.
    Assigned(u64),
    /// Too late: it is answered, or will be in a moment.
    Answered,
}

impl CallState {
    /// Assigns the call to a worker. False if it was cancelled: then it must not start.
    pub(crate) fn assign(&self, worker: u64) -> bool {
        self.update(|word| (word == 0).then_some(worker & WORKER_MASK)).is_ok()
    }

    /// Takes the call from a worker that never started it. False if it was cancelled.
    pub(crate) fn unassign(&self) -> bool {
        self.update(|word| (word <= WORKER_MASK).then_some(0)).is_ok()
    }

    /// Claims the right to answer. True for one caller only, and only if the call was not
    /// cancelled.
    pub(crate) fn settle(&self) -> bool {
        self.update(|word| (word <= WORKER_MASK).then_some(word | ANSWERED)).is_ok()
    }

    /// Cancels the call.
    pub(crate) fn cancel(&self) -> CancelResult {
        match self.update(|word| (word <= WORKER_MASK).then_some(word | CANCELLED)) {
            Ok(0) => CancelResult::NotStarted,
            Ok(worker) => CancelResult::Assigned(worker),
            Err(_) => CancelResult::Answered,
        }
    }

    /// The worker that has the call, or had it last.
    pub(crate) fn worker(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Acquire) & WORKER_MASK).filter(|worker| *worker > 0)
    }

    /// Whether it was cancelled.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire) & CANCELLED != 0
    }

    fn update(&self, to: impl Fn(u64) -> Option<u64>) -> Result<u64, u64> {
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, to)
    }
}

#[cfg(all(test, not(feature = "_shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn a_call_given_up_before_it_began_never_begins() {
        let call_state = CallState::default();
        assert_eq!(call_state.cancel(), CancelResult::NotStarted);
        assert!(!call_state.assign(7));
        assert!(!call_state.settle());
    }

    #[test]
    fn an_answer_comes_once_and_ends_the_time_for_giving_up() {
        let call_state = CallState::default();
        assert!(call_state.assign(7));
        assert!(call_state.settle());
        assert!(!call_state.settle());
        assert_eq!(call_state.cancel(), CancelResult::Answered);
        assert!(!call_state.is_cancelled());
        assert_eq!(call_state.worker(), Some(7));
    }

    #[test]
    fn who_gives_up_in_the_middle_learns_which_worker_is_at_it() {
        let call_state = CallState::default();
        assert!(call_state.assign(7) && call_state.unassign() && call_state.assign(8));
        assert_eq!(call_state.cancel(), CancelResult::Assigned(8));
        assert!(!call_state.settle() && !call_state.unassign());
    }
}
