use std::time::Duration;

use longshore::accounts::CallStatus;
use longshore::store::{Queries, Queues};
use longshore::{Scope, UnitState, WorkerBuilder};
use longshore_testkit::crash_points::{CrashPoint, CrashTiming};
use serde_json::json;

use super::fixture::{WorkerFixture, code_or_text, is_empty, next_reply, with_reply_queue};

const SLOW: &str = "[[answer]]\nreply = 'asked {{ n }} times before'\ndelay = '5s'";

/// Runs a worker and drops it, as a crash would, when `reached` returns true.
async fn crash_when(worker: WorkerBuilder, reached: impl AsyncFn() -> bool) {
    let worker = worker.ttl(Duration::from_secs(10)).build().unwrap();
    let watch = async {
        while !reached().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        biased;
        () = watch => {}
        ended = worker.run() => panic!("{ended:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_while_the_question_is_out_leaves_maybe_billed_and_another_answers() {
    let fixture = WorkerFixture::new();
    fixture.setup.scripted("acme", "slow", SLOW, json!({})).await;
    let inbox = fixture.inbox("acme", "r").await;
    let id = fixture.send("acme", with_reply_queue("r-1", "slow", &json!({}))).await;
    crash_when(fixture.worker(), async || !fixture.setup.calls().await.is_empty()).await;
    assert_eq!(fixture.unit(id).await.state, UnitState::Leased, "its lease outlives it");
    fixture.work_until_done(id).await;
    assert_eq!(code_or_text(&next_reply(&inbox).await), "asked 1 times before");
    assert!(is_empty(&inbox).await);
    let actual: Vec<_> = fixture.call_records().await.into_iter().map(|(_, status)| status).collect();
    assert_eq!(actual, [CallStatus::MaybeBilled, CallStatus::Success]);
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_was_kept_is_delivered_once_and_not_asked_for_again() {
    // The crash comes before the reply is sent, or after it was sent and before the worker knows
    // it.
    let crashes: [(&[&str], CrashTiming); 3] = [
        (&["send_reply"], CrashTiming::Before),
        (&["send_reply"], CrashTiming::After),
        (&["finish"], CrashTiming::Before),
    ];
    for (at, (methods, kill)) in crashes.into_iter().enumerate() {
        let sent = at > 0;
        let fixture = WorkerFixture::new();
        fixture.setup.scripted("acme", "slow", SLOW, json!({})).await;
        let inbox = fixture.inbox("acme", "r").await;
        let id = fixture.send("acme", with_reply_queue("r-1", "slow", &json!({}))).await;
        let wire = CrashPoint::at(0, kill, methods);
        crash_when(fixture.worker_with(&wire), async || wire.was_reached()).await;
        assert!(fixture.unit(id).await.checkpoint.is_some());
        assert_eq!(fixture.unit(id).await.state, UnitState::Leased);
        assert_eq!(fixture.call_records().await, [("r-1".to_owned(), CallStatus::Success)], "it is booked");
        if sent {
            assert_eq!(code_or_text(&next_reply(&inbox).await), "asked 0 times before");
        }
        fixture.work_until_done(id).await;
        if !sent {
            assert_eq!(code_or_text(&next_reply(&inbox).await), "asked 0 times before");
        }
        assert!(is_empty(&inbox).await, "once, {at}");
        assert_eq!(fixture.unit(id).await.state, UnitState::Done);
        assert_eq!(fixture.call_records().await.len(), 1, "one call");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_whose_reader_leaves_at_the_last_moment_is_dead_lettered_and_in_the_books() {
    let fixture = WorkerFixture::new();
    fixture.setup.scripted("acme", "slow", SLOW, json!({})).await;
    let inbox = fixture.inbox("acme", "r").await;
    let id = fixture.send("acme", with_reply_queue("r-1", "slow", &json!({}))).await;
    let wire = CrashPoint::at(0, CrashTiming::Before, &["send_reply"]);
    let leaving = async {
        wire.reached.notified().await;
        inbox.close().await.unwrap();
        wire.resume.notify_one();
    };
    let worker = fixture.worker_with(&wire).until_idle(true).build().unwrap();
    let (ran, ()) = tokio::join!(worker.run(), leaving);
    ran.unwrap();
    assert_eq!(fixture.failure(id).await.0, "REPLY_QUEUE_GONE");
    assert_eq!(fixture.call_records().await, [("r-1".to_owned(), CallStatus::Success)]);
    let units = fixture.setup.store.totals(&Scope::All, &Queues::All).await.unwrap().counts;
    assert_eq!((units.failed, units.total()), (1, 1), "nothing is in the queue that is gone");
    fixture.is_clean().await;
}
