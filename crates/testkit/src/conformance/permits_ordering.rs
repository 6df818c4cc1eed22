//! Ordering: which queued request is granted next.

use longshore_core::permits::{AcquireRequest, AcquireResult, IfFull, PERMIT_AGING_PER_LEVEL};
use longshore_core::{Error, Priority};

use super::permits_helpers::*;
use crate::PermitsFixture;

pub(super) async fn first_come_first_served(fixture: &PermitsFixture) {
    let mut holder = fixture.acquire_one(1).await;
    let line = [permit_request(1), permit_request(1), permit_request(1), permit_request(1)];
    for (before, ask) in line.iter().enumerate() {
        assert_eq!(fixture.join_queue(ask).await as usize, before);
    }
    for (n, ask) in line.iter().enumerate() {
        fixture.release(holder).await;
        for later in line[n + 1..].iter().rev() {
            fixture.join_queue(later).await;
        }
        fixture.acquire(ask).await;
        holder = ask.id;
    }
}

pub(super) async fn one_who_comes_does_not_overtake_those_who_wait(fixture: &PermitsFixture) {
    let holders = [fixture.acquire_one(2).await, fixture.acquire_one(2).await];
    let waiter = fixture.queued_request(2).await;
    fixture.release(holders[0]).await;
    let newcomer = permit_request(2);
    assert_eq!(fixture.request(&without_waiting(&newcomer)).await, AcquireResult::Full);
    assert_eq!(fixture.join_queue(&newcomer).await, 1);
    fixture.acquire(&waiter).await;
    assert_eq!(fixture.join_queue(&newcomer).await, 0);
}

pub(super) async fn high_goes_before_normal_before_low(fixture: &PermitsFixture) {
    let mut holder = fixture.acquire_one(1).await;
    let classes = [Priority::LOW, Priority::NORMAL, Priority::HIGH];
    let [low, normal, high] = classes.map(|priority| AcquireRequest { priority, ..permit_request(1) });
    for ask in [&low, &normal, &high] {
        assert_eq!(fixture.join_queue(ask).await, 0, "{ask:?}");
    }
    assert_eq!(fixture.join_queue(&low).await, 2);
    for ask in [high, normal, low] {
        fixture.release(holder).await;
        fixture.acquire(&ask).await;
        holder = ask.id;
    }
}

/// Only with a manual clock: the aging step takes seconds.
pub(super) async fn whoever_waited_long_enough_is_passed_by_nobody(fixture: &PermitsFixture) {
    let Some(clock) = &fixture.clock else { return };
    fixture.acquire_one(1).await;
    fixture.queued_request(1).await;
    clock.advance(PERMIT_AGING_PER_LEVEL * 5);
    let high = AcquireRequest { priority: Priority::HIGH, ..permit_request(1) };
    assert_eq!(fixture.join_queue(&high).await, 1);
}

pub(super) async fn a_light_one_does_not_overtake_a_heavy_one(fixture: &PermitsFixture) {
    let holder = weighted_request(2, 3);
    fixture.acquire(&holder).await;
    let (all, light) = (weighted_request(3, 3), permit_request(3));
    fixture.join_queue(&all).await;
    assert_eq!(fixture.request(&without_waiting(&light)).await, AcquireResult::Full, "although one is free");
    assert_eq!(fixture.join_queue(&light).await, 1);
    fixture.release(holder.id).await;
    assert_eq!(fixture.join_queue(&light).await, 1);
    fixture.acquire(&all).await;
    fixture.release(all.id).await;
    fixture.acquire(&light).await;
}

pub(super) async fn a_repeated_ask_keeps_its_place(fixture: &PermitsFixture) {
    fixture.acquire_one(1).await;
    let (first, second) = (fixture.queued_request(1).await, fixture.queued_request(1).await);
    assert_eq!(fixture.join_queue(&first).await, 0);
    assert_eq!(fixture.join_queue(&second).await, 1);
    assert_eq!(fixture.usage().await, (1, 2));
}

pub(super) async fn a_repeated_ask_is_given_the_same_permit(fixture: &PermitsFixture) {
    let ask = permit_request(2);
    let grant = fixture.acquire(&ask).await;
    assert_eq!(fixture.acquire(&ask).await, grant);
    assert_eq!(fixture.acquire(&without_waiting(&ask)).await, grant);
    let stats = fixture.stats().await;
    assert_eq!((stats.in_use, stats.acquired), (1, 1));
}

pub(super) async fn one_that_goes_away_leaves_nothing_behind(fixture: &PermitsFixture) {
    fixture.acquire_one(1).await;
    assert_eq!(fixture.request(&without_waiting(&permit_request(1))).await, AcquireResult::Full);
    let waiter = fixture.queued_request(1).await;
    assert_eq!(fixture.request(&without_waiting(&waiter)).await, AcquireResult::Full);
    assert_eq!(fixture.usage().await, (1, 0));
}

pub(super) async fn one_heavier_than_the_pool_is_told_so(fixture: &PermitsFixture) {
    let ask = weighted_request(3, 2);
    assert_eq!(fixture.request(&ask).await, AcquireResult::TooHeavy { max: 2 });
    assert_eq!(fixture.usage().await, (0, 0), "it does not wait");
    fixture.resize(3).await;
    fixture.acquire(&ask).await;
    assert_eq!(fixture.stats().await.in_use, 3);
}

pub(super) async fn a_permit_of_no_weight_is_refused(fixture: &PermitsFixture) {
    let answer = fixture.permits.acquire(&pool(), &weighted_request(0, 1)).await;
    assert!(matches!(answer, Err(Error::Invalid(_))), "{answer:?}");
}

pub(super) async fn whoever_leaves_lets_the_next_go(fixture: &PermitsFixture) {
    fixture.acquire_one(3).await;
    let (all, light) = (weighted_request(3, 3), permit_request(3));
    fixture.join_queue(&all).await;
    fixture.join_queue(&light).await;
    fixture.release(all.id).await;
    fixture.await_wakeup(light.id).await;
    fixture.acquire(&light).await;
}

pub(super) async fn one_who_waits_and_gives_back_leaves_the_line(fixture: &PermitsFixture) {
    fixture.acquire_one(1).await;
    let waiter = fixture.queued_request(1).await;
    fixture.release(waiter.id).await;
    assert_eq!(fixture.usage().await, (1, 0));
}

pub(super) async fn a_dead_waiter_is_in_the_way_no_longer_than_its_place(fixture: &PermitsFixture) {
    let holder = fixture.acquire_one(1).await;
    let dead = AcquireRequest { if_full: IfFull::Wait(SHORT_TTL), ..permit_request(1) };
    fixture.join_queue(&dead).await;
    let waiter = fixture.queued_request(1).await;
    fixture.advance(SHORT_TTL).await;
    fixture.release(holder).await;
    fixture.acquire(&waiter).await;
    assert_eq!(fixture.usage().await, (1, 0));
}

pub(super) async fn a_lost_place_is_taken_anew_at_the_end(fixture: &PermitsFixture) {
    fixture.acquire_one(1).await;
    let slow = AcquireRequest { if_full: IfFull::Wait(SHORT_TTL), ..permit_request(1) };
    fixture.join_queue(&slow).await;
    fixture.queued_request(1).await;
    fixture.advance(SHORT_TTL).await;
    assert_eq!(fixture.join_queue(&AcquireRequest { if_full: IfFull::Wait(LONG_TTL), ..slow }).await, 1);
}
