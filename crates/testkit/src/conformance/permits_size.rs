//! A pool's maximum, and setting it back.

use std::sync::Arc;

use longshore_core::permits::Answer;
use tokio::task::JoinSet;

use super::permits_kit::*;
use crate::PermitsWorld;

pub(super) async fn a_larger_pool_has_more_at_once(world: &PermitsWorld) {
    world.one_of(1).await;
    let waiter = world.waiter(1).await;
    world.resize(2).await;
    world.turn(waiter.id).await;
    world.take(&waiter).await;
    assert_eq!(world.stats().await.max, 2);
}

pub(super) async fn a_smaller_pool_shrinks_as_permits_return(world: &PermitsWorld) {
    let ids = [world.one_of(3).await, world.one_of(3).await, world.one_of(3).await];
    world.resize(1).await;
    let stats = world.stats().await;
    assert_eq!((stats.in_use, stats.available()), (3, 0), "what is held stays held");
    assert_eq!(world.extend(&ids, LONG).await, []);
    let waiter = world.waiter(1).await;
    for id in &ids[..2] {
        world.release(*id).await;
        assert_eq!(world.stand(&waiter).await, 0);
    }
    world.release(ids[2]).await;
    world.take(&waiter).await;
    assert_eq!(world.ask(&at_once(&of(3))).await, Answer::Full);
}

pub(super) async fn a_resize_makes_a_pool_known(world: &PermitsWorld) {
    world.resize(2).await;
    assert_eq!(world.stats().await.max, 2);
    world.one_of(50).await;
    world.one_of(50).await;
    world.waiter(50).await;
    assert_eq!(world.stats().await.max, 2, "whoever asks does not set it");
}

pub(super) async fn of_many_inits_the_first_counts(world: &PermitsWorld) {
    let mut callers = JoinSet::new();
    for max in 1..=8 {
        let permits = Arc::clone(if max % 2 == 0 { &world.permits } else { &world.other });
        callers.spawn(async move { (max, permits.init(&pool(), max).await.unwrap()) });
    }
    let (made, known): (Vec<_>, Vec<_>) =
        callers.join_all().await.into_iter().partition(|(_, known)| known.is_none());
    let [(first, _)] = made[..] else { panic!("made by {made:?}") };
    assert!(known.iter().all(|(_, max)| *max == Some(first)), "{known:?}");
    assert_eq!(world.stats().await.max, first);
    world.resize(2).await;
    let held = world.one_of(9).await;
    assert_eq!(world.permits.init(&pool(), 9).await.unwrap(), Some(2));
    let stats = world.stats().await;
    assert_eq!((stats.max, stats.in_use, stats.acquired), (2, 1, 1), "it changes nothing");
    world.release(held).await;
}

pub(super) async fn those_whom_a_smaller_pool_cannot_serve_hear_of_it(world: &PermitsWorld) {
    world.one_of(3).await;
    let (large, small) = (heavy(3, 3), of(3));
    world.stand(&large).await;
    world.stand(&small).await;
    world.resize(2).await;
    world.turn(large.id).await;
    assert_eq!(world.ask(&large).await, Answer::TooHeavy { max: 2 });
    world.take_in_turn(&small).await;
    assert_eq!(world.busy().await, (2, 0));
}

pub(super) async fn a_reset_forgets_all_but_the_maximum(world: &PermitsWorld) {
    world.resize(2).await;
    let held = [world.one_of(9).await, world.one_of(9).await];
    let waiter = world.waiter(9).await;
    world.permits.reset(&pool()).await.unwrap();
    let stats = world.stats().await;
    assert_eq!((stats.max, stats.in_use, stats.waiting.len()), (2, 0, 0));
    assert_eq!((stats.acquired, stats.timeouts, stats.expired), (0, 0, 0));
    assert_eq!(stats.waits.percentile(1.0), None);
    assert_eq!(world.extend(&held, LONG).await, held, "whoever lives learns of it");
    world.turn(waiter.id).await;
    world.take(&waiter).await;
    world.permits.reset(&pool_named("nowhere")).await.unwrap();
    assert_eq!(world.permits.pools().await.unwrap(), [pool()]);
}

pub(super) async fn a_pool_of_nothing_gives_nothing(world: &PermitsWorld) {
    let holder = world.one_of(1).await;
    world.resize(0).await;
    assert_eq!(world.ask(&of(1)).await, Answer::TooHeavy { max: 0 });
    assert_eq!(world.extend(&[holder], LONG).await, []);
    world.resize(1).await;
    world.waiter(1).await;
}
