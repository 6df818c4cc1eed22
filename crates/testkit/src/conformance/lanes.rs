//! Lanes: shares by weight, caps and pauses; pauses of whole queues.

use std::collections::BTreeMap;

use longshore_core::store::{ClaimRequest, LaneChange, QueueChange, Queues};
use longshore_core::{NewUnit, SessionId, TenantId, UnitId};

use super::helpers::*;
use crate::StoreFixture;

async fn fill(fixture: &StoreFixture, tenant_name: &str, count: usize) -> Vec<UnitId> {
    let units: Vec<NewUnit> = (0..count).map(|_| NewUnit { tenant: tenant(tenant_name), ..unit() }).collect();
    let ids = units.iter().map(|unit| unit.id).collect();
    fixture.store.send(&ALL, units).await.unwrap();
    ids
}

async fn change(fixture: &StoreFixture, tenant_name: &str, change: LaneChange) {
    fixture.store.change_lane(&ALL, &queue("default"), &tenant(tenant_name), change).await.unwrap();
}

async fn shares(fixture: &StoreFixture, session: SessionId, count: u32) -> BTreeMap<TenantId, u64> {
    let mut shares = BTreeMap::new();
    for held in fixture.claim(session, count).await {
        *shares.entry(held.unit.tenant).or_default() += 1;
    }
    shares
}

pub(super) async fn nobody_starves(fixture: &StoreFixture) {
    fill(fixture, "large", 200).await;
    fixture.clock.advance(secs(60));
    fill(fixture, "small", 30).await;
    let session = fixture.session().await;
    let shares = shares(fixture, session, 40).await;
    let small = shares.get(&tenant("small")).copied().unwrap_or(0);
    assert!((18..=22).contains(&small), "two equal lanes share a claim of 40: {shares:?}");
}

pub(super) async fn small_claims_are_shared_too(fixture: &StoreFixture) {
    fill(fixture, "large", 200).await;
    fill(fixture, "small", 30).await;
    let session = fixture.session().await;
    let mut small = 0;
    for _ in 0..40 {
        let share = shares(fixture, session, 1).await;
        small += share.get(&tenant("small")).copied().unwrap_or(0);
    }
    assert!((18..=22).contains(&small), "the turns are remembered between claims: {small}");
}

pub(super) async fn shares_follow_the_weights(fixture: &StoreFixture) {
    fill(fixture, "a", 100).await;
    fill(fixture, "b", 100).await;
    change(fixture, "b", LaneChange { weight: Some(3), ..LaneChange::default() }).await;
    let session = fixture.session().await;
    let shares = shares(fixture, session, 80).await;
    let heavy = shares[&tenant("b")];
    assert!((57..=63).contains(&heavy), "three quarters of 80: {shares:?}");
}

pub(super) async fn what_one_lane_leaves_goes_to_the_others(fixture: &StoreFixture) {
    fill(fixture, "a", 3).await;
    fill(fixture, "b", 50).await;
    let session = fixture.session().await;
    let shares = shares(fixture, session, 40).await;
    assert_eq!((shares[&tenant("a")], shares[&tenant("b")]), (3, 37));
}

pub(super) async fn a_lane_that_was_silent_earned_no_credit(fixture: &StoreFixture) {
    fill(fixture, "busy", 100).await;
    fill(fixture, "quiet", 1).await;
    let session = fixture.session().await;
    fixture.claim(session, 60).await;
    fill(fixture, "busy", 60).await;
    fill(fixture, "quiet", 60).await;
    let shares = shares(fixture, session, 20).await;
    let quiet = shares.get(&tenant("quiet")).copied().unwrap_or(0);
    assert!((8..=12).contains(&quiet), "{shares:?}");
}

pub(super) async fn a_tenant_that_is_passed_over_keeps_its_turn(fixture: &StoreFixture) {
    for tenant_name in ["a", "b", "c"] {
        fill(fixture, tenant_name, 40).await;
    }
    let session = fixture.session().await;
    assert_eq!(shares(fixture, session, 3).await.len(), 3, "all of them have had a turn");
    let except = vec![tenant("a")];
    let held =
        fixture.claim_with(ClaimRequest { excluded_tenants: except, ..claim(session, 20) }).await.units;
    let count = |tenant_name| held.iter().filter(|held| held.unit.tenant == tenant(tenant_name)).count();
    assert_eq!((count("a"), count("b"), count("c")), (0, 10, 10));
    let next = shares(fixture, session, 10).await;
    assert_eq!(next.get(&tenant("a")), Some(&10), "what the others had meanwhile: {next:?}");
    let except = ["a", "b", "c"].map(tenant).to_vec();
    assert!(
        fixture
            .claim_with(ClaimRequest { excluded_tenants: except, ..claim(session, 20) })
            .await
            .units
            .is_empty()
    );
}

pub(super) async fn a_lanes_cap_bounds_what_is_leased(fixture: &StoreFixture) {
    fill(fixture, "a", 10).await;
    change(fixture, "a", LaneChange { cap: Some(Some(3)), ..LaneChange::default() }).await;
    let session = fixture.session().await;
    let held = fixture.claim(session, 9).await;
    assert_eq!(held.len(), 3);
    assert!(fixture.claim(session, 9).await.is_empty());
    fixture.finish(session, held[0].lease, done()).await;
    assert_eq!(fixture.claim(session, 9).await.len(), 1);
    change(fixture, "a", LaneChange { cap: Some(None), ..LaneChange::default() }).await;
    assert_eq!(fixture.claim(session, 9).await.len(), 6);
}

pub(super) async fn nothing_is_claimed_ahead_from_a_capped_lane(fixture: &StoreFixture) {
    fill(fixture, "a", 10).await;
    change(fixture, "a", LaneChange { cap: Some(Some(5)), ..LaneChange::default() }).await;
    let session = fixture.session().await;
    let held = fixture.claim_with(ClaimRequest { prefetch: 5, ..claim(session, 2) }).await.units;
    assert_eq!(held.len(), 2);
    assert!(held.iter().all(|held| held.started));
}

pub(super) async fn a_paused_lane_is_passed_by(fixture: &StoreFixture) {
    fill(fixture, "a", 2).await;
    let b = fill(fixture, "b", 2).await;
    change(fixture, "a", LaneChange { paused: Some(true), ..LaneChange::default() }).await;
    let session = fixture.session().await;
    assert_eq!(ids(&fixture.claim(session, 9).await), b);
    change(fixture, "a", LaneChange { paused: Some(false), ..LaneChange::default() }).await;
    assert_eq!(fixture.claim(session, 9).await.len(), 2);
}

pub(super) async fn a_queues_pause_and_a_lanes_are_told_apart(fixture: &StoreFixture) {
    fill(fixture, "a", 1).await;
    fill(fixture, "b", 1).await;
    let paused = async || {
        let lanes = fixture.store.queues(&ALL).await.unwrap();
        let ours = lanes.iter().filter(|lane| lane.tenant != TenantId::default());
        ours.map(|lane| (lane.paused, lane.queue_paused, lane.lane_paused)).collect::<Vec<_>>()
    };
    let whole = |paused| QueueChange { paused: Some(paused), capacity: None };
    change(fixture, "a", LaneChange { paused: Some(true), ..LaneChange::default() }).await;
    assert_eq!(paused().await, [(true, false, true), (false, false, false)]);
    fixture.store.change_queue(&ALL, &queue("default"), whole(true)).await.unwrap();
    assert_eq!(paused().await, [(true, true, true), (true, true, false)]);
    change(fixture, "a", LaneChange { paused: Some(false), ..LaneChange::default() }).await;
    fixture.store.change_queue(&ALL, &queue("default"), whole(false)).await.unwrap();
    assert_eq!(paused().await, [(false, false, false); 2]);
}

pub(super) async fn a_paused_queue_is_passed_by(fixture: &StoreFixture) {
    fill(fixture, "a", 2).await;
    let session = fixture.session().await;
    let ahead = fixture.claim_with(ClaimRequest { prefetch: 1, ..claim(session, 0) }).await.units;
    let pause = |paused| QueueChange { paused: Some(paused), capacity: None };
    fixture.store.change_queue(&ALL, &queue("default"), pause(true)).await.unwrap();
    assert!(fixture.claim(session, 9).await.is_empty());
    assert_eq!(fixture.store.start(session, &leases(&ahead)).await.unwrap(), [None]);
    let beat = fixture.store.heartbeat(session, Default::default()).await.unwrap();
    assert_eq!(beat.to_release, ids(&ahead), "the worker is told to release them");
    fixture.store.release(session, &leases(&ahead)).await.unwrap();
    fill(fixture, "a", 1).await;
    fixture.store.change_queue(&ALL, &queue("default"), pause(false)).await.unwrap();
    assert_eq!(fixture.claim(session, 9).await.len(), 3, "sends are accepted during the pause");
}

pub(super) async fn a_lane_shows_its_settings_and_counts(fixture: &StoreFixture) {
    fill(fixture, "a", 4).await;
    let change_to = LaneChange {
        paused: None,
        weight: Some(7),
        cap: Some(Some(9)),
        capacity: Some(longshore_core::store::Capacity { units: Some(50), bytes: None }),
    };
    change(fixture, "a", change_to).await;
    let sent_at = fixture.now();
    fixture.clock.advance(secs(5));
    let session = fixture.session().await;
    fixture.claim(session, 1).await;
    let lanes = fixture.store.queues(&ALL).await.unwrap();
    assert_eq!(lanes.len(), 1);
    let lane = &lanes[0];
    assert_eq!((lane.queue.as_str(), lane.tenant.as_str()), ("default", "a"));
    assert_eq!((lane.paused, lane.weight, lane.cap), (false, 7, Some(9)));
    assert_eq!(lane.lane_capacity.units, Some(50));
    assert_eq!((lane.counts.ready, lane.counts.leased), (3, 1));
    assert_eq!((lane.bytes, lane.oldest_ready), (8, Some(sent_at)));
}

/// Claims one unit at a time from one queue, and counts the units of each tenant.
async fn shares_of(
    fixture: &StoreFixture,
    session: SessionId,
    from: &str,
    rounds: u32,
) -> BTreeMap<TenantId, u64> {
    let mut shares = BTreeMap::new();
    for _ in 0..rounds {
        let queues = Queues::Named(vec![queue(from)]);
        for held in fixture.claim_with(ClaimRequest { queues, ..claim(session, 1) }).await.units {
            *shares.entry(held.unit.tenant).or_default() += 1;
        }
    }
    shares
}

async fn fill_queue(fixture: &StoreFixture, name: &str, tenant_name: &str, count: usize) {
    let one = |_| NewUnit { queue: queue(name), tenant: tenant(tenant_name), ..unit() };
    fixture.store.send(&ALL, (0..count).map(one).collect()).await.unwrap();
}

pub(super) async fn shares_hold_beside_a_group_that_is_served_much_faster(fixture: &StoreFixture) {
    for tenant_name in ["a", "b"] {
        fill_queue(fixture, "slow", tenant_name, 60).await;
        fill_queue(fixture, "fast", tenant_name, 300).await;
    }
    let weight = LaneChange { weight: Some(3), ..LaneChange::default() };
    fixture.store.change_lane(&ALL, &queue("slow"), &tenant("b"), weight).await.unwrap();
    let session = fixture.session().await;
    let mut slow: BTreeMap<TenantId, u64> = BTreeMap::new();
    for _ in 0..40 {
        shares_of(fixture, session, "fast", 10).await;
        for (tenant_name, part) in shares_of(fixture, session, "slow", 1).await {
            *slow.entry(tenant_name).or_default() += part;
        }
    }
    let heavy = slow.get(&tenant("b")).copied().unwrap_or(0);
    assert!((27..=33).contains(&heavy), "three quarters of 40: {slow:?}");
    assert_eq!(slow.values().sum::<u64>(), 40);
}

pub(super) async fn who_joins_a_fast_group_starts_level_with_it(fixture: &StoreFixture) {
    for tenant_name in ["a", "b"] {
        fill_queue(fixture, "slow", tenant_name, 10).await;
        fill_queue(fixture, "fast", tenant_name, 200).await;
    }
    let session = fixture.session().await;
    shares_of(fixture, session, "slow", 4).await;
    shares_of(fixture, session, "fast", 100).await;
    fill_queue(fixture, "fast", "late", 60).await;
    let shares = shares_of(fixture, session, "fast", 30).await;
    for tenant_name in ["a", "b", "late"] {
        let part = shares.get(&tenant(tenant_name)).copied().unwrap_or(0);
        assert!((8..=12).contains(&part), "a third of 30 each: {shares:?}");
    }
}
