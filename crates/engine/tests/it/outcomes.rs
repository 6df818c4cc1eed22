//! A handler's result becomes the recorded outcome.

use std::time::Duration;

use longshore::store::Queries;
use longshore::{Context, Kind, NewUnit, Policy, Scope, UnitState, Verdict, Worker};
use serde_json::{Value, json};

use crate::harness::{Harness, Script, kind};

async fn run_one(script: Script) -> (Harness, longshore::Unit, longshore::WorkerReport) {
    let harness = Harness::new();
    let id = harness.send(script).await;
    let report = harness.worker(4).until_idle(true).build().unwrap().run().await.unwrap();
    harness.assert_clean().await;
    let unit = harness.unit(id).await;
    (harness, unit, report)
}

#[tokio::test(start_paused = true)]
async fn a_value_is_kept_as_the_result() {
    let (_, unit, report) = run_one(Script::Ok(json!({"n": 7}))).await;
    assert_eq!(unit.state, UnitState::Done);
    assert_eq!(unit.result.unwrap().parse::<Value>().unwrap(), json!({"n": 7}));
    assert_eq!((report.done, report.left), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn an_error_is_retried_by_policy_and_then_fails() {
    let (harness, unit, report) = run_one(Script::Error("no luck".into())).await;
    assert_eq!(unit.state, UnitState::Failed);
    let failure = unit.failure.unwrap();
    assert_eq!((failure.code.as_str(), failure.message.as_str()), ("error", "no luck"));
    assert_eq!((unit.attempt, harness.log.runs()), (2, 2));
    assert_eq!((report.retried, report.failed), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_retry_and_its_neighbours_do_not_notice() {
    let harness = Harness::new();
    let bad = harness.send(Script::Panic("boom".into())).await;
    let good = harness.send_all(20, Script::Sleep(30)).await;
    let report = harness.worker(4).until_idle(true).build().unwrap().run().await.unwrap();
    let failure = harness.unit(bad).await.failure.unwrap();
    assert_eq!((failure.code.as_str(), failure.message.as_str()), ("panic", "boom"));
    assert_eq!((report.done, report.failed, report.retried), (20, 1, 1));
    for id in good {
        assert_eq!(harness.unit(id).await.attempt, 1);
    }
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_snooze_uses_no_attempt() {
    let began = tokio::time::Instant::now();
    let (harness, unit, report) = run_one(Script::Snooze(5_000)).await;
    assert_eq!(unit.state, UnitState::Done);
    assert_eq!((unit.attempt, harness.log.runs(), report.snoozed), (1, 2, 1));
    assert!(began.elapsed() >= Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_retry_with_a_delay_waits_that_long_and_hardly_longer() {
    let began = tokio::time::Instant::now();
    let (harness, unit, _) = run_one(Script::RetryAfter(700)).await;
    assert_eq!((unit.state, unit.attempt, harness.log.runs()), (UnitState::Done, 2, 2));
    let done_after = unit.since.since(unit.created_at);
    assert!(done_after >= Duration::from_millis(700), "{done_after:?}");
    assert!(done_after < Duration::from_millis(760), "{done_after:?}");
    assert!(began.elapsed() >= done_after);
}

#[tokio::test(start_paused = true)]
async fn fail_and_cancel_are_final_at_once() {
    let (harness, unit, report) = run_one(Script::Fail("never".into())).await;
    assert_eq!((unit.state, harness.log.runs(), report.failed), (UnitState::Failed, 1, 1));
    assert_eq!(unit.failure.unwrap().code, "scripted");
    let (harness, unit, report) = run_one(Script::Cancel).await;
    assert_eq!((unit.state, harness.log.runs(), report.cancelled), (UnitState::Cancelled, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_reaches_the_next_run() {
    let (harness, unit, _) = run_one(Script::Checkpoint(json!({"page": 3}))).await;
    assert_eq!((unit.state, harness.log.runs()), (UnitState::Done, 2));
    assert_eq!(unit.result.unwrap().parse::<Value>().unwrap(), json!({"page": 3}));
}

#[tokio::test(start_paused = true)]
async fn input_that_does_not_parse_fails_the_unit_without_running_it() {
    let harness = Harness::new();
    let mut ids = Vec::new();
    for bad in [b"not json".as_slice(), b"{\"dance\":1}", b"", b"\xff\xfe"] {
        ids.push(harness.client.send(NewUnit::new(kind(), bad)).await.unwrap());
    }
    harness.worker(2).until_idle(true).build().unwrap().run().await.unwrap();
    for id in ids {
        let unit = harness.unit(id).await;
        assert_eq!((unit.state, unit.failure.unwrap().code.as_str()), (UnitState::Failed, "bad-input"));
    }
    assert_eq!(harness.log.runs(), 0);
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_result_that_is_too_large_fails_the_unit_with_the_reason() {
    let (_, unit, _) = run_one(Script::Large(17 * 1024 * 1024)).await;
    let failure = unit.failure.unwrap();
    assert_eq!((unit.state, failure.code.as_str()), (UnitState::Failed, "too-large"));
    assert!(failure.message.contains("16777216"), "{}", failure.message);
}

#[tokio::test(start_paused = true)]
async fn an_effect_that_fails_is_a_retry_with_its_reason() {
    let (harness, unit, report) = run_one(Script::Effect("UPDATE t SET a = 1".into())).await;
    assert_eq!((unit.state, harness.log.runs()), (UnitState::Failed, 2));
    assert_eq!(unit.failure.unwrap().code, "unsupported");
    assert_eq!((report.retried, report.failed, report.done), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn closures_may_return_a_plain_error_or_a_verdict() {
    let harness = Harness::new();
    let named = |name: &str| Kind::new(name).unwrap();
    let once = Policy { retry: longshore::RetryPolicy::never(), ..Policy::default() };
    let worker = Worker::builder(harness.store.clone())
        .handle_fn(named("plain"), once.clone(), |_: Context, n: u8| async move {
            if n == 0 { Err("zero") } else { Ok(n) }
        })
        .handle_fn(named("verdict"), once, |_: Context, n: u8| async move {
            if n == 0 { Err(Verdict::fail("zero", "is none")) } else { Ok(n) }
        })
        .until_idle(true)
        .build()
        .unwrap();
    let send =
        async |name: &str, n: u8| harness.client.send(NewUnit::new(named(name), json!(n))).await.unwrap();
    let (plain, verdict, fine) = (send("plain", 0).await, send("verdict", 0).await, send("plain", 3).await);
    worker.run().await.unwrap();
    let code = async |id| harness.unit(id).await.failure.map(|failure| failure.code);
    assert_eq!(code(plain).await.as_deref(), Some("error"));
    assert_eq!(code(verdict).await.as_deref(), Some("zero"));
    assert_eq!(code(fine).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_kind_without_a_handler_is_left_alone() {
    let harness = Harness::new();
    let other = NewUnit::new(Kind::new("other").unwrap(), json!(1));
    let other = harness.client.send(other).await.unwrap();
    let own = harness.send(Script::Ok(json!(1))).await;
    let worker = harness.worker(2).build().unwrap();
    let control = worker.control();
    let run = worker.run();
    let drain = async {
        harness.client.wait(own, None).await.unwrap();
        control.drain();
    };
    let (report, ()) = tokio::join!(run, drain);
    assert_eq!(report.unwrap().done, 1);
    let unit = harness.store.unit(&Scope::All, other).await.unwrap();
    assert_eq!((unit.state, unit.attempt), (UnitState::Ready, 0));
}

#[test]
fn a_worker_that_could_not_work_is_not_built() {
    use longshore::BuildError;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _guard = runtime.enter();
    let harness = Harness::new();
    let store = || std::sync::Arc::clone(&harness.store) as std::sync::Arc<dyn longshore::Store>;
    assert_eq!(Worker::builder(store()).build().err(), Some(BuildError::NoHandlers));
    assert_eq!(harness.worker(0).build().err(), Some(BuildError::NoSlots));
    let short = Duration::from_millis(10);
    assert_eq!(harness.worker(1).ttl(short).build().err(), Some(BuildError::ShortTtl(short)));
    let again = crate::harness::ScriptedHandler(harness.log.clone());
    let twice = harness.worker(1).handle(kind(), Policy::default(), again);
    assert_eq!(twice.build().err(), Some(BuildError::TwoHandlers(kind())));
}
