//! Which alerts are raised, and that each is raised once.

use std::time::Duration;

use longshore::batch::{
    Batch, BatchAction, BatchStatus, FailureLimit, FailureThreshold, OnThreshold, advance, apply_action,
};
use longshore::store::{Enqueue, OpenBatchResult};
use longshore::{BatchId, Counts, MemoryStore, NewBatch, Scope, Timestamp};
use longshore_batch::alerts::{AlertCode, AlertHistory, evaluate};

const TEN_MINUTES: Duration = Duration::from_secs(600);

fn minute(minutes: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs(60 * minutes)
}

/// A running batch of 100 rows, all waiting.
async fn batch() -> Batch {
    let new = NewBatch::new(BatchId::new("b").unwrap());
    let opened = MemoryStore::default().open_batch(&Scope::All, new).await.unwrap();
    let OpenBatchResult::Created(batch) = opened else { panic!("{opened:?}") };
    let counts = Counts { ready: 96, leased: 4, ..Counts::default() };
    Batch { status: BatchStatus::Running, sealed: true, counts, ..batch }
}

/// The codes of the alerts raised at a minute.
fn raised(batch: &Batch, history: &mut AlertHistory, at: u64) -> Vec<AlertCode> {
    evaluate(batch, TEN_MINUTES, history, minute(at)).iter().map(|alert| alert.code).collect()
}

#[tokio::test]
async fn a_batch_in_which_nothing_ends_is_spoken_of_once() {
    let (batch, mut history) = (batch().await, AlertHistory::default());
    assert_eq!(raised(&batch, &mut history, 0), []);
    assert_eq!(raised(&batch, &mut history, 9), []);
    let alerts = evaluate(&batch, TEN_MINUTES, &mut history, minute(10));
    assert_eq!(alerts[0].message, "no row has ended, 96 are waiting and 4 are leased for 600 s");
    assert_eq!(raised(&batch, &mut history, 11), [], "it was said");
}

#[tokio::test]
async fn a_batch_that_moves_is_not_spoken_of_until_it_stands_still_again() {
    let (mut batch, mut history) = (batch().await, AlertHistory::default());
    raised(&batch, &mut history, 0);
    assert_eq!(raised(&batch, &mut history, 10), [AlertCode::NoProgress]);
    batch.counts.done += 1;
    assert_eq!(raised(&batch, &mut history, 12), []);
    assert_eq!(raised(&batch, &mut history, 21), []);
    assert_eq!(raised(&batch, &mut history, 22), [AlertCode::NoProgress], "ten minutes after it moved");
}

#[tokio::test]
async fn a_batch_that_nobody_takes_up_is_spoken_of_and_a_paused_one_is_not() {
    let queued = Batch { status: BatchStatus::Queued, ..batch().await };
    let mut history = AlertHistory::default();
    raised(&queued, &mut history, 0);
    assert_eq!(raised(&queued, &mut history, 10), [AlertCode::NoProgress]);

    let mut paused = batch().await;
    apply_action(&mut paused, &BatchAction::Pause { reason: "lunch".to_owned() }).unwrap();
    let mut history = AlertHistory::default();
    raised(&paused, &mut history, 0);
    assert_eq!(raised(&paused, &mut history, 60), []);
}

#[tokio::test]
async fn a_batch_that_ends_with_all_its_rows_is_not_spoken_of() {
    let mut batch = batch().await;
    batch.counts = Counts { done: 90, failed: 10, ..Counts::default() };
    advance(&mut batch, minute(1));
    assert_eq!(batch.status, BatchStatus::Complete);
    let mut history = AlertHistory::default();
    assert_eq!([raised(&batch, &mut history, 1), raised(&batch, &mut history, 60)], [[], []]);
}

#[tokio::test]
async fn a_batch_that_is_over_with_rows_left_is_spoken_of_once_per_generation() {
    let mut batch = batch().await;
    apply_action(&mut batch, &BatchAction::Cancel).unwrap();
    let mut history = AlertHistory::default();
    assert_eq!(raised(&batch, &mut history, 0), [], "its last rows take a moment to stop");
    batch.counts = Counts { done: 4, cancelled: 96, ..Counts::default() };
    let alerts = evaluate(&batch, TEN_MINUTES, &mut history, minute(1));
    assert_eq!(alerts[0].message, "the batch is cancelled and 96 of 100 rows are left");
    assert_eq!(raised(&batch, &mut history, 60), []);
    batch.generation += 1;
    assert_eq!(raised(&batch, &mut history, 61), [AlertCode::WorkLeft]);
}

#[tokio::test]
async fn rows_that_outlive_their_batch_are_spoken_of() {
    let mut batch = batch().await;
    apply_action(&mut batch, &BatchAction::Cancel).unwrap();
    let mut history = AlertHistory::default();
    raised(&batch, &mut history, 0);
    assert_eq!(raised(&batch, &mut history, 10), [AlertCode::WorkLeft]);
}

#[tokio::test]
async fn reaching_the_threshold_is_spoken_of_each_time_it_stops_the_batch() {
    let limit = FailureLimit::Units(5);
    let threshold = Some(FailureThreshold { limit, then: OnThreshold::Pause });
    let mut batch = Batch { threshold, ..batch().await };
    let mut history = AlertHistory::default();
    batch.counts.failed = 5;
    advance(&mut batch, minute(0));
    let alerts = evaluate(&batch, TEN_MINUTES, &mut history, minute(0));
    let words = "the batch is paused: 5 units failed, the threshold is 5";
    assert_eq!((alerts[0].code, alerts[0].message.as_str()), (AlertCode::Threshold, words));
    batch.counts.failed = 6;
    assert_eq!(raised(&batch, &mut history, 1), [], "the last rows that ran are no news");

    apply_action(&mut batch, &BatchAction::Resume).unwrap();
    assert_eq!(raised(&batch, &mut history, 2), []);
    batch.counts.failed = 11;
    advance(&mut batch, minute(3));
    assert_eq!(raised(&batch, &mut history, 3), [AlertCode::Threshold]);
}

#[tokio::test]
async fn rows_that_end_well_after_the_threshold_stopped_the_batch_do_not_hide_it() {
    let limit = FailureLimit::Percent(10.0);
    let threshold = Some(FailureThreshold { limit, then: OnThreshold::Pause });
    // The batch is not sealed, so the share counts only rows that have ended.
    let mut batch = Batch { threshold, sealed: false, ..batch().await };
    batch.counts = Counts { ready: 500, leased: 60, done: 90, failed: 10, ..Counts::default() };
    advance(&mut batch, minute(0));
    assert_eq!(batch.status, BatchStatus::Paused);
    batch.counts = Counts { ready: 500, done: 150, failed: 10, ..Counts::default() };
    advance(&mut batch, minute(1));
    let alerts = evaluate(&batch, TEN_MINUTES, &mut AlertHistory::default(), minute(1));
    let words = "the batch is paused: 10 of 100 units failed (10.0 %), the threshold is 10 %";
    assert_eq!(alerts.iter().map(|alert| alert.message.as_str()).collect::<Vec<_>>(), [words]);
}

#[tokio::test]
async fn a_batch_that_its_threshold_failed_is_spoken_of() {
    let limit = FailureLimit::Units(5);
    let threshold = Some(FailureThreshold { limit, then: OnThreshold::Fail });
    let mut batch = Batch { threshold, ..batch().await };
    batch.counts.failed = 5;
    advance(&mut batch, minute(0));
    assert_eq!(raised(&batch, &mut AlertHistory::default(), 0), [AlertCode::Threshold]);
    apply_action(&mut batch, &BatchAction::Fail { reason: "enough of it".to_owned() }).unwrap();
    assert_eq!(raised(&batch, &mut AlertHistory::default(), 0), [], "an operator cancelled it");
}

#[tokio::test]
async fn a_pause_by_hand_is_no_threshold() {
    let limit = FailureLimit::Units(5);
    let threshold = Some(FailureThreshold { limit, then: OnThreshold::Fail });
    let mut batch = Batch { threshold, ..batch().await };
    batch.counts.failed = 4;
    apply_action(&mut batch, &BatchAction::Pause { reason: "looking".to_owned() }).unwrap();
    batch.counts.failed = 6;
    assert_eq!(raised(&batch, &mut AlertHistory::default(), 0), []);
}
