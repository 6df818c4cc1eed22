//! How much an initiator sends: never more than workers can use, never more than the limit.

use std::future::pending;

use longshore::batch::BatchAction;
use longshore::store::{Capacity, QueueChange};
use longshore::{BatchStatus, QueueName, Scope};
use longshore_batch::definition::QUEUE;
use longshore_batch::row_enqueuer::{FillEnd, FillProgress};

use super::{FillFixture, fill, fill_until_it_waits, numbers, worker};
use crate::support::definition;

#[tokio::test(start_paused = true)]
async fn bounded_the_initiator_waits_when_workers_lag() {
    let fixture = FillFixture::new(100);
    let mut definition = definition();
    definition.candidates.ahead = 10;
    let initiator = fixture.initiator();
    let mut initiation = fixture.start_with(definition).await;
    let id = initiation.batch().id.clone();
    let filled = fill_until_it_waits(&initiator, &mut initiation).await;
    assert_eq!((filled.end, fixture.live(&id).await), (FillEnd::Stopped, 10));
    assert!(fixture.faulty.calls("batch") < 3_700, "about a look a second");

    let mut most = 0;
    let watched = async {
        let mut since = u64::MAX;
        loop {
            let wait = std::time::Duration::from_secs(9);
            since = fixture.store.changes(&Scope::All, since, wait).await.unwrap().cursor;
            most = most.max(fixture.live(&id).await);
        }
    };
    let worker = worker(&fixture.store, 3);
    let work = async { tokio::join!(fill(&initiator, &mut initiation), worker.run()) };
    let (filled, report) = tokio::select! {
        done = work => done,
        () = watched => unreachable!(),
    };
    assert_eq!(filled.unwrap().end, FillEnd::Sealed);
    assert_eq!(report.unwrap().done, 101, "the rows and the word of their end");
    assert!((5..=10).contains(&most), "{most} live at once");
    assert_eq!(fixture.keys(&id).await, numbers(1..=100));
}

#[tokio::test(start_paused = true)]
async fn the_smallest_bound_still_lets_a_batch_through() {
    for ahead in [0, 1, 2, 3] {
        let fixture = FillFixture::new(7);
        let mut definition = definition();
        definition.candidates.ahead = ahead;
        let mut initiation = fixture.start_with(definition).await;
        let (initiator, worker) = (fixture.initiator(), worker(&fixture.store, 1));
        let (filled, _) = tokio::join!(fill(&initiator, &mut initiation), worker.run());
        assert_eq!(filled.unwrap().progress, FillProgress { sent: 7, skipped: 0 });
    }
}

#[tokio::test]
async fn a_limit_is_exact_whatever_the_chunks() {
    for (limit, chunk) in [(0, 3), (1, 3), (3, 3), (4, 3), (7, 1), (10, 4), (11, 4), (99, 4)] {
        let fixture = FillFixture::new(10);
        let mut definition = definition();
        definition.candidates.limit = Some(limit);
        let mut initiation = fixture.start_with(definition).await;
        let filled = fill(&fixture.initiator().with_sizes(3, chunk), &mut initiation).await.unwrap();
        let sent = limit.min(10);
        assert_eq!((filled.end, filled.progress.sent), (FillEnd::Sealed, sent));
        let last = i64::try_from(sent).unwrap();
        assert_eq!(fixture.keys(&initiation.batch().id).await, numbers(1..=last));
    }
}

#[tokio::test]
async fn a_limit_counts_rows_of_the_batch_and_not_those_it_leaves_to_others() {
    let fixture = FillFixture::new(10);
    let mut definition = definition();
    definition.candidates.limit = Some(4);
    let initiator = fixture.initiator().with_sizes(3, 3);
    for (mine, skipped) in [(1..=4, 0), (5..=8, 4), (9..=10, 8)] {
        let mut initiation = fixture.start_with(definition.clone()).await;
        let filled = fill(&initiator, &mut initiation).await.unwrap();
        assert_eq!(fixture.keys(&initiation.batch().id).await, numbers(mine));
        assert_eq!(filled.progress.skipped, skipped);
    }
}

#[tokio::test(start_paused = true)]
async fn a_paused_batch_is_not_filled_until_it_is_resumed() {
    let fixture = FillFixture::new(5);
    let mut initiation = fixture.start().await;
    let id = initiation.batch().id.clone();
    let pause = BatchAction::Pause { reason: "lunch".to_owned() };
    fixture.store.apply_batch_action(&Scope::All, &id, pause).await.unwrap();
    let initiator = fixture.initiator();
    let filled = fill_until_it_waits(&initiator, &mut initiation).await;
    assert_eq!((filled.end, filled.progress.sent), (FillEnd::Stopped, 0));
    let resume = async {
        fixture.store.apply_batch_action(&Scope::All, &id, BatchAction::Resume).await.unwrap();
    };
    let (filled, ()) = tokio::join!(fill(&initiator, &mut initiation), resume);
    assert_eq!((filled.unwrap().end, fixture.live(&id).await), (FillEnd::Sealed, 5));
}

#[tokio::test]
async fn a_batch_that_is_given_up_is_left_alone() {
    for (action, status) in [
        (BatchAction::Cancel, BatchStatus::Cancelled),
        (BatchAction::Fail { reason: "no".to_owned() }, BatchStatus::Failed),
    ] {
        let fixture = FillFixture::new(5);
        let mut initiation = fixture.start().await;
        let id = initiation.batch().id.clone();
        fixture.store.apply_batch_action(&Scope::All, &id, action).await.unwrap();
        let filled = fill(&fixture.initiator(), &mut initiation).await.unwrap();
        assert_eq!((filled.end, filled.progress.sent), (FillEnd::GivenUp(status), 0));
        assert_eq!(initiation.batch().status, status);
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_smaller_than_a_chunk_takes_smaller_chunks() {
    let fixture = FillFixture::new(20);
    let capacity = Some(Capacity { units: Some(3), bytes: None });
    let (queue, change) = (QueueName::new(QUEUE).unwrap(), QueueChange { paused: None, capacity });
    fixture.store.change_queue(&Scope::All, &queue, change).await.unwrap();
    let mut initiation = fixture.start().await;
    let (initiator, worker) = (fixture.initiator(), worker(&fixture.store, 1));
    let (filled, _) = tokio::join!(fill(&initiator, &mut initiation), worker.run());
    assert_eq!(filled.unwrap().progress.sent, 20);
    assert_eq!(fixture.keys(&initiation.batch().id).await, numbers(1..=20));
}

#[tokio::test]
async fn progress_is_told_once_per_chunk() {
    let fixture = FillFixture::new(7);
    let mut initiation = fixture.start().await;
    let mut reported = Vec::new();
    let report = |filling: FillProgress| reported.push(filling.sent);
    let initiator = fixture.initiator().with_sizes(4, 2);
    initiator.fill(&mut initiation, pending(), report).await.unwrap();
    assert_eq!(reported, [2, 4, 6, 7]);
}
