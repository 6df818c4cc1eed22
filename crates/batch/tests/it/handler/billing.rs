//! Call records of rows: every call is in the ledger once, and the ledger agrees with the batch's
//! sums.

use std::collections::BTreeSet;
use std::time::Duration;

use longshore::accounts::{Call, CallStatus};
use longshore::store::{TenantChange, UnitAction, UnitSelection};
use longshore::{BatchId, Scope, TenantId, UnitState};
use longshore_ai::{AskError, Code, Profile, ProviderName, Retryability};
use longshore_batch::RowHandler;
use longshore_batch::definition::{Definition, Post, PostVerdict, Rule, SqlPost};
use serde_json::{Value, json};

use super::fixture::{FakeProvider, FakeReply, Fixture, TestRoute, answer, post};
use crate::support;

const FINE: &str = r#"{"verdict": "fine"}"#;

/// A provider that answers, rejects, fails or leaves the result unknown, by the number of earlier
/// questions.
fn moody() -> std::sync::Arc<FakeProvider> {
    FakeProvider::new(|_, before| match before % 7 {
        1 => FakeReply::Answer(answer(r#"{"verdict": "unsure"}"#)),
        3 => FakeReply::Error(AskError::new(Code::RateLimited, "slow down")),
        4 => FakeReply::Error(AskError::new(Code::InvalidRequest, "what?")),
        5 => FakeReply::Answer(answer("no JSON at all")),
        _ => FakeReply::Answer(answer(FINE)),
    })
}

/// A definition that asks again when the result of a call is unknown.
fn doubtful(fixture: &Fixture) -> Definition {
    let rule = Rule {
        when: "answer.verdict == 'unsure'".to_owned(),
        then: PostVerdict::Retry,
        reason: None,
        after: Some(Duration::ZERO),
    };
    let post = Post::Sql(SqlPost { rules: vec![rule], ..post() });
    Definition { post, ..fixture.definition() }
}

fn keys(count: i64) -> Vec<Value> {
    (1..=count).map(|key| json!(key)).collect()
}

fn answered(calls: &[Call]) -> Vec<&Call> {
    calls.iter().filter(|call| call.status == CallStatus::Success).collect()
}

/// Asserts that the answered calls add up to the batch's sums.
async fn assert_books_agree(fixture: &Fixture, id: &BatchId) {
    let (sums, calls) = (fixture.batch(id).await.sums, fixture.calls(id).await);
    let ends: Vec<_> = answered(&calls).iter().map(|call| call.end.clone().unwrap()).collect();
    let sum = |name: &str| sums.get(name).copied().unwrap_or_default();
    // A correction is a call of its own for the same request.
    let requests: BTreeSet<_> = answered(&calls).iter().map(|call| &call.call.request_id).collect();
    assert_eq!(sum("answers"), requests.len() as i64, "{calls:#?}");
    assert_eq!(sum("cost_picos"), ends.iter().map(|end| end.cost_picos).sum::<i64>());
    assert_eq!(sum("tokens_in"), ends.iter().map(|end| end.tokens_in as i64).sum::<i64>());
    assert_eq!(sum("tokens_out"), ends.iter().map(|end| end.tokens_out as i64).sum::<i64>());
    assert!(calls.iter().all(|call| call.status != CallStatus::Open), "{calls:#?}");
}

async fn rows_that_fail_and_are_retried(route: TestRoute) {
    let fixture = Fixture::by(route, moody()).await;
    let id = fixture.start(&doubtful(&fixture), &keys(40)).await;
    fixture.work(fixture.handler()).await;
    let counts = fixture.batch(&id).await.counts;
    assert!(counts.failed > 0 && counts.done > 0, "{counts:?}");
    assert_eq!(counts.finished(), 40);
    assert_books_agree(&fixture, &id).await;
    let calls = fixture.calls(&id).await;
    let errors = calls.iter().filter(|call| call.status == CallStatus::Error).count();
    assert!(errors >= usize::try_from(counts.failed).unwrap() / 2, "those of errors are there too");
}

async fn workers_that_are_dropped(route: TestRoute) {
    let fixture = Fixture::by(route, moody()).await;
    let id = fixture.start(&doubtful(&fixture), &keys(60)).await;
    // Workers die one after the other, each at a random point.
    for round in 0..5 {
        let some = async {
            while fixture.batch(&id).await.counts.finished() < 5 * (round + 1) {
                tokio::task::yield_now().await;
            }
        };
        fixture.work_by(fixture.worker(8, fixture.handler()), some).await;
    }
    fixture.work(fixture.handler()).await;
    assert_eq!(fixture.batch(&id).await.counts.finished(), 60);
    fixture.reclaim_dead().await;
    assert_books_agree(&fixture, &id).await;
    assert_eq!(fixture.store.verify().await.unwrap(), vec![]);
}

#[tokio::test(start_paused = true)]
async fn what_a_batch_says_it_cost_is_what_its_calls_cost() {
    rows_that_fail_and_are_retried(TestRoute::Local).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_batch_says_it_cost_is_what_its_calls_cost_through_the_queue() {
    rows_that_fail_and_are_retried(TestRoute::Queue).await;
}

#[tokio::test]
async fn the_books_agree_after_workers_died_wherever_they_were() {
    workers_that_are_dropped(TestRoute::Local).await;
}

#[tokio::test]
async fn the_books_agree_after_workers_died_wherever_they_were_through_the_queue() {
    workers_that_are_dropped(TestRoute::Queue).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_names_its_row_batch_and_request() {
    let fixture = Fixture::by(TestRoute::Local, FakeProvider::always(FINE)).await;
    let id = fixture.start(&fixture.definition(), &[json!(1)]).await;
    fixture.work(fixture.handler()).await;
    let (unit, calls) = (fixture.only_unit(&id).await, fixture.calls(&id).await);
    let call = &calls[0].call;
    assert_eq!((call.unit, call.request_id.clone()), (Some(unit.id), format!("{}-1", unit.id)));
    assert!(call.session.is_some(), "if the session dies, the call becomes maybe billed");
    assert_eq!(calls[0].end.as_ref().unwrap().cost_picos, 150_000_000);
}

/// A provider that reports a lack of credit for the first question.
fn poor() -> std::sync::Arc<FakeProvider> {
    FakeProvider::new(|_, before| match before {
        0 => FakeReply::Error(AskError {
            retry: Retryability::AfterTopUp,
            provider_status: Some(429),
            ..AskError::new(Code::OverBudget, "credit exhausted")
        }),
        _ => FakeReply::Answer(answer(FINE)),
    })
}

async fn money(route: TestRoute) {
    let fixture = Fixture::by(route, poor()).await;
    let id = fixture.start(&fixture.definition(), &[json!(1)]).await;
    let parked = async {
        while fixture.only_unit(&id).await.state != UnitState::Scheduled {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    fixture.work_by(fixture.worker(1, fixture.handler()), parked).await;
    let unit = fixture.only_unit(&id).await;
    assert_eq!((unit.attempt, unit.failure), (0, None), "no attempt is used");
    let calls = fixture.calls(&id).await;
    assert_eq!(calls.len(), 1, "that it was refused is in the books");
    assert_eq!(calls[0].end.as_ref().unwrap().code.as_deref(), Some("OVER_BUDGET"));
    assert!(fixture.rows.statements().is_empty(), "POST has nothing to say yet");
}

#[tokio::test(start_paused = true)]
async fn a_row_whose_key_has_no_money_is_parked() {
    money(TestRoute::Local).await;
}

#[tokio::test(start_paused = true)]
async fn a_row_whose_key_has_no_money_is_parked_through_the_queue() {
    money(TestRoute::Queue).await;
}

/// A lack of credit, as a provider or our breaker reports it.
fn no_credit(status: Option<u16>, retry_after: Option<Duration>) -> FakeReply {
    let error = AskError::new(Code::OverBudget, "credit exhausted");
    let retry = Retryability::AfterTopUp;
    FakeReply::Error(AskError { retry, provider_status: status, retry_after, ..error })
}

/// The breaker may close at any time: an answer that was in flight shows that the key has credit.
#[tokio::test(start_paused = true)]
async fn a_row_that_waits_for_credit_looks_again_after_a_minute() {
    let provider = FakeProvider::new(|_, before| match before {
        0 => no_credit(Some(402), Some(Duration::from_secs(900))),
        _ => FakeReply::Answer(answer(FINE)),
    });
    let fixture = Fixture::by(TestRoute::Local, provider).await;
    let id = fixture.start(&fixture.definition(), &[json!(1)]).await;
    let parked = async {
        while fixture.only_unit(&id).await.state != UnitState::Scheduled {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    fixture.work_by(fixture.worker(1, fixture.handler()), parked).await;
    let unit = fixture.only_unit(&id).await;
    let wait = unit.since.since(unit.created_at);
    assert!((50..=61).contains(&wait.as_secs()), "{wait:?}");
}

#[tokio::test(start_paused = true)]
async fn a_row_whose_own_question_is_rejected_for_credit_without_a_code_ends() {
    let fixture = Fixture::by(TestRoute::Local, FakeProvider::new(|_, _| no_credit(Some(400), None))).await;
    let id = fixture.start(&fixture.definition(), &[json!(1)]).await;
    let waits = async || fixture.only_unit(&id).await.state == UnitState::Scheduled;
    for _ in 0..30 {
        let parked = async {
            while !waits().await && !fixture.only_unit(&id).await.state.is_final() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        fixture.work_by(fixture.worker(1, fixture.handler()), parked).await;
        let wake = (UnitSelection::Ids(vec![fixture.only_unit(&id).await.id]), UnitAction::Wake);
        fixture.store.apply_unit_action(&Scope::All, wake.0, wake.1).await.unwrap();
    }
    let unit = fixture.only_unit(&id).await;
    assert!(unit.state.is_final(), "{unit:?}");
    let asked = fixture.calls(&id).await.len();
    assert!((20..=25).contains(&asked), "{asked}");
}

/// Suspends or resumes the tenant of all rows, as `Inference` sees it.
async fn suspend(fixture: &Fixture, suspended: bool) {
    let change = TenantChange { suspended: Some(suspended), ..TenantChange::default() };
    fixture.store.put_tenant(&Scope::All, &TenantId::default(), change).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_row_whose_tenant_was_suspended_while_it_ran_waits_and_uses_no_attempt() {
    let fixture = Fixture::by(TestRoute::Local, FakeProvider::always(FINE)).await;
    let id = fixture.start(&fixture.definition(), &[json!(1)]).await;
    // As if the unit had been claimed just before: the store claims for the tenant, `Inference` still
    // rejects it.
    suspend(&fixture, true).await;
    fixture.inference().inference.profile(&TenantId::default(), None).await.unwrap_err();
    suspend(&fixture, false).await;
    let parked = async {
        while fixture.only_unit(&id).await.state != UnitState::Scheduled {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    fixture.work_by(fixture.worker(1, fixture.handler()), parked).await;
    let unit = fixture.only_unit(&id).await;
    assert_eq!((unit.attempt, unit.failure), (0, None));
    assert_eq!(fixture.provider.count(), 0, "no provider was asked");
    // The unit becomes due by the store's own clock.
    let wake = (UnitSelection::Ids(vec![unit.id]), UnitAction::Wake);
    fixture.store.apply_unit_action(&Scope::All, wake.0, wake.1).await.unwrap();
    fixture.inference().inference.clear_cache();
    fixture.work(fixture.handler()).await;
    assert_eq!(fixture.only_unit(&id).await.state, UnitState::Done);
}

#[tokio::test(start_paused = true)]
async fn a_profile_is_looked_up_on_each_use() {
    let fixture = Fixture::by(TestRoute::Local, FakeProvider::always(FINE)).await;
    fixture.start_as("b-1", &fixture.definition(), &[json!(1)]).await;
    fixture.work(fixture.handler()).await;
    fixture.inference().put(None, Some(true)).await;
    let second = fixture.start_as("b-2", &fixture.definition(), &[json!(2)]).await;
    fixture.work(fixture.handler()).await;
    assert_eq!(fixture.failure(&second).await.0, "profile-disabled");
    assert_eq!(fixture.provider.count(), 1, "no provider was asked");
    assert_eq!(fixture.calls(&second).await.len(), 1, "and the books say so");
}

#[tokio::test(start_paused = true)]
async fn a_written_profile_that_needs_the_network_is_asked_by_the_rows_worker() {
    let fixture = Fixture::by(TestRoute::Local, FakeProvider::always(FINE)).await;
    let mut definition = fixture.definition();
    support::ai(&mut definition).profile = Profile {
        model: "m".to_owned(),
        endpoint: Some("http://127.0.0.1:9".to_owned()),
        ..Profile::new("fake", ProviderName::Openai)
    }
    .into();
    let id = fixture.start(&definition, &[json!(1)]).await;
    fixture.work(fixture.handler()).await;
    assert_eq!(fixture.only_unit(&id).await.state, UnitState::Done);
    let calls = fixture.calls(&id).await;
    assert_eq!((calls.len(), calls[0].call.provider.as_str()), (1, "openai"));
}

#[tokio::test(start_paused = true)]
async fn without_a_desk_such_a_row_is_left_for_another_worker() {
    let fixture = Fixture::by(TestRoute::Local, FakeProvider::always(FINE)).await;
    let id = fixture.start(&fixture.definition(), &[json!(1)]).await;
    let left = async {
        while fixture.only_unit(&id).await.state != UnitState::Scheduled {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let without = RowHandler::builder(fixture.sources()).label("w");
    fixture.work_by(fixture.worker(1, without), left).await;
    let unit = fixture.only_unit(&id).await;
    assert_eq!((unit.attempt, unit.failure), (0, None), "no attempt is counted");
    assert_eq!(fixture.provider.count(), 0);
}
