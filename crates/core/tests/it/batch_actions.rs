//! `batch::act`: what operators may do to a batch in each status.

use longshore_core::batch::{Batch, BatchAction, BatchStatus, advance, apply_action};
use proptest::prelude::*;

use crate::batch::{batch, batches, counts};
use crate::unit_state::NOW;

use BatchStatus::{Cancelled, Complete, Failed, Paused, Queued, Running};

fn pause() -> BatchAction {
    BatchAction::Pause { reason: "lunch".into() }
}

fn fail() -> BatchAction {
    BatchAction::Fail { reason: "wrong file".into() }
}

/// A batch with all units ended, one of them failed.
fn ended(status: BatchStatus) -> Batch {
    batch(status, true, counts(0, 0, 1, 1))
}

#[test]
fn every_action_on_every_status() {
    let table = [
        (pause(), [Some(Paused), Some(Paused), Some(Paused), None, None, None]),
        (BatchAction::Resume, [Some(Queued), Some(Running), Some(Queued), None, None, None]),
        (
            BatchAction::Cancel,
            [Some(Cancelled), Some(Cancelled), Some(Cancelled), None, Some(Cancelled), Some(Cancelled)],
        ),
        (fail(), [Some(Failed), Some(Failed), Some(Failed), None, Some(Failed), Some(Failed)]),
        (BatchAction::RetryFailed, [Some(Running); 6]),
    ];
    for (action, row) in table {
        for (status, expected) in BatchStatus::ALL.into_iter().zip(row) {
            let mut batch = ended(status);
            let answer = apply_action(&mut batch, &action);
            assert_eq!(answer.is_ok(), expected.is_some(), "{action:?} on {status}");
            assert_eq!(batch.status, expected.unwrap_or(status), "{action:?} on {status}");
            if let Err(refused) = answer {
                assert_eq!(refused.status, status);
            }
        }
    }
}

#[test]
fn reasons_are_kept_until_it_goes_on() {
    let mut batch = batch(Running, true, counts(1, 0, 0, 0));
    apply_action(&mut batch, &pause()).unwrap();
    assert_eq!(batch.reason.as_deref(), Some("lunch"));
    apply_action(&mut batch, &BatchAction::Resume).unwrap();
    assert_eq!(batch.reason, None);
    apply_action(&mut batch, &fail()).unwrap();
    assert_eq!(batch.reason.as_deref(), Some("wrong file"));
}

#[test]
fn resuming_forgives_what_failed_and_remembers_that_it_ran() {
    let mut batch = batch(Paused, true, counts(1, 0, 0, 3));
    batch.started_at = Some(NOW);
    apply_action(&mut batch, &BatchAction::Resume).unwrap();
    assert_eq!((batch.status, batch.forgiven), (Running, 3));
}

#[test]
fn only_an_ended_batch_opens_a_new_generation() {
    for status in [Complete, Failed, Cancelled] {
        let mut batch = ended(status);
        batch.sealed = false;
        advance(&mut batch, NOW);
        apply_action(&mut batch, &BatchAction::RetryFailed).unwrap();
        assert_eq!((batch.generation, batch.completed_at), (2, None));
        assert!(batch.sealed, "it can take no more units");
    }
    for status in [Queued, Running, Paused] {
        let mut batch = batch(status, true, counts(1, 0, 0, 1));
        apply_action(&mut batch, &BatchAction::RetryFailed).unwrap();
        assert_eq!((batch.status, batch.generation), (Running, 1));
    }
}

#[test]
fn there_is_nothing_to_retry_without_failures() {
    let mut batch = batch(Complete, true, counts(0, 0, 3, 0));
    apply_action(&mut batch, &BatchAction::RetryFailed).unwrap();
    assert_eq!((batch.status, batch.generation), (Complete, 1));
}

#[test]
fn a_batch_given_up_is_not_retried_while_units_still_run() {
    let mut batch = batch(Cancelled, true, counts(0, 1, 0, 1));
    assert!(apply_action(&mut batch, &BatchAction::RetryFailed).is_err());
    assert_eq!(batch.generation, 1);
}

#[test]
fn each_generation_is_announced() {
    let mut batch = ended(Running);
    assert!(advance(&mut batch, NOW).callback_due);
    apply_action(&mut batch, &BatchAction::RetryFailed).unwrap();
    batch.counts = counts(1, 0, 1, 0);
    assert!(!advance(&mut batch, NOW).callback_due);
    batch.counts = counts(0, 0, 2, 0);
    assert!(advance(&mut batch, NOW).callback_due);
    assert!(!advance(&mut batch, NOW).callback_due);
}

proptest! {
    #[test]
    fn a_refused_action_changes_nothing(batch in batches()) {
        let actions = [
            pause(), BatchAction::Resume, BatchAction::Cancel, fail(), BatchAction::RetryFailed,
        ];
        for action in actions {
            let mut changed = batch.clone();
            if apply_action(&mut changed, &action).is_err() {
                prop_assert_eq!(&changed, &batch);
            }
        }
    }
}
