//! Who is next.

use longshore_core::permits::{Answer, Ask, Leaving, Otherwise, STEP};
use longshore_core::{Error, Priority};

use super::permits_kit::*;
use crate::PermitsWorld;

pub(super) async fn first_come_first_served(world: &PermitsWorld) {
    let mut holder = world.one_of(1).await;
    let line = [of(1), of(1), of(1), of(1)];
    for (before, ask) in line.iter().enumerate() {
        assert_eq!(world.stand(ask).await as usize, before);
    }
    for (n, ask) in line.iter().enumerate() {
        world.release(holder).await;
        for later in line[n + 1..].iter().rev() {
            world.stand(later).await;
        }
        world.take(ask).await;
        holder = ask.id;
    }
}

pub(super) async fn one_who_comes_does_not_overtake_those_who_wait(world: &PermitsWorld) {
    let holders = [world.one_of(2).await, world.one_of(2).await];
    let waiter = world.waiter(2).await;
    world.release(holders[0]).await;
    let newcomer = of(2);
    assert_eq!(world.ask(&at_once(&newcomer)).await, Answer::Full);
    assert_eq!(world.stand(&newcomer).await, 1);
    world.take(&waiter).await;
    assert_eq!(world.stand(&newcomer).await, 0);
}

pub(super) async fn high_goes_before_normal_before_low(world: &PermitsWorld) {
    let mut holder = world.one_of(1).await;
    let classes = [Priority::LOW, Priority::NORMAL, Priority::HIGH];
    let [low, normal, high] = classes.map(|priority| Ask { priority, ..of(1) });
    for ask in [&low, &normal, &high] {
        assert_eq!(world.stand(ask).await, 0, "{ask:?}");
    }
    assert_eq!(world.stand(&low).await, 2);
    for ask in [high, normal, low] {
        world.release(holder).await;
        world.take(&ask).await;
        holder = ask.id;
    }
}

/// Only where the clock can be moved: the step is of seconds.
pub(super) async fn whoever_waited_long_enough_is_passed_by_nobody(world: &PermitsWorld) {
    let Some(clock) = &world.clock else { return };
    world.one_of(1).await;
    world.waiter(1).await;
    clock.advance(STEP * 5);
    let high = Ask { priority: Priority::HIGH, ..of(1) };
    assert_eq!(world.stand(&high).await, 1);
}

pub(super) async fn a_light_one_does_not_overtake_a_heavy_one(world: &PermitsWorld) {
    let holder = heavy(2, 3);
    world.take(&holder).await;
    let (all, light) = (heavy(3, 3), of(3));
    world.stand(&all).await;
    assert_eq!(world.ask(&at_once(&light)).await, Answer::Full, "although one is free");
    assert_eq!(world.stand(&light).await, 1);
    world.release(holder.id).await;
    assert_eq!(world.stand(&light).await, 1);
    world.take(&all).await;
    world.release(all.id).await;
    world.take(&light).await;
}

pub(super) async fn a_repeated_ask_keeps_its_place(world: &PermitsWorld) {
    world.one_of(1).await;
    let (first, second) = (world.waiter(1).await, world.waiter(1).await);
    assert_eq!(world.stand(&first).await, 0);
    assert_eq!(world.stand(&second).await, 1);
    assert_eq!(world.busy().await, (1, 2));
}

pub(super) async fn a_repeated_ask_is_given_the_same_permit(world: &PermitsWorld) {
    let ask = of(2);
    let grant = world.take(&ask).await;
    assert_eq!(world.take(&ask).await, grant);
    assert_eq!(world.take(&at_once(&ask)).await, grant);
    let stats = world.stats().await;
    assert_eq!((stats.in_use, stats.acquired), (1, 1));
}

pub(super) async fn one_that_goes_away_leaves_nothing_behind(world: &PermitsWorld) {
    world.one_of(1).await;
    assert_eq!(world.ask(&at_once(&of(1))).await, Answer::Full);
    let waiter = world.waiter(1).await;
    assert_eq!(world.ask(&at_once(&waiter)).await, Answer::Full);
    assert_eq!(world.busy().await, (1, 0));
}

pub(super) async fn one_heavier_than_the_pool_is_told_so(world: &PermitsWorld) {
    let ask = heavy(3, 2);
    assert_eq!(world.ask(&ask).await, Answer::TooHeavy { max: 2 });
    assert_eq!(world.busy().await, (0, 0), "it does not wait");
    world.resize(3).await;
    world.take(&ask).await;
    assert_eq!(world.stats().await.in_use, 3);
}

pub(super) async fn a_permit_of_no_weight_is_refused(world: &PermitsWorld) {
    let answer = world.permits.ask(&pool(), &heavy(0, 1)).await;
    assert!(matches!(answer, Err(Error::Invalid(_))), "{answer:?}");
}

pub(super) async fn whoever_leaves_lets_the_next_go(world: &PermitsWorld) {
    world.one_of(3).await;
    let (all, light) = (heavy(3, 3), of(3));
    world.stand(&all).await;
    world.stand(&light).await;
    world.leave(all.id, Leaving::CalledOff).await;
    world.turn(light.id).await;
    world.take(&light).await;
}

pub(super) async fn one_who_waits_and_gives_back_leaves_the_line(world: &PermitsWorld) {
    world.one_of(1).await;
    let waiter = world.waiter(1).await;
    world.release(waiter.id).await;
    assert_eq!(world.busy().await, (1, 0));
}

pub(super) async fn a_dead_waiter_is_in_the_way_no_longer_than_its_place(world: &PermitsWorld) {
    let holder = world.one_of(1).await;
    let dead = Ask { otherwise: Otherwise::Wait(SHORT), ..of(1) };
    world.stand(&dead).await;
    let waiter = world.waiter(1).await;
    world.pass(SHORT).await;
    world.release(holder).await;
    world.take(&waiter).await;
    assert_eq!(world.busy().await, (1, 0));
}

pub(super) async fn a_lost_place_is_taken_anew_at_the_end(world: &PermitsWorld) {
    world.one_of(1).await;
    let slow = Ask { otherwise: Otherwise::Wait(SHORT), ..of(1) };
    world.stand(&slow).await;
    world.waiter(1).await;
    world.pass(SHORT).await;
    assert_eq!(world.stand(&Ask { otherwise: Otherwise::Wait(LONG), ..slow }).await, 1);
}
