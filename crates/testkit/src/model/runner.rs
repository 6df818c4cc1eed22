//! Applies the steps of a history to both stores, with the same ids.

use std::collections::BTreeMap;
use std::time::Duration;

use longshore_core::batch::BatchAction;
use longshore_core::batch::Sums;
use longshore_core::failure_detector::StalledSession;
use longshore_core::store::CheckpointRequest;
use longshore_core::store::{
    BatchChunk, Capacity, ClaimRequest, FinishRequest, LeasedUnit, PromoteResult, QueueChange, Retention,
    UnitAction, UnitSelection,
};
use longshore_core::worker_session::{Lease, NewSession};
use longshore_core::{
    BatchId, Callback, FailureThreshold, Kind, NewBatch, NewUnit, Outcome, Policy, QueueName, Scope,
    SessionId, TenantId, UnitId,
};

use super::compare::{
    assert_same, compare, with_live_counts_only, without_full_chunk, without_full_messages,
};
use super::unit_builder::build_unit;
use super::{StoreStep, UnitSpec};
use crate::StoreFixture;

const ALL: Scope = Scope::All;

/// Runs `history` on both stores, which must be fresh. Panics where they disagree.
pub async fn histories_agree(oracle: StoreFixture, subject: StoreFixture, history: &[StoreStep]) {
    let mut run = HistoryRunner {
        oracle,
        subject,
        units: vec![],
        sessions: vec![],
        leases: vec![],
        former_leases: vec![],
        batches: BTreeMap::new(),
        caps: false,
    };
    for step in history {
        run.apply(step).await;
        run.promote().await;
        compare(&run.oracle, &run.subject, &run.units, run.batches.keys(), step).await;
    }
    for fixture in [&run.oracle, &run.subject] {
        let violations = fixture.store.verify().await.unwrap();
        assert!(violations.is_empty(), "{violations:#?}\nafter {history:#?}");
    }
}

/// The leases of one unit in both stores.
#[derive(Clone, Copy)]
struct LeasePair {
    session: SessionId,
    oracle: Lease,
    subject: Lease,
}

struct HistoryRunner {
    oracle: StoreFixture,
    subject: StoreFixture,
    units: Vec<UnitId>,
    sessions: Vec<SessionId>,
    leases: Vec<LeasePair>,
    /// Leases that were finished or lost.
    former_leases: Vec<LeasePair>,
    batches: BTreeMap<BatchId, String>,
    /// Some unit has a cap.
    caps: bool,
}

/// Calls a method of both stores and returns both answers.
macro_rules! both {
    ($run:expr, $method:ident($($arg:expr),*)) => {
        ($run.oracle.store.$method($($arg),*).await, $run.subject.store.$method($($arg),*).await)
    };
}

impl HistoryRunner {
    async fn apply(&mut self, step: &StoreStep) {
        match step {
            StoreStep::Send(specs) => self.send(specs).await,
            StoreStep::OpenBatch { batch, threshold, callback } => {
                self.open_batch(*batch, *threshold, *callback).await;
            }
            StoreStep::AddToBatch { batch, units, stale_cursor } => {
                self.add_to_batch(*batch, units, *stale_cursor).await;
            }
            StoreStep::SealBatch { batch } => {
                // The answers may differ in what the stores leave to promotion, here and in `act_on_batch`.
                let (oracle, subject) = both!(self, seal_batch(&ALL, &batch_id(*batch)));
                assert_same("seal", (oracle.map(|b| b.status), subject.map(|b| b.status)));
            }
            StoreStep::ActOnBatch { batch, action } => self.act_on_batch(*batch, action).await,
            StoreStep::OpenSession => self.open_session().await,
            StoreStep::CloseSession { session } => self.close(*session).await,
            StoreStep::Kill { session } => self.kill(*session).await,
            StoreStep::Adopt { from, to } => self.adopt(*from, *to).await,
            StoreStep::Claim { session, ahead } => self.claim(*session, *ahead).await,
            StoreStep::Start { session } => self.start(*session).await,
            StoreStep::Release { session } => self.release(*session).await,
            StoreStep::Finish { lease, outcome } => self.finish(*lease, outcome).await,
            StoreStep::FinishAgain { lease, outcome } => self.finish_again(*lease, outcome).await,
            StoreStep::Checkpoint { lease } => self.checkpoint(*lease).await,
            StoreStep::Cancel { unit } => self.operate(*unit, UnitAction::Cancel).await,
            StoreStep::Retry { unit } => self.operate(*unit, UnitAction::Retry).await,
            StoreStep::PauseQueue(paused) => {
                self.change_queue(QueueChange { paused: Some(*paused), capacity: None }).await;
            }
            StoreStep::Bound(units) => {
                let capacity = Some(Capacity { units: *units, bytes: None });
                self.change_queue(QueueChange { paused: None, capacity }).await;
            }
            StoreStep::PutTenant { tenant, change } => {
                let id = tenant_of(*tenant);
                let (oracle, subject) = both!(self, put_tenant(&ALL, &id, change.clone()));
                assert_same(
                    "put tenant",
                    (oracle.map(with_live_counts_only), subject.map(with_live_counts_only)),
                );
            }
            StoreStep::RemoveTenant { tenant } => {
                assert_same("remove tenant", both!(self, remove_tenant(&ALL, &tenant_of(*tenant))));
            }
            StoreStep::Advance { seconds } => {
                for fixture in [&self.oracle, &self.subject] {
                    fixture.clock.advance(duration(*seconds));
                }
            }
            StoreStep::Prune { seconds } => self.prune(*seconds).await,
        }
    }

    /// Stores may leave expiry and cancellation to promotion; afterwards they must agree.
    async fn promote(&self) {
        let idle = |promoted: PromoteResult| {
            promoted == PromoteResult { next_due: promoted.next_due, ..PromoteResult::default() }
        };
        for fixture in [&self.oracle, &self.subject] {
            while !idle(fixture.store.promote(1000).await.unwrap()) {}
        }
    }

    async fn send(&mut self, specs: &[UnitSpec]) {
        let units = self.build_units(specs);
        let (oracle, subject) = both!(self, send(&ALL, units.clone()));
        assert_same("send", (oracle.map(without_full_messages), subject.map(without_full_messages)));
    }

    fn build_units(&mut self, specs: &[UnitSpec]) -> Vec<NewUnit> {
        let units: Vec<NewUnit> =
            specs.iter().map(|spec| build_unit(spec, &self.units, self.oracle.now())).collect();
        self.units.extend(units.iter().map(|unit| unit.id));
        self.caps |= specs.iter().any(|spec| spec.cap);
        units
    }

    async fn open_batch(&mut self, n: u8, threshold: Option<FailureThreshold>, callback: bool) {
        let report = Callback::new(
            QueueName::new("after").unwrap(),
            Kind::new("report").unwrap(),
            serde_json::Value::Null,
        );
        let callback = callback.then_some(report);
        let new = NewBatch { threshold, callback, ..NewBatch::new(batch_id(n)) };
        let (oracle, subject) = both!(self, open_batch(&ALL, new.clone()));
        // A suspended tenant opens no batch.
        let is_open = oracle.is_ok();
        assert_same("open batch", (oracle, subject));
        if is_open {
            self.batches.entry(batch_id(n)).or_default();
        }
    }

    async fn add_to_batch(&mut self, n: u8, specs: &[UnitSpec], stale: bool) {
        let id = batch_id(n);
        let Some(cursor) = self.batches.get(&id).cloned() else {
            return;
        };
        let mut units = self.build_units(specs);
        units.iter_mut().for_each(|unit| unit.tenant = TenantId::default());
        let expected = if stale { format!("{cursor}?") } else { cursor.clone() };
        let chunk = BatchChunk { expected, next: format!("{cursor}+"), units };
        let answers = both!(self, add_to_batch(&ALL, &id, chunk.clone()));
        assert_same("add to batch", (answers.0.map(without_full_chunk), answers.1.map(without_full_chunk)));
        let batch = self.oracle.store.batch(&ALL, &id).await.unwrap();
        self.batches.insert(id, batch.cursor);
    }

    async fn act_on_batch(&mut self, n: u8, action: &BatchAction) {
        let id = batch_id(n);
        let (oracle, subject) = both!(self, apply_batch_action(&ALL, &id, action.clone()));
        assert_same("act on batch", (oracle.map(|b| b.generation), subject.map(|b| b.generation)));
    }

    async fn open_session(&mut self) {
        let session = NewSession {
            kinds: BTreeMap::from([(kind(), Policy::default())]),
            slots: 1000,
            ..NewSession::new(SessionId::new(), "")
        };
        self.sessions.push(session.id);
        assert_same("open session", both!(self, open_session(session.clone())));
    }

    async fn close(&mut self, n: u8) {
        let Some(session) = pick(&self.sessions, n) else {
            return;
        };
        assert_same("close", both!(self, close_session(session)));
        self.remove_session(session);
    }

    async fn kill(&mut self, n: u8) {
        let Some(session) = pick(&self.sessions, n) else {
            return;
        };
        assert_same("reclaim", both!(self, reclaim(&[StalledSession { session, beats: 0 }])));
        self.remove_session(session);
    }

    fn remove_session(&mut self, session: SessionId) {
        self.sessions.retain(|id| *id != session);
        let lost = self.leases.extract_if(.., |pair| pair.session == session);
        self.former_leases.extend(lost);
    }

    async fn adopt(&mut self, from: u8, to: u8) {
        let (Some(from), Some(to)) = (pick(&self.sessions, from), pick(&self.sessions, to)) else {
            return;
        };
        if from != to {
            let (oracle, subject) = both!(self, adopt(from, to));
            self.remove_session(from);
            self.add_leases(to, oracle.unwrap(), subject.unwrap());
        }
    }

    async fn claim(&mut self, n: u8, ahead: bool) {
        let Some(session) = pick(&self.sessions, n) else {
            return;
        };
        let (free, prefetch) = if ahead { (0, 1000) } else { (1000, 0) };
        // A claim without free slots stops at the first unit with a cap, and stores may serve tenants of equal
        // shares in any order. The order of one tenant's units is the same everywhere.
        let scopes = match ahead && self.caps {
            true => vec![Scope::Tenant(tenant_of(false)), Scope::Tenant(tenant_of(true))],
            false => vec![ALL],
        };
        for scope in scopes {
            let claim = ClaimRequest {
                scope,
                free_slots: free,
                prefetch,
                holds_nothing: false,
                ..ClaimRequest::new(session, vec![kind()], 1000)
            };
            let (oracle, subject) = both!(self, claim(claim.clone()));
            self.add_leases(session, oracle.unwrap().units, subject.unwrap().units);
        }
    }

    fn add_leases(&mut self, session: SessionId, oracle: Vec<LeasedUnit>, subject: Vec<LeasedUnit>) {
        let by_unit = |held: Vec<LeasedUnit>| -> BTreeMap<UnitId, (Lease, bool, u32)> {
            let entry = |held: LeasedUnit| (held.unit.id, (held.lease, held.started, held.unit.attempt));
            held.into_iter().map(entry).collect()
        };
        let (oracle, subject) = (by_unit(oracle), by_unit(subject));
        let comparable = |held: &BTreeMap<UnitId, (Lease, bool, u32)>| -> Vec<(UnitId, bool, u32)> {
            held.iter().map(|(id, (_, started, attempt))| (*id, *started, *attempt)).collect()
        };
        assert_eq!(comparable(&oracle), comparable(&subject), "the stores returned different units");
        for (id, (lease, ..)) in oracle {
            self.leases.push(LeasePair { session, oracle: lease, subject: subject[&id].0 });
        }
    }

    fn held_by(&self, session: SessionId) -> (Vec<Lease>, Vec<Lease>) {
        let held = self.leases.iter().filter(|pair| pair.session == session);
        held.map(|pair| (pair.oracle, pair.subject)).unzip()
    }

    async fn start(&mut self, n: u8) {
        let Some(session) = pick(&self.sessions, n) else {
            return;
        };
        let (oracle, subject) = self.held_by(session);
        let oracle = self.oracle.store.start(session, &oracle).await;
        assert_same("start", (oracle, self.subject.store.start(session, &subject).await));
    }

    async fn release(&mut self, n: u8) {
        let Some(session) = pick(&self.sessions, n) else {
            return;
        };
        let (oracle, subject) = self.held_by(session);
        let oracle = self.oracle.store.release(session, &oracle).await;
        assert_same("release", (oracle, self.subject.store.release(session, &subject).await));
        let left = self.oracle.store.leases_of(session).await.unwrap();
        let lost = self.leases.extract_if(.., |pair| pair.session == session && !left.contains(&pair.oracle));
        self.former_leases.extend(lost);
    }

    async fn finish(&mut self, n: u8, outcome: &Outcome) {
        if self.leases.is_empty() {
            return;
        }
        let pair = self.leases.swap_remove(usize::from(n) % self.leases.len());
        self.finish_lease(pair, outcome).await;
        self.former_leases.push(pair);
    }

    async fn finish_again(&mut self, n: u8, outcome: &Outcome) {
        if let Some(pair) = pick(&self.former_leases, n) {
            self.finish_lease(pair, outcome).await;
        }
    }

    async fn finish_lease(&self, pair: LeasePair, outcome: &Outcome) {
        let finish = |lease| vec![FinishRequest::new(lease, outcome.clone())];
        let oracle = self.oracle.store.finish(pair.session, finish(pair.oracle)).await;
        let subject = self.subject.store.finish(pair.session, finish(pair.subject)).await;
        assert_same("finish", (oracle, subject));
    }

    async fn checkpoint(&self, n: u8) {
        let Some(pair) = pick(&self.leases, n).or_else(|| pick(&self.former_leases, n)) else {
            return;
        };
        let state = || b"\"here\"".as_slice().into();
        let sums = || Sums::from([("runs".to_owned(), 1)]);
        let oracle = self
            .oracle
            .store
            .checkpoint(
                pair.session,
                pair.oracle,
                CheckpointRequest { sums: sums(), ..CheckpointRequest::new(state()) },
            )
            .await;
        let subject = self
            .subject
            .store
            .checkpoint(
                pair.session,
                pair.subject,
                CheckpointRequest { sums: sums(), ..CheckpointRequest::new(state()) },
            )
            .await;
        assert_same("checkpoint", (oracle, subject));
    }

    async fn operate(&self, n: u8, action: UnitAction) {
        let Some(unit) = pick(&self.units, n) else {
            return;
        };
        let ids = UnitSelection::Ids(vec![unit]);
        assert_same("operate", both!(self, apply_unit_action(&ALL, ids.clone(), action)));
    }

    async fn change_queue(&self, change: QueueChange) {
        let queue = QueueName::default();
        assert_same("change queue", both!(self, change_queue(&ALL, &queue, change)));
    }

    /// Keeps batches: stores may differ in what they prune with them.
    async fn prune(&self, seconds: u16) {
        let keep = duration(seconds);
        let batches = Duration::from_secs(1 << 40);
        let retention = Retention { done: keep, failed: keep * 2, batches, ..Retention::default() };
        let (oracle, subject) = both!(self, prune(retention, 100_000));
        assert_same("prune", (oracle.map(|p| p.units), subject.map(|p| p.units)));
    }
}

pub(super) fn pick<T: Copy>(items: &[T], n: u8) -> Option<T> {
    (!items.is_empty()).then(|| items[usize::from(n) % items.len()])
}

pub(super) fn tenant_of(other: bool) -> TenantId {
    TenantId::new(if other { "acme" } else { "default" }).unwrap()
}

pub(super) fn kind() -> Kind {
    Kind::new("work").unwrap()
}

fn batch_id(n: u8) -> BatchId {
    BatchId::new(format!("batch-{n}")).unwrap()
}

pub(super) fn duration(seconds: u16) -> Duration {
    Duration::from_secs(u64::from(seconds))
}
