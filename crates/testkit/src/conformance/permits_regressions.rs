//! Known flaws of semaphores that are a list of tokens, one case for each. None may occur here.

use std::sync::Arc;
use std::time::Duration;

use longshore_core::PermitId;
use longshore_core::permits::{AcquireRequest, AcquireResult};
use tokio::task::JoinSet;

use super::permits_helpers::*;
use crate::PermitsFixture;

/// Sends `requests` concurrent requests that do not wait, and counts the granted ones.
async fn granted(fixture: &PermitsFixture, max: u32, requests: usize) -> usize {
    let mut requests_in_flight = JoinSet::new();
    for n in 0..requests {
        let permits = Arc::clone(if n % 2 == 0 { &fixture.permits } else { &fixture.second_process });
        requests_in_flight.spawn(async move {
            permits.acquire(&pool(), &without_waiting(&permit_request(max))).await.unwrap()
        });
    }
    let answers = requests_in_flight.join_all().await;
    answers.iter().filter(|answer| matches!(answer, AcquireResult::Granted(_))).count()
}

pub(super) async fn setting_up_while_permits_are_out_makes_none(fixture: &PermitsFixture) {
    assert_eq!(granted(fixture, 4, 4).await, 4);
    for _ in 0..3 {
        fixture.resize(4).await;
    }
    assert_eq!(granted(fixture, 4, 8).await, 0);
    assert_eq!(fixture.stats().await.in_use, 4);
}

pub(super) async fn many_first_users_at_once_make_one_pool(fixture: &PermitsFixture) {
    assert_eq!(granted(fixture, 5, 32).await, 5);
    assert_eq!(fixture.stats().await.in_use, 5);
}

pub(super) async fn a_killed_holder_costs_no_permit(fixture: &PermitsFixture) {
    for _ in 0..2 {
        fixture.acquire(&short_request(2)).await;
    }
    fixture.advance(SHORT_TTL).await;
    assert_eq!(granted(fixture, 2, 8).await, 2);
}

pub(super) async fn a_second_release_adds_nothing(fixture: &PermitsFixture) {
    let holder = fixture.acquire_one(1).await;
    for _ in 0..3 {
        fixture.release(holder).await;
    }
    assert_eq!(fixture.stats().await.available(), 1);
    assert_eq!(granted(fixture, 1, 4).await, 1);
    fixture.release(holder).await;
    assert_eq!(granted(fixture, 1, 4).await, 0, "a late release does not free the permit of another holder");
}

/// A hanging client was granted a permit and never learns of it.
pub(super) async fn a_permit_given_to_nobody_comes_back(fixture: &PermitsFixture) {
    let holder = fixture.acquire_one(1).await;
    let hung = short_request(1);
    fixture.join_queue(&hung).await;
    let waiter = fixture.queued_request(1).await;
    fixture.release(holder).await;
    fixture.acquire(&hung).await;
    fixture.advance(SHORT_TTL).await;
    fixture.acquire(&waiter).await;
}

pub(super) async fn an_ask_that_is_given_up_swallows_no_permit(fixture: &PermitsFixture) {
    let holder = fixture.acquire_one(1).await;
    for _ in 0..8 {
        let ask = permit_request(1);
        // The timeout drops it at any point of the request or of the wait.
        let requests_in_flight = async {
            fixture.request(&ask).await;
            fixture.permits.wait_for_wakeup(&pool(), ask.id).await;
        };
        let _ = tokio::time::timeout(Duration::from_micros(200), requests_in_flight).await;
        fixture.release(ask.id).await;
    }
    fixture.release(holder).await;
    assert_eq!(granted(fixture, 1, 4).await, 1);
    assert_eq!(fixture.usage().await, (1, 0));
}

pub(super) async fn a_smaller_maximum_holds(fixture: &PermitsFixture) {
    let ids = [fixture.acquire_one(3).await, fixture.acquire_one(3).await, fixture.acquire_one(3).await];
    fixture.resize(1).await;
    for id in ids {
        assert_eq!(granted(fixture, 3, 4).await, 0);
        fixture.release(id).await;
    }
    assert_eq!(granted(fixture, 3, 4).await, 1);
}

pub(super) async fn an_alert_is_told_once_however_many_see_it(fixture: &PermitsFixture) {
    let mut alerts_sent = 0;
    for _ in 0..4 {
        let both = [&fixture.permits, &fixture.second_process];
        let alerts = both.map(|permits| {
            let permits = Arc::clone(permits);
            async move { permits.acquire_alert(&pool(), "full", LONG_TTL).await.unwrap() }
        });
        let alerts: JoinSet<bool> = alerts.into_iter().collect();
        alerts_sent += alerts.join_all().await.into_iter().filter(|may| *may).count();
    }
    assert_eq!(alerts_sent, 1);
}

pub(super) async fn what_is_in_use_is_never_less_than_nothing(fixture: &PermitsFixture) {
    let holder = AcquireRequest { weight: 2, ..permit_request(2) };
    fixture.acquire(&holder).await;
    for id in [PermitId::new(), holder.id, holder.id] {
        fixture.release(id).await;
        fixture.release(id).await;
        let stats = fixture.stats().await;
        assert!(stats.in_use <= 2 && stats.available() <= 2, "{stats:?}");
    }
    let stats = fixture.stats().await;
    assert_eq!((stats.in_use, stats.available(), stats.utilization()), (0, 2, 0.0));
}
