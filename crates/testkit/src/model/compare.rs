//! What two stores must agree on after each step.

use std::fmt::Debug;

use longshore_core::store::{Added, QueueInfo, Refusal, Sent, Tenant};
use longshore_core::{Batch, BatchId, Counts, Result, Scope, Unit, UnitId, UnitState};

use super::Step;
use crate::World;

/// Both succeed with the same answer, or both fail.
pub(super) fn agree<T: Debug + PartialEq>(what: &str, answers: (Result<T>, Result<T>)) {
    let (oracle, subject) = answers;
    let same = oracle.is_ok() == subject.is_ok();
    assert!(same, "{what}: oracle says {oracle:?}, subject {subject:?}");
    if let (Ok(oracle), Ok(subject)) = (oracle, subject) {
        assert_eq!(oracle, subject, "{what}: oracle and subject answer differently");
    }
}

/// Compares every unit, batch and lane.
pub(super) async fn compare(
    oracle: &World,
    subject: &World,
    units: &[UnitId],
    batches: impl Iterator<Item = &BatchId>,
    step: &Step,
) {
    for id in units {
        let (ours, theirs) = (unit(oracle, *id).await, unit(subject, *id).await);
        assert_eq!(ours, theirs, "unit {id} after {step:?}");
    }
    for id in batches {
        let (ours, theirs) = (batch(oracle, id).await, batch(subject, id).await);
        assert_eq!(ours, theirs, "batch {id} after {step:?}");
    }
    let (ours, theirs) = (lanes(oracle).await, lanes(subject).await);
    assert_eq!(ours, theirs, "lanes after {step:?}");
    let (ours, theirs) = (tenants(oracle).await, tenants(subject).await);
    assert_eq!(ours, theirs, "tenants after {step:?}");
}

async fn batch(world: &World, id: &BatchId) -> Option<Batch> {
    world.store.batch(&Scope::All, id).await.ok()
}

/// A unit without what stores may keep in their own way once it is over.
async fn unit(world: &World, id: UnitId) -> Option<Unit> {
    let mut unit = world.store.unit(&Scope::All, id).await.ok()?;
    unit.fence = 0;
    if unit.state != UnitState::Leased {
        (unit.started_at, unit.cancel_requested) = (None, false);
    }
    if unit.state == UnitState::Blocked {
        // The seam says nothing of this.
        unit.since = unit.created_at;
    }
    if unit.state != UnitState::Failed {
        unit.failure = None;
    }
    Some(unit)
}

/// Lanes with live units; how long ended ones are counted is the store's choice.
async fn lanes(world: &World) -> Vec<(String, [u64; 4], u64, bool)> {
    let shown = |lane: QueueInfo| {
        let counts = lane.counts;
        let live = [counts.blocked, counts.scheduled, counts.ready, counts.leased];
        (format!("{}/{}", lane.queue, lane.tenant), live, lane.bytes, lane.paused)
    };
    let lanes = world.store.queues(&Scope::All).await.unwrap();
    lanes.into_iter().filter(|lane| lane.counts.live() > 0).map(shown).collect()
}

/// Tenants as they are set, and what they have live.
async fn tenants(world: &World) -> Vec<Tenant> {
    let tenants = world.store.tenants(&Scope::All).await.unwrap();
    tenants.into_iter().map(with_live).collect()
}

/// A tenant without what it had: how long ended units are counted is the store's choice.
pub(super) fn with_live(tenant: Tenant) -> Tenant {
    let Counts { blocked, scheduled, ready, leased, .. } = tenant.counts;
    Tenant { counts: Counts { blocked, scheduled, ready, leased, ..Counts::default() }, ..tenant }
}

fn is_full(sent: &Sent) -> bool {
    matches!(sent, Sent::Refused(Refusal::Full { .. }))
}

/// Answers without the words of a refusal, which are the store's own.
pub(super) fn in_short(answers: Vec<Sent>) -> Vec<Option<Sent>> {
    answers.into_iter().map(|sent| Some(sent).filter(|sent| !is_full(sent))).collect()
}

/// What matters of an answer to a chunk: which units are in, and whether the cursor moved. A chunk
/// that found no room leaves it to the store how it says so for the other units.
pub(super) fn kind_of_added(added: Added) -> Option<Added> {
    match added {
        Added::Committed(answers) if answers.iter().any(is_full) => None,
        other => Some(other),
    }
}
