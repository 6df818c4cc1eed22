//! Wake-ups: a queued request is notified when a repeated request may be granted.

use std::time::Duration;

use tokio::task::JoinSet;

use super::permits_helpers::*;
use crate::PermitsFixture;

pub(super) async fn a_release_is_heard(world: &PermitsFixture) {
    let holder = world.acquire_one(1).await;
    let waiter = world.queued_request(1).await;
    world.release(holder).await;
    world.await_wakeup(waiter.id).await;
    world.acquire(&waiter).await;
}

pub(super) async fn a_release_is_heard_by_another_process(world: &PermitsFixture) {
    let holder = world.acquire_one(1).await;
    let waiter = world.queued_request(1).await;
    world.second_process.release(&pool(), &[holder], false).await.unwrap();
    world.await_wakeup(waiter.id).await;
    world.acquire(&waiter).await;
}

pub(super) async fn a_larger_pool_is_heard_of_by_another_process(world: &PermitsFixture) {
    world.acquire_one(1).await;
    let waiter = world.queued_request(1).await;
    world.second_process.resize(&pool(), 2).await.unwrap();
    world.await_wakeup(waiter.id).await;
    world.acquire(&waiter).await;
}

pub(super) async fn a_hint_waits_for_whoever_listens_later(world: &PermitsFixture) {
    let holder = world.acquire_one(1).await;
    let waiter = world.queued_request(1).await;
    world.release(holder).await;
    assert_eq!(world.usage().await, (0, 1));
    world.await_wakeup(waiter.id).await;
}

pub(super) async fn whoever_stops_listening_loses_no_hint(world: &PermitsFixture) {
    let holder = world.acquire_one(1).await;
    let waiter = world.queued_request(1).await;
    for _ in 0..3 {
        let name = pool();
        let listen = world.permits.wait_for_wakeup(&name, waiter.id);
        // Spurious wake-ups are allowed; the case is about dropping the future.
        let _ = tokio::time::timeout(Duration::from_millis(1), listen).await;
    }
    world.release(holder).await;
    world.wait_and_acquire(&waiter).await;
}

pub(super) async fn the_end_of_a_lease_is_heard_when_somebody_looks(world: &PermitsFixture) {
    let holder = world.acquire_one(1).await;
    let waiter = world.queued_request(1).await;
    world.extend(&[holder], SHORT_TTL).await;
    world.advance(SHORT_TTL).await;
    // A new request finds the expired lease, and so wakes the queued one.
    world.queued_request(1).await;
    world.await_wakeup(waiter.id).await;
    world.acquire(&waiter).await;
}

pub(super) async fn every_one_that_fits_is_told(world: &PermitsFixture) {
    let all = weighted_request(3, 3);
    world.acquire(&all).await;
    let waiters =
        [world.queued_request(3).await, world.queued_request(3).await, world.queued_request(3).await];
    world.release(all.id).await;
    for waiter in &waiters {
        world.wait_and_acquire(waiter).await;
    }
}

pub(super) async fn a_turn_that_is_not_taken_goes_to_the_next(world: &PermitsFixture) {
    let holder = world.acquire_one(1).await;
    let (first, second) = (world.queued_request(1).await, world.queued_request(1).await);
    world.release(holder).await;
    world.await_wakeup(first.id).await;
    world.time_out(first.id).await;
    world.await_wakeup(second.id).await;
    world.acquire(&second).await;
}

/// The clients do not poll: without a wake-up for each request the case would not end.
pub(super) async fn a_line_is_served_by_hints_alone(world: &PermitsFixture) {
    let mut tasks = JoinSet::new();
    for n in 0..12 {
        let mut world = world.clone();
        if n % 2 == 1 {
            std::mem::swap(&mut world.permits, &mut world.second_process);
        }
        tasks.spawn(async move {
            let ask = weighted_request(n % 2 + 1, 2);
            world.wait_and_acquire(&ask).await;
            tokio::task::yield_now().await;
            world.release(ask.id).await;
        });
    }
    tasks.join_all().await;
    assert_eq!(world.usage().await, (0, 0));
    assert_eq!(world.stats().await.acquired, 12);
}
