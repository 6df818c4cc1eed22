//! POST's SQL in the store's own database: it commits with the row's finish, or not at all.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use longshore::{Effect, Scope, UnitState};
use longshore_ai::Provider;
use longshore_batch::RowHandler;
use longshore_batch::definition::{Database, Definition, Post, SqlPost};
use longshore_batch::handler::RowHandlerBuilder;
use longshore_batch::rows::Sources;
use longshore_sqlite::rusqlite::Connection;
use longshore_sqlite::{SqliteOptions, SqliteStore};
use serde_json::{Value, json};

use super::fixture::{FakeProvider, FakeReply, Fixture, answer, definition, statement};

/// A store and rows in the same file.
struct SharedDatabase {
    fixture: Fixture,
    db: Connection,
    url: String,
    _dir: tempfile::TempDir,
}

impl SharedDatabase {
    fn new(rows: i64, provider: Arc<FakeProvider>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.db");
        let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
        let fixture = Fixture::new(Arc::new(store), provider);
        let (db, url) = (fill(&path, rows), format!("sqlite:{}", path.display()));
        Self { fixture, db, url, _dir: dir }
    }

    fn handler(&self) -> RowHandlerBuilder {
        let sources = Sources::new(Some(self.url.clone()), |_| None);
        let provider = Arc::clone(&self.fixture.provider) as Arc<dyn Provider>;
        RowHandler::builder(Arc::new(sources)).label("w").provider("fake", provider)
    }

    fn number(&self, sql: &str) -> i64 {
        self.db.query_row(sql, [], |row| row.get(0)).unwrap()
    }
}

fn fill(path: &Path, rows: i64) -> Connection {
    let db = Connection::open(path).unwrap();
    db.busy_timeout(Duration::from_secs(10)).unwrap();
    db.execute_batch("CREATE TABLE rows (id INTEGER PRIMARY KEY, seen INT DEFAULT 0, said TEXT)").unwrap();
    for id in 1..=rows {
        db.execute("INSERT INTO rows (id) VALUES (?1)", [id]).unwrap();
    }
    db
}

fn definition_in_store() -> Definition {
    let sql = "UPDATE rows SET seen = seen + 1, said = :verdict WHERE id = :key";
    let success = vec![longshore_batch::definition::SqlStatement { rows: Some(1), ..statement(sql) }];
    Definition {
        database: Database::Store,
        post: Post::Sql(SqlPost { success, ..SqlPost::default() }),
        ..definition()
    }
}

fn keys(count: i64) -> Vec<Value> {
    (1..=count).map(|key| json!(key)).collect()
}

#[tokio::test]
async fn effects_exactly_once() {
    let shared = SharedDatabase::new(200, FakeProvider::always(r#"{"verdict": "fine"}"#));
    let id = shared.fixture.start(&definition_in_store(), &keys(200)).await;
    // Workers die one after the other, each at a random point.
    for round in 0..8 {
        let worker = shared.fixture.worker(8, shared.handler()).build().unwrap();
        let some = async {
            while shared.fixture.batch(&id).await.counts.done < 20 * (round + 1) {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            ended = worker.run() => panic!("it should not have ended: {ended:?}"),
            () = some => {}
        }
        shared.fixture.reclaim_dead().await;
    }
    shared.fixture.work(shared.handler()).await;
    let counts = shared.fixture.batch(&id).await.counts;
    assert_eq!((counts.done, counts.total()), (200, 200));
    assert_eq!(shared.number("SELECT count(*) FROM rows WHERE seen = 1"), 200);
    assert_eq!(shared.fixture.store.verify().await.unwrap(), vec![]);
}

#[tokio::test]
async fn what_a_model_says_stays_a_value() {
    let hostile = r#"{"verdict": "x'); DROP TABLE rows; --"}"#;
    let shared = SharedDatabase::new(1, FakeProvider::always(hostile));
    let id = shared.fixture.start(&definition_in_store(), &keys(1)).await;
    shared.fixture.work(shared.handler()).await;
    assert_eq!(shared.fixture.only_unit(&id).await.state, UnitState::Done);
    let stored: String = shared.db.query_row("SELECT said FROM rows", [], |row| row.get(0)).unwrap();
    assert_eq!(stored, "x'); DROP TABLE rows; --");
}

#[tokio::test]
async fn an_effect_that_the_store_refuses_is_tried_again_without_asking_again() {
    let shared = SharedDatabase::new(1, FakeProvider::always(r#"{"verdict": "fine"}"#));
    // Row 2 does not exist, so its UPDATE changes no row; PRE reads another table.
    let mut definition = definition_in_store();
    if let longshore_batch::definition::Pre::Sql(pre) = &mut definition.pre {
        "SELECT :key AS id".clone_into(&mut pre.sql);
    }
    let id = shared.fixture.start(&definition, &[json!(2)]).await;
    shared.fixture.work(shared.handler()).await;
    let (code, words) = shared.fixture.failure(&id).await;
    assert_eq!(code, "effect-rows");
    assert!(words.contains("changed 0 rows instead of 1"), "{words}");
    let unit = shared.fixture.only_unit(&id).await;
    assert_eq!((unit.attempt, shared.fixture.provider.count()), (3, 1));
    assert_eq!(shared.number("SELECT sum(seen) FROM rows"), 0);
}

#[tokio::test]
async fn a_failed_rows_effects_commit_with_its_failure() {
    let shared = SharedDatabase::new(1, FakeProvider::new(|_, _| FakeReply::Answer(answer("gibberish"))));
    let mut definition = definition_in_store();
    let fail = vec![statement("UPDATE rows SET said = :error_code, seen = seen + 1 WHERE id = :key")];
    definition.post = Post::Sql(SqlPost { fail, ..SqlPost::default() });
    let id = shared.fixture.start(&definition, &keys(1)).await;
    shared.fixture.work(shared.handler()).await;
    assert_eq!(shared.fixture.failure(&id).await.0, "bad-answer");
    assert_eq!(shared.number("SELECT seen FROM rows WHERE said = 'BAD_ANSWER'"), 1);
}

#[tokio::test]
async fn rows_elsewhere_are_written_before_the_rows_end() {
    let fixture = Fixture::in_memory(FakeProvider::always(r#"{"verdict": "fine"}"#));
    let id = fixture.start(&definition(), &[json!(1)]).await;
    fixture.work(fixture.handler()).await;
    let applied: Vec<Effect> = fixture.rows.applied.lock().unwrap().clone();
    assert_eq!(applied.len(), 1, "the memory store would have refused an effect");
    let unit = fixture.only_unit(&id).await;
    assert_eq!(fixture.store.failures(&Scope::All, unit.id).await.unwrap(), vec![]);
}

/// A definition with a POST that returns `verdict` and updates a missing row.
fn refused_on(verdict: longshore_batch::definition::PostVerdict) -> Definition {
    use longshore_batch::definition::PostVerdict::Retry;
    let missing = longshore_batch::definition::SqlStatement {
        rows: Some(1),
        ..statement("UPDATE rows SET seen = seen + 1 WHERE id = -1")
    };
    let rule = longshore_batch::definition::Rule {
        when: "true".to_owned(),
        then: verdict,
        reason: None,
        after: (verdict == Retry).then_some(Duration::ZERO),
    };
    let (fail, retry) = (vec![missing.clone()], vec![missing]);
    let post = SqlPost { rules: vec![rule], fail, retry, ..SqlPost::default() };
    Definition { post: Post::Sql(post), ..definition_in_store() }
}

#[tokio::test]
async fn no_answer_is_asked_for_again_because_what_post_writes_is_refused() {
    use longshore_batch::definition::PostVerdict::{Fail, Retry};
    for verdict in [Fail, Retry] {
        let shared = SharedDatabase::new(1, FakeProvider::always(r#"{"verdict": "fine"}"#));
        let id = shared.fixture.start(&refused_on(verdict), &[json!(1)]).await;
        shared.fixture.work(shared.handler()).await;
        let (code, _) = shared.fixture.failure(&id).await;
        assert_eq!(code, "effect-rows", "{verdict:?}");
        let sums = shared.fixture.batch(&id).await.sums;
        assert_eq!((shared.fixture.provider.count(), sums["answers"]), (1, 1), "{verdict:?}");
    }
}

#[tokio::test]
async fn a_timeout_is_not_asked_about_again_because_what_post_writes_is_refused() {
    use longshore_batch::definition::PostVerdict::Fail;
    let error = longshore_ai::AskError::new(longshore_ai::Code::Timeout, "too slow");
    let shared = SharedDatabase::new(1, FakeProvider::new(move |_, _| FakeReply::Error(error.clone())));
    let id = shared.fixture.start(&refused_on(Fail), &[json!(1)]).await;
    shared.fixture.work(shared.handler()).await;
    assert_eq!(shared.fixture.failure(&id).await.0, "effect-rows");
    assert_eq!(shared.fixture.provider.count(), 1);
}
