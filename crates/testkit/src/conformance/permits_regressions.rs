//! Known flaws of semaphores that are a list of tokens, one case for each. None may occur here.

use std::sync::Arc;
use std::time::Duration;

use longshore_core::PermitId;
use longshore_core::permits::{AcquireRequest, AcquireResult};
use tokio::task::JoinSet;

use super::permits_helpers::*;
use crate::PermitsFixture;

/// Sends `requests` concurrent requests that do not wait, and counts the granted ones.
async fn granted(world: &PermitsFixture, max: u32, requests: usize) -> usize {
    let mut requests_in_flight = JoinSet::new();
    for n in 0..requests {
        let permits = Arc::clone(if n % 2 == 0 { &world.permits } else { &world.second_process });
        requests_in_flight.spawn(async move {
            permits.acquire(&pool(), &without_waiting(&permit_request(max))).await.unwrap()
        });
    }
    let answers = requests_in_flight.join_all().await;
    answers.iter().filter(|answer| matches!(answer, AcquireResult::Granted(_))).count()
}

pub(super) async fn setting_up_while_permits_are_out_makes_none(world: &PermitsFixture) {
    assert_eq!(granted(world, 4, 4).await, 4);
    for _ in 0..3 {
        world.resize(4).await;
    }
    assert_eq!(granted(world, 4, 8).await, 0);
    assert_eq!(world.stats().await.in_use, 4);
}

pub(super) async fn many_first_users_at_once_make_one_pool(world: &PermitsFixture) {
    assert_eq!(granted(world, 5, 32).await, 5);
    assert_eq!(world.stats().await.in_use, 5);
}

pub(super) async fn a_killed_holder_costs_no_permit(world: &PermitsFixture) {
    for _ in 0..2 {
        world.acquire(&short_request(2)).await;
    }
    world.advance(SHORT_TTL).await;
    assert_eq!(granted(world, 2, 8).await, 2);
}

pub(super) async fn a_second_release_adds_nothing(world: &PermitsFixture) {
    let holder = world.acquire_one(1).await;
    for _ in 0..3 {
        world.release(holder).await;
    }
    assert_eq!(world.stats().await.available(), 1);
    assert_eq!(granted(world, 1, 4).await, 1);
    world.release(holder).await;
    assert_eq!(granted(world, 1, 4).await, 0, "a late release does not free the permit of another holder");
}

/// A hanging client was granted a permit and never learns of it.
pub(super) async fn a_permit_given_to_nobody_comes_back(world: &PermitsFixture) {
    let holder = world.acquire_one(1).await;
    let hung = short_request(1);
    world.join_queue(&hung).await;
    let waiter = world.queued_request(1).await;
    world.release(holder).await;
    world.acquire(&hung).await;
    world.advance(SHORT_TTL).await;
    world.acquire(&waiter).await;
}

pub(super) async fn an_ask_that_is_given_up_swallows_no_permit(world: &PermitsFixture) {
    let holder = world.acquire_one(1).await;
    for _ in 0..8 {
        let ask = permit_request(1);
        // The timeout drops it at any point of the request or of the wait.
        let requests_in_flight = async {
            world.request(&ask).await;
            world.permits.wait_for_wakeup(&pool(), ask.id).await;
        };
        let _ = tokio::time::timeout(Duration::from_micros(200), requests_in_flight).await;
        world.release(ask.id).await;
    }
    world.release(holder).await;
    assert_eq!(granted(world, 1, 4).await, 1);
    assert_eq!(world.usage().await, (1, 0));
}

pub(super) async fn a_smaller_maximum_holds(world: &PermitsFixture) {
    let ids = [world.acquire_one(3).await, world.acquire_one(3).await, world.acquire_one(3).await];
    world.resize(1).await;
    for id in ids {
        assert_eq!(granted(world, 3, 4).await, 0);
        world.release(id).await;
    }
    assert_eq!(granted(world, 3, 4).await, 1);
}

pub(super) async fn an_alert_is_told_once_however_many_see_it(world: &PermitsFixture) {
    let mut alerts_sent = 0;
    for _ in 0..4 {
        let both = [&world.permits, &world.second_process];
        let alerts = both.map(|permits| {
            let permits = Arc::clone(permits);
            async move { permits.acquire_alert(&pool(), "full", LONG_TTL).await.unwrap() }
        });
        let alerts: JoinSet<bool> = alerts.into_iter().collect();
        alerts_sent += alerts.join_all().await.into_iter().filter(|may| *may).count();
    }
    assert_eq!(alerts_sent, 1);
}

pub(super) async fn what_is_in_use_is_never_less_than_nothing(world: &PermitsFixture) {
    let holder = AcquireRequest { weight: 2, ..permit_request(2) };
    world.acquire(&holder).await;
    for id in [PermitId::new(), holder.id, holder.id] {
        world.release(id).await;
        world.release(id).await;
        let stats = world.stats().await;
        assert!(stats.in_use <= 2 && stats.available() <= 2, "{stats:?}");
    }
    let stats = world.stats().await;
    assert_eq!((stats.in_use, stats.available(), stats.utilization()), (0, 2, 0.0));
}
