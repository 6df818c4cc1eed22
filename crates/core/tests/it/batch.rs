//! `batch::advance`: from the first lease to the callback.

use std::time::Duration;

use longshore_core::batch::{
    Batch, BatchStatus, FailureLimit, FailureThreshold, MAX_CALLBACK_DATA, OnThreshold, advance,
};
use longshore_core::{BatchId, Callback, Counts, Error, NewBatch, TenantId, Timestamp};
use proptest::prelude::*;

use crate::unit_state::NOW;

pub(crate) fn batch(status: BatchStatus, sealed: bool, counts: Counts) -> Batch {
    Batch {
        number: 1,
        id: BatchId::new("b").unwrap(),
        tenant: TenantId::default(),
        kind: String::new(),
        status,
        reason: None,
        initiated_by: String::new(),
        initiated_at: Timestamp::ZERO,
        started_at: None,
        completed_at: None,
        paused_at: None,
        paused_ms: 0,
        workers: None,
        expected: None,
        notes: String::new(),
        cursor: String::new(),
        sealed,
        generation: 1,
        threshold: None,
        forgiven: 0,
        callback: None,
        announced: 0,
        counts,
        sums: Default::default(),
    }
}

pub(crate) fn counts(ready: u64, leased: u64, done: u64, failed: u64) -> Counts {
    Counts { ready, leased, done, failed, ..Counts::default() }
}

use BatchStatus::{Cancelled, Complete, Failed, Paused, Queued, Running};

#[test]
fn a_batch_moves_as_its_counts_say() {
    let table = [
        ("nothing sent", Queued, false, counts(0, 0, 0, 0), Queued, false),
        ("units wait", Queued, true, counts(3, 0, 0, 0), Queued, false),
        ("one is leased", Queued, false, counts(2, 1, 0, 0), Running, false),
        ("all ended but more may come", Running, false, counts(0, 0, 3, 0), Running, false),
        ("all ended", Running, true, counts(0, 0, 2, 1), Complete, true),
        ("sealed empty", Queued, true, counts(0, 0, 0, 0), Complete, true),
        ("paused with units", Paused, true, counts(1, 0, 1, 0), Paused, false),
        ("paused at its end", Paused, true, counts(0, 0, 2, 0), Complete, true),
        ("given up, one still runs", Cancelled, false, counts(0, 1, 0, 0), Cancelled, false),
        ("given up and still", Cancelled, false, counts(0, 0, 1, 0), Cancelled, true),
        ("failed and still", Failed, true, counts(0, 0, 1, 1), Failed, true),
    ];
    for (what, status, sealed, counts, expected, announces) in table {
        let mut batch = batch(status, sealed, counts);
        let step = advance(&mut batch, NOW);
        assert_eq!((batch.status, step.callback_due), (expected, announces), "{what}");
        assert_eq!(batch.completed_at.is_some(), announces, "{what}");
    }
}

#[test]
fn the_first_lease_starts_it_once() {
    let mut batch = batch(Queued, true, counts(1, 1, 0, 0));
    assert!(advance(&mut batch, NOW).changed);
    assert_eq!(batch.started_at, Some(NOW));
    advance(&mut batch, NOW + Duration::from_secs(1));
    assert_eq!(batch.started_at, Some(NOW));
}

#[test]
fn the_time_in_which_it_is_paused_is_added_up_apart_from_the_time_in_which_it_runs() {
    let (mut batch, second) = (batch(Running, true, counts(5, 1, 1, 0)), Duration::from_secs(1));
    advance(&mut batch, NOW);
    for at in [10, 30] {
        batch.status = Paused;
        advance(&mut batch, NOW + second * at);
        assert_eq!(batch.paused(NOW + second * (at + 2)) - batch.paused(NOW + second * at), second * 2);
        batch.status = Running;
        assert!(advance(&mut batch, NOW + second * (at + 5)).changed);
        assert!(!advance(&mut batch, NOW + second * (at + 9)).changed);
    }
    let end = NOW + second * 60;
    assert_eq!((batch.paused(end), batch.running(end)), (second * 10, Some(second * 50)));
    batch.status = Paused;
    advance(&mut batch, NOW + second * 50);
    batch.counts = counts(0, 0, 7, 0);
    advance(&mut batch, end);
    assert_eq!((batch.status, batch.paused_at), (Complete, None), "it ended while it was paused");
    assert_eq!(batch.running(end + second * 99), Some(second * 40), "its end stays");
}

fn with_threshold(limit: FailureLimit, then: OnThreshold, sealed: bool, counts: Counts) -> Batch {
    let threshold = Some(FailureThreshold { limit, then });
    Batch { threshold, ..batch(Running, sealed, counts) }
}

#[test]
fn a_threshold_by_units_pauses_or_fails() {
    let reached = |then, failed| {
        let mut batch = with_threshold(FailureLimit::Units(3), then, true, counts(5, 0, 0, failed));
        advance(&mut batch, NOW);
        (batch.status, batch.reason.is_some())
    };
    assert_eq!(reached(OnThreshold::Pause, 2), (Running, false));
    assert_eq!(reached(OnThreshold::Pause, 3), (Paused, true));
    assert_eq!(reached(OnThreshold::Fail, 3), (Failed, true));
}

#[test]
fn a_threshold_by_percent_waits_for_a_hundred_until_sealed() {
    let reached = |sealed, counts| {
        let mut batch = with_threshold(FailureLimit::Percent(10.0), OnThreshold::Pause, sealed, counts);
        advance(&mut batch, NOW);
        batch.status == Paused
    };
    assert!(!reached(true, counts(50, 0, 41, 9)), "9 of 100");
    assert!(reached(true, counts(50, 0, 40, 10)), "10 of 100");
    assert!(!reached(false, counts(50, 0, 0, 9)), "9 of the first 100 at worst");
    assert!(reached(false, counts(50, 0, 0, 10)));
    assert!(!reached(false, counts(0, 0, 200, 19)));
}

#[test]
fn forgiven_failures_do_not_count_again() {
    let mut batch = with_threshold(FailureLimit::Units(2), OnThreshold::Pause, true, counts(5, 0, 0, 5));
    batch.forgiven = 4;
    advance(&mut batch, NOW);
    assert_eq!(batch.status, Running);
    batch.counts.failed += 1;
    advance(&mut batch, NOW);
    assert_eq!(batch.status, Paused);
}

#[test]
fn forgiven_failures_that_were_retried_do_not_hide_new_ones() {
    let mut batch = with_threshold(FailureLimit::Units(2), OnThreshold::Pause, true, counts(5, 0, 0, 4));
    batch.forgiven = 4;
    batch.counts.failed = 0;
    advance(&mut batch, NOW);
    assert_eq!((batch.status, batch.forgiven), (Running, 0));
    batch.counts.failed = 2;
    advance(&mut batch, NOW);
    assert_eq!(batch.status, Paused);
}

#[test]
fn a_batch_that_could_not_call_back_is_refused() {
    let calling = |queue: &str, bytes| {
        let data = serde_json::Value::String("x".repeat(bytes));
        let (queue, kind) = (queue.parse().unwrap(), "report".parse().unwrap());
        NewBatch { callback: Some(Callback::new(queue, kind, data)), ..NewBatch::new("b".parse().unwrap()) }
    };
    assert!(calling("after", 10).check().is_ok());
    assert!(calling("default/after", 10).check().is_ok());
    assert!(matches!(calling("acme/after", 10).check(), Err(Error::Invalid(_))));
    let large = calling("after", MAX_CALLBACK_DATA).check();
    assert!(matches!(large, Err(Error::TooLarge { .. })), "{large:?}");
}

pub(crate) fn batches() -> impl Strategy<Value = Batch> {
    let status = (0..BatchStatus::ALL.len()).prop_map(|n| BatchStatus::ALL[n]);
    let counts = prop::array::uniform7(0..4_u64).prop_map(|n| Counts {
        blocked: n[0],
        scheduled: n[1],
        ready: n[2],
        leased: n[3],
        done: n[4],
        failed: n[5],
        cancelled: n[6],
    });
    let limit = (1..4_u64).prop_map(FailureLimit::Units);
    let then = prop_oneof![Just(OnThreshold::Pause), Just(OnThreshold::Fail)];
    let threshold = (limit, then).prop_map(|(limit, then)| FailureThreshold { limit, then });
    let generation = (1..4_u32, 0..4_u32);
    (status, any::<bool>(), counts, proptest::option::of(threshold), generation).prop_map(
        |(status, sealed, counts, threshold, (generation, announced))| Batch {
            threshold,
            generation,
            announced: announced.min(generation),
            ..batch(status, sealed, counts)
        },
    )
}

proptest! {
    #[test]
    fn advancing_is_idempotent(mut batch in batches()) {
        advance(&mut batch, NOW);
        let once = batch.clone();
        let again = advance(&mut batch, NOW + Duration::from_secs(1));
        prop_assert!(!again.callback_due && !again.changed);
        prop_assert_eq!(batch, once);
    }

    #[test]
    fn an_end_is_announced_once_per_generation(mut batch in batches()) {
        let due = batch.announced < batch.generation;
        let step = advance(&mut batch, NOW);
        prop_assert!(!step.callback_due || due);
        if step.callback_due {
            prop_assert_eq!(batch.announced, batch.generation);
            prop_assert!(batch.status.is_final());
            prop_assert_eq!(batch.counts.live(), 0);
        }
    }

    #[test]
    fn nothing_is_complete_with_live_units(mut batch in batches()) {
        prop_assume!(batch.status != Complete);
        advance(&mut batch, NOW);
        prop_assert!(batch.status != Complete || (batch.sealed && batch.counts.live() == 0));
    }

    #[test]
    fn the_counts_are_not_its_to_change(mut batch in batches()) {
        let before = batch.counts;
        advance(&mut batch, NOW);
        prop_assert_eq!(batch.counts, before);
    }
}
