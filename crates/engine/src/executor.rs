//! The executor: starts units and runs their handlers.
//!
//! A unit's life here reads top to bottom: started, permitted, resolved, timed, performed, normalised,
//! handed to the settler. A panic in a handler is caught in exactly one place, in `run`.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use longshore_core::session::Order;
use longshore_core::unit::check_size;
use longshore_core::{Error, Failure, Outcome, SessionId, Timestamp, Unit};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Instrument;

use crate::backoff::Backoff;
use crate::bounded_pool::Permit;
use crate::context::{CancelReason, Context, Reins};
use crate::handler::Answer;
use crate::held::Held;
use crate::permission;
use crate::station::Station;
use crate::trace;
use crate::worker::Registered;

const YIELDS: u32 = 4;

/// Runs what is on the desk until the task is dropped, and all handlers with it.
pub(crate) async fn execute(station: Arc<Station>) {
    let mut runs = JoinSet::new();
    loop {
        while runs.try_join_next().is_some() {}
        let next = station.desk.next(station.control.order() == Order::Work);
        if next.run.is_empty() && next.start.is_empty() {
            station.desk.runnable.notified().await;
            // Slots tend to become free together: one start call for all of them.
            tokio::task::yield_now().await;
            continue;
        }
        let Some(session) = station.desk.session() else {
            // The session went while we looked, and every lease with it.
            station.desk.begin(next.run);
            station.desk.drop_unstarted(&next.start);
            continue;
        };
        spawn(&station, session, next.run, &mut runs);
        let started = start(&station, session, next.start).await;
        station.desk.started(started.len());
        spawn(&station, session, started, &mut runs);
        // Those that end at once make room for as many more in the next start call.
        for _ in 0..YIELDS {
            tokio::task::yield_now().await;
        }
    }
}

fn spawn(station: &Arc<Station>, session: SessionId, units: Vec<Held>, runs: &mut JoinSet<()>) {
    if units.is_empty() {
        return;
    }
    for (held, reins) in station.desk.begin(units) {
        let unit = &held.unit;
        let span =
            tracing::debug_span!("unit", id = %unit.id, kind = %unit.kind, attempt = unit.attempt);
        let traced = trace::run(unit);
        let running = run(Arc::clone(station), session, held, reins);
        runs.spawn(running.instrument(traced).instrument(span));
    }
}

/// Counts the attempts of units claimed ahead, all in one call. Returns those that may run.
async fn start(station: &Station, session: SessionId, units: Vec<Held>) -> Vec<Held> {
    if units.is_empty() {
        return units;
    }
    let leases: Vec<_> = units.iter().map(|held| held.lease).collect();
    let mut backoff = Backoff::store();
    loop {
        match station.store().start(session, &leases).await {
            Ok(times) => {
                station.store_answered();
                let (started, refused) = sort_out(units, times);
                station.desk.drop_unstarted(&refused);
                station.release(refused.iter().map(|held| held.lease).collect()).await;
                return started;
            }
            Err(error) if error.is_retryable() => station.store_failed(&error),
            Err(Error::SessionGone(_)) => {
                station.desk.drop_unstarted(&units);
                station.session_gone(session);
                return Vec::new();
            }
            Err(error) => {
                tracing::error!(%error, "the store refuses to start units");
                station.desk.drop_unstarted(&units);
                station.release(leases).await;
                return Vec::new();
            }
        }
        if station.control.order() > Order::Work {
            station.desk.drop_unstarted(&units);
            station.release(leases).await;
            return Vec::new();
        }
        backoff.wait().await;
    }
}

/// Those that were started, and the others: taken away, or not wanted any more.
fn sort_out(units: Vec<Held>, times: Vec<Option<Timestamp>>) -> (Vec<Held>, Vec<Held>) {
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

/// One run, from its resolved handler to the settler.
async fn run(station: Arc<Station>, session: SessionId, held: Held, reins: Arc<Reins>) {
    station.stats.on_start();
    let began = Instant::now();
    let leave = permission::wait(&station, &held.unit, &reins).await;
    let run = Run::resolve(&station, session, held, reins, began.elapsed());
    let answer = match leave {
        Ok(permit) => {
            let performing = run.perform(permit.as_ref()).instrument(trace::handling());
            let performed = AssertUnwindSafe(performing).catch_unwind().await;
            performed.unwrap_or_else(|panic| panicked(&*panic))
        }
        Err(outcome) => outcome.into(),
    };
    let answer = run.normalise(answer);
    if run.has_yielded(&answer) {
        station.stats.on_yielded();
    }
    station.stats.on_end(began.elapsed());
    run.hand_over(answer);
}

struct Run<'a> {
    station: &'a Station,
    registered: Option<&'a Registered>,
    lease: longshore_core::session::Lease,
    limit: Option<Limit>,
    reins: Arc<Reins>,
    context: Context,
}

/// When a run is out of time, and by which word.
#[derive(Debug, Clone, Copy)]
struct Limit {
    at: Instant,
    allowed: Duration,
    by_deadline: bool,
}

impl<'a> Run<'a> {
    fn resolve(
        station: &'a Station,
        session: SessionId,
        held: Held,
        reins: Arc<Reins>,
        waited: Duration,
    ) -> Self {
        let registered = station.settings.handlers.get(&held.unit.kind);
        let limit = registered.and_then(|registered| Limit::of(&held.unit, registered, waited));
        let lease = held.lease;
        let until = limit.map(|limit| limit.at);
        let client = station.client.clone().traced(held.unit.trace.as_deref());
        let waits = Arc::clone(&station.waits);
        let context = Context::new(held, session, until, Arc::clone(&reins), client, waits);
        Self { station, registered, lease, limit, reins, context }
    }

    /// The handler, for as long as its time, or its grace once asked to end, lasts.
    async fn perform(&self, permit: Option<&Permit>) -> Answer {
        let Some(registered) = self.registered else {
            // The store handed out a kind that was not asked for: leave it to others.
            return Outcome::Snooze(Duration::from_secs(60)).into();
        };
        tokio::select! {
            biased;
            answer = registered.handler.call(self.context.clone()) => answer,
            answer = self.out_of_time() => answer,
            answer = permission::lost(permit) => answer.into(),
            () = self.out_of_grace() => Outcome::Interrupted.into(),
        }
    }

    async fn out_of_time(&self) -> Answer {
        let Some(limit) = self.limit else {
            return std::future::pending().await;
        };
        tokio::time::sleep_until(limit.at).await;
        self.reins.pull(CancelReason::TimedOut);
        Outcome::Retry { failure: limit.failure(), after: None }.into()
    }

    async fn out_of_grace(&self) {
        self.reins.token.cancelled().await;
        tokio::time::sleep(self.station.settings.grace).await;
    }

    /// What the handler said, seen in the light of why it may have said so.
    fn normalise(&self, answer: Answer) -> Answer {
        let answer = match self.reins.reason() {
            Some(CancelReason::Cancelled) => cancelled(answer),
            Some(CancelReason::Stopping) => stopped(answer),
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

    /// Whether the handler gave its slot back of its own accord.
    fn has_yielded(&self, answer: &Answer) -> bool {
        answer.outcome == Outcome::Interrupted && self.reins.reason().is_none()
    }

    fn hand_over(self, answer: Answer) {
        tracing::debug!(outcome = name(&answer.outcome), "ran");
        note(&tracing::Span::current(), &answer.outcome);
        let weight = &self.context.unit().weight;
        self.station.desk.ran(self.lease, weight, answer, trace::finishing());
    }
}

/// Someone cancelled the unit: whatever would run it again ends it instead, without the effects
/// that were meant for another end.
fn cancelled(answer: Answer) -> Answer {
    match answer.outcome {
        Outcome::Retry { .. } | Outcome::Snooze(_) | Outcome::Interrupted => Outcome::Cancel.into(),
        _ => answer,
    }
}

/// The worker stops: a handler that gave up because of it has used no attempt, and its effects were
/// meant for another end.
fn stopped(answer: Answer) -> Answer {
    match answer.outcome {
        Outcome::Retry { .. } | Outcome::Cancel => Outcome::Interrupted.into(),
        _ => answer,
    }
}

impl Limit {
    fn of(unit: &Unit, registered: &Registered, waited: Duration) -> Option<Self> {
        let policy = unit.policy.as_ref().unwrap_or(&registered.policy);
        // By the store's clock it was started when it began to wait for its permit.
        let now = unit.started_at.unwrap_or(unit.since) + waited;
        let allowed = unit.time_allowed(policy, now)?;
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

fn panicked(panic: &(dyn Any + Send)) -> Answer {
    let words = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "the handler panicked".to_owned());
    tracing::error!(panic = words, "a handler panicked");
    Outcome::Retry { failure: Failure::new("panic", words), after: None }.into()
}

/// Tells whoever follows the trace how a run ended. The words of a failure stay here: they may quote
/// what the unit carries.
fn note(span: &tracing::Span, outcome: &Outcome) {
    span.record("outcome", name(outcome));
    if let Outcome::Retry { failure, .. } | Outcome::Fail(failure) = outcome {
        span.record("error", failure.code.as_str());
        span.record("otel.status_code", "ERROR");
    }
}

fn name(outcome: &Outcome) -> &'static str {
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
