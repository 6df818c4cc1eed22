//! Weights, caps and capacities with many tenants, claimers and senders at once.

use longshore_testkit::fairness::{
    Limit, caps_are_never_exceeded, shares_follow_weights, thirty_two_senders_never_exceed_a_bound,
};

use crate::helpers::world;

/// The largest queue: 100,000 units with `LONGSHORE_SOAK`, else enough for 10,000 claims.
fn largest() -> u64 {
    if std::env::var_os("LONGSHORE_SOAK").is_some() { 100_000 } else { 10_000 }
}

#[tokio::test]
async fn nobody_starves_among_ten_tenants_of_very_different_sizes() {
    shares_follow_weights(&world().await, largest()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn bounded_by_caps_whoever_claims_at_once() {
    caps_are_never_exceeded(&world().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn bounded_by_a_queue_against_32_senders() {
    thirty_two_senders_never_exceed_a_bound(&world().await, Limit::Queue).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn bounded_by_a_lane_against_32_senders() {
    thirty_two_senders_never_exceed_a_bound(&world().await, Limit::Lane).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn bounded_by_a_tenant_against_32_senders() {
    thirty_two_senders_never_exceed_a_bound(&world().await, Limit::Tenant).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn bounded_in_bytes_against_32_senders() {
    thirty_two_senders_never_exceed_a_bound(&world().await, Limit::Bytes).await;
}
