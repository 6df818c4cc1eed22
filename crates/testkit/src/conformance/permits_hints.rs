//! Whoever waits hears that asking again is worth it.

use std::time::Duration;

use longshore_core::permits::Leaving;
use tokio::task::JoinSet;

use super::permits_kit::*;
use crate::PermitsWorld;

pub(super) async fn a_release_is_heard(world: &PermitsWorld) {
    let holder = world.one_of(1).await;
    let waiter = world.waiter(1).await;
    world.release(holder).await;
    world.turn(waiter.id).await;
    world.take(&waiter).await;
}

pub(super) async fn a_release_is_heard_by_another_process(world: &PermitsWorld) {
    let holder = world.one_of(1).await;
    let waiter = world.waiter(1).await;
    world.other.release(&pool(), &[holder]).await.unwrap();
    world.turn(waiter.id).await;
    world.take(&waiter).await;
}

pub(super) async fn a_larger_pool_is_heard_of_by_another_process(world: &PermitsWorld) {
    world.one_of(1).await;
    let waiter = world.waiter(1).await;
    world.other.resize(&pool(), 2).await.unwrap();
    world.turn(waiter.id).await;
    world.take(&waiter).await;
}

pub(super) async fn a_hint_waits_for_whoever_listens_later(world: &PermitsWorld) {
    let holder = world.one_of(1).await;
    let waiter = world.waiter(1).await;
    world.release(holder).await;
    assert_eq!(world.busy().await, (0, 1));
    world.turn(waiter.id).await;
}

pub(super) async fn whoever_stops_listening_loses_no_hint(world: &PermitsWorld) {
    let holder = world.one_of(1).await;
    let waiter = world.waiter(1).await;
    for _ in 0..3 {
        let name = pool();
        let listen = world.permits.turn(&name, waiter.id);
        // Hints may come for nothing; it is dropping it that matters.
        let _ = tokio::time::timeout(Duration::from_millis(1), listen).await;
    }
    world.release(holder).await;
    world.take_in_turn(&waiter).await;
}

pub(super) async fn the_end_of_a_lease_is_heard_when_somebody_looks(world: &PermitsWorld) {
    let holder = world.one_of(1).await;
    let waiter = world.waiter(1).await;
    world.extend(&[holder], SHORT).await;
    world.pass(SHORT).await;
    // Another one comes by, and finds that there is a permit for the one who waits.
    world.waiter(1).await;
    world.turn(waiter.id).await;
    world.take(&waiter).await;
}

pub(super) async fn every_one_that_fits_is_told(world: &PermitsWorld) {
    let all = heavy(3, 3);
    world.take(&all).await;
    let waiters = [world.waiter(3).await, world.waiter(3).await, world.waiter(3).await];
    world.release(all.id).await;
    for waiter in &waiters {
        world.take_in_turn(waiter).await;
    }
}

pub(super) async fn a_turn_that_is_not_taken_goes_to_the_next(world: &PermitsWorld) {
    let holder = world.one_of(1).await;
    let (first, second) = (world.waiter(1).await, world.waiter(1).await);
    world.release(holder).await;
    world.turn(first.id).await;
    world.leave(first.id, Leaving::TimedOut).await;
    world.turn(second.id).await;
    world.take(&second).await;
}

/// Nobody looks again by itself here: without a hint for each of them it would not end.
pub(super) async fn a_line_is_served_by_hints_alone(world: &PermitsWorld) {
    let mut tasks = JoinSet::new();
    for n in 0..12 {
        let mut world = world.clone();
        if n % 2 == 1 {
            std::mem::swap(&mut world.permits, &mut world.other);
        }
        tasks.spawn(async move {
            let ask = heavy(n % 2 + 1, 2);
            world.take_in_turn(&ask).await;
            tokio::task::yield_now().await;
            world.release(ask.id).await;
        });
    }
    tasks.join_all().await;
    assert_eq!(world.busy().await, (0, 0));
    assert_eq!(world.stats().await.acquired, 12);
}
