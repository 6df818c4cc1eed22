//! Helpers of the cases.

use std::collections::BTreeMap;
use std::time::Duration;

use longshore_core::batch::BatchAction;
use longshore_core::failure_detector::StalledSession;
use longshore_core::store::{
    AddChunkResult, BatchChunk, ClaimRequest, ClaimResult, FinishRequest, FinishResult, LeasedUnit,
    OpenBatchResult, ReclaimResult, SendResult, UnitAction, UnitActionResult, UnitSelection,
};
use longshore_core::worker_session::{Lease, NewSession};
use longshore_core::{
    Batch, BatchId, Failure, Kind, NewBatch, NewUnit, Outcome, Payload, Policy, QueueName, RetryPolicy,
    Scope, SessionId, TenantId, Unit, UnitId, UnitState,
};

use crate::StoreFixture;

pub(super) const ALL: Scope = Scope::All;

pub(super) fn kind() -> Kind {
    Kind::new("work").unwrap()
}

pub(super) fn tenant(name: &str) -> TenantId {
    TenantId::new(name).unwrap()
}

pub(super) fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

pub(super) fn batch_id(name: &str) -> BatchId {
    BatchId::new(name).unwrap()
}

pub(super) fn tenant_scope(name: &str) -> Scope {
    Scope::Tenant(tenant(name))
}

pub(super) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A unit of kind `work` on the default queue.
pub(super) fn unit() -> NewUnit {
    NewUnit::new(kind(), Payload::from(b"{}".as_slice()))
}

/// `count` default units.
pub(super) fn units(count: usize) -> Vec<NewUnit> {
    (0..count).map(|_| unit()).collect()
}

pub(super) fn done() -> Outcome {
    Outcome::Done(None)
}

pub(super) fn failed() -> Outcome {
    Outcome::Fail(Failure::new("broken", "it broke"))
}

/// A retry after exactly this long.
pub(super) fn retry_after(after: Duration) -> Outcome {
    Outcome::Retry { failure: Failure::new("again", "not yet"), after: Some(after) }
}

pub(super) fn attempts(max_attempts: u32) -> Policy {
    Policy { retry: RetryPolicy { max_attempts, ..RetryPolicy::default() }, ..Policy::default() }
}

pub(super) fn leases(held: &[LeasedUnit]) -> Vec<Lease> {
    held.iter().map(|held| held.lease).collect()
}

pub(super) fn ids(held: &[LeasedUnit]) -> Vec<UnitId> {
    held.iter().map(|held| held.unit.id).collect()
}

/// Batches.
impl StoreFixture {
    /// Opens a batch, which must be new.
    pub(super) async fn open_batch(&self, new: NewBatch) -> Batch {
        match self.store.open_batch(&ALL, new).await.unwrap() {
            OpenBatchResult::Created(batch) => batch,
            OpenBatchResult::Existing(batch) => {
                unreachable!("batch {} was there already", batch.id)
            }
        }
    }

    /// Adds a chunk, which must be committed.
    pub(super) async fn add_chunk(&self, id: &BatchId, from: &str, to: &str, units: Vec<NewUnit>) {
        let chunk = BatchChunk { expected: from.to_owned(), next: to.to_owned(), units };
        let added = self.store.add_to_batch(&ALL, id, chunk).await.unwrap();
        assert!(matches!(added, AddChunkResult::Committed(_)), "{added:?}");
    }

    /// Sends and seals a batch of `count` default units.
    pub(super) async fn send_sealed_batch(&self, new: NewBatch, count: usize) -> Vec<UnitId> {
        let id = self.open_batch(new).await.id;
        let units = units(count);
        let ids = units.iter().map(|unit| unit.id).collect();
        self.add_chunk(&id, "", "end", units).await;
        self.store.seal_batch(&ALL, &id).await.unwrap();
        ids
    }

    pub(super) async fn batch(&self, id: &BatchId) -> Batch {
        self.store.batch(&ALL, id).await.unwrap()
    }

    pub(super) async fn act_on_batch(&self, id: &BatchId, action: BatchAction) -> Batch {
        self.store.apply_batch_action(&ALL, id, action).await.unwrap()
    }
}

/// Maintenance and administration.
impl StoreFixture {
    /// Promotes until no unit is left to promote.
    pub(super) async fn promote(&self) {
        while self.store.promote(100).await.unwrap().more {}
    }

    /// Reclaims a session, as a failure detector does when its heartbeat stalls.
    pub(super) async fn kill(&self, session: SessionId) -> ReclaimResult {
        let sessions = self.store.sessions().await.unwrap();
        let beats = sessions.iter().find(|found| found.id == session).unwrap().beats;
        self.store.reclaim(&[StalledSession { session, beats }]).await.unwrap()
    }

    pub(super) async fn act_on_units(&self, ids: &[UnitId], action: UnitAction) -> UnitActionResult {
        let ids = UnitSelection::Ids(ids.to_vec());
        self.store.apply_unit_action(&ALL, ids, action).await.unwrap()
    }

    pub(super) async fn cancel(&self, id: UnitId) -> UnitActionResult {
        self.act_on_units(&[id], UnitAction::Cancel).await
    }

    pub(super) async fn retry(&self, id: UnitId) -> UnitActionResult {
        self.act_on_units(&[id], UnitAction::Retry).await
    }

    pub(super) async fn state(&self, id: UnitId) -> UnitState {
        self.unit(id).await.state
    }

    /// Sends a unit, claims it and finishes it with this outcome.
    pub(super) async fn send_and_finish(&self, session: SessionId, outcome: Outcome) -> UnitId {
        let id = self.send(unit()).await;
        let held = self.claim_one(session).await;
        assert_eq!(held.unit.id, id, "nothing else was to be claimed");
        self.finish(session, held.lease, outcome).await;
        id
    }
}

/// Sending and working.
impl StoreFixture {
    /// Sends one unit, which must be accepted.
    pub(super) async fn send(&self, unit: NewUnit) -> UnitId {
        let id = unit.id;
        assert_eq!(self.store.send(&ALL, vec![unit]).await.unwrap(), [SendResult::Created(id)]);
        id
    }

    /// Sends one unit and returns the answer.
    pub(super) async fn try_send(&self, unit: NewUnit) -> SendResult {
        self.store.send(&ALL, vec![unit]).await.unwrap().remove(0)
    }

    /// Sends `count` default units.
    pub(super) async fn send_many(&self, count: usize) -> Vec<UnitId> {
        let units = units(count);
        let ids = units.iter().map(|unit| unit.id).collect();
        self.store.send(&ALL, units).await.unwrap();
        ids
    }

    /// Opens a session for kind `work` with the default policy.
    pub(super) async fn session(&self) -> SessionId {
        self.session_with(Policy::default()).await
    }

    /// Opens a session for kind `work` with this policy.
    pub(super) async fn session_with(&self, policy: Policy) -> SessionId {
        let id = SessionId::new();
        let kinds = BTreeMap::from([(kind(), policy)]);
        let session = NewSession { kinds, slots: 1000, ..NewSession::new(id, "case") };
        self.store.open_session(session).await.unwrap();
        id
    }

    /// Executes a claim and returns the whole answer.
    pub(super) async fn claim_with(&self, claim: ClaimRequest) -> ClaimResult {
        self.store.claim(claim).await.unwrap()
    }

    /// Claims and starts up to `free` units.
    pub(super) async fn claim(&self, session: SessionId, free: u32) -> Vec<LeasedUnit> {
        self.claim_with(claim(session, free)).await.units
    }

    /// Claims exactly one unit.
    pub(super) async fn claim_one(&self, session: SessionId) -> LeasedUnit {
        let mut held = self.claim(session, 1).await;
        assert_eq!(held.len(), 1, "exactly one unit was expected");
        held.remove(0)
    }

    /// Finishes one lease.
    pub(super) async fn finish(&self, session: SessionId, lease: Lease, outcome: Outcome) -> FinishResult {
        let finish = FinishRequest::new(lease, outcome);
        self.store.finish(session, vec![finish]).await.unwrap().remove(0)
    }

    /// Finishes all `held` units with the same outcome.
    pub(super) async fn finish_all(
        &self,
        session: SessionId,
        held: &[LeasedUnit],
        outcome: Outcome,
    ) -> Vec<FinishResult> {
        let finishes = held.iter().map(|held| {
            let (lease, outcome) = (held.lease, outcome.clone());
            FinishRequest::new(lease, outcome)
        });
        self.store.finish(session, finishes.collect()).await.unwrap()
    }

    /// Claims exactly `count` units and finishes them with the same outcome.
    pub(super) async fn claim_and_finish(&self, session: SessionId, count: u32, outcome: Outcome) {
        let held = self.claim(session, count).await;
        assert_eq!(held.len(), count as usize);
        self.finish_all(session, &held, outcome).await;
    }

    /// Reads a unit from the store.
    pub(super) async fn unit(&self, id: UnitId) -> Unit {
        self.store.unit(&ALL, id).await.unwrap()
    }
}

/// A claim for all kinds, queues and tenants that starts up to `free` units.
pub(super) fn claim(session: SessionId, free: u32) -> ClaimRequest {
    ClaimRequest { free_slots: free, ..ClaimRequest::new(session, vec![kind()], 1000) }
}
