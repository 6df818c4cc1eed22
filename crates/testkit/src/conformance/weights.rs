//! Weights: heavy units, named resources, and units that run alone.

use std::collections::BTreeMap;

use longshore_core::store::{ClaimRequest, LaneChange, LeasedUnit};
use longshore_core::unit::{ConcurrencyCap, Weight};
use longshore_core::{NewUnit, SessionId, UnitId, UnitState};

use super::helpers::*;
use crate::StoreFixture;

fn heavy_unit(slots: u32) -> NewUnit {
    NewUnit { weight: Weight { slots, ..Weight::default() }, ..unit() }
}

fn gpu_unit(gpus: u32) -> NewUnit {
    let resources = BTreeMap::from([("gpu".to_owned(), gpus)]);
    NewUnit { weight: Weight { slots: 1, resources }, ..unit() }
}

/// A claim of a worker with `all` GPUs, of which `free` are unused.
fn claim_with_gpus(session: SessionId, free: u32, all: u32) -> ClaimRequest {
    let gpus = |n| BTreeMap::from([("gpu".to_owned(), n)]);
    ClaimRequest { resources: gpus(free), total_resources: gpus(all), ..claim(session, 9) }
}

fn claim_with_slots(session: SessionId, free: u32, slots: u32) -> ClaimRequest {
    ClaimRequest { slots, ..claim(session, free) }
}

pub(super) async fn units_fill_the_free_slots_by_weight(fixture: &StoreFixture) {
    for slots in [2, 1, 3, 1] {
        fixture.send(heavy_unit(slots)).await;
    }
    let session = fixture.session().await;
    let claimed = fixture.claim_with(claim_with_slots(session, 6, 8)).await;
    let weights: Vec<u32> = claimed.units.iter().map(|held| held.unit.weight.slots).collect();
    assert_eq!(weights, [2, 1, 3]);
}

pub(super) async fn a_heavy_unit_at_the_head_keeps_slots_free(fixture: &StoreFixture) {
    let light = fixture.send(heavy_unit(1)).await;
    let heavy = fixture.send(heavy_unit(4)).await;
    let behind = fixture.send(heavy_unit(1)).await;
    let session = fixture.session().await;
    let claimed = fixture.claim_with(claim_with_slots(session, 3, 4)).await;
    assert!(claimed.heavy_waiting);
    assert_eq!(ids(&claimed.units), [light], "no unit overtakes the heavy one");
    let ahead = ClaimRequest { prefetch: 5, ..claim_with_slots(session, 3, 4) };
    assert!(fixture.claim_with(ahead).await.units.is_empty(), "not ahead either");
    let claimed = fixture.claim_with(claim_with_slots(session, 4, 4)).await;
    assert_eq!(ids(&claimed.units), [heavy]);
    assert_eq!(ids(&fixture.claim_with(claim_with_slots(session, 1, 4)).await.units), [behind]);
}

pub(super) async fn a_heavy_unit_is_not_overtaken_for_ever_by_another_lane(fixture: &StoreFixture) {
    let light = || NewUnit { tenant: tenant("light"), ..unit() };
    fixture.store.send(&ALL, (0..50).map(|_| light()).collect()).await.unwrap();
    let session = fixture.session().await;
    let mut running = fixture.claim_with(claim_with_slots(session, 3, 4)).await.units;
    let heavy = fixture.send(NewUnit { tenant: tenant("heavy"), ..heavy_unit(4) }).await;
    for _ in 0..12 {
        let ended = running.remove(0);
        fixture.finish(session, ended.lease, done()).await;
        let free = 4 - u32::try_from(running.len()).unwrap();
        let claimed = fixture.claim_with(claim_with_slots(session, free, 4)).await.units;
        if ids(&claimed).contains(&heavy) {
            return;
        }
        running.extend(claimed);
        assert!(!running.is_empty(), "an idle worker has room for the heavy one");
    }
    unreachable!("the heavy unit's turn never came");
}

pub(super) async fn a_unit_too_heavy_for_this_worker_is_passed_over(fixture: &StoreFixture) {
    let heavy = fixture.send(heavy_unit(5)).await;
    let light = fixture.send(heavy_unit(1)).await;
    let session = fixture.session().await;
    let claimed = fixture.claim_with(claim_with_slots(session, 4, 4)).await;
    assert_eq!((ids(&claimed.units), claimed.heavy_waiting), (vec![light], false));
    assert_eq!(ids(&fixture.claim_with(claim_with_slots(session, 8, 8)).await.units), [heavy]);
}

pub(super) async fn a_resource_that_is_not_there_is_passed_over(fixture: &StoreFixture) {
    let gpu = fixture.send(gpu_unit(1)).await;
    let plain = fixture.send(unit()).await;
    let session = fixture.session().await;
    assert_eq!(ids(&fixture.claim(session, 9).await), [plain]);
    let claimed = fixture.claim_with(claim_with_gpus(session, 2, 2)).await;
    assert_eq!(ids(&claimed.units), [gpu]);
}

pub(super) async fn resources_are_not_given_twice(fixture: &StoreFixture) {
    for gpus in [2, 2, 1] {
        fixture.send(gpu_unit(gpus)).await;
    }
    let session = fixture.session().await;
    let claimed = fixture.claim_with(claim_with_gpus(session, 3, 3)).await;
    let gpus = |units: &[LeasedUnit]| -> Vec<u32> {
        units.iter().map(|held| held.unit.weight.resources["gpu"]).collect()
    };
    assert_eq!((gpus(&claimed.units), claimed.heavy_waiting), (vec![2], true), "the next needs 2");
    let claimed = fixture.claim_with(claim_with_gpus(session, 3, 3)).await;
    assert_eq!((gpus(&claimed.units), claimed.heavy_waiting), (vec![2, 1], false));
}

pub(super) async fn a_unit_waits_for_a_resource_that_is_in_use(fixture: &StoreFixture) {
    let greedy = fixture.send(gpu_unit(2)).await;
    let plain = fixture.send(unit()).await;
    let session = fixture.session().await;
    for ahead in [0, 5] {
        let claimed =
            fixture.claim_with(ClaimRequest { prefetch: ahead, ..claim_with_gpus(session, 1, 2) }).await;
        assert!(claimed.heavy_waiting && claimed.units.is_empty(), "no unit overtakes it");
    }
    let claimed = fixture.claim_with(claim_with_gpus(session, 1, 1)).await;
    assert_eq!((ids(&claimed.units), claimed.heavy_waiting), (vec![plain], false), "not for this");
    assert_eq!(ids(&fixture.claim_with(claim_with_gpus(session, 2, 2)).await.units), [greedy]);
}

pub(super) async fn a_unit_that_waits_is_not_overtaken_by_units_claimed_ahead(fixture: &StoreFixture) {
    let session = fixture.session().await;
    let ahead = || ClaimRequest { prefetch: 5, free_slots: 0, slots: 4, ..claim_with_gpus(session, 0, 1) };
    for waiting in [heavy_unit(4), gpu_unit(1)] {
        let waiting = fixture.send(waiting).await;
        let plain = fixture.send(unit()).await;
        let claimed = fixture.claim_with(ahead()).await;
        assert_eq!((ids(&claimed.units), claimed.heavy_waiting), (vec![], true));
        let claimed = fixture.claim_with(claim_with_gpus(session, 1, 1)).await;
        assert_eq!(ids(&claimed.units), [waiting, plain]);
    }
}

/// A unit that was lost twice with its worker, so that it must run alone.
async fn suspect(fixture: &StoreFixture) -> UnitId {
    suspect_like(fixture, unit()).await
}

async fn suspect_like(fixture: &StoreFixture, unit: NewUnit) -> UnitId {
    let id = fixture.send(unit).await;
    for _ in 0..2 {
        let session = fixture.session().await;
        let held = fixture.claim_with(claim_with_gpus(session, 9, 9)).await.units;
        assert_eq!(ids(&held), [id]);
        fixture.kill(session).await;
    }
    fixture.clock.advance(secs(1));
    id
}

pub(super) async fn a_unit_lost_twice_runs_alone(fixture: &StoreFixture) {
    let suspect = suspect(fixture).await;
    let others = fixture.send_many(3).await;
    let session = fixture.session().await;
    let busy = ClaimRequest { holds_nothing: false, ..claim(session, 2) };
    let claimed = fixture.claim_with(busy).await;
    assert_eq!((ids(&claimed.units), claimed.alone_waiting), (others[..2].to_vec(), true));
    let empty = ClaimRequest { prefetch: 5, ..claim(session, 9) };
    let claimed = fixture.claim_with(empty).await;
    assert_eq!(ids(&claimed.units), [suspect], "no other unit is claimed, also not ahead");
    assert!(claimed.units[0].alone && claimed.units[0].started);
    assert_eq!(claimed.units[0].unit.lost, 2);
}

pub(super) async fn a_unit_lost_once_runs_among_others(fixture: &StoreFixture) {
    let lost = fixture.send(unit()).await;
    let session = fixture.session().await;
    fixture.claim_one(session).await;
    fixture.kill(session).await;
    fixture.clock.advance(secs(1));
    let other = fixture.send(unit()).await;
    let session = fixture.session().await;
    let claimed = fixture.claim(session, 9).await;
    assert_eq!(ids(&claimed), [lost, other]);
    assert!(!claimed[0].alone);
}

pub(super) async fn a_worker_hears_that_one_waits_to_run_alone_without_taking_any(fixture: &StoreFixture) {
    let suspect = suspect(fixture).await;
    let (session, other) = (fixture.session().await, fixture.session().await);
    let question = || ClaimRequest { holds_nothing: false, ..claim(session, 0) };
    let answer = fixture.claim_with(question()).await;
    assert!(answer.alone_waiting && answer.units.is_empty());
    assert_eq!(ids(&fixture.claim(other, 9).await), [suspect]);
    assert!(!fixture.claim_with(question()).await.alone_waiting, "another worker claimed it");
}

pub(super) async fn a_unit_that_runs_alone_needs_its_slots_and_resources(fixture: &StoreFixture) {
    let resources = BTreeMap::from([("gpu".to_owned(), 2)]);
    let like = NewUnit { weight: Weight { slots: 3, resources }, ..unit() };
    let suspect = suspect_like(fixture, like).await;
    let other = fixture.send(unit()).await;
    let session = fixture.session().await;
    let tiny = ClaimRequest { slots: 2, free_slots: 2, ..claim_with_gpus(session, 9, 9) };
    let claimed = fixture.claim_with(tiny).await;
    assert_eq!((ids(&claimed.units), claimed.alone_waiting), (vec![other], false));
    fixture.finish_all(session, &claimed.units, done()).await;
    let without = fixture.claim(session, 9).await;
    assert!(without.is_empty(), "this worker has no GPU");
    let in_use = fixture.claim_with(claim_with_gpus(session, 1, 2)).await;
    assert!(in_use.units.is_empty());
    let claimed = fixture.claim_with(claim_with_gpus(session, 2, 2)).await.units;
    assert_eq!(ids(&claimed), [suspect]);
    assert!(claimed[0].alone);
}

pub(super) async fn a_unit_that_runs_alone_keeps_to_its_caps(fixture: &StoreFixture) {
    let cap = Some(ConcurrencyCap { key: "host".to_owned(), limit: 1 });
    let like = NewUnit { cap, ..unit() };
    let suspect = suspect_like(fixture, like.clone()).await;
    let key_held = fixture.session().await;
    fixture.send(NewUnit { id: unit().id, ..like }).await;
    // The busy worker may not claim the suspect, so the other unit takes the key.
    let busy = ClaimRequest { holds_nothing: false, ..claim(key_held, 1) };
    let held = fixture.claim_with(busy).await.units;
    assert_eq!(held.len(), 1);
    let session = fixture.session().await;
    assert!(fixture.claim(session, 9).await.is_empty(), "the key is at its limit");
    fixture.finish_all(key_held, &held, done()).await;
    let lane = |cap| LaneChange { cap: Some(cap), ..LaneChange::default() };
    let (default, owner) = (queue("default"), tenant("default"));
    fixture.store.change_lane(&ALL, &default, &owner, lane(Some(1))).await.unwrap();
    fixture.send(unit()).await;
    let held = fixture.claim_with(ClaimRequest { holds_nothing: false, ..claim(key_held, 1) }).await.units;
    assert_eq!(held.len(), 1);
    assert!(fixture.claim(session, 9).await.is_empty(), "the lane is at its cap");
    fixture.store.change_lane(&ALL, &default, &owner, lane(None)).await.unwrap();
    assert_eq!(ids(&fixture.claim(session, 9).await), [suspect]);
}

pub(super) async fn an_expired_unit_that_would_run_alone_does_not_empty_the_claim(fixture: &StoreFixture) {
    let deadline = Some(fixture.now() + secs(30));
    let expired = suspect_like(fixture, NewUnit { deadline, ..unit() }).await;
    fixture.clock.advance(secs(60));
    let other = fixture.send(unit()).await;
    let session = fixture.session().await;
    let claimed = fixture.claim_with(claim(session, 9)).await;
    assert_eq!((ids(&claimed.units), claimed.alone_waiting), (vec![other], false));
    fixture.promote().await;
    assert_eq!(fixture.state(expired).await, UnitState::Failed);
}
