//! The executor starts units and runs their handlers.
//!
//! A run reads top to bottom: start, acquire the permit, resolve the handler, set the time limit,
//! refuse a kind that is closed to its tenant, perform, normalise, pass to the completer. `run_unit` is the only place that catches a handler's
//! panic.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use longshore_core::unit::check_size;
use longshore_core::worker_session::WorkerCommand;
use longshore_core::{Error, Failure, Outcome, SessionId, Timestamp, Unit};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Instrument;

use crate::backoff::Backoff;
use crate::bounded_pool::Permit;
use crate::context::{CancelReason, Context, RunControl};
use crate::handler::RunOutcome;
use crate::permit_gate;
use crate::trace;
use crate::unit_table::BoxedUnit;
use crate::worker::RegisteredHandler;
use crate::worker_inner::{StoreCall, WorkerInner};

const YIELDS_AFTER_START: u32 = 4;

/// Runs units of the table until the task is dropped; all handlers are dropped with it.
pub(crate) async fn run(worker: Arc<WorkerInner>) {
    let mut runs = JoinSet::new();
    loop {
        while runs.try_join_next().is_some() {}
        let next = worker.table.take_runnable(worker.control.order() == WorkerCommand::Work);
        if next.run.is_empty() && next.start.is_empty() {
            worker.table.runnable.notified().await;
            // Slots tend to become free together: one start call for all of them.
            tokio::task::yield_now().await;
            continue;
        }
        let Some(session) = worker.table.session() else {
            // The session was voided in between, and every lease with it.
            worker.table.begin_runs(next.run);
            worker.table.remove_unstarted(&next.start);
            continue;
        };
        spawn(&worker, session, next.run, &mut runs);
        let started = start(&worker, session, next.start).await;
        worker.table.count_running(started.len());
        spawn(&worker, session, started, &mut runs);
        // Runs that end immediately free slots for the next start call.
        for _ in 0..YIELDS_AFTER_START {
            tokio::task::yield_now().await;
        }
    }
}

fn spawn(worker: &Arc<WorkerInner>, session: SessionId, units: Vec<BoxedUnit>, runs: &mut JoinSet<()>) {
    if units.is_empty() {
        return;
    }
    for (held, run_control) in worker.table.begin_runs(units) {
        let unit = &held.unit;
        let span = tracing::debug_span!("unit", id = %unit.id, kind = %unit.kind, attempt = unit.attempt);
        let traced = trace::run_span(unit);
        let running = run_unit(Arc::clone(worker), session, held, run_control);
        runs.spawn(running.instrument(traced).instrument(span));
    }
}

/// Counts the attempts of prefetched units, in one call. Returns the units that may run.
async fn start(worker: &WorkerInner, session: SessionId, units: Vec<BoxedUnit>) -> Vec<BoxedUnit> {
    if units.is_empty() {
        return units;
    }
    let leases: Vec<_> = units.iter().map(|held| held.lease).collect();
    let mut backoff = Backoff::store();
    loop {
        match worker.store().start(session, &leases).await {
            Ok(times) => {
                worker.store_answered(StoreCall::Start);
                let (started, refused) = split_started(units, times);
                worker.table.remove_unstarted(&refused);
                worker.release(refused.iter().map(|held| held.lease).collect()).await;
                return started;
            }
            Err(error) if error.is_retryable() => worker.store_failed(StoreCall::Start, &error),
            Err(Error::SessionGone(_)) => {
                worker.store_answered(StoreCall::Start);
                worker.table.remove_unstarted(&units);
                worker.session_gone(session);
                return Vec::new();
            }
            Err(error) => {
                tracing::error!(%error, "the store rejected a start");
                worker.store_answered(StoreCall::Start);
                worker.table.remove_unstarted(&units);
                worker.release(leases).await;
                return Vec::new();
            }
        }
        if worker.control.order() > WorkerCommand::Work {
            worker.table.remove_unstarted(&units);
            worker.release(leases).await;
            return Vec::new();
        }
        backoff.wait().await;
    }
}

/// Splits units into started ones and rejected ones (lease lost, cancelled or paused).
fn split_started(units: Vec<BoxedUnit>, times: Vec<Option<Timestamp>>) -> (Vec<BoxedUnit>, Vec<BoxedUnit>) {
    let mut started = Vec::with_capacity(units.len());
    let mut refused = Vec::new();
    let times = times.into_iter().chain(std::iter::repeat(None));
    for (mut held, time) in units.into_iter().zip(times) {
        if time.is_none() {
            refused.push(held);
            continue;
        }
        held.unit.attempt += 1;
        held.unit.started_at = time;
        held.started = true;
        started.push(held);
    }
    (started, refused)
}

/// Runs one unit, from its permit to the completer.
async fn run_unit(
    worker: Arc<WorkerInner>,
    session: SessionId,
    held: BoxedUnit,
    run_control: Arc<RunControl>,
) {
    worker.stats.on_start();
    let began = Instant::now();
    let admission = permit_gate::acquire(&worker, &held.unit, &run_control).await;
    let run = UnitRun::resolve(&worker, session, held, run_control, began.elapsed());
    let answer = match admission {
        Ok(permit) => {
            let performing = run.perform(permit.as_ref()).instrument(trace::handler_span());
            let performed = AssertUnwindSafe(performing).catch_unwind().await;
            performed.unwrap_or_else(|panic| panicked(&*panic))
        }
        Err(outcome) => outcome.into(),
    };
    let answer = run.normalise(answer);
    if run.has_yielded(&answer) {
        worker.stats.on_yielded();
    }
    worker.stats.on_end(began.elapsed());
    run.complete(answer);
}

struct UnitRun<'a> {
    worker: &'a WorkerInner,
    registered: Option<&'a RegisteredHandler>,
    lease: longshore_core::worker_session::Lease,
    limit: Option<TimeLimit>,
    run_control: Arc<RunControl>,
    context: Context,
}

/// When a run is out of time, and whether by deadline or timeout.
#[derive(Debug, Clone, Copy)]
struct TimeLimit {
    at: Instant,
    allowed: Duration,
    by_deadline: bool,
}

impl<'a> UnitRun<'a> {
    fn resolve(
        worker: &'a WorkerInner,
        session: SessionId,
        held: BoxedUnit,
        run_control: Arc<RunControl>,
        waited: Duration,
    ) -> Self {
        let registered = worker.settings.handlers.get(&held.unit.kind);
        let limit = registered.and_then(|registered| TimeLimit::of(&held.unit, registered, waited));
        let lease = held.lease;
        let until = limit.map(|limit| limit.at);
        let client = worker.client.clone().traced(held.unit.trace.as_deref()).with_rights(held.unit.rights);
        let waits = Arc::clone(&worker.waits);
        let context = Context::new(held, session, until, Arc::clone(&run_control), client, waits);
        Self { worker, registered, lease, limit, run_control, context }
    }

    /// Runs the handler until it returns, its time is over, its permit is lost, or its grace after
    /// a cancellation is over.
    async fn perform(&self, permit: Option<&Permit>) -> RunOutcome {
        let Some(registered) = self.registered else {
            // The store returned a kind that was not claimed: leave it to other workers.
            return Outcome::Snooze(Duration::from_secs(60)).into();
        };
        if let Some(outcome) = self.worker.store().refuse_closed_kind(self.context.unit()).await {
            return outcome.into();
        }
        tokio::select! {
            biased;
            answer = registered.handler.call(self.context.clone()) => answer,
            answer = self.out_of_time() => answer,
            answer = permit_gate::permit_lost(permit) => answer.into(),
            () = self.out_of_grace() => Outcome::Interrupted.into(),
        }
    }

    async fn out_of_time(&self) -> RunOutcome {
        let Some(limit) = self.limit else {
            return std::future::pending().await;
        };
        tokio::time::sleep_until(limit.at).await;
        self.run_control.cancel(CancelReason::TimedOut);
        Outcome::Retry { failure: limit.failure(), after: None }.into()
    }

    async fn out_of_grace(&self) {
        self.run_control.token.cancelled().await;
        tokio::time::sleep(self.worker.settings.grace).await;
    }

    /// Adjusts the answer to the reason of a cancellation, and rejects a result that is too large.
    fn normalise(&self, answer: RunOutcome) -> RunOutcome {
        let answer = match self.run_control.reason() {
            Some(CancelReason::Cancelled) => cancel_outcome(answer),
            Some(CancelReason::Stopping) => interrupt_outcome(answer),
            _ => answer,
        };
        let too_large = match &answer.outcome {
            Outcome::Done(Some(result)) => check_size("result", result).err(),
            _ => None,
        };
        match too_large {
            Some(error) => Outcome::Fail(Failure::new("too-large", error.to_string())).into(),
            None => answer,
        }
    }

    /// Whether the handler yielded its slot voluntarily.
    fn has_yielded(&self, answer: &RunOutcome) -> bool {
        answer.outcome == Outcome::Interrupted && self.run_control.reason().is_none()
    }

    fn complete(self, answer: RunOutcome) {
        tracing::debug!(outcome = outcome_name(&answer.outcome), "ran");
        record_outcome(&tracing::Span::current(), &answer.outcome);
        let weight = &self.context.unit().weight;
        self.worker.table.complete_run(self.lease, weight, answer, trace::finish_span());
    }
}

/// After a user cancelled the unit, outcomes that would run it again become a cancellation, without
/// effects, which were meant for another outcome.
fn cancel_outcome(answer: RunOutcome) -> RunOutcome {
    match answer.outcome {
        Outcome::Retry { .. } | Outcome::Snooze(_) | Outcome::Interrupted => Outcome::Cancel.into(),
        _ => answer,
    }
}

/// While the worker stops, a handler that gave up is interrupted and uses no attempt. Its effects,
/// which were meant for another outcome, are dropped.
fn interrupt_outcome(answer: RunOutcome) -> RunOutcome {
    match answer.outcome {
        Outcome::Retry { .. } | Outcome::Cancel => Outcome::Interrupted.into(),
        _ => answer,
    }
}

impl TimeLimit {
    fn of(unit: &Unit, registered: &RegisteredHandler, waited: Duration) -> Option<Self> {
        let policy = unit.policy.as_ref().unwrap_or(&registered.policy);
        // The store's start time is before the wait for the permit.
        let now = unit.started_at.unwrap_or(unit.since) + waited;
        let allowed = unit.time_limit(policy, now)?;
        let at = Instant::now().checked_add(allowed)?;
        Some(Self { at, allowed, by_deadline: policy.timeout != Some(allowed) })
    }

    fn failure(self) -> Failure {
        let Self { allowed, by_deadline, .. } = self;
        match by_deadline {
            true => Failure::new("deadline", "its deadline passed while it ran"),
            false => Failure::new("timeout", format!("it ran longer than {allowed:?}")),
        }
    }
}

fn panicked(panic: &(dyn Any + Send)) -> RunOutcome {
    let message = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "the handler panicked".to_owned());
    tracing::error!(panic = message, "a handler panicked");
    Outcome::Retry { failure: Failure::new("panic", message), after: None }.into()
}

/// Records the outcome on the run's span. The message of a failure is left out: it may quote the
/// unit's payload.
fn record_outcome(span: &tracing::Span, outcome: &Outcome) {
    span.record("outcome", outcome_name(outcome));
    if let Outcome::Retry { failure, .. } | Outcome::Fail(failure) = outcome {
        span.record("error", failure.code.as_str());
        span.record("otel.status_code", "ERROR");
    }
}

fn outcome_name(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done(_) => "done",
        Outcome::Retry { .. } => "retry",
        Outcome::Snooze(_) => "snooze",
        Outcome::Fail(_) => "fail",
        Outcome::Cancel => "cancel",
        Outcome::Interrupted => "interrupted",
        Outcome::Lost(_) => "lost",
        _ => "other",
    }
}
