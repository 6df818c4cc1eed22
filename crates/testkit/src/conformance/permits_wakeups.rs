//! Wake-ups: a queued request is notified when a repeated request may be granted.

use std::time::Duration;

use tokio::task::JoinSet;

use super::permits_helpers::*;
use crate::PermitsFixture;

pub(super) async fn a_release_is_heard(fixture: &PermitsFixture) {
    let holder = fixture.acquire_one(1).await;
    let waiter = fixture.queued_request(1).await;
    fixture.release(holder).await;
    fixture.await_wakeup(waiter.id).await;
    fixture.acquire(&waiter).await;
}

pub(super) async fn a_release_is_heard_by_another_process(fixture: &PermitsFixture) {
    let holder = fixture.acquire_one(1).await;
    let waiter = fixture.queued_request(1).await;
    fixture.second_process.release(&pool(), &[holder], false).await.unwrap();
    fixture.await_wakeup(waiter.id).await;
    fixture.acquire(&waiter).await;
}

pub(super) async fn a_larger_pool_is_heard_of_by_another_process(fixture: &PermitsFixture) {
    fixture.acquire_one(1).await;
    let waiter = fixture.queued_request(1).await;
    fixture.second_process.resize(&pool(), 2).await.unwrap();
    fixture.await_wakeup(waiter.id).await;
    fixture.acquire(&waiter).await;
}

pub(super) async fn a_hint_waits_for_whoever_listens_later(fixture: &PermitsFixture) {
    let holder = fixture.acquire_one(1).await;
    let waiter = fixture.queued_request(1).await;
    fixture.release(holder).await;
    assert_eq!(fixture.usage().await, (0, 1));
    fixture.await_wakeup(waiter.id).await;
}

pub(super) async fn whoever_stops_listening_loses_no_hint(fixture: &PermitsFixture) {
    let holder = fixture.acquire_one(1).await;
    let waiter = fixture.queued_request(1).await;
    for _ in 0..3 {
        let name = pool();
        let listen = fixture.permits.wait_for_wakeup(&name, waiter.id);
        // Spurious wake-ups are allowed; the case is about dropping the future.
        let _ = tokio::time::timeout(Duration::from_millis(1), listen).await;
    }
    fixture.release(holder).await;
    fixture.wait_and_acquire(&waiter).await;
}

pub(super) async fn the_end_of_a_lease_is_heard_when_somebody_looks(fixture: &PermitsFixture) {
    let holder = fixture.acquire_one(1).await;
    let waiter = fixture.queued_request(1).await;
    fixture.extend(&[holder], SHORT_TTL).await;
    fixture.advance(SHORT_TTL).await;
    // A new request finds the expired lease, and so wakes the queued one.
    fixture.queued_request(1).await;
    fixture.await_wakeup(waiter.id).await;
    fixture.acquire(&waiter).await;
}

pub(super) async fn every_one_that_fits_is_told(fixture: &PermitsFixture) {
    let all = weighted_request(3, 3);
    fixture.acquire(&all).await;
    let waiters =
        [fixture.queued_request(3).await, fixture.queued_request(3).await, fixture.queued_request(3).await];
    fixture.release(all.id).await;
    for waiter in &waiters {
        fixture.wait_and_acquire(waiter).await;
    }
}

pub(super) async fn a_turn_that_is_not_taken_goes_to_the_next(fixture: &PermitsFixture) {
    let holder = fixture.acquire_one(1).await;
    let (first, second) = (fixture.queued_request(1).await, fixture.queued_request(1).await);
    fixture.release(holder).await;
    fixture.await_wakeup(first.id).await;
    fixture.time_out(first.id).await;
    fixture.await_wakeup(second.id).await;
    fixture.acquire(&second).await;
}

/// The clients do not poll: without a wake-up for each request the case would not end.
pub(super) async fn a_line_is_served_by_hints_alone(fixture: &PermitsFixture) {
    let mut tasks = JoinSet::new();
    for n in 0..12 {
        let mut fixture = fixture.clone();
        if n % 2 == 1 {
            std::mem::swap(&mut fixture.permits, &mut fixture.second_process);
        }
        tasks.spawn(async move {
            let ask = weighted_request(n % 2 + 1, 2);
            fixture.wait_and_acquire(&ask).await;
            tokio::task::yield_now().await;
            fixture.release(ask.id).await;
        });
    }
    tasks.join_all().await;
    assert_eq!(fixture.usage().await, (0, 0));
    assert_eq!(fixture.stats().await.acquired, 12);
}
