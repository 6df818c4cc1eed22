//! Errors before POST: POST receives all of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longshore::{Clock, Scope, SqlValue, SystemClock, UnitState};
use longshore_ai::{AskError, Code, FinishReason};
use longshore_testkit::ManualClock;
use serde_json::json;

use super::fixture::{FakeProvider, FakeReply, Fixture, TestRoute, answer, definition, on_each_route};
use crate::support;

fn text(text: &str) -> SqlValue {
    SqlValue::Text(text.to_owned())
}

#[tokio::test(start_paused = true)]
async fn an_answer_against_the_schema_fails_the_row_and_post_hears_of_it() {
    let fixture = Fixture::in_memory(FakeProvider::always(r#"{"verdict": 7}"#));
    let id = fixture.start(&definition(), &[json!(1)]).await;
    fixture.work(fixture.handler()).await;
    assert_eq!(fixture.failure(&id).await.0, "bad-answer");
    assert_eq!(fixture.rows.bound(0, "error_code"), text("BAD_ANSWER"));
    assert_eq!(fixture.provider.count(), 1, "the same question would get the same answer");
    assert_eq!(fixture.batch(&id).await.sums["answers"], 1, "it was paid for");
}

async fn an_answer_that_was_cut_says_that_max_tokens_was_too_small(route: TestRoute) {
    let fixture = Fixture::by(
        route,
        FakeProvider::new(|_, _| {
            let finish_reason = FinishReason::Length;
            FakeReply::Answer(longshore_ai::Answer { finish_reason, ..answer(r#"{"verdict": "fi"#) })
        }),
    )
    .await;
    let id = fixture.start(&fixture.definition(), &[json!(1)]).await;
    fixture.work(fixture.handler()).await;
    let (_, words) = fixture.failure(&id).await;
    assert!(words.contains("max_tokens (50) is too small"), "{words}");
}

async fn no_answer_in_time_is_a_timeout_and_is_not_asked_again(route: TestRoute) {
    let fixture = Fixture::by(route, FakeProvider::new(|_, _| FakeReply::Silence)).await;
    let began = tokio::time::Instant::now();
    let id = fixture.start(&fixture.definition(), &[json!(1)]).await;
    fixture.work(fixture.handler()).await;
    assert!(began.elapsed() >= Duration::from_secs(30), "the row's own time");
    let (code, words) = fixture.failure(&id).await;
    assert_eq!(code, "timeout");
    assert!(words.contains("may have been billed"), "{words}");
    assert_eq!(fixture.rows.bound(0, "error_code"), text("TIMEOUT"));
    assert_eq!(fixture.provider.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn after_the_batchs_deadline_nothing_is_asked() {
    let fixture = Fixture::in_memory(FakeProvider::always(r#"{"verdict": "fine"}"#));
    let mut definition = definition();
    definition.deadline = Some(SystemClock.now());
    let id = fixture.start(&definition, &[json!(1)]).await;
    // The store's time counts, not the worker's, which is behind.
    fixture.work(fixture.handler().clock(Arc::new(ManualClock::default()))).await;
    let (code, words) = fixture.failure(&id).await;
    assert_eq!((code.as_str(), words.as_str()), ("timeout", "the batch's deadline has passed"));
    assert_eq!(fixture.provider.count(), 0);
    assert_eq!(fixture.rows.reads.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_clock_is_past_the_batchs_deadline_fails_no_row() {
    let fixture = Fixture::in_memory(FakeProvider::always(r#"{"verdict": "fine"}"#));
    let (hour, day) = (Duration::from_secs(3_600), Duration::from_secs(86_400));
    let mut definition = definition();
    definition.deadline = Some(SystemClock.now() + hour);
    fixture.start(&definition, &[json!(1)]).await;
    let jumped = ManualClock::at(SystemClock.now() + day);
    fixture.work(fixture.handler().clock(Arc::new(jumped))).await;
    assert_eq!(fixture.rows.bound(0, "verdict"), text("fine"));
    assert_eq!(fixture.provider.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_batchs_deadline_cuts_the_time_of_a_row() {
    let fixture = Fixture::in_memory(FakeProvider::new(|_, _| FakeReply::Silence));
    let mut definition = definition();
    definition.deadline = Some(SystemClock.now() + Duration::from_secs(2));
    let began = tokio::time::Instant::now();
    let id = fixture.start(&definition, &[json!(1)]).await;
    fixture.work(fixture.handler()).await;
    assert_eq!(fixture.failure(&id).await.0, "timeout");
    let asked = fixture.provider.questions.lock().unwrap()[0].until;
    assert!(asked - began < Duration::from_secs(3), "and the provider knows it");
}

async fn a_row_that_is_gone_fails_without_a_question(route: TestRoute) {
    let fixture = Fixture::by(route, FakeProvider::always(r#"{"verdict": "fine"}"#)).await;
    fixture.rows.gone.lock().unwrap().push(SqlValue::Int(1));
    let id = fixture.start(&fixture.definition(), &[json!(1)]).await;
    fixture.work(fixture.handler()).await;
    let (code, words) = fixture.failure(&id).await;
    assert_eq!(code, "pre-error");
    assert!(words.contains("the row is gone"), "{words}");
    assert_eq!((fixture.provider.count(), fixture.rows.bound(0, "error_code")), (0, text("PRE_ERROR")));
}

async fn a_provider_that_wants_time_gets_it(route: TestRoute) {
    let wait = Duration::from_secs(20);
    let fixture = Fixture::by(
        route,
        FakeProvider::new(move |_, before| match before {
            0 => FakeReply::Error(AskError {
                retry_after: Some(wait),
                ..AskError::new(Code::RateLimited, "slow down")
            }),
            _ => FakeReply::Answer(answer(r#"{"verdict": "fine"}"#)),
        }),
    )
    .await;
    let id = fixture.start(&fixture.definition(), &[json!(1)]).await;
    let first = async {
        fixture.asked().await;
        let unit = fixture.only_unit(&id).await.id;
        while fixture.unit(unit).await.state != UnitState::Scheduled {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let unit = fixture.unit(unit).await;
        // `since` of a scheduled unit is its due time.
        unit.since.since(unit.started_at.unwrap_or(unit.created_at))
    };
    let worker = fixture.worker(1, fixture.handler()).build().unwrap();
    let waits = fixture.beside(async {
        tokio::select! {
            _ = worker.run() => panic!("it has no end"),
            waits = first => waits,
        }
    });
    let waits = waits.await;
    assert!(waits >= wait, "{waits:?}");
    let unit = fixture.only_unit(&id).await;
    let failures = fixture.store.failures(&Scope::All, unit.id).await.unwrap();
    assert_eq!(failures[0].failure.to_string(), "rate-limited: slow down");
}

async fn without_a_schema_any_text_is_an_answer(route: TestRoute) {
    let fixture = Fixture::by(route, FakeProvider::always("Looks good to me.")).await;
    let mut definition = fixture.definition();
    support::ai(&mut definition).schema = None;
    let id = fixture.start(&definition, &[json!("key with ' and \"")]).await;
    fixture.work(fixture.handler()).await;
    assert_eq!(fixture.only_unit(&id).await.state, UnitState::Done);
    assert_eq!(fixture.rows.bound(0, "verdict"), SqlValue::Null, "a property that it has not");
    assert_eq!(fixture.rows.bound(0, "key"), text("key with ' and \""));
}

on_each_route! {
    an_answer_that_was_cut_says_that_max_tokens_was_too_small,
    no_answer_in_time_is_a_timeout_and_is_not_asked_again,
    a_row_that_is_gone_fails_without_a_question,
    a_provider_that_wants_time_gets_it,
    without_a_schema_any_text_is_an_answer,
}
