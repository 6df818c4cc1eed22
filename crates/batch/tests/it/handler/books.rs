//! What rows owe: every call is in the books once, and the books say what the batch says.

use std::time::Duration;

use longshore::ledger::{Call, CallStatus};
use longshore::store::{TenantChange, UnitAction, UnitSelection};
use longshore::{BatchId, Scope, TenantId, UnitState};
use longshore_ai::{Again, AskError, Code, Profile, ProviderName};
use longshore_batch::RowHandler;
use longshore_batch::definition::{Definition, Post, Rule, SqlPost, Verdict};
use serde_json::{Value, json};

use super::rig::{FakeProvider, Rig, Said, Way, answer, post};

const FINE: &str = r#"{"verdict": "fine"}"#;

/// Answers, refusals, failures and doubts, by how many questions came before.
fn moody() -> std::sync::Arc<FakeProvider> {
    FakeProvider::new(|_, before| match before % 7 {
        1 => Said::Answer(answer(r#"{"verdict": "unsure"}"#)),
        3 => Said::Error(AskError::new(Code::RateLimited, "slow down")),
        4 => Said::Error(AskError::new(Code::InvalidRequest, "what?")),
        5 => Said::Answer(answer("no JSON at all")),
        _ => Said::Answer(answer(FINE)),
    })
}

/// Rows that are asked again when the answer is in doubt.
fn doubtful(rig: &Rig) -> Definition {
    let rule = Rule {
        when: "answer.verdict == 'unsure'".to_owned(),
        then: Verdict::Retry,
        reason: None,
        after: Some(Duration::ZERO),
    };
    let post = Post::Sql(SqlPost { rules: vec![rule], ..post() });
    Definition { post, ..rig.definition() }
}

fn keys(count: i64) -> Vec<Value> {
    (1..=count).map(|key| json!(key)).collect()
}

fn answered(calls: &[Call]) -> Vec<&Call> {
    calls.iter().filter(|call| call.status == CallStatus::Success).collect()
}

/// What was answered came to, in the words of a batch's sums.
async fn assert_books_agree(rig: &Rig, id: &BatchId) {
    let (sums, calls) = (rig.batch(id).await.sums, rig.calls(id).await);
    let ends: Vec<_> = answered(&calls).iter().map(|call| call.end.clone().unwrap()).collect();
    let sum = |name: &str| sums.get(name).copied().unwrap_or_default();
    assert_eq!(sum("answers"), ends.len() as i64, "{calls:#?}");
    assert_eq!(sum("cost_picos"), ends.iter().map(|end| end.cost_picos).sum::<i64>());
    assert_eq!(sum("tokens_in"), ends.iter().map(|end| end.tokens_in as i64).sum::<i64>());
    assert_eq!(sum("tokens_out"), ends.iter().map(|end| end.tokens_out as i64).sum::<i64>());
    assert!(calls.iter().all(|call| call.status != CallStatus::Open), "{calls:#?}");
}

async fn rows_that_fail_and_are_retried(way: Way) {
    let rig = Rig::by(way, moody()).await;
    let id = rig.start(&doubtful(&rig), &keys(40)).await;
    rig.work(rig.handler()).await;
    let counts = rig.batch(&id).await.counts;
    assert!(counts.failed > 0 && counts.done > 0, "{counts:?}");
    assert_eq!(counts.finished(), 40);
    assert_books_agree(&rig, &id).await;
    let calls = rig.calls(&id).await;
    let errors = calls.iter().filter(|call| call.status == CallStatus::Error).count();
    assert!(errors >= usize::try_from(counts.failed).unwrap() / 2, "those of errors are there too");
}

async fn workers_that_are_dropped(way: Way) {
    let rig = Rig::by(way, moody()).await;
    let id = rig.start(&doubtful(&rig), &keys(60)).await;
    // Workers die one after the other, each wherever it happens to be.
    for round in 0..5 {
        let some = async {
            while rig.batch(&id).await.counts.finished() < 5 * (round + 1) {
                tokio::task::yield_now().await;
            }
        };
        rig.work_by(rig.worker(8, rig.handler()), some).await;
    }
    rig.work(rig.handler()).await;
    assert_eq!(rig.batch(&id).await.counts.finished(), 60);
    rig.bury().await;
    assert_books_agree(&rig, &id).await;
    assert_eq!(rig.store.verify().await.unwrap(), vec![]);
}

#[tokio::test(start_paused = true)]
async fn what_a_batch_says_it_cost_is_what_its_calls_cost() {
    rows_that_fail_and_are_retried(Way::Desk).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_batch_says_it_cost_is_what_its_calls_cost_through_the_queue() {
    rows_that_fail_and_are_retried(Way::Queue).await;
}

#[tokio::test]
async fn the_books_agree_after_workers_died_wherever_they_were() {
    workers_that_are_dropped(Way::Desk).await;
}

#[tokio::test]
async fn the_books_agree_after_workers_died_wherever_they_were_through_the_queue() {
    workers_that_are_dropped(Way::Queue).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_names_its_row_batch_and_request() {
    let rig = Rig::by(Way::Desk, FakeProvider::saying(FINE)).await;
    let id = rig.start(&rig.definition(), &[json!(1)]).await;
    rig.work(rig.handler()).await;
    let (unit, calls) = (rig.only_unit(&id).await, rig.calls(&id).await);
    let call = &calls[0].call;
    assert_eq!((call.unit, call.request_id.clone()), (Some(unit.id), format!("{}-1", unit.id)));
    assert!(call.session.is_some(), "whoever dies leaves it as maybe billed");
    assert_eq!(calls[0].end.as_ref().unwrap().cost_picos, 150_000_000);
}

/// A key without money, for the first question.
fn poor() -> std::sync::Arc<FakeProvider> {
    FakeProvider::new(|_, before| match before {
        0 => Said::Error(AskError {
            again: Again::Money,
            provider_status: Some(429),
            ..AskError::new(Code::OverBudget, "credit exhausted")
        }),
        _ => Said::Answer(answer(FINE)),
    })
}

async fn money(way: Way) {
    let rig = Rig::by(way, poor()).await;
    let id = rig.start(&rig.definition(), &[json!(1)]).await;
    let parked = async {
        while rig.only_unit(&id).await.state != UnitState::Scheduled {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    rig.work_by(rig.worker(1, rig.handler()), parked).await;
    let unit = rig.only_unit(&id).await;
    assert_eq!((unit.attempt, unit.failure), (0, None), "no attempt is used");
    let calls = rig.calls(&id).await;
    assert_eq!(calls.len(), 1, "that it was refused is in the books");
    assert_eq!(calls[0].end.as_ref().unwrap().code.as_deref(), Some("OVER_BUDGET"));
    assert!(rig.rows.statements().is_empty(), "POST has nothing to say yet");
}

#[tokio::test(start_paused = true)]
async fn a_row_whose_key_has_no_money_is_parked() {
    money(Way::Desk).await;
}

#[tokio::test(start_paused = true)]
async fn a_row_whose_key_has_no_money_is_parked_through_the_queue() {
    money(Way::Queue).await;
}

/// Suspends the tenant of all rows, as the desk sees it, or lets it go on.
async fn suspend(rig: &Rig, suspended: bool) {
    let change = TenantChange { suspended: Some(suspended), ..TenantChange::default() };
    rig.store.put_tenant(&Scope::All, &TenantId::default(), change).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_row_whose_tenant_was_suspended_while_it_ran_waits_and_uses_no_attempt() {
    let rig = Rig::by(Way::Desk, FakeProvider::saying(FINE)).await;
    let id = rig.start(&rig.definition(), &[json!(1)]).await;
    // As if it had been claimed just before: the store claims for it, the desk still refuses.
    suspend(&rig, true).await;
    rig.office().desk.profile(&TenantId::default(), None).await.unwrap_err();
    suspend(&rig, false).await;
    let parked = async {
        while rig.only_unit(&id).await.state != UnitState::Scheduled {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    rig.work_by(rig.worker(1, rig.handler()), parked).await;
    let unit = rig.only_unit(&id).await;
    assert_eq!((unit.attempt, unit.failure), (0, None));
    assert_eq!(rig.provider.count(), 0, "nobody was asked");
    // Its time comes by the store's own clock.
    let wake = (UnitSelection::Ids(vec![unit.id]), UnitAction::Wake);
    rig.store.operate_units(&Scope::All, wake.0, wake.1).await.unwrap();
    rig.office().desk.clear();
    rig.work(rig.handler()).await;
    assert_eq!(rig.only_unit(&id).await.state, UnitState::Done);
}

#[tokio::test(start_paused = true)]
async fn a_profile_is_looked_up_on_each_use() {
    let rig = Rig::by(Way::Desk, FakeProvider::saying(FINE)).await;
    rig.start_as("b-1", &rig.definition(), &[json!(1)]).await;
    rig.work(rig.handler()).await;
    rig.office().put(None, Some(true)).await;
    let second = rig.start_as("b-2", &rig.definition(), &[json!(2)]).await;
    rig.work(rig.handler()).await;
    assert_eq!(rig.failure(&second).await.0, "profile-disabled");
    assert_eq!(rig.provider.count(), 1, "nobody was asked");
    assert_eq!(rig.calls(&second).await.len(), 1, "and the books say so");
}

#[tokio::test(start_paused = true)]
async fn a_written_profile_that_needs_the_network_is_asked_at_the_desk() {
    let rig = Rig::by(Way::Desk, FakeProvider::saying(FINE)).await;
    let mut definition = rig.definition();
    definition.ai.profile = Profile {
        model: "m".to_owned(),
        endpoint: Some("http://127.0.0.1:9".to_owned()),
        ..Profile::new("fake", ProviderName::Openai)
    }
    .into();
    let id = rig.start(&definition, &[json!(1)]).await;
    rig.work(rig.handler()).await;
    assert_eq!(rig.only_unit(&id).await.state, UnitState::Done);
    let calls = rig.calls(&id).await;
    assert_eq!((calls.len(), calls[0].call.provider.as_str()), (1, "openai"));
}

#[tokio::test(start_paused = true)]
async fn without_a_desk_such_a_row_is_left_for_another_worker() {
    let rig = Rig::by(Way::Desk, FakeProvider::saying(FINE)).await;
    let id = rig.start(&rig.definition(), &[json!(1)]).await;
    let left = async {
        while rig.only_unit(&id).await.state != UnitState::Scheduled {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let without = RowHandler::builder(rig.sources()).label("w");
    rig.work_by(rig.worker(1, without), left).await;
    let unit = rig.only_unit(&id).await;
    assert_eq!((unit.attempt, unit.failure), (0, None), "nobody is to blame");
    assert_eq!(rig.provider.count(), 0);
}
