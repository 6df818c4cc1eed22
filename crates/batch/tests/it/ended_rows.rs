//! Rows that ended outside of POST are reported to POST, on SQLite and on PostgreSQL.

pub(crate) mod databases;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use longshore::batch::BatchAction;
use longshore::store::{UnitAction, UnitSelection};
use longshore::{
    BatchId, Callback, Effect, Kind, NewBatch, NewUnit, Payload, Policy, QueueName, RetryPolicy, Scope,
    Services, SqlValue, Unit, UnitState, Worker,
};
use longshore_ai::Provider;
use longshore_batch::completion::{ActionError, ActionRunner, CompletionResult};
use longshore_batch::definition::{
    Action, COMPLETION_KIND, Candidates, Database, Definition, Post, Pre, QUEUE, RowStepSpec, SqlPost,
    StepAction,
};
use longshore_batch::rows::{Candidate, Row, RowSource, SourceError, Sources, StatementInfo};
use longshore_batch::{CompletionHandler, RowHandler};
use serde_json::{Value, json};

use self::databases::{SharedDatabase, on_each_database};
use crate::handler::fixture::{FakeProvider, FakeReply, definition, row_kind, statement};

/// No command or call.
struct NoActions;

#[async_trait::async_trait]
impl ActionRunner for NoActions {
    async fn run(&self, _action: &Action, _facts: &Value) -> Result<(), ActionError> {
        Ok(())
    }
}

/// `fail` counts its runs in `told`, and notes code and run key.
const FAIL: &str = "UPDATE rows SET told = told + 1, code = :error_code, run_key = :run_key WHERE id = :key";

fn reporting() -> Definition {
    let success = vec![statement("UPDATE rows SET seen = seen + 1, run_key = :run_key WHERE id = :key")];
    let mut definition = Definition {
        database: Database::Store,
        post: Post::Sql(SqlPost { success, fail: vec![statement(FAIL)], ..SqlPost::default() }),
        completion: Some(Action::Sql(vec![statement(
            "INSERT INTO ends SELECT :generation, sum(told) FROM rows",
        )])),
        ..definition()
    };
    if let Pre::Sql(pre) = &mut definition.pre {
        "SELECT id FROM rows WHERE id = :key".clone_into(&mut pre.sql);
    }
    definition
}

fn row_handler(shared: &SharedDatabase) -> RowHandler {
    let provider = Arc::clone(&shared.fixture.provider) as Arc<dyn Provider>;
    RowHandler::builder(shared.sources()).label("w").provider("fake", provider).build()
}

fn completion_worker(shared: &SharedDatabase) -> Worker {
    let quick = RetryPolicy { base: Duration::from_millis(1), ..RetryPolicy::default() };
    let policy = Policy { retry: quick, ..Policy::default() };
    let ends = CompletionHandler::new(shared.sources(), Arc::new(NoActions));
    let worker = Worker::builder(Arc::clone(&shared.fixture.store));
    let worker = worker.services(Services::All).until_idle(true);
    worker.handle(Kind::new(COMPLETION_KIND).unwrap(), policy, ends).build().unwrap()
}

/// Runs rows until all of the batch have ended. The completion unit stays for later.
async fn run_rows(shared: &SharedDatabase) {
    let worker = Worker::builder(Arc::clone(&shared.fixture.store)).slots(8).services(Services::All);
    let worker = worker.handle(row_kind(), Policy::default(), row_handler(shared)).build().unwrap();
    let (control, id) = (worker.control(), BatchId::new("b-1").unwrap());
    let stop_at_end = async {
        while shared.fixture.batch(&id).await.counts.live() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        control.drain();
    };
    let (worked, ()) = tokio::join!(worker.run(), stop_at_end);
    worked.unwrap();
}

async fn run_completion(shared: &SharedDatabase) {
    completion_worker(shared).run().await.unwrap();
}

fn keys(count: usize) -> Vec<Value> {
    (1..=count).map(|key| json!(key)).collect()
}

async fn completions(shared: &SharedDatabase) -> Vec<CompletionResult> {
    let filter = longshore::store::UnitFilter {
        kind: Some(Kind::new(COMPLETION_KIND).unwrap()),
        ..longshore::store::UnitFilter::default()
    };
    let store = &shared.fixture.store;
    let mut results = Vec::new();
    for unit in store.units(&Scope::All, &filter, None, 10).await.unwrap().items {
        let unit = store.unit(&Scope::All, unit.id).await.unwrap();
        assert_eq!(unit.state, UnitState::Done, "{:?}", unit.failure);
        results.push(unit.result.unwrap().parse().unwrap());
    }
    results.reverse();
    results
}

async fn units(shared: &SharedDatabase, id: &BatchId) -> Vec<Unit> {
    crate::support::units(&shared.fixture.store, id).await
}

on_each_database! {
    a_row_whose_sql_the_database_rejects_is_reported,
    a_row_that_killed_five_workers_is_reported,
    cancelled_rows_are_reported_once_whatever_dies,
    a_row_that_is_not_retried_is_not_reported_again,
    a_report_that_the_database_rejects_stops_no_other,
    a_run_key_is_kept_over_a_crash_and_new_after_a_retry,
    a_run_key_is_kept_over_an_operators_retry_if_nothing_was_decided,
}

async fn a_row_whose_sql_the_database_rejects_is_reported(shared: SharedDatabase) {
    shared.run(
        "ALTER TABLE rows ADD CONSTRAINT few CHECK (seen < 1 OR id <> 2)",
        "CREATE TRIGGER few
        BEFORE UPDATE ON rows WHEN new.id = 2 AND new.seen > 0 BEGIN SELECT RAISE(ABORT, 'CHECK few'); END",
    );
    let id = shared.fixture.start(&reporting(), &keys(3)).await;
    run_rows(&shared).await;
    let counts = shared.fixture.batch(&id).await.counts;
    assert_eq!((counts.done, counts.failed), (2, 1));
    assert_eq!(shared.number("SELECT sum(told) FROM rows"), 0, "no row asked POST to fail");
    run_completion(&shared).await;
    assert_eq!(shared.number("SELECT count(*) FROM rows WHERE told = 1 AND code = 'EFFECT' AND id = 2"), 1);
    assert_eq!(shared.number("SELECT sum(told) FROM rows"), 1);
    assert_eq!(shared.number("SELECT told FROM ends"), 1, "the completion comes after the reports");
    assert_eq!(shared.fixture.batch(&id).await.counts, counts, "the tally is untouched");
    assert_eq!(completions(&shared).await[0].reported, 1);
    assert_eq!(shared.fixture.provider.count(), 3, "no answer was asked for again");
}

async fn a_row_that_killed_five_workers_is_reported(shared: SharedDatabase) {
    let id = shared.fixture.start(&reporting(), &keys(1)).await;
    let silent = FakeProvider::new(|_, _| FakeReply::Silence);
    let shared = shared.with_provider(silent);
    for _ in 0..5 {
        let worker = Worker::builder(Arc::clone(&shared.fixture.store)).services(Services::None);
        let worker = worker.handle(row_kind(), Policy::default(), row_handler(&shared)).build().unwrap();
        tokio::select! {
            ended = worker.run() => panic!("it should not have ended: {ended:?}"),
            () = shared.fixture.asked() => {}
        }
        shared.fixture.reclaim_dead().await;
    }
    assert_eq!(units(&shared, &id).await[0].failure.as_ref().unwrap().code, "lost");
    run_completion(&shared).await;
    assert_eq!(shared.number("SELECT count(*) FROM rows WHERE told = 1 AND code = 'LOST'"), 1);
}

async fn cancelled_rows_are_reported_once_whatever_dies(shared: SharedDatabase) {
    let rows = shared.rows();
    let id = shared.fixture.start(&reporting(), &keys(rows)).await;
    shared.fixture.store.apply_batch_action(&Scope::All, &id, BatchAction::Cancel).await.unwrap();
    shared.fixture.store.promote(1_000).await.unwrap();
    assert_eq!(shared.fixture.batch(&id).await.counts.cancelled, rows as u64);
    for killed in 1..4 {
        let some = async {
            while shared.number("SELECT sum(told) FROM rows") < (killed * rows / 5) as i64 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            _ = completion_worker(&shared).run() => {}
            () = some => {}
        }
        shared.fixture.reclaim_dead().await;
    }
    run_completion(&shared).await;
    assert_eq!(shared.number("SELECT count(*) FROM rows WHERE told = 1 AND code = 'CANCELLED'"), rows as i64);
    assert_eq!(shared.number("SELECT told FROM ends"), rows as i64);
    assert_eq!(shared.fixture.batch(&id).await.counts.cancelled, rows as u64);
}

async fn a_row_that_is_not_retried_is_not_reported_again(shared: SharedDatabase) {
    let id = shared.fixture.start(&reporting(), &keys(3)).await;
    let store = &shared.fixture.store;
    store.apply_batch_action(&Scope::All, &id, BatchAction::Cancel).await.unwrap();
    store.promote(1_000).await.unwrap();
    run_completion(&shared).await;
    assert_eq!(shared.number("SELECT sum(told) FROM rows"), 3);
    let one = units(&shared, &id).await[0].id;
    store.apply_unit_action(&Scope::All, UnitSelection::Ids(vec![one]), UnitAction::Retry).await.unwrap();
    let gibberish = FakeProvider::always("gibberish");
    let shared = shared.with_provider(gibberish);
    run_rows(&shared).await;
    assert_eq!(shared.number("SELECT sum(told) FROM rows"), 4, "POST failed the row itself");
    run_completion(&shared).await;
    assert_eq!(shared.number("SELECT sum(told) FROM rows"), 4);
    assert_eq!(completions(&shared).await.iter().map(|end| end.reported).collect::<Vec<_>>(), [3, 0]);
}

async fn a_report_that_the_database_rejects_stops_no_other(shared: SharedDatabase) {
    shared.run(
        "ALTER TABLE rows ADD CONSTRAINT few CHECK (told < 1 OR id <> 2)",
        "CREATE TRIGGER few
        BEFORE UPDATE ON rows WHEN new.id = 2 AND new.told > 0 BEGIN SELECT RAISE(ABORT, 'CHECK few'); END",
    );
    let id = shared.fixture.start(&reporting(), &keys(3)).await;
    shared.fixture.store.apply_batch_action(&Scope::All, &id, BatchAction::Cancel).await.unwrap();
    shared.fixture.store.promote(1_000).await.unwrap();
    run_completion(&shared).await;
    assert_eq!(shared.number("SELECT sum(told) FROM rows WHERE id <> 2"), 2);
    let end = completions(&shared).await.remove(0);
    assert_eq!((end.reported, end.unreported), (2, 1));
    assert!(end.reason.is_some_and(|why| why.contains("few")));
}

async fn a_run_key_is_kept_over_a_crash_and_new_after_a_retry(shared: SharedDatabase) {
    let elsewhere = Definition { database: shared.elsewhere(), ..reporting() };
    let new = NewBatch {
        definition: Some(Payload::json(&elsewhere).unwrap()),
        callback: Some(Callback::new(
            QueueName::new(QUEUE).unwrap(),
            Kind::new(COMPLETION_KIND).unwrap(),
            json!({}),
        )),
        ..NewBatch::new(BatchId::new("b-1").unwrap())
    };
    let mut writer = shared.fixture.client.open_batch(new).await.unwrap();
    let mut unit = NewUnit::new(row_kind(), json!({ "key": 1 }));
    unit.queue = QueueName::new(QUEUE).unwrap();
    writer.add(vec![unit], "all".to_owned()).await.unwrap();
    writer.seal().await.unwrap();
    let id = BatchId::new("b-1").unwrap();
    // The first run dies with its question, the second applies its answer.
    let silence = std::sync::atomic::AtomicBool::new(true);
    let provider =
        FakeProvider::new(move |_, _| match silence.swap(false, std::sync::atomic::Ordering::SeqCst) {
            true => FakeReply::Silence,
            false => FakeReply::Answer(crate::handler::fixture::answer("gibberish")),
        });
    let shared = shared.with_provider(provider);
    let worker = Worker::builder(Arc::clone(&shared.fixture.store)).services(Services::None);
    let worker = worker.handle(row_kind(), Policy::default(), row_handler(&shared)).build().unwrap();
    tokio::select! {
        ended = worker.run() => panic!("it should not have ended: {ended:?}"),
        () = shared.fixture.asked() => {}
    }
    shared.fixture.reclaim_dead().await;
    run_rows(&shared).await;
    let unit = units(&shared, &id).await.remove(0);
    assert_eq!((unit.attempt, unit.generation), (2, 1));
    assert_eq!(shared.text("SELECT run_key FROM rows WHERE id = 1"), format!("{}-1-1", unit.id));
    shared.fixture.store.apply_batch_action(&Scope::All, &id, BatchAction::RetryFailed).await.unwrap();
    run_rows(&shared).await;
    assert_eq!(shared.text("SELECT run_key FROM rows WHERE id = 1"), format!("{}-2-1", unit.id));
}

/// A source of which some writes commit and then never return, as if their worker died.
struct LostReplies {
    source: Arc<dyn RowSource>,
    /// Replies to statements with this text are lost.
    of: Mutex<&'static str>,
}

#[async_trait::async_trait]
impl RowSource for LostReplies {
    async fn describe(&self, sql: &str) -> Result<StatementInfo, SourceError> {
        self.source.describe(sql).await
    }

    async fn count(&self, candidates: &Candidates) -> Result<u64, SourceError> {
        self.source.count(candidates).await
    }

    async fn candidates(
        &self,
        candidates: &Candidates,
        from: Option<&SqlValue>,
        limit: u32,
    ) -> Result<Vec<Candidate>, SourceError> {
        self.source.candidates(candidates, from, limit).await
    }

    async fn fetch(&self, sql: &str, params: &[(String, SqlValue)]) -> Result<Vec<Row>, SourceError> {
        self.source.fetch(sql, params).await
    }

    async fn apply(&self, effects: &[Effect]) -> Result<(), SourceError> {
        self.source.apply(effects).await?;
        let of = *self.of.lock().unwrap();
        if effects.iter().any(|effect| effect.sql.contains(of)) {
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

/// The statements of a step, and later those of POST, commit in another database while each of their workers dies, until the
/// row is lost. After an operator's retry both run again with the keys that they had.
async fn a_run_key_is_kept_over_an_operators_retry_if_nothing_was_decided(shared: SharedDatabase) {
    let log = |step: &str| {
        statement(&format!("INSERT INTO log (line, step, value) VALUES (:key, '{step}', :run_key)"))
    };
    let note = StepAction::Sql(vec![log("note")]);
    let definition = Definition {
        database: shared.elsewhere(),
        steps: vec![RowStepSpec { name: "note".to_owned(), when: None, retry: None, action: note }],
        post: Post::Sql(SqlPost { success: vec![log("post")], ..SqlPost::default() }),
        completion: None,
        ..reporting()
    };
    let id = shared.fixture.start(&definition, &keys(1)).await;
    let source = Sources::new(None, |_| None).resolve(&shared.elsewhere()).unwrap();
    let lost = Arc::new(LostReplies { source, of: Mutex::new("'note'") });
    let handler = || {
        let rows = Arc::clone(&lost) as Arc<dyn RowSource>;
        let sources = Sources::new(None, |_| None).with(shared.elsewhere(), rows);
        let provider = Arc::clone(&shared.fixture.provider) as Arc<dyn Provider>;
        RowHandler::builder(Arc::new(sources)).provider("fake", provider)
    };
    for of in ["'note'", "'post'"] {
        *lost.of.lock().unwrap() = of;
        let written = || shared.number(&format!("SELECT count(*) FROM log WHERE step = {of}"));
        while shared.fixture.only_unit(&id).await.state != UnitState::Failed {
            let before = written();
            let again = async {
                while written() == before {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            shared.fixture.work_until(handler(), again).await;
        }
        assert_eq!(shared.fixture.failure(&id).await.0, "lost");
        shared.fixture.store.apply_batch_action(&Scope::All, &id, BatchAction::RetryFailed).await.unwrap();
    }
    *lost.of.lock().unwrap() = "nothing";
    shared.fixture.work(handler()).await;
    let unit = shared.fixture.only_unit(&id).await;
    assert_eq!((unit.state, unit.generation), (UnitState::Done, 3), "{:?}", unit.failure);
    for (step, key) in [("note", format!("{}-1-1-note", unit.id)), ("post", format!("{}-1-1", unit.id))] {
        let keys = format!("SELECT min(value) || ' ' || max(value) FROM log WHERE step = '{step}'");
        assert_eq!(shared.text(&keys), format!("{key} {key}"));
        assert!(shared.number(&format!("SELECT count(*) FROM log WHERE step = '{step}'")) > 1);
    }
    assert_eq!(shared.fixture.provider.count(), 1, "the answer was kept");
}
