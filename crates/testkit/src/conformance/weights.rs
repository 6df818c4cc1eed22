//! Weights: heavy units, named resources, and units that run alone.

use std::collections::BTreeMap;

use longshore_core::store::Claim;
use longshore_core::unit::Weight;
use longshore_core::{NewUnit, SessionId, UnitId};

use super::kit::*;
use crate::World;

fn weighing(slots: u32) -> NewUnit {
    NewUnit { weight: Weight { slots, ..Weight::default() }, ..unit() }
}

fn with_gpus(gpus: u32) -> NewUnit {
    let resources = BTreeMap::from([("gpu".to_owned(), gpus)]);
    NewUnit { weight: Weight { slots: 1, resources }, ..unit() }
}

fn of(session: SessionId, free: u32, slots: u32) -> Claim {
    Claim { slots, ..claim(session, free) }
}

pub(super) async fn units_fill_the_free_slots_by_weight(world: &World) {
    for slots in [2, 1, 3, 1] {
        world.send(weighing(slots)).await;
    }
    let session = world.session().await;
    let claimed = world.claim_as(of(session, 6, 8)).await;
    let weights: Vec<u32> = claimed.units.iter().map(|held| held.unit.weight.slots).collect();
    assert_eq!(weights, [2, 1, 3]);
}

pub(super) async fn a_heavy_unit_at_the_head_keeps_slots_free(world: &World) {
    let light = world.send(weighing(1)).await;
    let heavy = world.send(weighing(4)).await;
    let behind = world.send(weighing(1)).await;
    let session = world.session().await;
    let claimed = world.claim_as(of(session, 3, 4)).await;
    assert!(claimed.heavy_waiting);
    assert_eq!(ids(&claimed.units), [light], "nothing overtakes the heavy one");
    let ahead = Claim { ahead: 5, ..of(session, 3, 4) };
    assert!(world.claim_as(ahead).await.units.is_empty(), "not ahead either");
    let claimed = world.claim_as(of(session, 4, 4)).await;
    assert_eq!(ids(&claimed.units), [heavy]);
    assert_eq!(ids(&world.claim_as(of(session, 1, 4)).await.units), [behind]);
}

pub(super) async fn a_heavy_unit_is_not_overtaken_for_ever_by_another_lane(world: &World) {
    let light = || NewUnit { tenant: tenant("light"), ..unit() };
    world.store.send(&ALL, (0..50).map(|_| light()).collect()).await.unwrap();
    let session = world.session().await;
    let mut running = world.claim_as(of(session, 3, 4)).await.units;
    let heavy = world.send(NewUnit { tenant: tenant("heavy"), ..weighing(4) }).await;
    for _ in 0..12 {
        let ended = running.remove(0);
        world.finish(session, ended.lease, done()).await;
        let free = 4 - u32::try_from(running.len()).unwrap();
        let claimed = world.claim_as(of(session, free, 4)).await.units;
        if ids(&claimed).contains(&heavy) {
            return;
        }
        running.extend(claimed);
        assert!(!running.is_empty(), "an idle worker has room for the heavy one");
    }
    unreachable!("the heavy unit's turn never came");
}

pub(super) async fn a_unit_too_heavy_for_this_worker_is_passed_over(world: &World) {
    let heavy = world.send(weighing(5)).await;
    let light = world.send(weighing(1)).await;
    let session = world.session().await;
    let claimed = world.claim_as(of(session, 4, 4)).await;
    assert_eq!((ids(&claimed.units), claimed.heavy_waiting), (vec![light], false));
    assert_eq!(ids(&world.claim_as(of(session, 8, 8)).await.units), [heavy]);
}

pub(super) async fn a_resource_that_is_not_there_is_passed_over(world: &World) {
    let gpu = world.send(with_gpus(1)).await;
    let plain = world.send(unit()).await;
    let session = world.session().await;
    assert_eq!(ids(&world.claim(session, 9).await), [plain]);
    let resources = BTreeMap::from([("gpu".to_owned(), 2)]);
    let with = Claim { resources, ..claim(session, 9) };
    assert_eq!(ids(&world.claim_as(with).await.units), [gpu]);
}

pub(super) async fn resources_are_not_given_twice(world: &World) {
    for gpus in [2, 2, 1] {
        world.send(with_gpus(gpus)).await;
    }
    let session = world.session().await;
    let resources = BTreeMap::from([("gpu".to_owned(), 3)]);
    let claimed = world.claim_as(Claim { resources, ..claim(session, 9) }).await;
    let gpus: u32 = claimed.units.iter().map(|held| held.unit.weight.resources["gpu"]).sum();
    assert_eq!(gpus, 3);
}

/// A unit that was there each time a worker died.
async fn suspect(world: &World) -> UnitId {
    let id = world.send(unit()).await;
    for _ in 0..2 {
        let session = world.session().await;
        world.take(session).await;
        world.kill(session).await;
    }
    id
}

pub(super) async fn a_unit_lost_twice_runs_alone(world: &World) {
    let suspect = suspect(world).await;
    world.clock.advance(secs(1));
    let others = world.send_many(3).await;
    let session = world.session().await;
    let busy = Claim { empty_handed: false, ..claim(session, 2) };
    let claimed = world.claim_as(busy).await;
    assert_eq!((ids(&claimed.units), claimed.alone_waiting), (others[..2].to_vec(), true));
    let empty = Claim { ahead: 5, ..claim(session, 9) };
    let claimed = world.claim_as(empty).await;
    assert_eq!(ids(&claimed.units), [suspect], "nothing beside it, nothing ahead");
    assert!(claimed.units[0].alone && claimed.units[0].started);
    assert_eq!(claimed.units[0].unit.lost, 2);
}

pub(super) async fn a_unit_lost_once_runs_among_others(world: &World) {
    let lost = world.send(unit()).await;
    let session = world.session().await;
    world.take(session).await;
    world.kill(session).await;
    world.clock.advance(secs(1));
    let other = world.send(unit()).await;
    let session = world.session().await;
    let claimed = world.claim(session, 9).await;
    assert_eq!(ids(&claimed), [lost, other]);
    assert!(!claimed[0].alone);
}
