//! Rows with several steps, on SQLite and PostgreSQL: each leaves its answer before the next begins.

use std::sync::Arc;
use std::time::Duration;

use longshore::batch::BatchAction;
use longshore::{Policy, Scope, Services, UnitState, Worker};
use longshore_ai::{AskError, Code, Provider};
use longshore_batch::RowHandler;
use longshore_batch::definition::{
    Database, Definition, Post, Pre, RowStepSpec, SqlPost, SqlPre, SqlStatement, StepAction, StepPrompt,
};
use longshore_batch::row_listing;
use serde_json::json;

use super::fixture::{FakeProvider, FakeReply, answer, definition, row_kind, statement};
use crate::ended_rows::databases::{SharedDatabase, on_each_database};

fn step(name: &str, action: StepAction) -> RowStepSpec {
    RowStepSpec { name: name.to_owned(), when: None, retry: None, action }
}

fn ask(name: &str, prompt: &str) -> RowStepSpec {
    let ai = definition().ai().unwrap().clone();
    let (template, template_name) = (prompt.to_owned(), format!("{name}.md"));
    step(name, StepAction::Ask(Box::new(StepPrompt { template, template_name, ai })))
}

fn log(name: &str, value: &str) -> RowStepSpec {
    let sql = format!("INSERT INTO log (line, step, value) VALUES (:key, '{name}', {value})");
    step(name, StepAction::Sql(vec![SqlStatement { rows: Some(1), ..statement(&sql) }]))
}

/// Reads the row, classifies it, notes the class, asks for details about the urgent ones, notes them.
fn stepped(steps: Vec<RowStepSpec>) -> Definition {
    let success =
        vec![statement("UPDATE rows SET seen = seen + 1, note = :classify_verdict WHERE id = :key")];
    let fail = vec![statement("UPDATE rows SET told = told + 1, code = :error_code WHERE id = :key")];
    Definition {
        database: Database::Store,
        pre: Pre::Sql(SqlPre {
            sql: "SELECT id FROM rows WHERE id = :key".to_owned(),
            lists: std::collections::BTreeMap::new(),
            template: "last {{ id }}: {{ classify.verdict }}, {{ past[0].n }}".to_owned(),
            template_name: "last.md".to_owned(),
        }),
        steps,
        post: Post::Sql(SqlPost { success, fail, ..SqlPost::default() }),
        ..definition()
    }
}

fn five_steps() -> Vec<RowStepSpec> {
    let details = RowStepSpec {
        when: Some("classify.verdict == 'urgent'".to_owned()),
        ..ask("details", "details of {{ id }}, which is {{ classify.verdict }}")
    };
    vec![
        step("past", StepAction::Query("SELECT count(*) AS n FROM log WHERE line = :key".to_owned())),
        ask("classify", "classify {{ id }} after {{ past[0].n }}"),
        log("noted", ":classify_verdict"),
        details,
        log("detailed", ":details_verdict"),
    ]
}

/// Rows with an even number are urgent.
fn provider() -> Arc<FakeProvider> {
    FakeProvider::new(|question, _| {
        let words: Vec<&str> = question.prompt.split([' ', ':', ',']).collect();
        let verdict = match words[0] {
            "classify" => {
                let id: i64 = words[1].parse().unwrap();
                if id % 2 == 0 { "urgent" } else { "calm" }
            }
            "details" => "because",
            _ => "final",
        };
        FakeReply::Answer(answer(&json!({ "verdict": verdict }).to_string()))
    })
}

fn worker(shared: &SharedDatabase, slots: u32) -> Worker {
    let provider = Arc::clone(&shared.fixture.provider) as Arc<dyn Provider>;
    let rows = RowHandler::builder(shared.sources()).label("w").provider("fake", provider).build();
    let worker = Worker::builder(Arc::clone(&shared.fixture.store)).slots(slots);
    worker
        .services(Services::All)
        .until_idle(true)
        .handle(row_kind(), Policy::default(), rows)
        .build()
        .unwrap()
}

on_each_database! {
    later_steps_see_the_answers_of_earlier_ones,
    steps_are_exactly_once_whatever_dies,
    a_failed_step_is_named_and_not_repeated_from_the_start,
    statements_of_a_step_that_the_database_rejects_fail_the_row,
}

async fn later_steps_see_the_answers_of_earlier_ones(shared: SharedDatabase) {
    let shared = shared.with_provider(provider());
    let id = shared.fixture.start(&stepped(five_steps()), &[json!(1), json!(2)]).await;
    worker(&shared, 1).run().await.unwrap();
    let batch = shared.fixture.batch(&id).await;
    assert_eq!(batch.counts.done, 2, "{batch:?}");
    let questions = shared.fixture.provider.questions.lock().unwrap().clone();
    let mut asked: Vec<String> = questions.iter().map(|asked| asked.prompt.clone()).collect();
    asked.sort();
    let expected = [
        "classify 1 after 0",
        "classify 2 after 0",
        "details of 2, which is urgent",
        "last 1: calm, 0",
        "last 2: urgent, 0",
    ];
    assert_eq!(asked, expected);
    assert_eq!(shared.number("SELECT count(*) FROM log WHERE step = 'detailed' AND value IS NULL"), 1);
    assert_eq!(shared.number("SELECT count(*) FROM log WHERE step = 'noted' AND value = 'urgent'"), 1);
    assert_eq!(shared.number("SELECT count(*) FROM rows WHERE note = 'calm' AND id = 1"), 1);
    assert_eq!((batch.sums["answers"], batch.sums["tokens_in"]), (5, 500), "every step is counted");
    let unit = row_listing::rows(
        &*shared.fixture.store,
        &Scope::All,
        &id,
        &row_listing::RowFilter::default(),
        None,
        9,
    )
    .await
    .unwrap();
    let tokens: Vec<u64> =
        unit.items.iter().map(|row| row.result.as_ref().unwrap()["tokens_in"].as_u64().unwrap()).collect();
    assert_eq!(tokens.iter().sum::<u64>(), 500);
}

async fn steps_are_exactly_once_whatever_dies(shared: SharedDatabase) {
    let shared = shared.with_provider(provider());
    let rows = shared.rows() as u64;
    let keys: Vec<_> = (1..=rows).map(|key| json!(key)).collect();
    let id = shared.fixture.start(&stepped(five_steps()), &keys).await;
    for round in 0..6 {
        let some = async {
            // Each row has two questions or three.
            let enough = i64::try_from((round + 1) * rows / 3).unwrap();
            while shared.fixture.batch(&id).await.sums.get("answers").is_none_or(|answers| *answers < enough)
            {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::select! {
            _ = worker(&shared, 6).run() => break,
            () = some => {}
        }
        shared.fixture.reclaim_dead().await;
    }
    worker(&shared, 6).run().await.unwrap();
    assert_eq!(shared.fixture.batch(&id).await.counts.done, rows);
    assert_eq!(shared.number("SELECT count(*) FROM rows WHERE seen = 1"), i64::try_from(rows).unwrap());
    assert_eq!(
        shared.number(
            "SELECT count(*) FROM (SELECT line, step FROM log GROUP BY line, step
        HAVING count(*) > 1) more"
        ),
        0,
        "the statements of each step once"
    );
    assert_eq!(shared.number("SELECT count(*) FROM log"), i64::try_from(2 * rows).unwrap());
    let sums = shared.fixture.batch(&id).await.sums;
    // Received answers are kept: as many as rows have questions.
    assert_eq!(sums["answers"], i64::try_from(2 * rows + rows / 2).unwrap());
}

async fn a_failed_step_is_named_and_not_repeated_from_the_start(shared: SharedDatabase) {
    let broken = AskError::new(Code::ProviderError, "500");
    let provider = FakeProvider::new(move |question, _| match question.prompt.starts_with("details") {
        true => FakeReply::Error(broken.clone()),
        false => FakeReply::Answer(answer(r#"{"verdict": "urgent"}"#)),
    });
    let shared = shared.with_provider(provider);
    let id = shared.fixture.start(&stepped(five_steps()), &[json!(2)]).await;
    worker(&shared, 1).run().await.unwrap();
    let unit = shared.fixture.only_unit(&id).await;
    let failure = unit.failure.clone().unwrap();
    assert_eq!((unit.state, failure.code.as_str()), (UnitState::Failed, "provider-error"));
    assert!(failure.message.contains("step `details`"), "{failure}");
    let asked = |word: &str| {
        let questions = shared.fixture.provider.questions.lock().unwrap();
        questions.iter().filter(|asked| asked.prompt.starts_with(word)).count()
    };
    assert_eq!((asked("classify"), asked("details"), asked("last")), (1, 3, 0), "three attempts of the step");
    assert_eq!(shared.number("SELECT count(*) FROM log"), 1, "the step before it is not run again");
    assert_eq!(shared.number("SELECT told FROM rows WHERE id = 2 AND code = 'PROVIDER_ERROR'"), 1);
    let row = row_listing::rows(
        &*shared.fixture.store,
        &Scope::All,
        &id,
        &row_listing::RowFilter::default(),
        None,
        9,
    )
    .await
    .unwrap();
    assert_eq!(row.items[0].step.as_deref(), Some("details"));
    shared.fixture.store.apply_batch_action(&Scope::All, &id, BatchAction::RetryFailed).await.unwrap();
    worker(&shared, 1).run().await.unwrap();
    assert_eq!(shared.fixture.failure(&id).await.0, "provider-error");
    assert_eq!(
        (asked("classify"), asked("details")),
        (1, 6),
        "an operator's retry gives the step its attempts again"
    );
}

async fn statements_of_a_step_that_the_database_rejects_fail_the_row(shared: SharedDatabase) {
    let shared = shared.with_provider(provider());
    let sql = "UPDATE rows SET seen = 9 WHERE id = -1";
    let none = step("none", StepAction::Sql(vec![SqlStatement { rows: Some(1), ..statement(sql) }]));
    let steps = vec![
        step("past", StepAction::Query("SELECT 1 AS n".to_owned())),
        ask("classify", "classify {{ id }}"),
        none,
    ];
    let id = shared.fixture.start(&stepped(steps), &[json!(1)]).await;
    worker(&shared, 1).run().await.unwrap();
    let (code, words) = shared.fixture.failure(&id).await;
    assert_eq!(code, "effect-rows");
    assert!(words.contains("step `none`"), "{words}");
    assert_eq!(shared.fixture.provider.count(), 1, "the answer is kept");
    assert_eq!(shared.number("SELECT told FROM rows WHERE id = 1 AND code = 'EFFECT_ROWS'"), 1);
}
