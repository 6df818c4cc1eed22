//! POST's SQL in the store's own database: with the row's end, or not at all.

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

use super::rig::{FakeProvider, Rig, Said, answer, definition, statement};

/// A store with rows in the same file.
struct Shared {
    rig: Rig,
    db: Connection,
    url: String,
    _dir: tempfile::TempDir,
}

impl Shared {
    fn new(rows: i64, provider: Arc<FakeProvider>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.db");
        let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
        let rig = Rig::new(Arc::new(store), provider);
        let (db, url) = (fill(&path, rows), format!("sqlite:{}", path.display()));
        Self { rig, db, url, _dir: dir }
    }

    fn handler(&self) -> RowHandlerBuilder {
        let sources = Sources::new(Some(self.url.clone()), |_| None);
        let provider = Arc::clone(&self.rig.provider) as Arc<dyn Provider>;
        RowHandler::builder(Arc::new(sources)).label("w").provider("fake", provider)
    }

    fn number(&self, sql: &str) -> i64 {
        self.db.query_row(sql, [], |row| row.get(0)).unwrap()
    }
}

fn fill(path: &Path, rows: i64) -> Connection {
    let db = Connection::open(path).unwrap();
    db.busy_timeout(Duration::from_secs(10)).unwrap();
    db.execute_batch("CREATE TABLE rows (id INTEGER PRIMARY KEY, seen INT DEFAULT 0, said TEXT)")
        .unwrap();
    for id in 1..=rows {
        db.execute("INSERT INTO rows (id) VALUES (?1)", [id]).unwrap();
    }
    db
}

fn shared() -> Definition {
    let sql = "UPDATE rows SET seen = seen + 1, said = :verdict WHERE id = :key";
    let success = vec![longshore_batch::definition::Statement { rows: Some(1), ..statement(sql) }];
    Definition {
        database: Database::Store,
        mail: None,
        post: Post::Sql(SqlPost { success, ..SqlPost::default() }),
        ..definition()
    }
}

fn keys(count: i64) -> Vec<Value> {
    (1..=count).map(|key| json!(key)).collect()
}

#[tokio::test]
async fn effects_exactly_once() {
    let shop = Shared::new(200, FakeProvider::saying(r#"{"verdict": "fine"}"#));
    let id = shop.rig.start(&shared(), &keys(200)).await;
    // Workers die one after the other, each wherever it happens to be.
    for round in 0..8 {
        let worker = shop.rig.worker(8, shop.handler()).build().unwrap();
        let some = async {
            while shop.rig.batch(&id).await.counts.done < 20 * (round + 1) {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            ended = worker.run() => panic!("it should not have ended: {ended:?}"),
            () = some => {}
        }
        shop.rig.bury().await;
    }
    shop.rig.work(shop.handler()).await;
    let counts = shop.rig.batch(&id).await.counts;
    assert_eq!((counts.done, counts.total()), (200, 200));
    assert_eq!(shop.number("SELECT count(*) FROM rows WHERE seen = 1"), 200);
    assert_eq!(shop.rig.store.verify().await.unwrap(), vec![]);
}

#[tokio::test]
async fn what_a_model_says_stays_a_value() {
    let hostile = r#"{"verdict": "x'); DROP TABLE rows; --"}"#;
    let shop = Shared::new(1, FakeProvider::saying(hostile));
    let id = shop.rig.start(&shared(), &keys(1)).await;
    shop.rig.work(shop.handler()).await;
    assert_eq!(shop.rig.only_unit(&id).await.state, UnitState::Done);
    let said: String = shop.db.query_row("SELECT said FROM rows", [], |row| row.get(0)).unwrap();
    assert_eq!(said, "x'); DROP TABLE rows; --");
}

#[tokio::test]
async fn an_effect_that_the_store_refuses_is_tried_again_without_asking_again() {
    let shop = Shared::new(1, FakeProvider::saying(r#"{"verdict": "fine"}"#));
    // Row 2 is not there, so its UPDATE changes no row; PRE reads another table.
    let mut definition = shared();
    if let longshore_batch::definition::Pre::Sql(pre) = &mut definition.pre {
        "SELECT :key AS id".clone_into(&mut pre.sql);
    }
    let id = shop.rig.start(&definition, &[json!(2)]).await;
    shop.rig.work(shop.handler()).await;
    let (code, words) = shop.rig.failure(&id).await;
    assert_eq!(code, "effect-rows");
    assert!(words.contains("changed 0 rows instead of 1"), "{words}");
    let unit = shop.rig.only_unit(&id).await;
    assert_eq!((unit.attempt, shop.rig.provider.count()), (3, 1));
    assert_eq!(shop.number("SELECT sum(seen) FROM rows"), 0);
}

#[tokio::test]
async fn a_failed_rows_effects_commit_with_its_failure() {
    let shop = Shared::new(1, FakeProvider::new(|_, _| Said::Answer(answer("gibberish"))));
    let mut definition = shared();
    let fail =
        vec![statement("UPDATE rows SET said = :error_code, seen = seen + 1 WHERE id = :key")];
    definition.post = Post::Sql(SqlPost { fail, ..SqlPost::default() });
    let id = shop.rig.start(&definition, &keys(1)).await;
    shop.rig.work(shop.handler()).await;
    assert_eq!(shop.rig.failure(&id).await.0, "bad-answer");
    assert_eq!(shop.number("SELECT seen FROM rows WHERE said = 'BAD_ANSWER'"), 1);
}

#[tokio::test]
async fn rows_elsewhere_are_written_before_the_rows_end() {
    let rig = Rig::in_memory(FakeProvider::saying(r#"{"verdict": "fine"}"#));
    let id = rig.start(&definition(), &[json!(1)]).await;
    rig.work(rig.handler()).await;
    let applied: Vec<Effect> = rig.rows.applied.lock().unwrap().clone();
    assert_eq!(applied.len(), 1, "the memory store would have refused an effect");
    let unit = rig.only_unit(&id).await;
    assert_eq!(rig.store.failures(&Scope::All, unit.id).await.unwrap(), vec![]);
}

/// A definition whose POST says `verdict` and writes a row that is not there.
fn refused_on(verdict: longshore_batch::definition::Verdict) -> Definition {
    use longshore_batch::definition::Verdict::Retry;
    let missing = longshore_batch::definition::Statement {
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
    Definition { post: Post::Sql(post), ..shared() }
}

#[tokio::test]
async fn no_answer_is_asked_for_again_because_what_post_writes_is_refused() {
    use longshore_batch::definition::Verdict::{Fail, Retry};
    for verdict in [Fail, Retry] {
        let shop = Shared::new(1, FakeProvider::saying(r#"{"verdict": "fine"}"#));
        let id = shop.rig.start(&refused_on(verdict), &[json!(1)]).await;
        shop.rig.work(shop.handler()).await;
        let (code, _) = shop.rig.failure(&id).await;
        assert_eq!(code, "effect-rows", "{verdict:?}");
        let sums = shop.rig.batch(&id).await.sums;
        assert_eq!((shop.rig.provider.count(), sums["answers"]), (1, 1), "{verdict:?}");
    }
}

#[tokio::test]
async fn a_timeout_is_not_asked_about_again_because_what_post_writes_is_refused() {
    use longshore_batch::definition::Verdict::Fail;
    let error = longshore_ai::AskError::new(longshore_ai::Code::Timeout, "too slow");
    let shop = Shared::new(1, FakeProvider::new(move |_, _| Said::Error(error.clone())));
    let id = shop.rig.start(&refused_on(Fail), &[json!(1)]).await;
    shop.rig.work(shop.handler()).await;
    assert_eq!(shop.rig.failure(&id).await.0, "effect-rows");
    assert_eq!(shop.rig.provider.count(), 1);
}
