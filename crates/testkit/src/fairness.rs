//! Shares, caps and bounds under load: the invariants `nobody_starves` and `bounded` with many
//! concurrent tenants, claimers and senders. Larger than a conformance case, and for every store.
//!
//! Each case is an `async fn(&StoreFixture, …)` that panics where the store fails, and ends with `verify`. Run
//! cases with many claimers or senders on a multi-threaded runtime: only there do they run concurrently.

#![expect(clippy::unwrap_used, reason = "these are tests: they fail by a panic")]

mod bounds;
mod caps;
mod shares;

use std::collections::BTreeMap;

use longshore_core::store::{ClaimRequest, FinishRequest, LeasedUnit};
use longshore_core::worker_session::NewSession;
use longshore_core::{Kind, NewUnit, Outcome, Payload, Policy, QueueName, Scope, SessionId, TenantId};

pub use bounds::{BoundScope, thirty_two_senders_never_exceed_a_bound};
pub use caps::caps_are_never_exceeded;
pub use shares::shares_follow_weights;

use crate::StoreFixture;

const ALL: Scope = Scope::All;

/// The largest queue: 100,000 units with `LONGSHORE_SOAK`, else enough for 10,000 claims.
pub fn largest_queue() -> u64 {
    if std::env::var_os("LONGSHORE_SOAK").is_some() { 100_000 } else { 10_000 }
}

/// Generates a test for every case. `$make` is an `async fn() -> StoreFixture`.
#[macro_export]
macro_rules! fairness_suite {
    ($make:path) => {
        use $crate::fairness::{self, BoundScope, thirty_two_senders_never_exceed_a_bound};

        #[tokio::test]
        async fn nobody_starves_among_ten_tenants_of_very_different_sizes() {
            fairness::shares_follow_weights(&$make().await, fairness::largest_queue()).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
        async fn bounded_by_caps_whoever_claims_at_once() {
            fairness::caps_are_never_exceeded(&$make().await).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
        async fn bounded_by_a_queue_against_32_senders() {
            thirty_two_senders_never_exceed_a_bound(&$make().await, BoundScope::Queue).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
        async fn bounded_by_a_lane_against_32_senders() {
            thirty_two_senders_never_exceed_a_bound(&$make().await, BoundScope::Lane).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
        async fn bounded_by_a_tenant_against_32_senders() {
            thirty_two_senders_never_exceed_a_bound(&$make().await, BoundScope::Tenant).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
        async fn bounded_in_bytes_against_32_senders() {
            thirty_two_senders_never_exceed_a_bound(&$make().await, BoundScope::Bytes).await;
        }
    };
}

fn kind() -> Kind {
    Kind::new("work").unwrap()
}

fn tenant(name: &str) -> TenantId {
    TenantId::new(name).unwrap()
}

fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

/// A unit with a payload of two bytes.
fn unit(tenant: &TenantId, queue: &QueueName) -> NewUnit {
    let default = NewUnit::new(kind(), Payload::from(b"{}".as_slice()));
    NewUnit { tenant: tenant.clone(), queue: queue.clone(), ..default }
}

/// Opens a worker session.
async fn session(fixture: &StoreFixture) -> SessionId {
    let id = SessionId::new();
    let kinds = BTreeMap::from([(kind(), Policy::default())]);
    let new = NewSession { kinds, slots: 64, ..NewSession::new(id, "crowd") };
    fixture.store.open_session(new).await.unwrap();
    id
}

/// Claims and starts up to `free` units of any queue.
async fn claim(fixture: &StoreFixture, session: SessionId, free: u32) -> Vec<LeasedUnit> {
    let claim = ClaimRequest {
        free_slots: free,
        holds_nothing: false,
        ..ClaimRequest::new(session, vec![kind()], 64)
    };
    fixture.store.claim(claim).await.unwrap().units
}

async fn finish(fixture: &StoreFixture, session: SessionId, held: &[LeasedUnit], outcome: &Outcome) {
    let finishes = held.iter().map(|held| FinishRequest::new(held.lease, outcome.clone())).collect();
    fixture.store.finish(session, finishes).await.unwrap();
}

async fn verify(fixture: &StoreFixture) {
    let violations = fixture.store.verify().await.unwrap();
    assert!(violations.is_empty(), "verify found {violations:#?}");
}
