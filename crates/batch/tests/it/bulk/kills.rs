//! Workers killed at every step: before and after each call of the store and the ledger.

use longshore::OnLost;
use longshore::accounts::CallStatus;
use longshore_ai::ProviderName;
use longshore_batch::definition::Definition;
use longshore_testkit::crash_points::{CrashPoint, CrashTiming};
use longshore_testkit::fake_ai::{BatchItemFailure, BatchPlan};

use super::fixture::BulkFixture;

const ROWS: u32 = 2;

/// The store and ledger calls of rows and runners that change state, and the reads between them.
const METHODS: &[&str] = &[
    "admit_calls",
    "send",
    "finish",
    "checkpoint",
    "pending_requests",
    "change_pending",
    "change_provider_batch",
    "apply_unit_action",
    "record_calls",
];

/// Runs a batch, kills its worker at the `nth` call, and finishes it with another worker. Returns
/// whether there was such a call.
async fn killed_at(provider: ProviderName, nth: usize, kill: CrashTiming) -> bool {
    let place = format!("{provider}, killed {kill:?} call {nth}");
    let fixture = BulkFixture::new(provider, ROWS).await;
    fixture.fake.push_batch_plans(vec![BatchPlan { polls: 1, ..BatchPlan::default() }; 3]);
    let id = fixture.start("b-1", &fixture.definition()).await;
    let units = fixture.units(&id).await;
    fixture.fake.fail_in_batch(&format!("{}-1", units[0].id), BatchItemFailure::Expired);
    let wire = CrashPoint::at(nth, kill, METHODS);
    let (worker, inference) = fixture.worker_with(&wire);
    tokio::select! {
        ended = worker.run() => panic!("{place}: {ended:?}"),
        () = inference.run_journal() => {}
        () = wire.reached.notified() => {}
        () = fixture.over(&id) => {}
    }
    fixture.reclaim_dead().await;
    fixture.work_until_over(&id).await;

    let batch = fixture.batch(&id).await;
    assert_eq!((batch.counts.done, batch.counts.total()), (2, 2), "{place}");
    assert_eq!(fixture.number("SELECT count(*) FROM rows WHERE seen = 1 AND said = 'v' || id"), 2);
    let sent = fixture.sent();
    let times: Vec<usize> = units.iter().map(|unit| sent[&format!("{}-1", unit.id)]).collect();
    assert_eq!(times, [2, 1], "{place}: what expired again, the other once");
    assert_eq!(sent.len(), 2, "{place}: {sent:?}");
    let calls = fixture.calls(&id).await;
    let answered = calls.iter().filter(|call| call.status == CallStatus::Success).count();
    assert_eq!((calls.len(), answered), (2, 2), "{place}: {calls:#?}");
    let cost: i64 = calls.iter().map(|call| call.end.as_ref().unwrap().cost_picos).sum();
    assert_eq!(batch.sums.get("cost_picos").copied(), Some(cost), "{place}");
    fixture.assert_nothing_is_left(&id).await;
    wire.was_reached()
}

/// Kills at every call with `LONGSHORE_SOAK`, else at every second call: with one provider at the first, third …,
/// with the other at the second, fourth ….
async fn killed_at_every_step(provider: ProviderName, kill: CrashTiming) {
    let soak = std::env::var_os("LONGSHORE_SOAK").is_some();
    let mut nth = usize::from(!soak && provider == ProviderName::Openai);
    while killed_at(provider, nth, kill).await {
        nth += if soak { 1 } else { 2 };
    }
    assert!(nth > 20, "only calls up to {nth} were tried");
}

#[tokio::test]
async fn restarts_before_every_step_pay_once_and_lose_nothing_with_anthropic() {
    killed_at_every_step(ProviderName::Anthropic, CrashTiming::Before).await;
}

#[tokio::test]
async fn restarts_after_every_step_pay_once_and_lose_nothing_with_anthropic() {
    killed_at_every_step(ProviderName::Anthropic, CrashTiming::After).await;
}

#[tokio::test]
async fn restarts_before_every_step_pay_once_and_lose_nothing_with_openai() {
    killed_at_every_step(ProviderName::Openai, CrashTiming::Before).await;
}

#[tokio::test]
async fn restarts_after_every_step_pay_once_and_lose_nothing_with_openai() {
    killed_at_every_step(ProviderName::Openai, CrashTiming::After).await;
}

/// A worker stalls after it has sealed a provider batch, is declared dead, and resumes when its successor
/// has submitted it.
#[tokio::test]
async fn a_worker_that_comes_back_to_life_does_not_send_what_another_has_sent() {
    for provider in [ProviderName::Anthropic, ProviderName::Openai] {
        let fixture = BulkFixture::new(provider, ROWS).await;
        fixture.fake.push_batch_plans([BatchPlan { polls: 4, ..BatchPlan::default() }]);
        let id = fixture.start("b-1", &fixture.definition()).await;
        tokio::select! {
            ended = fixture.rows_only().run() => panic!("{ended:?}"),
            () = fixture.until(async || fixture.batch(&id).await.counts.scheduled == 2) => {}
        }
        fixture.reclaim_dead().await;
        let wire = CrashPoint::at(0, CrashTiming::After, &["change_provider_batch"]);
        let rising = async {
            wire.reached.notified().await;
            fixture.reclaim_dead().await;
            let successor = async {
                fixture.until(async || !fixture.fake.batches().is_empty()).await;
                wire.resume.notify_one();
                fixture.over(&id).await;
            };
            fixture.work_until(successor).await;
        };
        let zombie = fixture.runner_with(&wire);
        tokio::select! {
            ended = zombie.run() => panic!("it should have gone on: {ended:?}"),
            () = rising => {}
        }
        assert!(wire.was_reached());
        assert!(fixture.sent().values().all(|times| *times == 1), "{provider}: {:?}", fixture.sent());
        assert_eq!(fixture.number("SELECT count(*) FROM rows WHERE seen = 1"), 2);
        fixture.assert_nothing_is_left(&id).await;
    }
}

/// No worker holds a row with a parked question, so a worker's death does not affect it: a row with
/// `on_lost = fail` does not fail, and its question is sent once.
#[tokio::test]
async fn a_row_that_is_lost_while_its_question_is_parked_is_no_lost_question() {
    let crashes: [(&[&str], CrashTiming); 3] = [
        (&["admit_calls"], CrashTiming::After),
        (&["change_pending"], CrashTiming::Before),
        (&["change_pending"], CrashTiming::After),
    ];
    for (methods, kill) in crashes {
        let fixture = BulkFixture::new(ProviderName::Openai, ROWS).await;
        let definition = Definition { on_lost: OnLost::Fail, ..fixture.definition() };
        let id = fixture.start("b-1", &definition).await;
        let wire = CrashPoint::at(1, kill, methods);
        let (worker, inference) = fixture.worker_with(&wire);
        tokio::select! {
            ended = worker.run() => panic!("{ended:?}"),
            () = inference.run_journal() => {}
            () = wire.reached.notified() => {}
        }
        fixture.reclaim_dead().await;
        assert!(fixture.units(&id).await.iter().any(|unit| unit.lost > 0), "{kill:?}");
        fixture.work_until_over(&id).await;
        assert_eq!(fixture.batch(&id).await.counts.done, 2, "{kill:?}");
        assert!(fixture.sent().values().all(|times| *times == 1), "{kill:?}");
        let calls = fixture.calls(&id).await;
        assert!(calls.iter().all(|call| call.status == CallStatus::Success), "{calls:#?}");
        fixture.assert_nothing_is_left(&id).await;
    }
}
