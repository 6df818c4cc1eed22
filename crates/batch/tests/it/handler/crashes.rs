//! Crashes and repeats: which questions are sent again, which are not, and which may have been
//! billed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use longshore::batch::BatchAction;
use longshore::{MemoryStore, OnLost, Scope, UnitState};
use longshore_batch::definition::{Post, PostVerdict, Rule, SqlPost};
use longshore_batch::pre_post::{Apply, ApplyError, ApplyOutcome, RowReply, RowRun};
use longshore_testkit::{Fault, FaultyStore};
use serde_json::json;
use tokio::sync::Notify;

use super::fixture::{FakeProvider, FakeReply, Fixture, TestRoute, answer, definition, on_each_route, post};

/// A POST that never returns the first time.
struct StuckApply {
    runs: Arc<AtomicUsize>,
    reached: Arc<Notify>,
}

#[async_trait]
impl Apply for StuckApply {
    async fn apply(&self, _row: &RowRun<'_>, reply: &RowReply) -> Result<ApplyOutcome, ApplyError> {
        assert!(reply.error.is_none(), "{:?}", reply.error);
        if self.runs.fetch_add(1, Ordering::SeqCst) == 0 {
            self.reached.notify_one();
            std::future::pending::<()>().await;
        }
        let effects = Vec::new();
        Ok(ApplyOutcome { verdict: PostVerdict::Success, reason: None, after: None, effects })
    }
}

async fn no_answer_paid_twice(route: TestRoute) {
    let fixture = Fixture::by(route, FakeProvider::always(r#"{"verdict": "fine"}"#)).await;
    let mut definition = fixture.definition();
    definition.post = Post::Code("stuck".to_owned());
    definition.on_lost = OnLost::Fail;
    let id = fixture.start(&definition, &[json!(1)]).await;
    let (runs, reached) = (Arc::default(), Arc::new(Notify::new()));
    let stuck = || StuckApply { runs: Arc::clone(&runs), reached: Arc::clone(&reached) };

    fixture.work_until(fixture.handler().apply("stuck", stuck()), reached.notified()).await;
    assert_eq!(fixture.only_unit(&id).await.lost, 1);
    fixture.work(fixture.handler().apply("stuck", stuck())).await;

    assert_eq!(fixture.only_unit(&id).await.state, UnitState::Done);
    assert_eq!(fixture.provider.count(), 1, "the kept answer was applied");
    assert_eq!(fixture.rows.reads.load(Ordering::SeqCst), 1, "without PRE");
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    assert_eq!(fixture.batch(&id).await.sums["answers"], 1, "and was counted once");
}

async fn a_post_error_is_tried_again_without_asking_again(route: TestRoute) {
    let fixture = Fixture::by(route, FakeProvider::always(r#"{"verdict": "fine"}"#)).await;
    fixture.rows.broken.store(2, Ordering::SeqCst);
    let id = fixture.start(&fixture.definition(), &[json!(1)]).await;
    fixture.work(fixture.handler()).await;
    assert_eq!(fixture.only_unit(&id).await.state, UnitState::Done);
    assert_eq!((fixture.provider.count(), fixture.rows.statements().len()), (1, 1));
    let failures = fixture.store.failures(&Scope::All, fixture.only_unit(&id).await.id).await.unwrap();
    let codes: Vec<&str> = failures.iter().map(|one| one.failure.code.as_str()).collect();
    assert_eq!(codes, ["post-error", "post-error"]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_whose_keeping_goes_wrong_is_kept_and_counted_once() {
    for fault in [Fault::FailBefore, Fault::FailAfter, Fault::Duplicate, Fault::BrokenStream] {
        let store = FaultyStore::new(Arc::new(MemoryStore::default()));
        let provider = FakeProvider::always(r#"{"verdict": "fine"}"#);
        let fixture = Fixture::new(Arc::new(store.with_fault("checkpoint", 1, fault)), provider);
        let id = fixture.start(&definition(), &[json!(1)]).await;
        fixture.work(fixture.handler()).await;
        assert_eq!(fixture.only_unit(&id).await.state, UnitState::Done, "{fault:?}");
        assert_eq!(fixture.provider.count(), 1, "{fault:?}");
        assert_eq!(fixture.batch(&id).await.sums["answers"], 1, "{fault:?}");
    }
}

async fn a_timeout_that_post_could_not_be_told_of_is_not_asked_again(route: TestRoute) {
    let fixture = Fixture::by(route, FakeProvider::new(|_, _| FakeReply::Silence)).await;
    fixture.rows.broken.store(1, Ordering::SeqCst);
    let id = fixture.start(&fixture.definition(), &[json!(1)]).await;
    fixture.work(fixture.handler()).await;
    assert_eq!(fixture.failure(&id).await.0, "timeout");
    assert_eq!(fixture.provider.count(), 1);
    assert_eq!(fixture.rows.statements().len(), 1, "POST heard of it in the end");
}

fn retry_when(when: &str) -> Post {
    let rule = Rule {
        when: when.to_owned(),
        then: PostVerdict::Retry,
        reason: Some("not sure: {{ text }}".to_owned()),
        after: None,
    };
    Post::Sql(SqlPost { rules: vec![rule], ..post() })
}

async fn a_row_that_post_wants_retried_is_asked_anew_under_another_request_id(route: TestRoute) {
    let fixture = Fixture::by(
        route,
        FakeProvider::new(|_, before| {
            let words = if before == 0 { r#"{"verdict": "unsure"}"# } else { r#"{"verdict": "ok"}"# };
            FakeReply::Answer(answer(words))
        }),
    )
    .await;
    let mut definition = fixture.definition();
    definition.post = retry_when("answer.verdict == 'unsure'");
    let id = fixture.start(&definition, &[json!(1)]).await;
    fixture.work(fixture.handler()).await;
    let unit = fixture.only_unit(&id).await;
    assert_eq!((unit.state, unit.attempt), (UnitState::Done, 2));
    assert_eq!(fixture.provider.request_ids(), [format!("{}-1", unit.id), format!("{}-2", unit.id)]);
    assert_eq!(fixture.batch(&id).await.sums["answers"], 2, "both were paid for");
    let failures = fixture.store.failures(&Scope::All, unit.id).await.unwrap();
    assert_eq!(failures[0].failure.code, "post-retry");
    assert!(failures[0].failure.message.contains("unsure"), "{failures:?}");
}

async fn the_last_retry_is_a_failure_and_post_writes_it_as_one(route: TestRoute) {
    let fixture = Fixture::by(route, FakeProvider::always(r#"{"verdict": "unsure"}"#)).await;
    let mut definition = fixture.definition();
    definition.post = retry_when("answer.verdict == 'unsure'");
    let id = fixture.start(&definition, &[json!(1)]).await;
    fixture.work(fixture.handler()).await;
    let (code, words) = fixture.failure(&id).await;
    assert_eq!(code, "post-fail");
    assert!(words.contains("after 3 attempts"), "{words}");
    assert_eq!(fixture.provider.count(), 3);
    assert_eq!(fixture.rows.statements().len(), 1, "the UPDATE of `fail`, once");
}

async fn a_question_that_died_with_its_worker_is_asked_again_under_the_same_request_id(route: TestRoute) {
    let provider = FakeProvider::new(|_, before| match before {
        0 => FakeReply::Silence,
        _ => FakeReply::Answer(answer(r#"{"verdict": "fine"}"#)),
    });
    let fixture = Fixture::by(route, provider).await;
    let id = fixture.start(&fixture.definition(), &[json!(1)]).await;
    fixture.work_until(fixture.handler(), fixture.asked()).await;
    fixture.work(fixture.handler()).await;
    assert_eq!(fixture.only_unit(&id).await.state, UnitState::Done);
    let ids = fixture.provider.request_ids();
    assert_eq!(ids.len(), 2);
    assert_eq!(ids[0], ids[1], "a provider can recognise the repeat");
}

async fn with_on_lost_fail_a_question_that_may_have_been_billed_is_not_asked_again(route: TestRoute) {
    let fixture = Fixture::by(route, FakeProvider::new(|_, _| FakeReply::Silence)).await;
    let mut definition = fixture.definition();
    definition.on_lost = OnLost::Fail;
    let id = fixture.start(&definition, &[json!(1)]).await;
    fixture.work_until(fixture.handler(), fixture.asked()).await;
    fixture.work(fixture.handler()).await;
    let (code, words) = fixture.failure(&id).await;
    assert_eq!(code, "lost");
    assert!(words.contains("maybe billed"), "{words}");
    assert_eq!(fixture.provider.count(), 1);
    assert_eq!(fixture.rows.bound(0, "error_code"), longshore::SqlValue::Text("LOST".into()));
}

async fn a_stopped_worker_does_not_wait_for_the_provider_and_uses_no_attempt(route: TestRoute) {
    let fixture = Fixture::by(route, FakeProvider::new(|_, _| FakeReply::Silence)).await;
    let id = fixture.start(&fixture.definition(), &[json!(1)]).await;
    // A grace period long enough to notice: the run must end by itself.
    let worker = fixture.worker(1, fixture.handler()).grace(Duration::from_secs(3_600)).build().unwrap();
    let control = worker.control();
    let stop = async {
        fixture.asked().await;
        control.stop();
    };
    let began = tokio::time::Instant::now();
    let (report, ()) = fixture.beside(async { tokio::join!(worker.run(), stop) }).await;
    report.unwrap();
    assert!(began.elapsed() < Duration::from_secs(30), "before the row's own timeout");
    let unit = fixture.only_unit(&id).await;
    assert_eq!((unit.state, unit.attempt, unit.lost), (UnitState::Ready, 0, 0));
    assert!(fixture.rows.statements().is_empty(), "POST has nothing to say yet");
}

async fn a_stopped_worker_gives_up_a_row_that_must_not_be_asked_twice(route: TestRoute) {
    let fixture = Fixture::by(route, FakeProvider::new(|_, _| FakeReply::Silence)).await;
    let mut definition = fixture.definition();
    definition.on_lost = OnLost::Fail;
    let id = fixture.start(&definition, &[json!(1)]).await;
    let worker = fixture.worker(1, fixture.handler()).build().unwrap();
    let control = worker.control();
    let stop = async {
        fixture.asked().await;
        control.stop();
    };
    fixture.beside(async { tokio::join!(worker.run(), stop) }).await.0.unwrap();
    assert_eq!(fixture.failure(&id).await.0, "lost");
}

#[tokio::test(start_paused = true)]
async fn a_failed_row_that_an_operator_retries_is_asked_anew() {
    let provider = FakeProvider::new(|_, before| match before {
        0 => FakeReply::Answer(answer("no JSON at all")),
        _ => FakeReply::Answer(answer(r#"{"verdict": "fine"}"#)),
    });
    let fixture = Fixture::in_memory(provider);
    let id = fixture.start(&definition(), &[json!(1)]).await;
    fixture.work(fixture.handler()).await;
    assert_eq!(fixture.failure(&id).await.0, "bad-answer");
    fixture.store.apply_batch_action(&Scope::All, &id, BatchAction::RetryFailed).await.unwrap();
    fixture.work(fixture.handler()).await;
    assert_eq!(fixture.only_unit(&id).await.state, UnitState::Done);
    assert_eq!(fixture.provider.count(), 2);
}

async fn a_timeout_that_an_operator_retries_is_asked_anew_under_another_request_id(route: TestRoute) {
    let provider = FakeProvider::new(|_, before| match before {
        0 | 1 => FakeReply::Silence,
        _ => FakeReply::Answer(answer(r#"{"verdict": "fine"}"#)),
    });
    let fixture = Fixture::by(route, provider).await;
    let id = fixture.start(&fixture.definition(), &[json!(1)]).await;
    fixture.work(fixture.handler()).await;
    assert_eq!(fixture.failure(&id).await.0, "timeout");
    fixture.store.apply_batch_action(&Scope::All, &id, BatchAction::RetryFailed).await.unwrap();
    fixture.provider.asked.notified().await;
    fixture.work_until(fixture.handler(), fixture.asked()).await;
    fixture.work(fixture.handler()).await;
    let unit = fixture.only_unit(&id).await;
    assert_eq!(unit.state, UnitState::Done, "the old reply did not come back: {:?}", unit.failure);
    let ids = fixture.provider.request_ids();
    let expected = [1, 2, 2].map(|number| format!("{}-{number}", unit.id));
    assert_eq!(ids, expected, "the third is the second's repeat after its worker died");
}

async fn a_row_that_failed_only_in_post_keeps_its_answer_for_the_operators_retry(route: TestRoute) {
    let fixture = Fixture::by(route, FakeProvider::always(r#"{"verdict": "fine"}"#)).await;
    fixture.rows.broken.store(3, Ordering::SeqCst);
    let id = fixture.start(&fixture.definition(), &[json!(1)]).await;
    fixture.work(fixture.handler()).await;
    let (code, words) = fixture.failure(&id).await;
    assert_eq!((code.as_str(), words.as_str()), ("post-error", "constraint failed"));
    fixture.store.apply_batch_action(&Scope::All, &id, BatchAction::RetryFailed).await.unwrap();
    fixture.work(fixture.handler()).await;
    assert_eq!(fixture.only_unit(&id).await.state, UnitState::Done);
    assert_eq!(fixture.provider.count(), 1);
}

on_each_route! {
    no_answer_paid_twice,
    a_post_error_is_tried_again_without_asking_again,
    a_timeout_that_post_could_not_be_told_of_is_not_asked_again,
    a_row_that_post_wants_retried_is_asked_anew_under_another_request_id,
    the_last_retry_is_a_failure_and_post_writes_it_as_one,
    a_question_that_died_with_its_worker_is_asked_again_under_the_same_request_id,
    with_on_lost_fail_a_question_that_may_have_been_billed_is_not_asked_again,
    a_stopped_worker_does_not_wait_for_the_provider_and_uses_no_attempt,
    a_stopped_worker_gives_up_a_row_that_must_not_be_asked_twice,
    a_timeout_that_an_operator_retries_is_asked_anew_under_another_request_id,
    a_row_that_failed_only_in_post_keeps_its_answer_for_the_operators_retry,
}
