//! A whole batch with its rows in such a database, and the store in memory.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use longshore::{
    Client, HeartbeatPlacement, Kind, MemoryStore, Policy, RetryPolicy, Scope, Services, Store, Timestamp,
    Worker,
};
use longshore_ai::{Profile, ProviderName};
use longshore_batch::RowHandler;
use longshore_batch::check::check;
use longshore_batch::definition::{
    Ai, COMPLETION_KIND, Database, Definition, Post, Pre, ROW_KIND, RowStep, SqlPost, SqlPre, SqlStatement,
};
use longshore_batch::file::SourceMap;
use longshore_batch::row_enqueuer::{RowEnqueuer, StartOptions};
use longshore_batch::rows::Sources;
use serde_json::{Value, json};

use super::TestDatabase;
use crate::support;

const ROWS: u32 = 60;
/// Every tenth row gets an answer that is not JSON.
const SCRIPT: &str = r#"
[[answer]]
match = 'line (?<id>\d*0) of'
reply = 'hm'

[[answer]]
match = 'line (?<id>\d+) of (?<name>.*)\?'
reply = '{"verdict": "{{ id }} of {{ name }} is fine", "score": 0.5, "sure": true}'
"#;

fn definition(url: &str) -> Definition {
    let basis = support::definition();
    let ai = basis.ai().unwrap().clone();
    let statement = |sql: &str| SqlStatement { sql: sql.to_owned(), rows: Some(1) };
    Definition {
        database: Database::Url(url.to_owned()),
        pre: Pre::Sql(SqlPre {
            sql: "SELECT id, note FROM line WHERE id = :key".to_owned(),
            lists: BTreeMap::new(),
            template: "Is line {{ id }} of {{ note }}?".to_owned(),
            template_name: "prompt.md".to_owned(),
        }),
        step: RowStep::Ai(Ai {
            profile: Profile {
                name: "reviewer".to_owned(),
                provider: ProviderName::Scripted,
                script: Some(SCRIPT.to_owned()),
                ..ai.profile.inline().unwrap().clone()
            }
            .into(),
            keep_answers: false,
            budget: None,
            max_prompt: longshore_batch::definition::DEFAULT_MAX_PROMPT,
            pool: None,
            schema: Some(json!({
                "type": "object",
                "properties": {
                    "verdict": { "type": "string" },
                    "score": { "type": "number" },
                    "sure": { "type": "boolean" },
                },
                "required": ["verdict"],
            })),
            ..ai
        }),
        post: Post::Sql(SqlPost {
            always: vec![statement(
                "INSERT INTO seen (line, attempt, error_code, score, sure)
                 VALUES (:key, :attempt, :error_code, :score, :sure)",
            )],
            success: vec![statement("UPDATE line SET status = 'fine', note = :verdict WHERE id = :key")],
            fail: vec![statement("UPDATE line SET status = :error_code WHERE id = :key")],
            ..SqlPost::default()
        }),
        retry: RetryPolicy { max_attempts: 2, base: Duration::ZERO, ..RetryPolicy::default() },
        ..basis
    }
}

/// Every row has one call and is written to the database; the counts are exact.
pub(crate) async fn a_batch_runs_to_its_end(database: &dyn TestDatabase, truth: &str) {
    database.lines(ROWS);
    database.run("UPDATE line SET note = '🦀 & co'");
    database.run(&format!(
        "CREATE TABLE seen (line BIGINT, attempt INT, error_code VARCHAR(40), score FLOAT, sure {truth})"
    ));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let (rows, definition) = (database.rows(), definition("the rows"));
    check(&definition, &SourceMap::default(), &*rows).await.unwrap();
    let initiator = RowEnqueuer::new(Client::new(Arc::clone(&store)), Arc::clone(&rows));
    let initiator = initiator.with_sizes(7, 5);
    let options = StartOptions { now: Timestamp::ZERO, ..StartOptions::default() };
    let mut initiation = initiator.start(definition.clone(), options).await.unwrap();
    initiator.fill(&mut initiation, pending(), |_| ()).await.unwrap();

    let sources = Arc::new(Sources::new(None, |_| None).with(definition.database, rows));
    let worker = Worker::builder(Arc::clone(&store)).slots(8).heartbeat(HeartbeatPlacement::Task);
    let worker = worker.services(Services::All).until_idle(true);
    let handler = RowHandler::builder(sources).build();
    let kind = |name| Kind::new(name).unwrap();
    let worker = worker.handle(kind(ROW_KIND), Policy::default(), handler).handle_fn(
        kind(COMPLETION_KIND),
        Policy::default(),
        |_, _: Value| async { Ok::<_, String>(()) },
    );
    worker.build().unwrap().run().await.unwrap();

    let batch = store.batch(&Scope::All, &initiation.batch().id).await.unwrap();
    assert_eq!((batch.counts.total(), batch.counts.done, batch.counts.failed), (60, 54, 6));
    assert_eq!(store.verify().await.unwrap(), vec![]);
    let count = |sql: &str| database.run(sql).trim().to_owned();
    assert_eq!(count("SELECT count(*) FROM line WHERE status = 'fine'"), "54");
    assert_eq!(count("SELECT count(*) FROM line WHERE status = 'BAD_ANSWER'"), "6");
    assert_eq!(count("SELECT note FROM line WHERE id = 7"), "7 of 🦀 & co is fine");
    assert_eq!(count("SELECT count(DISTINCT line) FROM seen"), "60");
    assert_eq!(count("SELECT count(*) FROM seen WHERE score = 0.5 AND error_code IS NULL"), "54");
    assert_eq!(count("SELECT count(*) FROM seen WHERE error_code = 'BAD_ANSWER'"), "6");
}
