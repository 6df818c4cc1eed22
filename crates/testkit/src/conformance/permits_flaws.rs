//! What is wrong with a list of tokens, one case for each: none of it may be possible here.

use std::sync::Arc;
use std::time::Duration;

use longshore_core::PermitId;
use longshore_core::permits::{Answer, Ask, Leaving};
use tokio::task::JoinSet;

use super::permits_kit::*;
use crate::PermitsWorld;

/// How many of `tries` asks without waiting are granted.
async fn granted(world: &PermitsWorld, max: u32, tries: usize) -> usize {
    let mut asks = JoinSet::new();
    for n in 0..tries {
        let permits = Arc::clone(if n % 2 == 0 { &world.permits } else { &world.other });
        asks.spawn(async move { permits.ask(&pool(), &at_once(&of(max))).await.unwrap() });
    }
    let answers = asks.join_all().await;
    answers.iter().filter(|answer| matches!(answer, Answer::Granted(_))).count()
}

pub(super) async fn setting_up_while_permits_are_out_makes_none(world: &PermitsWorld) {
    assert_eq!(granted(world, 4, 4).await, 4);
    for _ in 0..3 {
        world.resize(4).await;
    }
    assert_eq!(granted(world, 4, 8).await, 0);
    assert_eq!(world.stats().await.in_use, 4);
}

pub(super) async fn many_first_users_at_once_make_one_pool(world: &PermitsWorld) {
    assert_eq!(granted(world, 5, 32).await, 5);
    assert_eq!(world.stats().await.in_use, 5);
}

pub(super) async fn a_killed_holder_costs_no_permit(world: &PermitsWorld) {
    for _ in 0..2 {
        world.take(&short(2)).await;
    }
    world.pass(SHORT).await;
    assert_eq!(granted(world, 2, 8).await, 2);
}

pub(super) async fn a_second_release_adds_nothing(world: &PermitsWorld) {
    let holder = world.one_of(1).await;
    for _ in 0..3 {
        world.release(holder).await;
    }
    assert_eq!(world.stats().await.available(), 1);
    assert_eq!(granted(world, 1, 4).await, 1);
    world.release(holder).await;
    assert_eq!(granted(world, 1, 4).await, 0, "not even once another holds it");
}

/// A client that hangs has been given a permit and never knows.
pub(super) async fn a_permit_given_to_nobody_comes_back(world: &PermitsWorld) {
    let holder = world.one_of(1).await;
    let hung = short(1);
    world.stand(&hung).await;
    let waiter = world.waiter(1).await;
    world.release(holder).await;
    world.take(&hung).await;
    world.pass(SHORT).await;
    world.take(&waiter).await;
}

pub(super) async fn an_ask_that_is_given_up_swallows_no_permit(world: &PermitsWorld) {
    let holder = world.one_of(1).await;
    for _ in 0..8 {
        let ask = of(1);
        // Dropped somewhere on its way, or while it waits.
        let asks = async {
            world.ask(&ask).await;
            world.permits.turn(&pool(), ask.id).await;
        };
        let _ = tokio::time::timeout(Duration::from_micros(200), asks).await;
        world.leave(ask.id, Leaving::CalledOff).await;
    }
    world.release(holder).await;
    assert_eq!(granted(world, 1, 4).await, 1);
    assert_eq!(world.busy().await, (1, 0));
}

pub(super) async fn a_smaller_maximum_holds(world: &PermitsWorld) {
    let ids = [world.one_of(3).await, world.one_of(3).await, world.one_of(3).await];
    world.resize(1).await;
    for id in ids {
        assert_eq!(granted(world, 3, 4).await, 0);
        world.release(id).await;
    }
    assert_eq!(granted(world, 3, 4).await, 1);
}

pub(super) async fn an_alert_is_told_once_however_many_see_it(world: &PermitsWorld) {
    let mut told = 0;
    for _ in 0..4 {
        let both = [&world.permits, &world.other];
        let alerts = both.map(|permits| {
            let permits = Arc::clone(permits);
            async move { permits.may_alert(&pool(), "full", LONG).await.unwrap() }
        });
        let alerts: JoinSet<bool> = alerts.into_iter().collect();
        told += alerts.join_all().await.into_iter().filter(|may| *may).count();
    }
    assert_eq!(told, 1);
}

pub(super) async fn what_is_in_use_is_never_less_than_nothing(world: &PermitsWorld) {
    let holder = Ask { weight: 2, ..of(2) };
    world.take(&holder).await;
    for id in [PermitId::new(), holder.id, holder.id] {
        world.release(id).await;
        world.leave(id, Leaving::CalledOff).await;
        let stats = world.stats().await;
        assert!(stats.in_use <= 2 && stats.available() <= 2, "{stats:?}");
    }
    let stats = world.stats().await;
    assert_eq!((stats.in_use, stats.available(), stats.utilization()), (0, 2, 0.0));
}
