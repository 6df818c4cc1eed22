//! Completion actions of batches.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use longshore::batch::BatchAction;
use longshore::store::UnitFilter;
use longshore::{Kind, Policy, RetryPolicy, Scope, Services, SqlValue, UnitState, Worker};
use longshore_ai::Provider;
use longshore_batch::check::COMPLETION_PARAMETERS;
use longshore_batch::completion::{ActionError, ActionRunner, run_action};
use longshore_batch::definition::{Action, COMPLETION_KIND, Database, Definition, Post, SqlPost};
use longshore_batch::rows::Sources;
use longshore_batch::{CompletionHandler, RowHandler};
use longshore_sqlite::rusqlite::Connection;
use longshore_sqlite::{SqliteOptions, SqliteStore};
use longshore_testkit::{Fault, FaultyStore};
use serde_json::{Value, json};

use crate::handler::fixture::{FakeProvider, FakeReply, Fixture, answer, definition, row_kind, statement};

/// Records its calls, and fails the given number of times.
#[derive(Default)]
struct RecordingActions {
    facts: Mutex<Vec<Value>>,
    refusals: Mutex<Vec<ActionError>>,
}

#[async_trait]
impl ActionRunner for RecordingActions {
    async fn run(&self, _action: &Action, facts: &Value) -> Result<(), ActionError> {
        self.facts.lock().unwrap().push(facts.clone());
        self.refusals.lock().unwrap().pop().map_or(Ok(()), Err)
    }
}

fn command() -> Option<Action> {
    Some(Action::Command(vec!["./notify.sh".to_owned()]))
}

/// Runs rows and completions until all are done.
async fn work(fixture: &Fixture, sources: Arc<Sources>, act: Arc<RecordingActions>) {
    let provider = Arc::clone(&fixture.provider) as Arc<dyn Provider>;
    let rows = RowHandler::builder(Arc::clone(&sources)).provider("fake", provider).build();
    let quick = RetryPolicy { base: Duration::from_millis(1), ..RetryPolicy::default() };
    let worker = Worker::builder(Arc::clone(&fixture.store))
        .slots(4)
        .heartbeat(longshore::HeartbeatPlacement::Task)
        .services(Services::All)
        .until_idle(true)
        .handle(row_kind(), Policy::default(), rows)
        .handle(
            Kind::new(COMPLETION_KIND).unwrap(),
            Policy { retry: quick, ..Policy::default() },
            CompletionHandler::new(sources, act).with_pages(Some("https://longshore.example".to_owned())),
        );
    worker.build().unwrap().run().await.unwrap();
}

/// The states of the completion units and the codes of their failures.
async fn ends(fixture: &Fixture) -> Vec<(UnitState, Option<String>)> {
    let kind = Some(Kind::new(COMPLETION_KIND).unwrap());
    let filter = UnitFilter { kind, ..UnitFilter::default() };
    let page = fixture.store.units(&Scope::All, &filter, None, 10).await.unwrap();
    let ends = page.items.into_iter();
    ends.map(|unit| (unit.state, unit.failure.map(|failure| failure.code))).collect()
}

/// Three rows, one of which fails.
fn two_of_three() -> Arc<FakeProvider> {
    FakeProvider::new(|question, _| {
        let good = question.prompt != "2?";
        FakeReply::Answer(answer(if good { r#"{"verdict": "fine"}"# } else { "gibberish" }))
    })
}

#[tokio::test(start_paused = true)]
async fn the_end_is_announced_once_per_generation_with_its_facts() {
    let fixture = Fixture::in_memory(two_of_three());
    let definition = Definition { completion: command(), ..definition() };
    let id = fixture.start(&definition, &[json!(1), json!(2), json!(3)]).await;
    let act = Arc::new(RecordingActions::default());
    work(&fixture, fixture.sources(), Arc::clone(&act)).await;
    let facts = act.facts.lock().unwrap().clone();
    assert_eq!(facts.len(), 1);
    let expected = json!({
        "batch": "b-1", "type": "review", "tenant": "default", "status": "complete",
        "generation": 1, "total": 3, "done": 2, "failed": 1, "cancelled": 0, "reason": null,
        "cost_usd": 0.000_45, "simulated": true, "seconds": facts[0]["seconds"],
        "link": "https://longshore.example/batches/b-1",
        "failures": [{
            "code": "bad-answer", "count": 1, "examples": ["2"], "message": facts[0]["failures"][0]["message"],
        }],
    });
    assert_eq!(facts[0], expected);
    assert!(facts[0]["seconds"].is_number());

    fixture.store.apply_batch_action(&Scope::All, &id, BatchAction::RetryFailed).await.unwrap();
    work(&fixture, fixture.sources(), Arc::clone(&act)).await;
    let facts = act.facts.lock().unwrap().clone();
    assert_eq!((facts.len(), &facts[1]["generation"]), (2, &json!(2)));
}

#[tokio::test(start_paused = true)]
async fn an_announcement_that_did_not_get_through_is_tried_again() {
    let fixture = Fixture::in_memory(two_of_three());
    let definition = Definition { completion: command(), ..definition() };
    fixture.start(&definition, &[json!(1)]).await;
    let act = Arc::new(RecordingActions::default());
    let busy = ActionError { message: "503".to_owned(), retryable: true };
    act.refusals.lock().unwrap().push(busy);
    work(&fixture, fixture.sources(), Arc::clone(&act)).await;
    assert_eq!(act.facts.lock().unwrap().len(), 2);
    assert_eq!(ends(&fixture).await[0].0, UnitState::Done);
}

#[tokio::test(start_paused = true)]
async fn an_announcement_waits_for_the_store_without_an_attempt() {
    let mut fixture = Fixture::in_memory(two_of_three());
    fixture.start(&Definition { completion: command(), ..definition() }, &[json!(1)]).await;
    let store = FaultyStore::new(Arc::clone(&fixture.store));
    let mut left = 12;
    store.set_fault_source(Some(Box::new(move |method| {
        let fails = method == "batch" && left > 0;
        left -= u32::from(fails);
        fails.then_some(Fault::FailBefore)
    })));
    fixture.store = Arc::new(store);
    let act = Arc::new(RecordingActions::default());
    work(&fixture, fixture.sources(), Arc::clone(&act)).await;
    assert_eq!(ends(&fixture).await, [(UnitState::Done, None)]);
    assert_eq!(act.facts.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_announcement_that_cannot_work_fails_and_says_so() {
    let fixture = Fixture::in_memory(two_of_three());
    let definition = Definition { completion: command(), ..definition() };
    fixture.start(&definition, &[json!(1)]).await;
    let act = Arc::new(RecordingActions::default());
    let missing = ActionError { message: "no such file".to_owned(), retryable: false };
    act.refusals.lock().unwrap().push(missing);
    work(&fixture, fixture.sources(), Arc::clone(&act)).await;
    assert_eq!(act.facts.lock().unwrap().len(), 1);
    assert_eq!(ends(&fixture).await, [(UnitState::Failed, Some("completion".to_owned()))]);
}

#[tokio::test(start_paused = true)]
async fn sql_elsewhere_is_run_with_the_facts_bound() {
    let fixture = Fixture::in_memory(two_of_three());
    let sql = "INSERT INTO ends VALUES (:batch_id, :status, :done, :failed)";
    let completion = Some(Action::Sql(vec![statement(sql)]));
    fixture.start(&Definition { completion, ..definition() }, &[json!(2)]).await;
    let act = Arc::new(RecordingActions::default());
    work(&fixture, fixture.sources(), Arc::clone(&act)).await;
    assert!(act.facts.lock().unwrap().is_empty(), "SQL is not its business");
    let at = fixture.rows.statements().iter().position(|done| done == sql).unwrap();
    assert_eq!(fixture.rows.bound(at, "batch_id"), SqlValue::Text("b-1".to_owned()));
    assert_eq!(fixture.rows.bound(at, "status"), SqlValue::Text("complete".to_owned()));
    let tally = ["done", "failed"].map(|name| fixture.rows.bound(at, name));
    assert_eq!(tally, [SqlValue::Int(0), SqlValue::Int(1)]);
}

#[tokio::test]
async fn sql_in_the_stores_database_commits_with_the_announcement() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
    let db = Connection::open(&path).unwrap();
    db.execute_batch("CREATE TABLE ends (batch, generation, total); CREATE TABLE rows (id)").unwrap();
    db.execute_batch("INSERT INTO rows VALUES (1), (3)").unwrap();
    let fixture = Fixture::new(Arc::new(store), two_of_three());
    let sql = "INSERT INTO ends VALUES (:batch_id, :generation, :total)";
    let definition = Definition {
        completion: Some(Action::Sql(vec![statement(sql)])),
        database: Database::Store,
        post: Post::Sql(SqlPost::default()),
        ..definition()
    };
    fixture.start(&definition, &[json!(1), json!(3)]).await;
    let sources = Arc::new(Sources::new(Some(format!("sqlite:{}", path.display())), |_| None));
    work(&fixture, sources, Arc::default()).await;
    let row = |row: &longshore_sqlite::rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let end: (String, u32, u64) = db.query_row("SELECT * FROM ends", [], row).unwrap();
    assert_eq!(end, ("b-1".to_owned(), 1, 2));
}

#[tokio::test(start_paused = true)]
async fn every_name_that_a_check_accepts_has_a_value() {
    let fixture = Fixture::in_memory(two_of_three());
    let names = COMPLETION_PARAMETERS.map(|name| format!(":{name}")).join(", ");
    let completion = Some(Action::Sql(vec![statement(&format!("INSERT INTO ends VALUES ({names})"))]));
    fixture.start(&Definition { completion, ..definition() }, &[json!(2)]).await;
    work(&fixture, fixture.sources(), Arc::default()).await;
    assert_eq!(ends(&fixture).await, [(UnitState::Done, None)]);
}

#[tokio::test(start_paused = true)]
async fn sql_with_a_name_that_nobody_knows_fails_and_names_it() {
    let fixture = Fixture::in_memory(two_of_three());
    let action = Action::Sql(vec![statement("INSERT INTO ends VALUES (:bach)")]);
    let (facts, sources, act) = (json!({ "batch": "b" }), fixture.sources(), RecordingActions::default());
    let done = run_action(&action, &facts, &definition(), &sources, &act).await;
    let error = done.unwrap_err();
    assert!(error.message.contains("`:bach`") && !error.retryable, "{error}");
    assert!(fixture.rows.statements().is_empty());
}

#[tokio::test(start_paused = true)]
async fn nobody_announces_the_end_of_anothers_batch_or_one_that_has_not_come() {
    use longshore::{NewUnit, QueueName, TenantId};
    use longshore_batch::definition::QUEUE;
    let fixture = Fixture::in_memory(two_of_three());
    let id = fixture.start(&Definition { completion: command(), ..definition() }, &[json!(1)]).await;
    let noted = Arc::new(RecordingActions::default());
    let forged = |tenant: &str| {
        let payload = json!({"batch": id, "status": "complete", "generation": 7, "counts":
            {"blocked": 0, "scheduled": 0, "ready": 0, "leased": 0, "done": 999, "failed": 0,
             "cancelled": 0}});
        NewUnit {
            tenant: TenantId::new(tenant).unwrap(),
            queue: QueueName::new(QUEUE).unwrap(),
            ..NewUnit::new(Kind::new(COMPLETION_KIND).unwrap(), payload)
        }
    };
    let own = fixture.batch(&id).await.tenant.to_string();
    fixture.store.send(&Scope::All, vec![forged("evil"), forged(&own)]).await.unwrap();
    work(&fixture, fixture.sources(), Arc::clone(&noted)).await;
    let codes: Vec<_> = ends(&fixture).await.into_iter().filter_map(|(_, code)| code).collect();
    assert_eq!(codes.len(), 2, "{codes:?}");
    let facts = noted.facts.lock().unwrap();
    assert_eq!(facts.len(), 1, "only the true end: {facts:?}");
    assert_eq!(facts[0]["generation"], 1);
}
