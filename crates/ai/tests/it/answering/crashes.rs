use std::time::Duration;

use longshore::ledger::CallStatus;
use longshore::store::{Inspect, Queues};
use longshore::{Scope, UnitState, WorkerBuilder};
use longshore_testkit::standstill::{Kill, Tripwire};
use serde_json::json;

use super::office::{Office, answered, is_empty, next, said};

const SLOW: &str = "[[answer]]\nreply = 'asked {{ n }} times before'\ndelay = '5s'";

/// Runs a worker and drops it, as a crash does, when `reached` says so.
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
    let office = Office::new();
    office.rig.scripted("acme", "slow", SLOW, json!({})).await;
    let inbox = office.inbox("acme", "r").await;
    let id = office.send("acme", answered("r-1", "slow", &json!({}))).await;
    crash_when(office.worker(), async || !office.rig.calls().await.is_empty()).await;
    assert_eq!(office.unit(id).await.state, UnitState::Leased, "its lease outlives it");
    office.work_until_done(id).await;
    assert_eq!(said(&next(&inbox).await), "asked 1 times before");
    assert!(is_empty(&inbox).await);
    let told: Vec<_> = office.books().await.into_iter().map(|(_, status)| status).collect();
    assert_eq!(told, [CallStatus::MaybeBilled, CallStatus::Success]);
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_was_kept_is_delivered_once_and_not_asked_for_again() {
    let reply: fn(&str) -> bool = |verb| verb == "reply";
    let finish: fn(&str) -> bool = |verb| verb == "finish";
    // The crash comes before the reply is sent, or after it was sent and before anybody heard.
    let crashes = [(reply, Kill::Before), (reply, Kill::After), (finish, Kill::Before)];
    for (at, (verb, kill)) in crashes.into_iter().enumerate() {
        let sent = at > 0;
        let office = Office::new();
        office.rig.scripted("acme", "slow", SLOW, json!({})).await;
        let inbox = office.inbox("acme", "r").await;
        let id = office.send("acme", answered("r-1", "slow", &json!({}))).await;
        let wire = Tripwire::at(0, kill, verb);
        crash_when(office.worker_with(&wire), async || wire.is_spent()).await;
        assert!(office.unit(id).await.checkpoint.is_some());
        assert_eq!(office.unit(id).await.state, UnitState::Leased);
        assert_eq!(office.books().await, [("r-1".to_owned(), CallStatus::Success)], "it is booked");
        if sent {
            assert_eq!(said(&next(&inbox).await), "asked 0 times before");
        }
        office.work_until_done(id).await;
        if !sent {
            assert_eq!(said(&next(&inbox).await), "asked 0 times before");
        }
        assert!(is_empty(&inbox).await, "once, {at}");
        assert_eq!(office.unit(id).await.state, UnitState::Done);
        assert_eq!(office.books().await.len(), 1, "one call");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_whose_reader_leaves_at_the_last_moment_is_dead_lettered_and_in_the_books() {
    let office = Office::new();
    office.rig.scripted("acme", "slow", SLOW, json!({})).await;
    let inbox = office.inbox("acme", "r").await;
    let id = office.send("acme", answered("r-1", "slow", &json!({}))).await;
    let wire = Tripwire::at(0, Kill::Before, |verb| verb == "reply");
    let leaving = async {
        wire.tripped.notified().await;
        inbox.close().await.unwrap();
        wire.let_go.notify_one();
    };
    let worker = office.worker_with(&wire).until_idle(true).build().unwrap();
    let (ran, ()) = tokio::join!(worker.run(), leaving);
    ran.unwrap();
    assert_eq!(office.failure(id).await.0, "REPLY_QUEUE_GONE");
    assert_eq!(office.books().await, [("r-1".to_owned(), CallStatus::Success)]);
    let units = office.rig.store.totals(&Scope::All, &Queues::All).await.unwrap().counts;
    assert_eq!((units.failed, units.total()), (1, 1), "nothing is in the queue that is gone");
    office.is_clean().await;
}
