//! Tenants: shares, caps and bounds over all queues of one customer, and suspension.

use std::collections::{BTreeMap, BTreeSet};

use longshore_core::store::{
    AddChunkResult, BatchChunk, Capacity, CapacityScope, ClaimRequest, LaneChange, OpenBatchResult,
    QueueChange, SendRejection, SendResult, Tenant, TenantChange, Topic,
};
use longshore_core::{
    BatchId, Callback, Error, Kind, NewBatch, NewUnit, Outcome, Payload, Rights, SessionId, TenantId, UnitId,
    UnitState,
};

use super::helpers::*;
use crate::StoreFixture;

const NO_CHANGE: TenantChange =
    TenantChange { weight: None, cap: None, capacity: None, suspended: None, allowed_kinds: None };

fn weight(weight: u32) -> TenantChange {
    TenantChange { weight: Some(weight), ..NO_CHANGE }
}

fn cap(cap: u32) -> TenantChange {
    TenantChange { cap: Some(Some(cap)), ..NO_CHANGE }
}

fn bound(units: Option<u64>, bytes: Option<u64>) -> TenantChange {
    TenantChange { capacity: Some(Capacity { units, bytes }), ..NO_CHANGE }
}

fn suspend(suspended: bool) -> TenantChange {
    TenantChange { suspended: Some(suspended), ..NO_CHANGE }
}

async fn put(world: &StoreFixture, tenant_name: &str, change: TenantChange) -> Tenant {
    world.store.put_tenant(&ALL, &tenant(tenant_name), change).await.unwrap()
}

fn unit_of(tenant_name: &str, queue_name: &str) -> NewUnit {
    NewUnit { tenant: tenant(tenant_name), queue: queue(queue_name), ..unit() }
}

async fn fill(world: &StoreFixture, tenant_name: &str, queue_name: &str, count: usize) -> Vec<UnitId> {
    let units: Vec<NewUnit> = (0..count).map(|_| unit_of(tenant_name, queue_name)).collect();
    let ids = units.iter().map(|unit| unit.id).collect();
    world.store.send(&ALL, units).await.unwrap();
    ids
}

async fn shares(world: &StoreFixture, session: SessionId, count: u32) -> BTreeMap<TenantId, u64> {
    let mut shares = BTreeMap::new();
    for held in world.claim(session, count).await {
        *shares.entry(held.unit.tenant).or_default() += 1;
    }
    shares
}

fn is_full(sent: &SendResult) -> bool {
    matches!(sent, SendResult::Rejected(SendRejection::Full { bound: CapacityScope::Tenant, .. }))
}

pub(super) async fn a_tenant_is_made_by_its_first_change(world: &StoreFixture) {
    assert!(world.store.tenants(&ALL).await.unwrap().is_empty());
    let made_at = world.now();
    let tenant = put(world, "acme", weight(3)).await;
    assert_eq!(tenant, Tenant { weight: 3, ..Tenant::new(tenant.id.clone(), made_at) });
    put(world, "Zeta", NO_CHANGE).await;
    put(world, "beta", NO_CHANGE).await;
    let all = world.store.tenants(&ALL).await.unwrap();
    let names: Vec<&str> = all.iter().map(|tenant| tenant.id.as_str()).collect();
    assert_eq!(names, ["Zeta", "acme", "beta"], "by name");
}

pub(super) async fn a_change_of_a_tenant_leaves_the_rest(world: &StoreFixture) {
    put(world, "acme", weight(3)).await;
    put(world, "acme", cap(4)).await;
    world.clock.advance(secs(60));
    put(world, "acme", bound(Some(5), Some(6))).await;
    let tenant = put(world, "acme", suspend(true)).await;
    assert_eq!((tenant.weight, tenant.cap, tenant.suspended), (3, Some(4), true));
    assert_eq!(tenant.capacity, Capacity { units: Some(5), bytes: Some(6) });
    assert!(tenant.created_at < world.now());
    let lifted = TenantChange { cap: Some(None), suspended: Some(false), ..NO_CHANGE };
    let tenant = put(world, "acme", lifted).await;
    assert_eq!((tenant.weight, tenant.cap, tenant.suspended), (3, None, false));
    assert_eq!(world.store.tenants(&ALL).await.unwrap(), [tenant]);
}

pub(super) async fn a_tenant_of_no_weight_or_cap_is_refused(world: &StoreFixture) {
    for change in [weight(0), cap(0)] {
        let answer = world.store.put_tenant(&ALL, &tenant("acme"), change).await;
        assert!(matches!(answer, Err(Error::Invalid(_))), "{answer:?}");
    }
    assert!(world.store.tenants(&ALL).await.unwrap().is_empty(), "nothing was written");
}

pub(super) async fn a_tenant_has_the_kinds_that_were_opened_to_it(world: &StoreFixture) {
    let kinds = |names: &[&str]| names.iter().map(|name| Kind::new(*name).unwrap()).collect::<BTreeSet<_>>();
    let open = |names: &[&str]| TenantChange { allowed_kinds: Some(kinds(names)), ..NO_CHANGE };
    let acme = tenant("acme");
    assert!(world.store.allowed_kinds(&acme).await.unwrap().is_empty());
    put(world, "acme", open(&["exec", "batch.start"])).await;
    let changed = put(world, "acme", weight(2)).await;
    assert_eq!(changed.allowed_kinds, kinds(&["batch.start", "exec"]), "another change leaves them");
    assert_eq!(world.store.allowed_kinds(&acme).await.unwrap(), changed.allowed_kinds);
    assert!(world.store.allowed_kinds(&tenant("other")).await.unwrap().is_empty());
    put(world, "acme", open(&[])).await;
    assert!(world.store.allowed_kinds(&acme).await.unwrap().is_empty());
    let answer = world.store.put_tenant(&ALL, &acme, open(&["http"])).await;
    assert!(matches!(answer, Err(Error::Invalid(_))), "it is open to every tenant: {answer:?}");
}

pub(super) async fn a_unit_keeps_the_rights_that_it_was_sent_with(world: &StoreFixture) {
    let callback = Callback { rights: Rights::Tenant, ..Callback::new(queue("after"), kind(), 7.into()) };
    let batch = NewBatch { callback: Some(callback), ..NewBatch::new(BatchId::new("b").unwrap()) };
    world.store.open_batch(&ALL, batch.clone()).await.unwrap();
    world.store.seal_batch(&ALL, &batch.id).await.unwrap();
    let [by_tenant, by_operator] =
        [Rights::Tenant, Rights::Operator].map(|rights| NewUnit { rights, ..unit() });
    let sent = [by_tenant.id, by_operator.id];
    world.store.send(&ALL, vec![by_tenant, by_operator]).await.unwrap();
    let session = world.session().await;
    let claimed = world.claim(session, 10).await;
    assert_eq!(claimed.len(), 3, "two, and the callback of the empty batch");
    for held in claimed {
        let rights = if held.lease.unit == sent[1] { Rights::Operator } else { Rights::Tenant };
        assert_eq!(held.unit.rights, rights);
        world.finish(session, held.lease, Outcome::Done(None)).await;
        assert_eq!(world.unit(held.lease.unit).await.rights, rights);
    }
}

pub(super) async fn a_tenant_shows_what_it_has_over_all_queues(world: &StoreFixture) {
    put(world, "acme", NO_CHANGE).await;
    fill(world, "acme", "one", 2).await;
    fill(world, "acme", "two", 1).await;
    fill(world, "other", "one", 5).await;
    let session = world.session().await;
    let own = ClaimRequest { scope: tenant_scope("acme"), ..claim(session, 2) };
    let held = world.claim_with(own).await.units;
    world.finish(session, held[0].lease, done()).await;
    let acme = world.store.tenants(&ALL).await.unwrap().remove(0);
    assert_eq!((acme.counts.ready, acme.counts.leased, acme.counts.done), (1, 1, 1));
    assert_eq!(acme.bytes, 4, "of live units only");
}

pub(super) async fn only_who_is_in_charge_steers_tenants(world: &StoreFixture) {
    put(world, "acme", weight(3)).await;
    for scope in [tenant_scope("acme"), tenant_scope("other")] {
        let answer = world.store.put_tenant(&scope, &tenant("acme"), weight(9)).await;
        assert!(matches!(answer, Err(Error::NotFound { .. })), "{answer:?}");
        assert!(world.store.remove_tenant(&scope, &tenant("acme")).await.is_err());
    }
    assert_eq!(world.store.tenants(&ALL).await.unwrap()[0].weight, 3);
}

pub(super) async fn a_tenant_sees_its_own_record_only(world: &StoreFixture) {
    put(world, "acme", weight(3)).await;
    put(world, "other", weight(4)).await;
    let seen = world.store.tenants(&tenant_scope("acme")).await.unwrap();
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].id.clone(), seen[0].weight), (tenant("acme"), 3));
    assert!(world.store.tenants(&tenant_scope("nobody")).await.unwrap().is_empty());
}

pub(super) async fn a_tenant_with_live_units_is_not_removed(world: &StoreFixture) {
    put(world, "acme", weight(3)).await;
    let id = fill(world, "acme", "one", 1).await[0];
    let refused = world.store.remove_tenant(&ALL, &tenant("acme")).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    assert_eq!(world.store.tenants(&ALL).await.unwrap()[0].weight, 3);
    world.cancel(id).await;
    world.store.remove_tenant(&ALL, &tenant("acme")).await.unwrap();
    assert!(world.store.tenants(&ALL).await.unwrap().is_empty());
    let gone = world.store.remove_tenant(&ALL, &tenant("acme")).await;
    assert!(matches!(gone, Err(Error::NotFound { .. })), "{gone:?}");
}

pub(super) async fn a_removed_tenant_works_as_if_it_had_never_been_set(world: &StoreFixture) {
    let lane = LaneChange {
        paused: Some(true),
        weight: Some(5),
        cap: Some(Some(1)),
        capacity: Some(Capacity { units: Some(1), bytes: None }),
    };
    world.store.change_lane(&ALL, &queue("one"), &tenant("acme"), lane).await.unwrap();
    let all = TenantChange { suspended: Some(true), cap: Some(Some(1)), ..bound(Some(1), None) };
    put(world, "acme", all).await;
    world.store.remove_tenant(&ALL, &tenant("acme")).await.unwrap();
    fill(world, "acme", "one", 4).await;
    let session = world.session().await;
    assert_eq!(world.claim(session, 9).await.len(), 4);
    let lanes = world.store.queues(&tenant_scope("acme")).await.unwrap();
    let seen = (lanes[0].paused, lanes[0].weight, lanes[0].cap, lanes[0].lane_capacity);
    assert_eq!(seen, (false, 1, None, Capacity::default()));
}

pub(super) async fn tenants_share_by_weight(world: &StoreFixture) {
    fill(world, "a", "default", 100).await;
    fill(world, "b", "default", 100).await;
    put(world, "b", weight(3)).await;
    let session = world.session().await;
    let mut heavy = 0;
    for _ in 0..40 {
        heavy += shares(world, session, 2).await.get(&tenant("b")).copied().unwrap_or(0);
    }
    assert!((57..=63).contains(&heavy), "three quarters of 80: {heavy}");
}

pub(super) async fn a_lanes_share_is_its_weight_times_its_tenants(world: &StoreFixture) {
    fill(world, "a", "default", 200).await;
    fill(world, "b", "default", 200).await;
    put(world, "b", weight(3)).await;
    let twice = LaneChange { weight: Some(2), ..LaneChange::default() };
    world.store.change_lane(&ALL, &queue("default"), &tenant("b"), twice).await.unwrap();
    let session = world.session().await;
    let shares = shares(world, session, 140).await;
    let heavy = shares[&tenant("b")];
    assert!((117..=123).contains(&heavy), "six sevenths of 140: {shares:?}");
    let lanes = world.store.queues(&tenant_scope("b")).await.unwrap();
    assert_eq!(lanes[0].weight, 2, "a lane shows its own weight");
}

pub(super) async fn a_tenants_cap_is_over_all_its_queues(world: &StoreFixture) {
    fill(world, "acme", "one", 5).await;
    fill(world, "acme", "two", 5).await;
    fill(world, "other", "one", 2).await;
    put(world, "acme", cap(3)).await;
    let session = world.session().await;
    let held = world.claim(session, 20).await;
    let acmes: Vec<_> = held.iter().filter(|held| held.unit.tenant == tenant("acme")).collect();
    assert_eq!((held.len(), acmes.len()), (5, 3), "three units of the capped tenant and all others");
    let other = world.session().await;
    assert!(world.claim(other, 9).await.is_empty(), "the cap is the store's, not a worker's");
    world.finish(session, acmes[0].lease, done()).await;
    assert_eq!(world.claim(other, 9).await.len(), 1);
    put(world, "acme", TenantChange { cap: Some(None), ..NO_CHANGE }).await;
    assert_eq!(world.claim(other, 9).await.len(), 6);
}

pub(super) async fn a_lanes_cap_and_its_tenants_both_hold(world: &StoreFixture) {
    fill(world, "acme", "one", 5).await;
    fill(world, "acme", "two", 5).await;
    put(world, "acme", cap(4)).await;
    let one = LaneChange { cap: Some(Some(1)), ..LaneChange::default() };
    world.store.change_lane(&ALL, &queue("one"), &tenant("acme"), one).await.unwrap();
    let session = world.session().await;
    let held = world.claim(session, 20).await;
    let in_one = held.iter().filter(|held| held.unit.queue == queue("one")).count();
    assert_eq!((held.len(), in_one), (4, 1));
}

pub(super) async fn nothing_is_claimed_ahead_of_a_capped_tenant(world: &StoreFixture) {
    fill(world, "acme", "one", 5).await;
    put(world, "acme", cap(4)).await;
    let session = world.session().await;
    let held = world.claim_with(ClaimRequest { prefetch: 5, ..claim(session, 2) }).await.units;
    assert_eq!(held.len(), 2);
    assert!(held.iter().all(|held| held.started));
}

pub(super) async fn a_unit_that_runs_alone_keeps_to_its_tenants_cap(world: &StoreFixture) {
    let id = fill(world, "acme", "one", 1).await[0];
    for _ in 0..2 {
        let victim = world.session().await;
        world.claim_one(victim).await;
        world.kill(victim).await;
        world.clock.advance(secs(3600));
        world.promote().await;
    }
    put(world, "acme", cap(1)).await;
    fill(world, "acme", "two", 1).await;
    let session = world.session().await;
    let other = ClaimRequest { holds_nothing: false, ..claim(session, 1) };
    let held = world.claim_with(other).await.units;
    assert_eq!(held.len(), 1);
    let empty = world.session().await;
    assert!(world.claim(empty, 1).await.is_empty(), "the cap is reached");
    world.finish(session, held[0].lease, done()).await;
    assert_eq!(ids(&world.claim(empty, 1).await), [id]);
}

pub(super) async fn the_end_of_a_unit_of_a_capped_tenant_wakes(world: &StoreFixture) {
    fill(world, "acme", "one", 2).await;
    put(world, "acme", cap(1)).await;
    let session = world.session().await;
    let held = world.claim_one(session).await;
    let seen = world.store.wait_for_ready(0, secs(0)).await;
    world.finish(session, held.lease, done()).await;
    assert_ne!(world.store.wait_for_ready(seen, secs(60)).await, seen, "another may go now");
}

pub(super) async fn a_tenants_bound_is_over_all_its_queues(world: &StoreFixture) {
    put(world, "acme", bound(Some(3), None)).await;
    fill(world, "acme", "one", 2).await;
    let first = world.send(unit_of("acme", "two")).await;
    let answer = world.try_send(unit_of("acme", "three")).await;
    assert!(is_full(&answer), "{answer:?}");
    world.send(unit_of("other", "one")).await;
    world.cancel(first).await;
    world.send(unit_of("acme", "three")).await;
    assert!(is_full(&world.try_send(unit_of("acme", "one")).await));
    put(world, "acme", bound(None, None)).await;
    world.send(unit_of("acme", "one")).await;
}

pub(super) async fn one_send_into_two_queues_keeps_to_the_tenants_bound(world: &StoreFixture) {
    put(world, "acme", bound(Some(3), None)).await;
    let both = ["one", "two", "one", "two", "one"].map(|queue_name| unit_of("acme", queue_name));
    let answers = world.store.send(&ALL, both.to_vec()).await.unwrap();
    let full: Vec<bool> = answers.iter().map(is_full).collect();
    assert_eq!(full, [false, false, false, true, true], "{answers:?}");
}

pub(super) async fn a_tenants_bytes_are_bounded_too(world: &StoreFixture) {
    put(world, "acme", bound(None, Some(10))).await;
    let of = |queue_name, bytes: usize| {
        let payload = Payload::from(vec![b'x'; bytes]);
        NewUnit { payload, ..unit_of("acme", queue_name) }
    };
    world.send(of("one", 6)).await;
    assert!(is_full(&world.try_send(of("two", 5)).await));
    world.send(of("two", 4)).await;
    assert_eq!(world.store.tenants(&ALL).await.unwrap()[0].bytes, 10);
}

pub(super) async fn a_suspended_tenant_is_passed_by_and_its_sends_refused(world: &StoreFixture) {
    let known = unit_of("acme", "one");
    world.send(known.clone()).await;
    let other = world.send(unit_of("other", "one")).await;
    put(world, "acme", suspend(true)).await;
    let refused = world.try_send(unit_of("acme", "two")).await;
    assert_eq!(refused, SendResult::Rejected(SendRejection::Suspended(tenant("acme"))));
    assert_eq!(world.try_send(known.clone()).await, SendResult::Created(known.id), "a repeat");
    let session = world.session().await;
    assert_eq!(ids(&world.claim(session, 9).await), [other]);
    let lanes = world.store.queues(&ALL).await.unwrap();
    let seen: Vec<_> = lanes.iter().map(|lane| (lane.tenant.as_str(), lane.suspended, lane.paused)).collect();
    assert_eq!(seen, [("acme", true, false), ("other", false, false)]);
    put(world, "acme", suspend(false)).await;
    assert_eq!(ids(&world.claim(session, 9).await), [known.id]);
    world.send(unit_of("acme", "two")).await;
}

pub(super) async fn a_suspended_tenant_opens_no_batch(world: &StoreFixture) {
    let new = |name: &str| NewBatch { tenant: tenant("acme"), ..NewBatch::new(batch_id(name)) };
    world.open_batch(new("acme/before")).await;
    put(world, "acme", suspend(true)).await;
    for scope in [ALL, tenant_scope("acme")] {
        let refused = world.store.open_batch(&scope, new("acme/after")).await;
        assert!(matches!(&refused, Err(Error::Invalid(why)) if why.contains("suspended")), "{refused:?}");
        let again = world.store.open_batch(&scope, new("acme/before")).await.unwrap();
        assert!(matches!(again, OpenBatchResult::Existing(_)), "{again:?}");
    }
}

pub(super) async fn what_was_claimed_ahead_of_a_suspended_tenant_is_unwanted(world: &StoreFixture) {
    fill(world, "acme", "one", 2).await;
    let session = world.session().await;
    let held = world.claim_with(ClaimRequest { prefetch: 1, ..claim(session, 1) }).await.units;
    let (running, ahead) = (&held[..1], &held[1..]);
    put(world, "acme", suspend(true)).await;
    assert_eq!(world.store.start(session, &leases(ahead)).await.unwrap(), [None]);
    let beat = world.store.heartbeat(session, Default::default()).await.unwrap();
    assert_eq!(beat.to_release, ids(ahead), "running units continue");
    world.store.release(session, &leases(ahead)).await.unwrap();
    world.finish_all(session, running, done()).await;
    assert_eq!(world.state(running[0].unit.id).await, UnitState::Done);
    assert_eq!(world.state(ahead[0].unit.id).await, UnitState::Ready);
}

pub(super) async fn a_suspended_tenants_running_units_retry_and_end(world: &StoreFixture) {
    let id = fill(world, "acme", "one", 1).await[0];
    let session = world.session().await;
    let held = world.claim_one(session).await;
    put(world, "acme", suspend(true)).await;
    world.finish(session, held.lease, retry_after(secs(10))).await;
    world.clock.advance(secs(20));
    world.promote().await;
    assert_eq!(world.state(id).await, UnitState::Ready);
    assert!(world.claim(session, 9).await.is_empty());
}

pub(super) async fn callbacks_and_retries_are_never_refused(world: &StoreFixture) {
    let name = batch_id("acme/b");
    let (callback_queue, data) = (queue("calls"), serde_json::Value::Null);
    let callback = Some(Callback::new(callback_queue, kind(), data));
    let new = NewBatch { tenant: tenant("acme"), callback, ..NewBatch::new(name.clone()) };
    world.open_batch(new).await;
    world.add_chunk(&name, "", "1", vec![unit_of("acme", "one")]).await;
    world.store.seal_batch(&ALL, &name).await.unwrap();
    let session = world.session().await;
    let held = world.claim_one(session).await;
    put(world, "acme", TenantChange { suspended: Some(true), ..bound(Some(1), None) }).await;
    world.finish(session, held.lease, failed()).await;
    let all = world.store.queues(&tenant_scope("acme")).await.unwrap();
    let ready = |name: &str| all.iter().find(|lane| lane.queue == queue(name)).unwrap().counts;
    assert_eq!((ready("calls").ready, ready("one").failed), (1, 1), "it called back");
    assert_eq!(world.retry(held.unit.id).await.changed, 1, "past the bound, too");
    assert_eq!(world.state(held.unit.id).await, UnitState::Ready);
}

pub(super) async fn a_chunk_of_a_suspended_tenant_leaves_nothing_behind(world: &StoreFixture) {
    let name = batch_id("acme/b");
    world.open_batch(NewBatch { tenant: tenant("acme"), ..NewBatch::new(name.clone()) }).await;
    put(world, "acme", suspend(true)).await;
    let units = vec![unit_of("acme", "one"), unit_of("acme", "one")];
    let chunk = BatchChunk { expected: String::new(), next: "2".to_owned(), units };
    let added = world.store.add_to_batch(&ALL, &name, chunk.clone()).await.unwrap();
    let refused = SendResult::Rejected(SendRejection::Suspended(tenant("acme")));
    assert_eq!(added, AddChunkResult::Committed(vec![refused.clone(), refused]));
    let batch = world.batch(&name).await;
    assert_eq!(
        (batch.cursor.as_str(), batch.counts.total()),
        ("", 0),
        "the cursor stays, so the client sends the chunk again"
    );
    put(world, "acme", suspend(false)).await;
    world.store.add_to_batch(&ALL, &name, chunk).await.unwrap();
    assert_eq!(world.batch(&name).await.counts.total(), 2);
}

pub(super) async fn a_suspended_tenant_earned_no_credit(world: &StoreFixture) {
    fill(world, "a", "default", 100).await;
    fill(world, "b", "default", 100).await;
    let session = world.session().await;
    world.claim(session, 4).await;
    put(world, "a", suspend(true)).await;
    fill(world, "c", "default", 100).await;
    world.claim(session, 60).await;
    put(world, "a", suspend(false)).await;
    let shares = shares(world, session, 30).await;
    let mine = shares.get(&tenant("a")).copied().unwrap_or(0);
    assert!((8..=12).contains(&mine), "a third of 30: {shares:?}");
}

pub(super) async fn a_paused_lane_earned_no_credit(world: &StoreFixture) {
    fill(world, "a", "default", 100).await;
    fill(world, "b", "default", 100).await;
    fill(world, "c", "default", 100).await;
    let session = world.session().await;
    world.claim(session, 6).await;
    let lane = |paused| LaneChange { paused: Some(paused), ..LaneChange::default() };
    let (queue_name, a) = (queue("default"), tenant("a"));
    world.store.change_lane(&ALL, &queue_name, &a, lane(true)).await.unwrap();
    world.claim(session, 60).await;
    world.store.change_lane(&ALL, &queue_name, &a, lane(false)).await.unwrap();
    let first = shares(world, session, 30).await;
    let mine = first.get(&a).copied().unwrap_or(0);
    assert!((8..=12).contains(&mine), "a third of 30: {first:?}");
    let queue_wide = |paused| QueueChange { paused: Some(paused), capacity: None };
    world.store.change_queue(&ALL, &queue_name, queue_wide(true)).await.unwrap();
    world.store.change_queue(&ALL, &queue_name, queue_wide(false)).await.unwrap();
    let second = shares(world, session, 30).await;
    assert!(second.values().all(|part| (8..=12).contains(part)), "{second:?}");
}

pub(super) async fn a_change_of_a_tenant_is_announced_and_wakes(world: &StoreFixture) {
    let heard = async |tenant_name: &str, since| {
        let changes = world.store.changes(&tenant_scope(tenant_name), since, secs(0)).await.unwrap();
        let topic = Topic::Setting("tenant".to_owned());
        changes.changes.iter().any(|change| change.topic == topic)
    };
    let seen = world.store.wait_for_ready(0, secs(0)).await;
    put(world, "acme", suspend(true)).await;
    assert!(heard("acme", 0).await);
    assert!(!heard("other", 0).await);
    assert_ne!(world.store.wait_for_ready(seen, secs(60)).await, seen);
    let cursor = world.store.changes(&ALL, 0, secs(0)).await.unwrap().cursor;
    let seen = world.store.wait_for_ready(0, secs(0)).await;
    world.store.remove_tenant(&ALL, &tenant("acme")).await.unwrap();
    assert!(heard("acme", cursor).await);
    assert_ne!(world.store.wait_for_ready(seen, secs(60)).await, seen);
}
