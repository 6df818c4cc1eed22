//! The fetcher claims units for free slots, and prefetches some more.
//!
//! It decides when to claim and how many; the unit table keeps the result. If a claim returns
//! nothing, the fetcher waits for the store's wake-up or for its own slow poll.

use std::sync::Arc;
use std::time::Duration;

use longshore_core::store::{ClaimRequest, ClaimResult};
use longshore_core::worker_session::WorkerCommand;
use longshore_core::{Counts, Error, Kind, OnLost, Result};
use tokio::time::Instant;

use crate::backoff::{Backoff, jitter};
use crate::prefetch::{ClaimBuffer, PrefetchEstimator};
use crate::unit_table::ClaimReservation;
use crate::worker::Prefetch;
use crate::worker_inner::{StoreCall, WorkerInner};

/// Shortest and longest wait for a wake-up; the wait doubles while nothing comes. A store that sees
/// other processes' commits wakes the fetcher; a store that does not returns sooner by itself
/// ([`longshore_core::store::Queries::wait_for_ready`]).
const POLL_INTERVAL: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));
/// How often a worker that keeps slots free for a unit that must run alone checks that the unit is
/// still waiting.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);
/// Minimum gap between claims after several empty ones, however often the store wakes the worker:
/// with many workers every unit wakes all of them.
const EMPTY_CLAIM_GAP: Duration = Duration::from_millis(2);

/// Claims units until the task is dropped.
pub(crate) async fn run(worker: Arc<WorkerInner>) {
    let mut fetcher = Fetcher::new(worker);
    loop {
        let order = fetcher.worker.control.order();
        if order == WorkerCommand::Work {
            fetcher.fetch().await;
        } else {
            fetcher.pause(order).await;
        }
    }
}

struct Fetcher {
    worker: Arc<WorkerInner>,
    kinds: Vec<Kind>,
    prefetch: PrefetchEstimator,
    idle: Backoff,
    outage: Backoff,
    empty_claims: u32,
    /// All kinds run again after their worker died.
    reruns_lost: bool,
    /// The store's wake-up sequence number at the last wait.
    wake_seq: u64,
}

/// What a claim returned.
enum FetchOutcome {
    /// Everything requested, or enough to fill the slots: claim again when a slot is free.
    Enough,
    /// Less than the free slots: claim again when the store reports new units.
    Partial,
    /// Less than the free slots, and freed slots may change that: a heavy unit waits, or units that
    /// may not be prefetched.
    NeedsSlots,
    /// Nothing: the store returned an error.
    Failed,
}

impl Fetcher {
    fn new(worker: Arc<WorkerInner>) -> Self {
        Self {
            kinds: worker.settings.handlers.keys().cloned().collect(),
            reruns_lost: worker.settings.handlers.values().all(|one| one.policy.on_lost == OnLost::Rerun),
            worker,
            prefetch: PrefetchEstimator::new(Instant::now()),
            idle: Backoff::new(POLL_INTERVAL.0, POLL_INTERVAL.1),
            outage: Backoff::store(),
            empty_claims: 0,
            wake_seq: 0,
        }
    }

    /// On quiet, drain or stop: returns unstarted units, then waits for another order.
    async fn pause(&mut self, order: WorkerCommand) {
        // No claim will tell when the store is available again.
        self.worker.store_answered(StoreCall::Claim);
        let unstarted = self.worker.table.take_prefetched();
        self.worker.release(unstarted).await;
        self.worker.control.changed_from(order).await;
    }

    async fn fetch(&mut self) {
        let worker = Arc::clone(&self.worker);
        let Some(reservation) = self.reserve() else {
            tokio::select! {
                biased;
                () = worker.table.claim_hint.notified() => {}
                () = tokio::time::sleep(PROBE_INTERVAL), if worker.table.drains_for_exclusive() => {
                    self.probe().await;
                }
                () = worker.control.changed_from(WorkerCommand::Work) => {}
            }
            return;
        };
        match self.claim(reservation).await {
            FetchOutcome::Enough => {}
            // A unit that was skipped may fit once a resource is free.
            FetchOutcome::Partial => {
                self.wait_for_units(!worker.settings.resources.is_empty()).await;
            }
            FetchOutcome::NeedsSlots => self.wait_for_units(true).await,
            FetchOutcome::Failed => self.outage.wait().await,
        }
    }

    fn reserve(&mut self) -> Option<ClaimReservation> {
        let WorkerInner { settings, stats, table, waits, .. } = &*self.worker;
        self.prefetch.observe(stats.ran(), Instant::now());
        let buffer = match settings.claim_ahead {
            // Resources are not reserved for units without slots. A unit that was started ahead
            // counts as lost if the worker dies.
            Prefetch::Adaptive if settings.resources.is_empty() && self.reruns_lost => {
                self.prefetch.buffer(stats.mean_run(), settings.slots)
            }
            Prefetch::Adaptive => {
                ClaimBuffer::Prefetch(self.prefetch.target(stats.mean_run(), settings.slots))
            }
            Prefetch::Off => ClaimBuffer::Prefetch(0),
        };
        table.reserve_claim(buffer, waits.claim_limit(table.slot_limit(), Instant::now()))
    }

    async fn claim(&mut self, reservation: ClaimReservation) -> FetchOutcome {
        let worker = Arc::clone(&self.worker);
        let _claiming = worker.claiming.lock().await;
        let answer = worker.store().claim(self.claim_for(&reservation)).await;
        self.accept(reservation, answer)
    }

    /// Checks whether the unit that slots are kept free for is still waiting.
    async fn probe(&mut self) {
        let Some(reservation) = self.worker.table.reserve_probe() else {
            return;
        };
        if matches!(self.claim(reservation).await, FetchOutcome::Failed) {
            self.outage.wait().await;
        }
    }

    fn claim_for(&self, reservation: &ClaimReservation) -> ClaimRequest {
        let settings = &self.worker.settings;
        ClaimRequest {
            session: reservation.session,
            scope: settings.scope.clone(),
            queues: settings.queues.clone(),
            batch: settings.batch.clone(),
            kinds: self.kinds.clone(),
            free_slots: reservation.free + reservation.start_ahead,
            start_ahead: reservation.start_ahead,
            slots: settings.slots,
            resources: reservation.resources.clone(),
            total_resources: settings.resources.clone(),
            prefetch: reservation.prefetch,
            holds_nothing: reservation.worker_idle,
            excluded_tenants: reservation.excluded_tenants.clone(),
        }
    }

    fn accept(&mut self, reservation: ClaimReservation, answer: Result<ClaimResult>) -> FetchOutcome {
        let worker = Arc::clone(&self.worker);
        let claimed = match answer {
            Ok(claimed) => claimed,
            Err(error) => {
                worker.leases_may_differ();
                worker.table.release_reservation(&reservation);
                self.on_claim_error(&reservation, &error);
                return FetchOutcome::Failed;
            }
        };
        worker.store_answered(StoreCall::Claim);
        self.outage.reset();
        worker.stats.on_claim(claimed.units.len());
        let tenants = claimed.units.iter().map(|held| &held.unit.tenant);
        worker.waits.on_claimed(tenants, Instant::now());
        let result = classify(&reservation, &claimed);
        if !claimed.units.is_empty() {
            self.idle.reset();
            self.empty_claims = 0;
        }
        worker.table.add_claimed(reservation, claimed);
        result
    }

    fn on_claim_error(&self, reservation: &ClaimReservation, error: &Error) {
        match error {
            error if error.is_retryable() => return self.worker.store_failed(StoreCall::Claim, error),
            Error::SessionGone(_) => self.worker.session_gone(reservation.session),
            error => tracing::error!(%error, "the store rejected a claim"),
        }
        self.worker.store_answered(StoreCall::Claim);
    }

    /// How long to wait for a wake-up.
    fn poll_wait(&mut self) -> Duration {
        if self.worker.settings.until_idle { jitter(POLL_INTERVAL.0) } else { self.idle.next_wait() }
    }

    async fn wait_for_units(&mut self, or_slots: bool) {
        let worker = Arc::clone(&self.worker);
        if worker.settings.until_idle && self.is_idle().await {
            tracing::info!("no work is left; draining");
            return worker.control.drain();
        }
        self.empty_claims += 1;
        if self.empty_claims > 4 {
            tokio::time::sleep(EMPTY_CLAIM_GAP).await;
        }
        let poll_wait = self.poll_wait();
        let poll_wait = worker.waits.recheck_in().map_or(poll_wait, |soon| soon.min(poll_wait));
        tokio::select! {
            biased;
            wake_seq = worker.store().wait_for_ready(self.wake_seq, poll_wait) => self.wake_seq = wake_seq,
            () = worker.table.slots_freed.notified(), if or_slots => {}
            () = worker.waits.waits_ended.notified() => {}
            () = worker.control.changed_from(WorkerCommand::Work) => {}
        }
        self.prefetch.restart_window(worker.stats.ran(), Instant::now());
    }

    /// Whether neither this worker nor any other has work in the scope.
    async fn is_idle(&self) -> bool {
        let worker = &self.worker;
        let idle = |counts: &Counts| counts.ready + counts.leased + counts.scheduled == 0;
        if !worker.table.is_idle() {
            return false;
        }
        let settings = &worker.settings;
        let answer = match &settings.batch {
            Some(batch) => worker
                .store()
                .batch(&settings.scope, batch)
                .await
                .map(|batch| idle(&batch.counts) && (batch.sealed || batch.status.is_aborted())),
            None => {
                let totals = worker.store().totals(&settings.scope, &settings.queues).await;
                totals.map(|totals| idle(&totals.counts) && totals.open_batches == 0)
            }
        };
        answer.unwrap_or(false)
    }
}

/// Compares a claim with its reservation. If a unit must run alone, the unit table keeps the slots
/// free for it.
fn classify(reservation: &ClaimReservation, claimed: &ClaimResult) -> FetchOutcome {
    let started = claimed.units.iter().filter(|held| held.started);
    let slots: u32 = started.map(|held| held.unit.weight.slots).sum();
    let filled = if reservation.free > 0 { slots >= reservation.free } else { !claimed.units.is_empty() };
    let makes_room = claimed.alone_waiting && !reservation.worker_idle;
    if filled || makes_room {
        return FetchOutcome::Enough;
    }
    if claimed.heavy_waiting || reservation.free == 0 {
        FetchOutcome::NeedsSlots
    } else {
        FetchOutcome::Partial
    }
}
