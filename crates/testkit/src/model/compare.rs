//! What two stores must agree on after each step.

use std::fmt::Debug;

use longshore_core::store::{AddChunkResult, QueueInfo, SendRejection, SendResult, Tenant};
use longshore_core::{Batch, BatchId, Counts, Result, Scope, Unit, UnitId, UnitState};

use super::StoreStep;
use crate::StoreFixture;

/// Asserts that both succeed with the same answer, or both fail.
pub(super) fn assert_same<T: Debug + PartialEq>(what: &str, answers: (Result<T>, Result<T>)) {
    let (oracle, subject) = answers;
    let same = oracle.is_ok() == subject.is_ok();
    assert!(same, "{what}: the oracle returned {oracle:?}, the subject {subject:?}");
    if let (Ok(oracle), Ok(subject)) = (oracle, subject) {
        assert_eq!(oracle, subject, "{what}: oracle and subject differ");
    }
}

/// Compares every unit, batch and lane.
pub(super) async fn compare(
    oracle: &StoreFixture,
    subject: &StoreFixture,
    units: &[UnitId],
    batches: impl Iterator<Item = &BatchId>,
    step: &StoreStep,
) {
    for id in units {
        let (expected, actual) = (unit(oracle, *id).await, unit(subject, *id).await);
        assert_eq!(expected, actual, "unit {id} after {step:?}");
    }
    for id in batches {
        let (expected, actual) = (batch(oracle, id).await, batch(subject, id).await);
        assert_eq!(expected, actual, "batch {id} after {step:?}");
    }
    let (expected, actual) = (lanes(oracle).await, lanes(subject).await);
    assert_eq!(expected, actual, "lanes after {step:?}");
    let (expected, actual) = (tenants(oracle).await, tenants(subject).await);
    assert_eq!(expected, actual, "tenants after {step:?}");
}

async fn batch(fixture: &StoreFixture, id: &BatchId) -> Option<Batch> {
    // A store may skip numbers, or use the newest one's again after it was pruned.
    fixture.store.batch(&Scope::All, id).await.ok().map(|batch| Batch { number: 0, ..batch })
}

/// A unit without the fields that stores may set differently in its state.
async fn unit(fixture: &StoreFixture, id: UnitId) -> Option<Unit> {
    let mut unit = fixture.store.unit(&Scope::All, id).await.ok()?;
    unit.fence = 0;
    if unit.state != UnitState::Leased {
        (unit.started_at, unit.cancel_requested) = (None, false);
    }
    if unit.state == UnitState::Blocked {
        // The store traits do not specify it.
        unit.since = unit.created_at;
    }
    if unit.state != UnitState::Failed {
        unit.failure = None;
    }
    Some(unit)
}

/// Lanes with live units. How long a store counts ended units is its own choice.
async fn lanes(fixture: &StoreFixture) -> Vec<(String, [u64; 4], u64, bool)> {
    let comparable = |lane: QueueInfo| {
        let counts = lane.counts;
        let live = [counts.blocked, counts.scheduled, counts.ready, counts.leased];
        (format!("{}/{}", lane.queue, lane.tenant), live, lane.bytes, lane.paused)
    };
    let lanes = fixture.store.queues(&Scope::All).await.unwrap();
    lanes.into_iter().filter(|lane| lane.counts.live() > 0).map(comparable).collect()
}

/// The settings of tenants, and the counts of their live units.
async fn tenants(fixture: &StoreFixture) -> Vec<Tenant> {
    let tenants = fixture.store.tenants(&Scope::All).await.unwrap();
    tenants.into_iter().map(with_live_counts_only).collect()
}

/// A tenant without the counts of ended units: how long a store counts them is its own choice.
pub(super) fn with_live_counts_only(tenant: Tenant) -> Tenant {
    let Counts { blocked, scheduled, ready, leased, .. } = tenant.counts;
    Tenant { counts: Counts { blocked, scheduled, ready, leased, ..Counts::default() }, ..tenant }
}

fn is_full(sent: &SendResult) -> bool {
    matches!(sent, SendResult::Rejected(SendRejection::Full { .. }))
}

/// Replaces rejections for a full queue with `None`: their text differs by store.
pub(super) fn without_full_messages(answers: Vec<SendResult>) -> Vec<Option<SendResult>> {
    answers.into_iter().map(|sent| Some(sent).filter(|sent| !is_full(sent))).collect()
}

/// The comparable part of an answer to a chunk: which units were added, and whether the cursor moved. If
/// one unit was rejected for a full queue, stores may answer differently for the others.
pub(super) fn without_full_chunk(added: AddChunkResult) -> Option<AddChunkResult> {
    match added {
        AddChunkResult::Committed(answers) if answers.iter().any(is_full) => None,
        other => Some(other),
    }
}
