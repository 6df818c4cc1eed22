//! A tenant's share: whatever a tenant multiplies, it gets one share by its weight.

use longshore_core::store::ClaimRequest;
use longshore_core::unit::ConcurrencyCap;
use longshore_core::{Kind, NewBatch, NewUnit, Priority, SessionId};

use super::helpers::*;
use crate::StoreFixture;

/// The units of `small`, in one queue, of one kind.
const SMALL: usize = 30;

async fn fill_small(fixture: &StoreFixture) {
    let one = |_| NewUnit { tenant: tenant("small"), ..unit() };
    fixture.store.send(&ALL, (0..SMALL).map(one).collect()).await.unwrap();
}

fn large() -> NewUnit {
    NewUnit { tenant: tenant("large"), ..unit() }
}

/// Claims seven units at a time until `small` has none left, and returns how many units that took.
async fn units_until_small_is_done(fixture: &StoreFixture, session: SessionId, kinds: &[Kind]) -> usize {
    let (mut claimed, mut left) = (0, SMALL);
    while left > 0 {
        let request = ClaimRequest { kinds: kinds.to_vec(), slots: 1_000, ..claim(session, 7) };
        let held = fixture.claim_with(request).await.units;
        assert!(!held.is_empty(), "{left} units of `small` are left");
        claimed += held.len();
        left -= held.iter().filter(|held| held.unit.tenant == tenant("small")).count();
    }
    claimed
}

/// `large` sends these units, then `small` sends 30: two equal tenants share what is claimed.
async fn equal_shares(fixture: &StoreFixture, sent: Vec<NewUnit>, kinds: &[Kind]) {
    fixture.store.send(&ALL, sent).await.unwrap();
    fixture.clock.advance(secs(60));
    fill_small(fixture).await;
    let session = fixture.session().await;
    let claimed = units_until_small_is_done(fixture, session, kinds).await;
    assert!((58..=68).contains(&claimed), "`small` had its 30 units after {claimed}, not after 60");
}

pub(super) async fn many_queues_are_one_share(fixture: &StoreFixture) {
    let sent = (0..600).map(|nth| NewUnit { queue: queue(&format!("q{}", nth % 100)), ..large() });
    equal_shares(fixture, sent.collect(), &[kind()]).await;
}

pub(super) async fn many_kinds_are_one_share(fixture: &StoreFixture) {
    let kinds: Vec<Kind> = (0..100).map(|nth| Kind::new(format!("kind-{nth}")).unwrap()).collect();
    let sent = (0..600).map(|nth| NewUnit { kind: kinds[nth % 100].clone(), ..large() }).collect();
    let all: Vec<Kind> = kinds.iter().cloned().chain([kind()]).collect();
    equal_shares(fixture, sent, &all).await;
}

pub(super) async fn priorities_do_not_count_between_tenants(fixture: &StoreFixture) {
    let one = |nth| NewUnit { priority: Priority::HIGH, queue: queue(&format!("q{}", nth % 3)), ..large() };
    equal_shares(fixture, (0..600).map(one).collect(), &[kind()]).await;
}

pub(super) async fn many_cap_keys_are_one_share(fixture: &StoreFixture) {
    let one = |nth| {
        let cap = Some(ConcurrencyCap { key: format!("key-{}", nth % 100), limit: 1 });
        NewUnit { cap, queue: queue(&format!("q{}", nth % 10)), ..large() }
    };
    equal_shares(fixture, (0..600).map(one).collect(), &[kind()]).await;
}

pub(super) async fn many_batches_are_one_share(fixture: &StoreFixture) {
    for nth in 0..50 {
        let name = batch_id(&format!("large/{nth}"));
        fixture.open_batch(NewBatch { tenant: tenant("large"), ..NewBatch::new(name.clone()) }).await;
        let one = |at| NewUnit { queue: queue(&format!("q{at}")), ..large() };
        fixture.add_chunk(&name, "", "end", (0..12).map(one).collect()).await;
    }
    equal_shares(fixture, Vec::new(), &[kind()]).await;
}

/// A tenant that sends each unit to a new queue joins the schedule once, not with each queue.
pub(super) async fn new_queues_are_no_new_share(fixture: &StoreFixture) {
    fill_small(fixture).await;
    let session = fixture.session().await;
    let (mut claimed, mut left) = (0, SMALL);
    for round in 0..100 {
        let one = |nth| NewUnit { queue: queue(&format!("q{round}-{nth}")), ..large() };
        fixture.store.send(&ALL, (0..10).map(one).collect()).await.unwrap();
        let held = fixture.claim(session, 5).await;
        claimed += held.len();
        left -= held.iter().filter(|held| held.unit.tenant == tenant("small")).count();
        if left == 0 {
            break;
        }
    }
    assert!((58..=66).contains(&claimed), "`small` had its 30 units after {claimed}, not after 60");
}

/// A unit that no worker handles does not let its tenant save up turns.
pub(super) async fn units_that_cannot_run_save_up_no_turns(fixture: &StoreFixture) {
    let unknown = Kind::new("unknown").unwrap();
    fixture.store.send(&ALL, vec![NewUnit { kind: unknown, ..large() }]).await.unwrap();
    fill_small(fixture).await;
    let session = fixture.session().await;
    let other = |_| NewUnit { tenant: tenant("other"), ..unit() };
    fixture.store.send(&ALL, (0..200).map(other).collect()).await.unwrap();
    fixture.claim(session, 20).await;
    fixture.store.send(&ALL, (0..200).map(|_| large()).collect()).await.unwrap();
    let held = fixture.claim(session, 30).await;
    let of = |name| held.iter().filter(|held| held.unit.tenant == tenant(name)).count();
    assert!((9..=11).contains(&of("large")), "a third of 30 each, and `large` had {}", of("large"));
}
