//! Caps: eight concurrent claimers never lease more units than a cap allows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longshore_core::store::{LaneChange, LeasedUnit, Queues, TenantChange};
use longshore_core::unit::ConcurrencyCap;
use longshore_core::{NewUnit, Outcome};
use tokio::task::JoinSet;

use super::{ALL, claim, finish, queue, session, tenant, unit, verify};
use crate::StoreFixture;

const CLAIMERS: u32 = 8;
/// Units for each queue of each tenant.
const UNITS_PER_QUEUE: usize = 60;
/// Tenants, and the cap on leased units of each.
const CAPS: [(&str, u32); 4] = [("by-lane", 3), ("by-tenant", 5), ("by-key", 2), ("free", 99)];

/// Eight claimers claim from lanes with a cap, from a tenant with a cap over three queues, and units
/// under one cap key. No cap is ever exceeded, and each cap is reached.
pub async fn caps_are_never_exceeded(fixture: &StoreFixture) {
    fill(fixture).await;
    let leases = Arc::new(LeaseCounts::default());
    // Before the claimers start, so that each cap is certainly reached.
    let first = session(fixture).await;
    let held = claim(fixture, first, 32).await;
    leases.add(&held);
    leases.assert_caps_reached();
    let mut claimers = JoinSet::new();
    for nth in 0..CLAIMERS {
        let (fixture, leases) = (fixture.clone(), Arc::clone(&leases));
        claimers.spawn(async move { run_claimer(&fixture, &leases, nth).await });
    }
    leases.remove(&held);
    finish(fixture, first, &held, &Outcome::Done(None)).await;
    while let Some(ended) = claimers.join_next().await {
        ended.unwrap();
    }
    let all = fixture.store.totals(&ALL, &Queues::All).await.unwrap().counts;
    assert_eq!((all.live(), all.done), (0, 6 * UNITS_PER_QUEUE as u64), "every unit ran once");
    verify(fixture).await;
}

async fn fill(fixture: &StoreFixture) {
    let lane = LaneChange { cap: Some(Some(3)), ..LaneChange::default() };
    let (shared, by_lane) = (queue("shared"), tenant("by-lane"));
    fixture.store.change_lane(&ALL, &shared, &by_lane, lane).await.unwrap();
    let tenant_cap = TenantChange { cap: Some(Some(5)), ..TenantChange::default() };
    fixture.store.put_tenant(&ALL, &tenant("by-tenant"), tenant_cap).await.unwrap();
    let many = |tenant_name: &str, queue_name: &str| -> Vec<NewUnit> {
        (0..UNITS_PER_QUEUE).map(|_| unit(&tenant(tenant_name), &queue(queue_name))).collect()
    };
    for (tenant_name, queue_name) in [("by-lane", "shared"), ("free", "shared")] {
        fixture.store.send(&ALL, many(tenant_name, queue_name)).await.unwrap();
    }
    for queue_name in ["shared", "mail", "by-tenant/own"] {
        fixture.store.send(&ALL, many("by-tenant", queue_name)).await.unwrap();
    }
    let keyed = many("by-key", "shared").into_iter().map(|unit| {
        let cap = Some(ConcurrencyCap { key: "host".to_owned(), limit: 2 });
        NewUnit { cap, ..unit }
    });
    fixture.store.send(&ALL, keyed.collect()).await.unwrap();
}

/// Claims units, checks the caps, and finishes or interrupts the units, until none is left.
async fn run_claimer(fixture: &StoreFixture, leases: &LeaseCounts, nth: u32) {
    let session = session(fixture).await;
    let mut version = 0;
    let mut round = nth;
    while fixture.store.totals(&ALL, &Queues::All).await.unwrap().counts.live() > 0 {
        let held = claim(fixture, session, 1 + round % 7).await;
        round += 1;
        if held.is_empty() {
            version = fixture.store.wait_for_ready(version, Duration::from_millis(100)).await;
            continue;
        }
        leases.add(&held);
        assert_caps_in_store(fixture).await;
        leases.remove(&held);
        let interrupted = round.is_multiple_of(5);
        let outcome = if interrupted { Outcome::Interrupted } else { Outcome::Done(None) };
        finish(fixture, session, &held, &outcome).await;
    }
    fixture.store.close_session(session).await.unwrap();
}

/// Asserts the caps on the counts that the store reports.
async fn assert_caps_in_store(fixture: &StoreFixture) {
    let mut leased: BTreeMap<String, u64> = BTreeMap::new();
    for lane in fixture.store.queues(&ALL).await.unwrap() {
        *leased.entry(lane.tenant.to_string()).or_default() += lane.counts.leased;
    }
    for (tenant_name, cap) in CAPS {
        let leased = leased.get(tenant_name).copied().unwrap_or(0);
        assert!(leased <= u64::from(cap), "{leased} units of {tenant_name} are leased, the cap is {cap}");
    }
}

/// The units that all claimers hold, by tenant. A unit counts from after its claim until before its
/// finish: only while it is certainly leased.
#[derive(Default)]
struct LeaseCounts(Mutex<BTreeMap<String, u32>>);

impl LeaseCounts {
    fn add(&self, held: &[LeasedUnit]) {
        let mut all = self.0.lock().unwrap();
        for one in held {
            *all.entry(one.unit.tenant.to_string()).or_default() += 1;
        }
        for (tenant_name, cap) in CAPS {
            let now = all.get(tenant_name).copied().unwrap_or(0);
            assert!(now <= cap, "{now} units of {tenant_name} are held, the cap is {cap}");
        }
    }

    fn remove(&self, held: &[LeasedUnit]) {
        let mut all = self.0.lock().unwrap();
        for one in held {
            *all.get_mut(one.unit.tenant.as_str()).unwrap() -= 1;
        }
    }

    fn assert_caps_reached(&self) {
        let all = self.0.lock().unwrap();
        for (tenant_name, cap) in CAPS.into_iter().filter(|(tenant_name, _)| *tenant_name != "free") {
            assert_eq!(all.get(tenant_name), Some(&cap), "{tenant_name} has reached its cap");
        }
    }
}
