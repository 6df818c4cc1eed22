//! Checks whether a worker is alive, and when it has to be stopped.

use std::time::{Duration, Instant};

use super::state::{InFlightCall, PROBE_REPLY_TIME};
use super::{LivenessAction, MAX_WAIT, StopRequest, Worker, WorkerState};
use crate::protocol::ToWorker;
use crate::scheduler::EndCause;
use crate::settings::OnTimeout;

/// How long an idle worker may take to answer a ping.
const PONG_TIMEOUT: Duration = Duration::from_secs(10);

impl Worker {
    /// Checks the worker. Returns what the lifecycle task has to do.
    pub(in super::super) fn check_liveness(&self, now: Instant, ping_every: Duration) -> LivenessAction {
        let mut state = self.state();
        let mut action = match state.stop_request {
            Some(StopRequest::Kill(cause)) => return LivenessAction::Kill(cause),
            None if state.input_broken => return LivenessAction::AwaitExit,
            Some(StopRequest::Graceful(cause)) => self.stop_gracefully(&mut state, cause, now),
            None => self.check_health(&mut state, now, ping_every),
        };
        if let LivenessAction::Wait(until) = &mut action {
            *until = probe(&mut state, now).map_or(*until, |next| next.min(*until));
            state.check_at = *until;
        }
        drop(state);
        self.flush();
        action
    }

    /// Stops a worker gracefully: sends `stop` once no caller waits for it, and allows the stop
    /// timeout.
    fn stop_gracefully(&self, state: &mut WorkerState, cause: EndCause, now: Instant) -> LivenessAction {
        state.open = false;
        if state.has_awaited_calls() {
            return LivenessAction::Wait(now + self.stop_timeout);
        }
        if !state.stop_sent {
            state.stop_sent = true;
            let _ = state.encoding.encode_to_worker(&ToWorker::Stop, state.outbox.buffer());
        }
        let by = *state.stop_by.get_or_insert(now + self.stop_timeout);
        if by <= now { LivenessAction::Kill(cause) } else { LivenessAction::Wait(by) }
    }

    /// Checks a running worker: it must not stay in a cancelled call for ever, and must answer
    /// pings.
    fn check_health(&self, state: &mut WorkerState, now: Instant, ping_every: Duration) -> LivenessAction {
        if self.on_timeout == OnTimeout::Replace
            && let Some(by) = state.running_cancelled_since().map(|since| since + self.stop_timeout)
        {
            return match (by <= now, state.concurrency) {
                (false, _) => LivenessAction::Wait(by),
                (true, 1) => LivenessAction::Kill(EndCause::Timeout),
                // The worker's other calls are not at fault.
                (true, _) => LivenessAction::Drain(EndCause::Timeout),
            };
        }
        if let Some((_, sent_at)) = state.pinged {
            let by = sent_at + PONG_TIMEOUT;
            return if by <= now { LivenessAction::Kill(EndCause::Died) } else { LivenessAction::Wait(by) };
        }
        let Some(ask_at) = state.last_activity.checked_add(ping_every) else {
            return LivenessAction::Wait(now + MAX_WAIT);
        };
        if !state.calls.is_empty() || !state.open || ask_at > now {
            return LivenessAction::Wait(ask_at.max(now + ping_every / 4).min(now + MAX_WAIT));
        }
        state.last_id += 1;
        state.pinged = Some((state.last_id, now));
        let _ = state.encoding.encode_to_worker(&ToWorker::Ping(state.last_id), state.outbox.buffer());
        LivenessAction::Wait(now + PONG_TIMEOUT)
    }
}

/// Pings a worker with several calls before one of them times out. When its time is over, the answer
/// tells whether only that call hangs, or one of the calls blocks the whole worker. Returns when to
/// check again.
fn probe(state: &mut WorkerState, now: Instant) -> Option<Instant> {
    if state.concurrency == 1 {
        return None;
    }
    let next = |state: &WorkerState| {
        let waiting = state.calls.iter().filter(|call| call.cancelled_at.is_none());
        let times = waiting.map(InFlightCall::probe_at);
        times.filter(|at| state.probed_at.is_none_or(|probed| probed < *at)).min()
    };
    let due = next(state)?;
    if due > now {
        return Some(due);
    }
    if state.probed_at.is_some_and(|at| state.last_heard < at) {
        // An earlier ping is unanswered.
        return Some(now + PROBE_REPLY_TIME);
    }
    state.probed_at = Some(now);
    state.last_id += 1;
    let _ = state.encoding.encode_to_worker(&ToWorker::Ping(state.last_id), state.outbox.buffer());
    next(state)
}
