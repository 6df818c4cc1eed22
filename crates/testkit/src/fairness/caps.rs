//! Caps: eight claimers at once, and never one unit too many in their hands.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longshore_core::store::{HeldUnit, LaneChange, Queues, TenantChange};
use longshore_core::unit::Cap;
use longshore_core::{NewUnit, Outcome};
use tokio::task::JoinSet;

use super::{ALL, claim, finish, queue, session, tenant, unit, verify};
use crate::World;

const CLAIMERS: u32 = 8;
/// Units for each queue of each tenant.
const EACH: usize = 60;
/// Tenants, and how many units of each may be leased at once.
const CAPS: [(&str, u32); 4] = [("by-lane", 3), ("by-tenant", 5), ("by-key", 2), ("free", 99)];

/// Eight claimers take what they can from lanes with a cap, a tenant with a cap over three queues,
/// and units under one cap key. At no moment is more of any of them leased than it may be, and each
/// cap is reached.
pub async fn caps_are_never_exceeded(world: &World) {
    fill(world).await;
    let hands = Arc::new(Hands::default());
    // Alone, so that each cap is reached whatever the others do later.
    let first = session(world).await;
    let held = claim(world, first, 32).await;
    hands.take(&held);
    hands.expect_full();
    let mut claimers = JoinSet::new();
    for nth in 0..CLAIMERS {
        let (world, hands) = (world.clone(), Arc::clone(&hands));
        claimers.spawn(async move { work(&world, &hands, nth).await });
    }
    hands.leave(&held);
    finish(world, first, &held, &Outcome::Done(None)).await;
    while let Some(ended) = claimers.join_next().await {
        ended.unwrap();
    }
    let all = world.store.totals(&ALL, &Queues::All).await.unwrap().counts;
    assert_eq!((all.live(), all.done), (0, 6 * EACH as u64), "everything ran once");
    verify(world).await;
}

async fn fill(world: &World) {
    let lane = LaneChange { cap: Some(Some(3)), ..LaneChange::default() };
    let (shared, by_lane) = (queue("shared"), tenant("by-lane"));
    world.store.change_lane(&ALL, &shared, &by_lane, lane).await.unwrap();
    let whole = TenantChange { cap: Some(Some(5)), ..TenantChange::default() };
    world.store.put_tenant(&ALL, &tenant("by-tenant"), whole).await.unwrap();
    let lots = |who: &str, on: &str| -> Vec<NewUnit> {
        (0..EACH).map(|_| unit(&tenant(who), &queue(on))).collect()
    };
    for (who, on) in [("by-lane", "shared"), ("free", "shared")] {
        world.store.send(&ALL, lots(who, on)).await.unwrap();
    }
    for on in ["shared", "mail", "by-tenant/own"] {
        world.store.send(&ALL, lots("by-tenant", on)).await.unwrap();
    }
    let keyed = lots("by-key", "shared").into_iter().map(|unit| {
        let cap = Some(Cap { key: "host".to_owned(), limit: 2 });
        NewUnit { cap, ..unit }
    });
    world.store.send(&ALL, keyed.collect()).await.unwrap();
}

/// Takes, looks, gives back or ends, until nothing is left.
async fn work(world: &World, hands: &Hands, nth: u32) {
    let session = session(world).await;
    let mut seen = 0;
    let mut turns = nth;
    while world.store.totals(&ALL, &Queues::All).await.unwrap().counts.live() > 0 {
        let held = claim(world, session, 1 + turns % 7).await;
        turns += 1;
        if held.is_empty() {
            seen = world.store.wake(seen, Duration::from_millis(100)).await;
            continue;
        }
        hands.take(&held);
        look(world).await;
        hands.leave(&held);
        let again = turns.is_multiple_of(5);
        let outcome = if again { Outcome::Interrupted } else { Outcome::Done(None) };
        finish(world, session, &held, &outcome).await;
    }
    world.store.close_session(session).await.unwrap();
}

/// What the store itself counts as leased.
async fn look(world: &World) {
    let mut leased: BTreeMap<String, u64> = BTreeMap::new();
    for lane in world.store.queues(&ALL).await.unwrap() {
        *leased.entry(lane.tenant.to_string()).or_default() += lane.counts.leased;
    }
    for (who, most) in CAPS {
        let leased = leased.get(who).copied().unwrap_or(0);
        assert!(leased <= u64::from(most), "{leased} units of {who} are leased");
    }
}

/// What all claimers hold together. A unit is in here only while it is leased for certain: from
/// after its claim until before its finish.
#[derive(Default)]
struct Hands(Mutex<BTreeMap<String, u32>>);

impl Hands {
    fn take(&self, held: &[HeldUnit]) {
        let mut all = self.0.lock().unwrap();
        for one in held {
            *all.entry(one.unit.tenant.to_string()).or_default() += 1;
        }
        for (who, most) in CAPS {
            let now = all.get(who).copied().unwrap_or(0);
            assert!(now <= most, "{now} units of {who} are held");
        }
    }

    fn leave(&self, held: &[HeldUnit]) {
        let mut all = self.0.lock().unwrap();
        for one in held {
            *all.get_mut(one.unit.tenant.as_str()).unwrap() -= 1;
        }
    }

    fn expect_full(&self) {
        let all = self.0.lock().unwrap();
        for (who, most) in CAPS.into_iter().filter(|(who, _)| *who != "free") {
            assert_eq!(all.get(who), Some(&most), "{who} has as many as it may");
        }
    }
}
