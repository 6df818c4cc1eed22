//! A row's run, on the memory store and paused time unless SQL must commit.

mod billing;
mod bound_database;
mod commands;
mod crashes;
mod effects;
pub(crate) mod fixture;
mod late_reads;
mod limits;
mod outages;
mod put_off;
mod replies;
mod row_steps;
mod steps;

use longshore::UnitState;
use longshore_batch::handler::RowResult;
use serde_json::json;

use self::fixture::{FakeProvider, Fixture, definition};

#[tokio::test(start_paused = true)]
async fn a_row_is_prepared_asked_kept_and_applied() {
    let fixture = Fixture::in_memory(FakeProvider::always(r#"{"verdict": "fine"}"#));
    let id = fixture.start(&definition(), &[json!(7)]).await;
    let report = fixture.work(fixture.handler()).await;
    assert_eq!((report.done, report.failed), (1, 0), "{:?}", fixture.only_unit(&id).await.failure);

    let asked = fixture.provider.questions.lock().unwrap().clone();
    assert_eq!(asked.len(), 1);
    assert_eq!((asked[0].prompt.as_str(), asked[0].max_tokens), ("7?", 50));
    assert!(asked[0].schema.is_some(), "providers that can, enforce it");
    assert_eq!(fixture.rows.statements(), ["INSERT INTO reviews VALUES (:key, :verdict)"]);
    assert_eq!(fixture.rows.bound(0, "verdict"), longshore::SqlValue::Text("fine".into()));

    let unit = fixture.only_unit(&id).await;
    assert_eq!(unit.state, UnitState::Done);
    let result: RowResult = unit.result.unwrap().parse().unwrap();
    assert_eq!((result.model.as_deref(), result.worker.as_str()), (Some("fake-1"), "w-1"));
    assert_eq!((result.tokens_in, result.tokens_out, result.simulated), (100, 10, true));
    assert!((result.cost_usd - 0.000_15).abs() < 1e-12, "{}", result.cost_usd);
}

#[tokio::test(start_paused = true)]
async fn what_answers_took_is_added_up_with_the_batch() {
    let fixture = Fixture::in_memory(FakeProvider::always(r#"{"verdict": "fine"}"#));
    let id = fixture.start(&definition(), &[json!(1), json!(2), json!("three")]).await;
    fixture.work(fixture.handler()).await;
    let sums = fixture.batch(&id).await.sums;
    let sum = |name: &str| sums.get(name).copied();
    assert_eq!([sum("answers"), sum("simulated")], [Some(3), Some(3)]);
    assert_eq!([sum("tokens_in"), sum("tokens_out")], [Some(300), Some(30)]);
    assert_eq!(sum("cost_picos"), Some(450_000_000));
    assert_eq!((sum("latency_ms_le_10"), sum("latency_ms_le_5")), (Some(3), None));
}

#[tokio::test(start_paused = true)]
async fn a_unit_without_a_batch_fails_and_says_so() {
    let fixture = Fixture::in_memory(FakeProvider::always("{}"));
    let unit = longshore::NewUnit::new(fixture::row_kind(), json!({ "key": 1 }));
    let id = fixture.client.send(unit).await.unwrap();
    fixture.work(fixture.handler()).await;
    let failure = fixture.unit(id).await.failure.unwrap();
    assert_eq!(failure.to_string(), "no-batch: the unit belongs to no batch");
}

#[tokio::test(start_paused = true)]
async fn a_batch_without_a_definition_fails_its_rows_and_asks_nothing() {
    let fixture = Fixture::in_memory(FakeProvider::always("{}"));
    let id = longshore::BatchId::new("bare").unwrap();
    let mut writer = fixture.client.open_batch(longshore::NewBatch::new(id.clone())).await.unwrap();
    let unit = longshore::NewUnit::new(fixture::row_kind(), json!({ "key": 1 }));
    writer.add(vec![unit], "all".to_owned()).await.unwrap();
    writer.seal().await.unwrap();
    fixture.work(fixture.handler()).await;
    let (code, words) = fixture.failure(&id).await;
    assert_eq!((code.as_str(), words.as_str()), ("no-definition", "batch `bare` has no definition"));
    assert_eq!(fixture.provider.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn one_handler_serves_every_batch_by_its_own_definition() {
    let fixture = Fixture::in_memory(FakeProvider::always(r#"{"verdict": "fine"}"#));
    let mut other = definition();
    if let longshore_batch::definition::Pre::Sql(pre) = &mut other.pre {
        "what of {{ id }}".clone_into(&mut pre.template);
    }
    fixture.start_as("b-1", &definition(), &[json!(1)]).await;
    fixture.start_as("b-2", &other, &[json!(2)]).await;
    assert_eq!(fixture.work(fixture.handler()).await.done, 2);
    let mut prompts: Vec<String> =
        fixture.provider.questions.lock().unwrap().iter().map(|asked| asked.prompt.clone()).collect();
    prompts.sort();
    assert_eq!(prompts, ["1?", "what of 2"]);
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_does_not_compile_fails_with_its_reason() {
    let fixture = Fixture::in_memory(FakeProvider::always("{}"));
    let mut broken = definition();
    broken.post = longshore_batch::definition::Post::Sql(longshore_batch::definition::SqlPost {
        success: vec![fixture::statement("UPDATE rows SET a = :verdikt")],
        ..fixture::post()
    });
    let id = fixture.start(&broken, &[json!(1)]).await;
    fixture.work(fixture.handler()).await;
    let (code, words) = fixture.failure(&id).await;
    assert_eq!(code, "bad-definition");
    assert!(words.contains(":verdikt"), "{words}");
}

#[tokio::test(start_paused = true)]
async fn a_definition_of_another_version_is_not_guessed_at() {
    let fixture = Fixture::in_memory(FakeProvider::always("{}"));
    let newer = longshore_batch::Definition { version: 2, ..definition() };
    let id = fixture.start(&newer, &[json!(1)]).await;
    fixture.work(fixture.handler()).await;
    let (code, words) = fixture.failure(&id).await;
    assert_eq!(code, "bad-definition");
    assert!(words.contains("version 2"), "{words}");
    assert_eq!(fixture.provider.count(), 0);
}
