//! Shared by the tests: a base definition, a SQLite file of order lines, and the units of a batch.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longshore::store::UnitFilter;
use longshore::{BatchId, OnLost, RetryPolicy, Scope, Store, TenantId, Unit};
use longshore_ai::{Profile, ProviderName};
use longshore_batch::Definition;
use longshore_batch::definition::{
    Ai, Alerts, AskRoute, Candidates, Database, Post, Pre, RowConcurrency, RowStep, SqlPost, SqlPre,
};
use longshore_batch::rows::{DatabaseRows, OpenMode};
use rusqlite::Connection;
use serde_json::Value;
use tempfile::TempDir;

/// A definition over `line (id, priority, status)` with the echo provider.
pub(crate) fn definition() -> Definition {
    Definition {
        version: 1,
        source: "batch.toml".to_owned(),
        kind: "review".to_owned(),
        tenant: TenantId::default(),
        fingerprint: None,
        database: Database::Store,
        workers: RowConcurrency::default(),
        candidates: candidates("SELECT id, priority FROM line WHERE status = 'open'"),
        pre: Pre::Sql(SqlPre {
            sql: "SELECT * FROM line WHERE id = :key".to_owned(),
            lists: BTreeMap::new(),
            template: "Is line {{ id }} right?".to_owned(),
            template_name: "batch.toml".to_owned(),
        }),
        steps: Vec::new(),
        step: RowStep::Ai(Ai {
            profile: Profile { model: "echo-1".to_owned(), ..Profile::new("echo", ProviderName::Echo) }
                .into(),
            through: AskRoute::Local,
            provider_batch: None,
            system: None,
            max_tokens: 300,
            temperature: 0.0,
            timeout: Duration::from_secs(60),
            schema: None,
            keep_answers: false,
            budget: None,
            max_prompt: longshore_batch::definition::DEFAULT_MAX_PROMPT,
            pool: None,
        }),
        post: Post::Sql(SqlPost::default()),
        retry: RetryPolicy::default(),
        on_lost: OnLost::Rerun,
        deadline: None,
        threshold: None,
        completion: None,
        alerts: Alerts::default(),
        trial: None,
        revision: 1,
        revisions: Vec::new(),
    }
}

/// The model's settings of a definition.
pub(crate) fn ai(definition: &mut Definition) -> &mut Ai {
    match &mut definition.step {
        RowStep::Ai(ai) => ai,
        RowStep::Mail(_) => panic!("the rows ask no model"),
    }
}

/// Candidates by `id`, with a priority, claimed as `lines`.
pub(crate) fn candidates(sql: &str) -> Candidates {
    Candidates {
        sql: sql.to_owned(),
        key: "id".to_owned(),
        priority: Some("priority".to_owned()),
        params: BTreeMap::new(),
        limit: None,
        sample: None,
        keys: None,
        skip_since: None,
        claim: Some("lines".to_owned()),
        ahead: 10_000,
    }
}

/// A user's SQLite file.
pub(crate) struct Orders {
    dir: TempDir,
}

impl Orders {
    /// A file with `lines` open lines, numbered from 1.
    pub(crate) fn new(lines: u32) -> Self {
        let orders = Self { dir: TempDir::new().unwrap() };
        let db = Connection::open(orders.path()).unwrap();
        db.execute_batch(
            "PRAGMA journal_mode = WAL;
             CREATE TABLE line (id PRIMARY KEY, priority, status TEXT DEFAULT 'open', note TEXT);",
        )
        .unwrap();
        db.execute(
            "WITH RECURSIVE n (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < ?1)
             INSERT INTO line (id) SELECT id FROM n WHERE id <= ?1",
            [lines],
        )
        .unwrap();
        orders
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("orders.db")
    }

    /// Runs statements outside of Longshore.
    pub(crate) fn run(&self, sql: &str) {
        Connection::open(self.path()).unwrap().execute_batch(sql).unwrap();
    }

    /// Reads one value outside of Longshore.
    pub(crate) fn read<T: rusqlite::types::FromSql>(&self, sql: &str) -> T {
        let db = Connection::open(self.path()).unwrap();
        db.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    pub(crate) fn rows(&self) -> Arc<DatabaseRows> {
        Arc::new(DatabaseRows::sqlite(&self.path(), OpenMode::Write).unwrap())
    }
}

/// Every unit of a batch with its payload, in the order they were sent.
pub(crate) async fn units(store: &Arc<dyn Store>, batch: &BatchId) -> Vec<Unit> {
    let filter = UnitFilter { batch: Some(batch.clone()), ..UnitFilter::default() };
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = store.units(&Scope::All, &filter, after.as_deref(), 100).await.unwrap();
        for unit in page.items {
            all.push(store.unit(&Scope::All, unit.id).await.unwrap());
        }
        after = page.next;
        if after.is_none() {
            all.sort_by_key(|unit| unit.id);
            return all;
        }
    }
}

/// The keys of a batch's rows, in the order they were sent.
pub(crate) async fn keys(store: &Arc<dyn Store>, batch: &BatchId) -> Vec<Value> {
    let key = |unit: &Unit| unit.payload.parse::<Value>().unwrap()["key"].clone();
    units(store, batch).await.iter().map(key).collect()
}
