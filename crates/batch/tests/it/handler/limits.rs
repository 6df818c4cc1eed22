//! A batch's own limits: its budget and its longest prompt; and the answers that it keeps.

use std::time::Duration;

use longshore::batch::BatchAction;
use longshore::{BatchId, BatchStatus, Scope, UnitState};
use longshore_ai::Cost;
use longshore_batch::row_listing::{RowFilter, rows};
use serde_json::{Value, json};

use super::fixture::{FakeProvider, Fixture, TestRoute, definition, on_each_route};
use crate::support;

const FINE: &str = r#"{"verdict": "fine"}"#;

/// What an answer of the fake provider costs.
const PER_ANSWER: i64 = 150_000_000;

/// Runs a worker until the batch is paused.
async fn work_until_paused(fixture: &Fixture, id: &BatchId) {
    let paused = async {
        while fixture.batch(id).await.status != BatchStatus::Paused {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    fixture.work_by(fixture.worker(4, fixture.handler()), paused).await;
}

async fn a_batch_is_paused_before_it_costs_more_than_its_budget(route: TestRoute) {
    let fixture = Fixture::by(route, FakeProvider::always(FINE)).await;
    let mut definition = fixture.definition();
    support::ai(&mut definition).budget = Some(Cost(10 * PER_ANSWER));
    let keys: Vec<Value> = (1..=40).map(|key| json!(key)).collect();
    let id = fixture.start(&definition, &keys).await;
    work_until_paused(&fixture, &id).await;
    let batch = fixture.batch(&id).await;
    let reason = batch.reason.clone().unwrap_or_default();
    assert_eq!(batch.status, BatchStatus::Paused, "{reason}");
    assert!(reason.contains("the budget of $0.0015 is reached: $0.00"), "{reason}");
    // Four rows run at once.
    assert!((6..=10).contains(&batch.sums["answers"]), "{:?}", batch.sums);
    assert_eq!(batch.counts.failed, 0);

    let before = fixture.provider.count();
    fixture.store.apply_batch_action(&Scope::All, &id, BatchAction::Resume).await.unwrap();
    work_until_paused(&fixture, &id).await;
    assert!(fixture.batch(&id).await.sums["cost_picos"] <= 10 * PER_ANSWER);
    assert!(fixture.provider.count() - before <= 3, "a resumed batch does not spend more than its budget");
    assert_eq!(fixture.batch(&id).await.status, BatchStatus::Paused);
}

on_each_route! {
    a_batch_is_paused_before_it_costs_more_than_its_budget,
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_is_too_long_fails_its_row_before_anything_is_asked() {
    let fixture = Fixture::in_memory(FakeProvider::always(FINE));
    let mut definition = definition();
    support::ai(&mut definition).max_prompt = 2;
    let id = fixture.start(&definition, &[json!(7), json!(77)]).await;
    fixture.work(fixture.handler()).await;
    let batch = fixture.batch(&id).await;
    assert_eq!((batch.counts.done, batch.counts.failed, fixture.provider.count()), (1, 1, 1));
    let failed = RowFilter { codes: vec!["PROMPT-TOO-LONG".into()], ..RowFilter::default() };
    let failed = rows(&*fixture.store, &Scope::All, &id, &failed, None, 9).await.unwrap().items;
    assert_eq!(failed.len(), 1);
    let why = failed[0].reason.as_deref().unwrap();
    assert_eq!((&failed[0].key, why), (&json!(77), "the prompt has 3 B, `ai.max_prompt` is 2 B"));
}

#[tokio::test(start_paused = true)]
async fn the_answer_of_a_row_that_is_done_is_kept_if_the_batch_says_so_and_a_long_one_is_cut() {
    let long = format!(r#"{{"verdict": "fine", "notes": "{}"}}"#, "é".repeat(20_000)).leak();
    for (answer, keep_answers) in [(FINE, true), (FINE, false), (&*long, true)] {
        let fixture = Fixture::in_memory(FakeProvider::always(answer));
        let mut definition = definition();
        support::ai(&mut definition).keep_answers = keep_answers;
        let id = fixture.start(&definition, &[json!(1)]).await;
        fixture.work(fixture.handler()).await;
        let done = RowFilter::in_state(Some(UnitState::Done));
        let row = rows(&*fixture.store, &Scope::All, &id, &done, None, 9).await.unwrap().items.remove(0);
        match (keep_answers, answer == FINE) {
            (false, _) => assert_eq!((row.answer, &row.result.unwrap()["answer"]), (None, &Value::Null)),
            (true, true) => assert_eq!(row.answer.as_deref(), Some(FINE)),
            (true, false) => {
                let kept = row.answer.unwrap();
                assert!(
                    answer.starts_with(kept.trim_end_matches('…'))
                        && kept.len() <= 16 * 1024 + '…'.len_utf8(),
                    "{}",
                    kept.len()
                );
            }
        }
    }
}
