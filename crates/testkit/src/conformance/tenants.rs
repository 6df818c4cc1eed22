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

async fn put(fixture: &StoreFixture, tenant_name: &str, change: TenantChange) -> Tenant {
    fixture.store.put_tenant(&ALL, &tenant(tenant_name), change).await.unwrap()
}

fn unit_of(tenant_name: &str, queue_name: &str) -> NewUnit {
    NewUnit { tenant: tenant(tenant_name), queue: queue(queue_name), ..unit() }
}

async fn fill(fixture: &StoreFixture, tenant_name: &str, queue_name: &str, count: usize) -> Vec<UnitId> {
    let units: Vec<NewUnit> = (0..count).map(|_| unit_of(tenant_name, queue_name)).collect();
    let ids = units.iter().map(|unit| unit.id).collect();
    fixture.store.send(&ALL, units).await.unwrap();
    ids
}

async fn shares(fixture: &StoreFixture, session: SessionId, count: u32) -> BTreeMap<TenantId, u64> {
    let mut shares = BTreeMap::new();
    for held in fixture.claim(session, count).await {
        *shares.entry(held.unit.tenant).or_default() += 1;
    }
    shares
}

fn is_full(sent: &SendResult) -> bool {
    matches!(sent, SendResult::Rejected(SendRejection::Full { bound: CapacityScope::Tenant, .. }))
}

pub(super) async fn a_tenant_is_made_by_its_first_change(fixture: &StoreFixture) {
    assert!(fixture.store.tenants(&ALL).await.unwrap().is_empty());
    let made_at = fixture.now();
    let tenant = put(fixture, "acme", weight(3)).await;
    assert_eq!(tenant, Tenant { weight: 3, ..Tenant::new(tenant.id.clone(), made_at) });
    put(fixture, "Zeta", NO_CHANGE).await;
    put(fixture, "beta", NO_CHANGE).await;
    let all = fixture.store.tenants(&ALL).await.unwrap();
    let names: Vec<&str> = all.iter().map(|tenant| tenant.id.as_str()).collect();
    assert_eq!(names, ["Zeta", "acme", "beta"], "by name");
}

pub(super) async fn a_change_of_a_tenant_leaves_the_rest(fixture: &StoreFixture) {
    put(fixture, "acme", weight(3)).await;
    put(fixture, "acme", cap(4)).await;
    fixture.clock.advance(secs(60));
    put(fixture, "acme", bound(Some(5), Some(6))).await;
    let tenant = put(fixture, "acme", suspend(true)).await;
    assert_eq!((tenant.weight, tenant.cap, tenant.suspended), (3, Some(4), true));
    assert_eq!(tenant.capacity, Capacity { units: Some(5), bytes: Some(6) });
    assert!(tenant.created_at < fixture.now());
    let lifted = TenantChange { cap: Some(None), suspended: Some(false), ..NO_CHANGE };
    let tenant = put(fixture, "acme", lifted).await;
    assert_eq!((tenant.weight, tenant.cap, tenant.suspended), (3, None, false));
    assert_eq!(fixture.store.tenants(&ALL).await.unwrap(), [tenant]);
}

pub(super) async fn a_tenant_of_no_weight_or_cap_is_refused(fixture: &StoreFixture) {
    for change in [weight(0), cap(0)] {
        let answer = fixture.store.put_tenant(&ALL, &tenant("acme"), change).await;
        assert!(matches!(answer, Err(Error::Invalid(_))), "{answer:?}");
    }
    assert!(fixture.store.tenants(&ALL).await.unwrap().is_empty(), "nothing was written");
}

pub(super) async fn a_tenant_has_the_kinds_that_were_opened_to_it(fixture: &StoreFixture) {
    let kinds = |names: &[&str]| names.iter().map(|name| Kind::new(*name).unwrap()).collect::<BTreeSet<_>>();
    let open = |names: &[&str]| TenantChange { allowed_kinds: Some(kinds(names)), ..NO_CHANGE };
    let acme = tenant("acme");
    assert!(fixture.store.allowed_kinds(&acme).await.unwrap().is_empty());
    put(fixture, "acme", open(&["exec", "batch.start"])).await;
    let changed = put(fixture, "acme", weight(2)).await;
    assert_eq!(changed.allowed_kinds, kinds(&["batch.start", "exec"]), "another change leaves them");
    assert_eq!(fixture.store.allowed_kinds(&acme).await.unwrap(), changed.allowed_kinds);
    assert!(fixture.store.allowed_kinds(&tenant("other")).await.unwrap().is_empty());
    put(fixture, "acme", open(&[])).await;
    assert!(fixture.store.allowed_kinds(&acme).await.unwrap().is_empty());
    let answer = fixture.store.put_tenant(&ALL, &acme, open(&["http"])).await;
    assert!(matches!(answer, Err(Error::Invalid(_))), "it is open to every tenant: {answer:?}");
}

pub(super) async fn a_unit_keeps_the_rights_that_it_was_sent_with(fixture: &StoreFixture) {
    let callback = Callback { rights: Rights::Tenant, ..Callback::new(queue("after"), kind(), 7.into()) };
    let batch = NewBatch { callback: Some(callback), ..NewBatch::new(BatchId::new("b").unwrap()) };
    fixture.store.open_batch(&ALL, batch.clone()).await.unwrap();
    fixture.store.seal_batch(&ALL, &batch.id).await.unwrap();
    let [by_tenant, by_operator] =
        [Rights::Tenant, Rights::Operator].map(|rights| NewUnit { rights, ..unit() });
    let sent = [by_tenant.id, by_operator.id];
    fixture.store.send(&ALL, vec![by_tenant, by_operator]).await.unwrap();
    let session = fixture.session().await;
    let claimed = fixture.claim(session, 10).await;
    assert_eq!(claimed.len(), 3, "two, and the callback of the empty batch");
    for held in claimed {
        let rights = if held.lease.unit == sent[1] { Rights::Operator } else { Rights::Tenant };
        assert_eq!(held.unit.rights, rights);
        fixture.finish(session, held.lease, Outcome::Done(None)).await;
        assert_eq!(fixture.unit(held.lease.unit).await.rights, rights);
    }
}

pub(super) async fn a_tenant_shows_what_it_has_over_all_queues(fixture: &StoreFixture) {
    put(fixture, "acme", NO_CHANGE).await;
    fill(fixture, "acme", "one", 2).await;
    fill(fixture, "acme", "two", 1).await;
    fill(fixture, "other", "one", 5).await;
    let session = fixture.session().await;
    let own = ClaimRequest { scope: tenant_scope("acme"), ..claim(session, 2) };
    let held = fixture.claim_with(own).await.units;
    fixture.finish(session, held[0].lease, done()).await;
    let acme = fixture.store.tenants(&ALL).await.unwrap().remove(0);
    assert_eq!((acme.counts.ready, acme.counts.leased, acme.counts.done), (1, 1, 1));
    assert_eq!(acme.bytes, 4, "of live units only");
}

pub(super) async fn only_who_is_in_charge_steers_tenants(fixture: &StoreFixture) {
    put(fixture, "acme", weight(3)).await;
    for scope in [tenant_scope("acme"), tenant_scope("other")] {
        let answer = fixture.store.put_tenant(&scope, &tenant("acme"), weight(9)).await;
        assert!(matches!(answer, Err(Error::NotFound { .. })), "{answer:?}");
        assert!(fixture.store.remove_tenant(&scope, &tenant("acme")).await.is_err());
    }
    assert_eq!(fixture.store.tenants(&ALL).await.unwrap()[0].weight, 3);
}

pub(super) async fn a_tenant_sees_its_own_record_only(fixture: &StoreFixture) {
    put(fixture, "acme", weight(3)).await;
    put(fixture, "other", weight(4)).await;
    let seen = fixture.store.tenants(&tenant_scope("acme")).await.unwrap();
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].id.clone(), seen[0].weight), (tenant("acme"), 3));
    assert!(fixture.store.tenants(&tenant_scope("nobody")).await.unwrap().is_empty());
}

pub(super) async fn a_tenant_with_live_units_is_not_removed(fixture: &StoreFixture) {
    put(fixture, "acme", weight(3)).await;
    let id = fill(fixture, "acme", "one", 1).await[0];
    let refused = fixture.store.remove_tenant(&ALL, &tenant("acme")).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    assert_eq!(fixture.store.tenants(&ALL).await.unwrap()[0].weight, 3);
    fixture.cancel(id).await;
    fixture.store.remove_tenant(&ALL, &tenant("acme")).await.unwrap();
    assert!(fixture.store.tenants(&ALL).await.unwrap().is_empty());
    let gone = fixture.store.remove_tenant(&ALL, &tenant("acme")).await;
    assert!(matches!(gone, Err(Error::NotFound { .. })), "{gone:?}");
}

pub(super) async fn a_removed_tenant_works_as_if_it_had_never_been_set(fixture: &StoreFixture) {
    let lane = LaneChange {
        paused: Some(true),
        weight: Some(5),
        cap: Some(Some(1)),
        capacity: Some(Capacity { units: Some(1), bytes: None }),
    };
    fixture.store.change_lane(&ALL, &queue("one"), &tenant("acme"), lane).await.unwrap();
    let all = TenantChange { suspended: Some(true), cap: Some(Some(1)), ..bound(Some(1), None) };
    put(fixture, "acme", all).await;
    fixture.store.remove_tenant(&ALL, &tenant("acme")).await.unwrap();
    fill(fixture, "acme", "one", 4).await;
    let session = fixture.session().await;
    assert_eq!(fixture.claim(session, 9).await.len(), 4);
    let lanes = fixture.store.queues(&tenant_scope("acme")).await.unwrap();
    let seen = (lanes[0].paused, lanes[0].weight, lanes[0].cap, lanes[0].lane_capacity);
    assert_eq!(seen, (false, 1, None, Capacity::default()));
}

pub(super) async fn tenants_share_by_weight(fixture: &StoreFixture) {
    fill(fixture, "a", "default", 100).await;
    fill(fixture, "b", "default", 100).await;
    put(fixture, "b", weight(3)).await;
    let session = fixture.session().await;
    let mut heavy = 0;
    for _ in 0..40 {
        heavy += shares(fixture, session, 2).await.get(&tenant("b")).copied().unwrap_or(0);
    }
    assert!((57..=63).contains(&heavy), "three quarters of 80: {heavy}");
}

pub(super) async fn a_lanes_share_is_its_weight_times_its_tenants(fixture: &StoreFixture) {
    fill(fixture, "a", "default", 200).await;
    fill(fixture, "b", "default", 200).await;
    put(fixture, "b", weight(3)).await;
    let twice = LaneChange { weight: Some(2), ..LaneChange::default() };
    fixture.store.change_lane(&ALL, &queue("default"), &tenant("b"), twice).await.unwrap();
    let session = fixture.session().await;
    let shares = shares(fixture, session, 140).await;
    let heavy = shares[&tenant("b")];
    assert!((117..=123).contains(&heavy), "six sevenths of 140: {shares:?}");
    let lanes = fixture.store.queues(&tenant_scope("b")).await.unwrap();
    assert_eq!(lanes[0].weight, 2, "a lane shows its own weight");
}

pub(super) async fn a_tenants_cap_is_over_all_its_queues(fixture: &StoreFixture) {
    fill(fixture, "acme", "one", 5).await;
    fill(fixture, "acme", "two", 5).await;
    fill(fixture, "other", "one", 2).await;
    put(fixture, "acme", cap(3)).await;
    let session = fixture.session().await;
    let held = fixture.claim(session, 20).await;
    let acmes: Vec<_> = held.iter().filter(|held| held.unit.tenant == tenant("acme")).collect();
    assert_eq!((held.len(), acmes.len()), (5, 3), "three units of the capped tenant and all others");
    let other = fixture.session().await;
    assert!(fixture.claim(other, 9).await.is_empty(), "the cap is the store's, not a worker's");
    fixture.finish(session, acmes[0].lease, done()).await;
    assert_eq!(fixture.claim(other, 9).await.len(), 1);
    put(fixture, "acme", TenantChange { cap: Some(None), ..NO_CHANGE }).await;
    assert_eq!(fixture.claim(other, 9).await.len(), 6);
}

pub(super) async fn a_lanes_cap_and_its_tenants_both_hold(fixture: &StoreFixture) {
    fill(fixture, "acme", "one", 5).await;
    fill(fixture, "acme", "two", 5).await;
    put(fixture, "acme", cap(4)).await;
    let one = LaneChange { cap: Some(Some(1)), ..LaneChange::default() };
    fixture.store.change_lane(&ALL, &queue("one"), &tenant("acme"), one).await.unwrap();
    let session = fixture.session().await;
    let held = fixture.claim(session, 20).await;
    let in_one = held.iter().filter(|held| held.unit.queue == queue("one")).count();
    assert_eq!((held.len(), in_one), (4, 1));
}

pub(super) async fn nothing_is_claimed_ahead_of_a_capped_tenant(fixture: &StoreFixture) {
    fill(fixture, "acme", "one", 5).await;
    put(fixture, "acme", cap(4)).await;
    let session = fixture.session().await;
    let held = fixture.claim_with(ClaimRequest { prefetch: 5, ..claim(session, 2) }).await.units;
    assert_eq!(held.len(), 2);
    assert!(held.iter().all(|held| held.started));
}

pub(super) async fn a_unit_that_runs_alone_keeps_to_its_tenants_cap(fixture: &StoreFixture) {
    let id = fill(fixture, "acme", "one", 1).await[0];
    for _ in 0..2 {
        let victim = fixture.session().await;
        fixture.claim_one(victim).await;
        fixture.kill(victim).await;
        fixture.clock.advance(secs(3600));
        fixture.promote().await;
    }
    put(fixture, "acme", cap(1)).await;
    fill(fixture, "acme", "two", 1).await;
    let session = fixture.session().await;
    let other = ClaimRequest { holds_nothing: false, ..claim(session, 1) };
    let held = fixture.claim_with(other).await.units;
    assert_eq!(held.len(), 1);
    let empty = fixture.session().await;
    assert!(fixture.claim(empty, 1).await.is_empty(), "the cap is reached");
    fixture.finish(session, held[0].lease, done()).await;
    assert_eq!(ids(&fixture.claim(empty, 1).await), [id]);
}

pub(super) async fn the_end_of_a_unit_of_a_capped_tenant_wakes(fixture: &StoreFixture) {
    fill(fixture, "acme", "one", 2).await;
    put(fixture, "acme", cap(1)).await;
    let session = fixture.session().await;
    let held = fixture.claim_one(session).await;
    let seen = fixture.store.wait_for_ready(0, secs(0)).await;
    fixture.finish(session, held.lease, done()).await;
    assert_ne!(fixture.store.wait_for_ready(seen, secs(60)).await, seen, "another may go now");
}

pub(super) async fn a_tenants_bound_is_over_all_its_queues(fixture: &StoreFixture) {
    put(fixture, "acme", bound(Some(3), None)).await;
    fill(fixture, "acme", "one", 2).await;
    let first = fixture.send(unit_of("acme", "two")).await;
    let answer = fixture.try_send(unit_of("acme", "three")).await;
    assert!(is_full(&answer), "{answer:?}");
    fixture.send(unit_of("other", "one")).await;
    fixture.cancel(first).await;
    fixture.send(unit_of("acme", "three")).await;
    assert!(is_full(&fixture.try_send(unit_of("acme", "one")).await));
    put(fixture, "acme", bound(None, None)).await;
    fixture.send(unit_of("acme", "one")).await;
}

pub(super) async fn one_send_into_two_queues_keeps_to_the_tenants_bound(fixture: &StoreFixture) {
    put(fixture, "acme", bound(Some(3), None)).await;
    let both = ["one", "two", "one", "two", "one"].map(|queue_name| unit_of("acme", queue_name));
    let answers = fixture.store.send(&ALL, both.to_vec()).await.unwrap();
    let full: Vec<bool> = answers.iter().map(is_full).collect();
    assert_eq!(full, [false, false, false, true, true], "{answers:?}");
}

pub(super) async fn a_tenants_bytes_are_bounded_too(fixture: &StoreFixture) {
    put(fixture, "acme", bound(None, Some(10))).await;
    let of = |queue_name, bytes: usize| {
        let payload = Payload::from(vec![b'x'; bytes]);
        NewUnit { payload, ..unit_of("acme", queue_name) }
    };
    fixture.send(of("one", 6)).await;
    assert!(is_full(&fixture.try_send(of("two", 5)).await));
    fixture.send(of("two", 4)).await;
    assert_eq!(fixture.store.tenants(&ALL).await.unwrap()[0].bytes, 10);
}

pub(super) async fn a_suspended_tenant_is_passed_by_and_its_sends_refused(fixture: &StoreFixture) {
    let known = unit_of("acme", "one");
    fixture.send(known.clone()).await;
    let other = fixture.send(unit_of("other", "one")).await;
    put(fixture, "acme", suspend(true)).await;
    let refused = fixture.try_send(unit_of("acme", "two")).await;
    assert_eq!(refused, SendResult::Rejected(SendRejection::Suspended(tenant("acme"))));
    assert_eq!(fixture.try_send(known.clone()).await, SendResult::Created(known.id), "a repeat");
    let session = fixture.session().await;
    assert_eq!(ids(&fixture.claim(session, 9).await), [other]);
    let lanes = fixture.store.queues(&ALL).await.unwrap();
    let seen: Vec<_> = lanes.iter().map(|lane| (lane.tenant.as_str(), lane.suspended, lane.paused)).collect();
    assert_eq!(seen, [("acme", true, false), ("other", false, false)]);
    put(fixture, "acme", suspend(false)).await;
    assert_eq!(ids(&fixture.claim(session, 9).await), [known.id]);
    fixture.send(unit_of("acme", "two")).await;
}

pub(super) async fn a_suspended_tenant_opens_no_batch(fixture: &StoreFixture) {
    let new = |name: &str| NewBatch { tenant: tenant("acme"), ..NewBatch::new(batch_id(name)) };
    fixture.open_batch(new("acme/before")).await;
    put(fixture, "acme", suspend(true)).await;
    for scope in [ALL, tenant_scope("acme")] {
        let refused = fixture.store.open_batch(&scope, new("acme/after")).await;
        assert!(matches!(&refused, Err(Error::Invalid(why)) if why.contains("suspended")), "{refused:?}");
        let again = fixture.store.open_batch(&scope, new("acme/before")).await.unwrap();
        assert!(matches!(again, OpenBatchResult::Existing(_)), "{again:?}");
    }
}

pub(super) async fn what_was_claimed_ahead_of_a_suspended_tenant_is_unwanted(fixture: &StoreFixture) {
    fill(fixture, "acme", "one", 2).await;
    let session = fixture.session().await;
    let held = fixture.claim_with(ClaimRequest { prefetch: 1, ..claim(session, 1) }).await.units;
    let (running, ahead) = (&held[..1], &held[1..]);
    put(fixture, "acme", suspend(true)).await;
    assert_eq!(fixture.store.start(session, &leases(ahead)).await.unwrap(), [None]);
    let beat = fixture.store.heartbeat(session, Default::default()).await.unwrap();
    assert_eq!(beat.to_release, ids(ahead), "running units continue");
    fixture.store.release(session, &leases(ahead)).await.unwrap();
    fixture.finish_all(session, running, done()).await;
    assert_eq!(fixture.state(running[0].unit.id).await, UnitState::Done);
    assert_eq!(fixture.state(ahead[0].unit.id).await, UnitState::Ready);
}

pub(super) async fn a_suspended_tenants_running_units_retry_and_end(fixture: &StoreFixture) {
    let id = fill(fixture, "acme", "one", 1).await[0];
    let session = fixture.session().await;
    let held = fixture.claim_one(session).await;
    put(fixture, "acme", suspend(true)).await;
    fixture.finish(session, held.lease, retry_after(secs(10))).await;
    fixture.clock.advance(secs(20));
    fixture.promote().await;
    assert_eq!(fixture.state(id).await, UnitState::Ready);
    assert!(fixture.claim(session, 9).await.is_empty());
}

pub(super) async fn callbacks_and_retries_are_never_refused(fixture: &StoreFixture) {
    let name = batch_id("acme/b");
    let (callback_queue, data) = (queue("calls"), serde_json::Value::Null);
    let callback = Some(Callback::new(callback_queue, kind(), data));
    let new = NewBatch { tenant: tenant("acme"), callback, ..NewBatch::new(name.clone()) };
    fixture.open_batch(new).await;
    fixture.add_chunk(&name, "", "1", vec![unit_of("acme", "one")]).await;
    fixture.store.seal_batch(&ALL, &name).await.unwrap();
    let session = fixture.session().await;
    let held = fixture.claim_one(session).await;
    put(fixture, "acme", TenantChange { suspended: Some(true), ..bound(Some(1), None) }).await;
    fixture.finish(session, held.lease, failed()).await;
    let all = fixture.store.queues(&tenant_scope("acme")).await.unwrap();
    let ready = |name: &str| all.iter().find(|lane| lane.queue == queue(name)).unwrap().counts;
    assert_eq!((ready("calls").ready, ready("one").failed), (1, 1), "it called back");
    assert_eq!(fixture.retry(held.unit.id).await.changed, 1, "past the bound, too");
    assert_eq!(fixture.state(held.unit.id).await, UnitState::Ready);
}

pub(super) async fn a_chunk_of_a_suspended_tenant_leaves_nothing_behind(fixture: &StoreFixture) {
    let name = batch_id("acme/b");
    fixture.open_batch(NewBatch { tenant: tenant("acme"), ..NewBatch::new(name.clone()) }).await;
    put(fixture, "acme", suspend(true)).await;
    let units = vec![unit_of("acme", "one"), unit_of("acme", "one")];
    let chunk = BatchChunk { expected: String::new(), next: "2".to_owned(), units };
    let added = fixture.store.add_to_batch(&ALL, &name, chunk.clone()).await.unwrap();
    let refused = SendResult::Rejected(SendRejection::Suspended(tenant("acme")));
    assert_eq!(added, AddChunkResult::Committed(vec![refused.clone(), refused]));
    let batch = fixture.batch(&name).await;
    assert_eq!(
        (batch.cursor.as_str(), batch.counts.total()),
        ("", 0),
        "the cursor stays, so the client sends the chunk again"
    );
    put(fixture, "acme", suspend(false)).await;
    fixture.store.add_to_batch(&ALL, &name, chunk).await.unwrap();
    assert_eq!(fixture.batch(&name).await.counts.total(), 2);
}

pub(super) async fn a_suspended_tenant_earned_no_credit(fixture: &StoreFixture) {
    fill(fixture, "a", "default", 100).await;
    fill(fixture, "b", "default", 100).await;
    let session = fixture.session().await;
    fixture.claim(session, 4).await;
    put(fixture, "a", suspend(true)).await;
    fill(fixture, "c", "default", 100).await;
    fixture.claim(session, 60).await;
    put(fixture, "a", suspend(false)).await;
    let shares = shares(fixture, session, 30).await;
    let mine = shares.get(&tenant("a")).copied().unwrap_or(0);
    assert!((8..=12).contains(&mine), "a third of 30: {shares:?}");
}

pub(super) async fn a_paused_lane_earned_no_credit(fixture: &StoreFixture) {
    fill(fixture, "a", "default", 100).await;
    fill(fixture, "b", "default", 100).await;
    fill(fixture, "c", "default", 100).await;
    let session = fixture.session().await;
    fixture.claim(session, 6).await;
    let lane = |paused| LaneChange { paused: Some(paused), ..LaneChange::default() };
    let (queue_name, a) = (queue("default"), tenant("a"));
    fixture.store.change_lane(&ALL, &queue_name, &a, lane(true)).await.unwrap();
    fixture.claim(session, 60).await;
    fixture.store.change_lane(&ALL, &queue_name, &a, lane(false)).await.unwrap();
    let first = shares(fixture, session, 30).await;
    let mine = first.get(&a).copied().unwrap_or(0);
    assert!((8..=12).contains(&mine), "a third of 30: {first:?}");
    let queue_wide = |paused| QueueChange { paused: Some(paused), capacity: None };
    fixture.store.change_queue(&ALL, &queue_name, queue_wide(true)).await.unwrap();
    fixture.store.change_queue(&ALL, &queue_name, queue_wide(false)).await.unwrap();
    let second = shares(fixture, session, 30).await;
    assert!(second.values().all(|part| (8..=12).contains(part)), "{second:?}");
}

pub(super) async fn a_change_of_a_tenant_is_announced_and_wakes(fixture: &StoreFixture) {
    let heard = async |tenant_name: &str, since| {
        let changes = fixture.store.changes(&tenant_scope(tenant_name), since, secs(0)).await.unwrap();
        let topic = Topic::Setting("tenant".to_owned());
        changes.changes.iter().any(|change| change.topic == topic)
    };
    let seen = fixture.store.wait_for_ready(0, secs(0)).await;
    put(fixture, "acme", suspend(true)).await;
    assert!(heard("acme", 0).await);
    assert!(!heard("other", 0).await);
    assert_ne!(fixture.store.wait_for_ready(seen, secs(60)).await, seen);
    let cursor = fixture.store.changes(&ALL, 0, secs(0)).await.unwrap().cursor;
    let seen = fixture.store.wait_for_ready(0, secs(0)).await;
    fixture.store.remove_tenant(&ALL, &tenant("acme")).await.unwrap();
    assert!(heard("acme", cursor).await);
    assert_ne!(fixture.store.wait_for_ready(seen, secs(60)).await, seen);
}
