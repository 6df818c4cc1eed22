//! PRE and POST by code, and the worker ids of rows.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use longshore::{SqlValue, UnitState};
use longshore_batch::definition::{Post, PostVerdict, Pre};
use longshore_batch::pre_post::{Apply, ApplyError, ApplyOutcome, Prepare, PrepareError, RowReply, RowRun};
use serde_json::json;
use tokio::sync::Barrier;

use super::fixture::{FakeProvider, Fixture, definition};
use crate::support;

struct FixedPrompt(&'static str);

#[async_trait]
impl Prepare for FixedPrompt {
    async fn prepare(&self, row: &RowRun<'_>) -> Result<String, PrepareError> {
        Ok(format!("{} {:?}", self.0, row.key))
    }
}

/// Records the worker ids of rows that run at the same time.
struct WorkerRecorder {
    workers: Arc<Mutex<Vec<String>>>,
    barrier: Barrier,
}

#[async_trait]
impl Apply for WorkerRecorder {
    async fn apply(&self, row: &RowRun<'_>, reply: &RowReply) -> Result<ApplyOutcome, ApplyError> {
        self.barrier.wait().await;
        self.workers.lock().unwrap().push(row.worker.to_owned());
        let verdict = if reply.error.is_none() { PostVerdict::Success } else { PostVerdict::Fail };
        Ok(ApplyOutcome { verdict, reason: None, after: None, effects: Vec::new() })
    }
}

#[tokio::test(start_paused = true)]
async fn rows_worked_on_together_have_workers_of_their_own_and_numbers_are_used_again() {
    let fixture = Fixture::in_memory(FakeProvider::always(r#"{"verdict": "fine"}"#));
    let mut definition = definition();
    definition.pre = Pre::Code("ask".to_owned());
    definition.post = Post::Code("together".to_owned());
    let keys: Vec<_> = (0..12).map(|key| json!(key)).collect();
    fixture.start(&definition, &keys).await;
    let workers: Arc<Mutex<Vec<String>>> = Arc::default();
    let together = WorkerRecorder { workers: Arc::clone(&workers), barrier: Barrier::new(4) };
    let handler = fixture.handler().prepare("ask", FixedPrompt("what of")).apply("together", together);
    assert_eq!(fixture.work(handler).await.done, 12);

    let workers = workers.lock().unwrap().clone();
    for group in workers.chunks(4) {
        assert_eq!(group.iter().collect::<BTreeSet<_>>().len(), 4, "{workers:?}");
    }
    let distinct: BTreeSet<_> = workers.iter().map(String::as_str).collect();
    assert_eq!(distinct, BTreeSet::from(["w-1", "w-2", "w-3", "w-4"]));
    let asked = fixture.provider.questions.lock().unwrap()[0].prompt.clone();
    assert!(asked.starts_with("what of Int("), "{asked}");
}

#[tokio::test(start_paused = true)]
async fn code_that_this_worker_lacks_is_left_for_another_that_has_it() {
    let fixture = Fixture::in_memory(FakeProvider::always(r#"{"verdict": "fine"}"#));
    let mut definition = definition();
    definition.pre = Pre::Code("ask".to_owned());
    let id = fixture.start(&definition, &[json!(1)]).await;
    tokio::select! {
        _ = fixture.work(fixture.handler()) => panic!("a row is left over"),
        () = tokio::time::sleep(std::time::Duration::from_secs(60)) => {}
    }
    fixture.reclaim_dead().await;
    assert_eq!(fixture.only_unit(&id).await.failure, None, "no attempt is counted");
    fixture.work(fixture.handler().prepare("ask", FixedPrompt("what of"))).await;
    let unit = fixture.only_unit(&id).await;
    assert_eq!((unit.state, unit.attempt), (longshore::UnitState::Done, 1), "no attempt was used");
}

#[tokio::test(start_paused = true)]
async fn everything_known_of_a_row_can_be_bound() {
    let words = r#"{"verdict": "fine", "status": "theirs", "notes": {"deep": [1, 2]}}"#;
    let fixture = Fixture::in_memory(FakeProvider::always(words));
    let mut definition = definition();
    support::ai(&mut definition).schema = None;
    let sql = "INSERT INTO log VALUES (:status, :error_code, :error_message, :worker_id, :batch_id, \
               :unit_id, :unit_key, :key, :attempt, :answer, :model, :tokens_in, :tokens_out, \
               :latency_ms, :cost_usd, :simulated, :verdict, :answer_status, :notes, :absent)";
    let post = longshore_batch::definition::SqlPost {
        always: vec![super::fixture::statement(sql)],
        ..Default::default()
    };
    definition.post = Post::Sql(post);
    let id = fixture.start(&definition, &[json!("k")]).await;
    fixture.work(fixture.handler()).await;
    let unit = fixture.only_unit(&id).await;
    assert_eq!(unit.state, UnitState::Done);
    let text = |text: &str| SqlValue::Text(text.to_owned());
    let expected = [
        ("status", text("success")),
        ("error_code", SqlValue::Null),
        ("error_message", SqlValue::Null),
        ("worker_id", text("w-1")),
        ("batch_id", text("b-1")),
        ("unit_id", text(&unit.id.to_string())),
        ("unit_key", text("k")),
        ("key", text("k")),
        ("attempt", SqlValue::Int(1)),
        ("answer", text(words)),
        ("model", text("fake-1")),
        ("tokens_in", SqlValue::Int(100)),
        ("tokens_out", SqlValue::Int(10)),
        ("latency_ms", SqlValue::Int(7)),
        ("cost_usd", SqlValue::Real(0.000_15)),
        ("simulated", SqlValue::Bool(true)),
        ("verdict", text("fine")),
        ("answer_status", text("theirs")),
        ("notes", text(r#"{"deep":[1,2]}"#)),
        ("absent", SqlValue::Null),
    ];
    for (name, value) in expected {
        assert_eq!(fixture.rows.bound(0, name), value, "{name}");
    }
}
