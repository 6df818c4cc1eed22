//! Workers that are killed at every step: before and after each word to the store and the ledger.

use longshore::OnLost;
use longshore::ledger::CallStatus;
use longshore_ai::ProviderName;
use longshore_batch::definition::Definition;
use longshore_testkit::fake_ai::{BatchPlan, Fate};
use longshore_testkit::standstill::{Kill, Tripwire};

use super::kit::Port;

const ROWS: u32 = 2;

/// What rows and conductors say to the store and the ledger that changes anything, and the looks between.
fn counts(verb: &str) -> bool {
    const VERBS: [&str; 14] = [
        "admit_calls",
        "park",
        "send",
        "finish",
        "checkpoint",
        "seal",
        "contents",
        "ship",
        "deliver",
        "close_shipment",
        "operate_units",
        "unpark",
        "standing",
        "record_calls",
    ];
    VERBS.contains(&verb)
}

/// A batch whose worker is killed at one verb, and taken up by another. Whether it came to that.
async fn killed_at(provider: ProviderName, nth: usize, kill: Kill) -> bool {
    let place = format!("{provider}, killed {kill:?} verb {nth}");
    let port = Port::new(provider, ROWS).await;
    port.fake.plan(vec![BatchPlan { polls: 1, ..BatchPlan::default() }; 3]);
    let id = port.start("b-1", &port.definition()).await;
    let units = port.units(&id).await;
    port.fake.doom(&format!("{}-1", units[0].id), Fate::Expired);
    let wire = Tripwire::at(nth, kill, counts);
    let (worker, desk) = port.worker_with(&wire);
    tokio::select! {
        ended = worker.run() => panic!("{place}: {ended:?}"),
        () = desk.keep_books() => {}
        () = wire.tripped.notified() => {}
        () = port.over(&id) => {}
    }
    port.bury().await;
    port.work_until_over(&id).await;

    let batch = port.batch(&id).await;
    assert_eq!((batch.counts.done, batch.counts.total()), (2, 2), "{place}");
    assert_eq!(port.number("SELECT count(*) FROM rows WHERE seen = 1 AND said = 'v' || id"), 2);
    let sent = port.sent();
    let times: Vec<usize> = units.iter().map(|unit| sent[&format!("{}-1", unit.id)]).collect();
    assert_eq!(times, [2, 1], "{place}: what expired again, the other once");
    assert_eq!(sent.len(), 2, "{place}: {sent:?}");
    let calls = port.calls(&id).await;
    let answered = calls.iter().filter(|call| call.status == CallStatus::Success).count();
    assert_eq!((calls.len(), answered), (2, 2), "{place}: {calls:#?}");
    let cost: i64 = calls.iter().map(|call| call.end.as_ref().unwrap().cost_picos).sum();
    assert_eq!(batch.sums.get("cost_picos").copied(), Some(cost), "{place}");
    port.assert_nothing_is_left(&id).await;
    wire.is_spent()
}

async fn killed_at_every_step(provider: ProviderName, kill: Kill) {
    let mut nth = 0;
    while killed_at(provider, nth, kill).await {
        nth += 1;
    }
    assert!(nth > 20, "only {nth} verbs were tried");
}

#[tokio::test]
async fn restarts_before_every_step_pay_once_and_lose_nothing_with_anthropic() {
    killed_at_every_step(ProviderName::Anthropic, Kill::Before).await;
}

#[tokio::test]
async fn restarts_after_every_step_pay_once_and_lose_nothing_with_anthropic() {
    killed_at_every_step(ProviderName::Anthropic, Kill::After).await;
}

#[tokio::test]
async fn restarts_before_every_step_pay_once_and_lose_nothing_with_openai() {
    killed_at_every_step(ProviderName::Openai, Kill::Before).await;
}

#[tokio::test]
async fn restarts_after_every_step_pay_once_and_lose_nothing_with_openai() {
    killed_at_every_step(ProviderName::Openai, Kill::After).await;
}

/// A worker that stands still after it has sealed a shipment, is taken for dead, and goes on when its successor
/// has sent it.
#[tokio::test]
async fn a_worker_that_comes_back_to_life_does_not_send_what_another_has_sent() {
    for provider in [ProviderName::Anthropic, ProviderName::Openai] {
        let port = Port::new(provider, ROWS).await;
        port.fake.plan([BatchPlan { polls: 4, ..BatchPlan::default() }]);
        let id = port.start("b-1", &port.definition()).await;
        tokio::select! {
            ended = port.rows_only().run() => panic!("{ended:?}"),
            () = port.until(async || port.batch(&id).await.counts.scheduled == 2) => {}
        }
        port.bury().await;
        let wire = Tripwire::at(0, Kill::After, |verb| verb == "seal");
        let rising = async {
            wire.tripped.notified().await;
            port.bury().await;
            let successor = async {
                port.until(async || !port.fake.batches().is_empty()).await;
                wire.let_go.notify_one();
                port.over(&id).await;
            };
            port.work_until(successor).await;
        };
        let zombie = port.conductor_with(&wire);
        tokio::select! {
            ended = zombie.run() => panic!("it should have gone on: {ended:?}"),
            () = rising => {}
        }
        assert!(wire.is_spent());
        assert!(port.sent().values().all(|times| *times == 1), "{provider}: {:?}", port.sent());
        assert_eq!(port.number("SELECT count(*) FROM rows WHERE seen = 1"), 2);
        port.assert_nothing_is_left(&id).await;
    }
}

/// A row whose question is parked is in nobody's hands: that its worker died says nothing about it. So a row that
/// fails when it is lost does not, and is asked once.
#[tokio::test]
async fn a_row_that_is_lost_while_its_question_is_parked_is_no_lost_question() {
    let admitted: fn(&str) -> bool = |verb| verb == "admit_calls";
    let parked: fn(&str) -> bool = |verb| verb == "park";
    for (at, kill) in [(admitted, Kill::After), (parked, Kill::Before), (parked, Kill::After)] {
        let port = Port::new(ProviderName::Openai, ROWS).await;
        let definition = Definition { on_lost: OnLost::Fail, ..port.definition() };
        let id = port.start("b-1", &definition).await;
        let wire = Tripwire::at(1, kill, at);
        let (worker, desk) = port.worker_with(&wire);
        tokio::select! {
            ended = worker.run() => panic!("{ended:?}"),
            () = desk.keep_books() => {}
            () = wire.tripped.notified() => {}
        }
        port.bury().await;
        assert!(port.units(&id).await.iter().any(|unit| unit.lost > 0), "{kill:?}");
        port.work_until_over(&id).await;
        assert_eq!(port.batch(&id).await.counts.done, 2, "{kill:?}");
        assert!(port.sent().values().all(|times| *times == 1), "{kill:?}");
        let calls = port.calls(&id).await;
        assert!(calls.iter().all(|call| call.status == CallStatus::Success), "{calls:#?}");
        port.assert_nothing_is_left(&id).await;
    }
}
