//! Batches over generated rows: a folder with a batch file, a script that answers, and a database in
//! which each effect leaves a row. The rows' database is also the store, unless a job says otherwise.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use longshore_sqlite::rusqlite::Connection;
use longshore_sqlite::rusqlite::types::{FromSql, Value as SqlValue};
use longshore_testkit::servers::PrivatePostgres;
use serde_json::Value;

use crate::support::{ChildGuard, CliOutput, TIMEOUT, TestDir, eventually};

/// A valid batch file. Tests apply edits to it.
pub const BATCH_FILE: &str = r#"type = "review"
database = "sqlite:rows.db"
seed = "seed.sql"
workers = 8

[candidates]
sql = "SELECT id FROM rows WHERE done = 0"
key = "id"

[pre]
sql = "SELECT id, sort FROM rows WHERE id = :key AND sort <> 'gone'"
prompt = "Row {{ id }} is {{ sort }}."

[ai]
profile = "script"
timeout = "30s"

[ai.schema]
type = "object"
required = ["n"]
properties = { n = { type = "integer" } }

[profiles.script]
provider = "scripted"
model = "script"
script = "script.toml"
prices = { input = 1.0, output = 5.0 }

[post]
success = [
  "UPDATE rows SET done = done + 1 WHERE id = :key",
  "INSERT INTO effects (row, batch, worker, n) VALUES (:key, :batch_id, :worker_id, :n)",
]
fail = "INSERT INTO failures (row, batch, code) VALUES (:key, :batch_id, :error_code)"

[retry]
attempts = 2
base = "10ms"
cap = "20ms"

[failures]
limit = "none"

[completion]
sql = "INSERT INTO ends VALUES (:batch_id, :generation, :status, :total, :done, :failed)"
"#;

/// The edit of a batch file with its rows in PostgreSQL: the URL is in a file, because it contains a password.
pub const ROWS_IN_POSTGRES: (&str, &str) =
    ("database = \"sqlite:rows.db\"\nseed = \"seed.sql\"", "database = \"file:rows.url\"");

/// Answers by the row's `sort`.
const ANSWER_SCRIPT: &str = r#"
[[answer]]
match = 'Look at (?<id>\d+)\.'
reply = '{"n": {{ id }}}'

[[answer]]
match = 'is bad\.'
reply = 'I am sorry, as a model of language I cannot.'

[[answer]]
match = 'is silent\.'
hang = true

[[answer]]
match = 'Row (?<id>\d+) is slow\.'
delay = "500ms"
reply = '{"n": {{ id }}}'

[[answer]]
match = 'Row (?<id>\d+) is refused\.'
reply = '{"n": -{{ id }}}'

[[answer]]
match = 'Row (?<id>\d+) is'
reply = '{"n": {{ id }}}'
"#;

/// No table has a unique key, which would hide a repeated effect.
const SEED_SQL: &str = "
CREATE TABLE rows (id INTEGER PRIMARY KEY, sort TEXT NOT NULL, done INTEGER NOT NULL DEFAULT 0);
CREATE TABLE effects (row INTEGER, batch TEXT, worker TEXT, n INTEGER CHECK (n > 0));
CREATE TABLE failures (row INTEGER, batch TEXT, code TEXT);
CREATE TABLE step_notes (row INTEGER, step TEXT, n INTEGER, run_key TEXT);
CREATE TABLE ends (batch TEXT, generation INTEGER, status TEXT, total INTEGER, done INTEGER,
                   failed INTEGER);
WITH RECURSIVE count (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM count WHERE i < :rows)
INSERT INTO rows (id, sort) SELECT i, :sort FROM count;
";

/// Short session TTL, so dead workers are found fast; the store is the rows' database.
const CONFIG: &str = "store = \"sqlite:rows.db\"\n[worker]\nttl = \"1s\"\n";

/// A server that a test restarts while its job queries it.
pub type SharedPostgres = Rc<RefCell<PrivatePostgres>>;

/// A folder with a batch.
pub struct BatchJob {
    pub dir: TestDir,
    /// The server that holds the rows, if they are not in the file `rows.db`.
    server: Option<SharedPostgres>,
}

impl BatchJob {
    /// A job with `rows` rows, numbered from 1. `sort` is an SQL expression over `i`: `good`, `slow`,
    /// or a failing sort: `bad`, `silent`, `refused` or `gone`.
    pub fn new(rows: u64, sort: &str) -> Self {
        let job = Self { dir: TestDir::new(), server: None };
        job.dir.write("longshore.toml", CONFIG);
        job.dir.write("script.toml", ANSWER_SCRIPT);
        job.dir.write("seed.sql", SEED_SQL.replace(":rows", &rows.to_string()).replace(":sort", sort));
        job.write("batch.toml", &[]);
        job
    }

    /// A job with only good rows.
    pub fn good(rows: u64) -> Self {
        Self::new(rows, "'good'")
    }

    /// Moves the rows to the database of `rows`, if the batch file has [`ROWS_IN_POSTGRES`], and the store to that of `store`. `keys` are edits of
    /// the seed.
    pub fn move_to(mut self, rows: &SharedPostgres, store: &SharedPostgres, keys: &[(&str, &str)]) -> Self {
        let config = CONFIG.replace("sqlite:rows.db", &store.borrow().url());
        self.dir.write("longshore.toml", config);
        self.dir.write("seed.sql", replace_all(self.dir.read("seed.sql"), keys));
        self.dir.write("rows.url", rows.borrow().url());
        self.server = Some(Rc::clone(rows));
        self
    }

    /// Creates the rows in their database.
    pub fn seed(&self) {
        match &self.server {
            None => drop(self.create()),
            Some(_) => self.execute(&self.dir.read("seed.sql")),
        }
    }

    /// Applies edits to the batch file.
    pub fn with(self, edits: &[(&str, &str)]) -> Self {
        self.write("batch.toml", edits);
        self
    }

    /// Writes the batch file under this name, replacing each first text by the second.
    pub fn write(&self, name: &str, edits: &[(&str, &str)]) -> PathBuf {
        self.dir.write(name, edit_batch(edits))
    }

    /// Creates the database as the first run would.
    pub fn create(&self) -> Connection {
        let db = Connection::open(self.dir.path("rows.db")).unwrap();
        db.execute_batch(&self.dir.read("seed.sql")).unwrap();
        db
    }

    /// Runs `batch run` to its end.
    pub fn run(&self, more: &[&str]) -> CliOutput {
        self.dir.run(&[&["batch", "run", ".", "--json"], more].concat())
    }

    /// Starts `batch run` in the background.
    pub fn start(&self, more: &[&str]) -> ChildGuard {
        self.dir.start(&[&["batch", "run", "."], more].concat())
    }

    /// Starts a worker that does maintenance (reaps dead sessions, wakes waiting units) and claims no
    /// rows. Without it, a killed run would stay the elected maintainer for some seconds.
    pub fn start_maintainer(&self) -> ChildGuard {
        self.dir.start(&["worker", "--slots", "1", "--kind", "exec"])
    }

    /// The value of a query with one row and column.
    #[track_caller]
    pub fn query<T: FromSql>(&self, sql: &str) -> T {
        if let Some(server) = &self.server {
            let text = server.borrow().run(sql).unwrap().trim_end().to_owned();
            let value = text.parse().map_or(SqlValue::Text(text), SqlValue::Integer);
            return T::column_result((&value).into()).unwrap();
        }
        let db = Connection::open(self.dir.path("rows.db")).unwrap();
        db.busy_timeout(TIMEOUT).unwrap();
        db.query_one(sql, [], |row| row.get(0)).unwrap()
    }

    /// The number of rows that match.
    #[track_caller]
    pub fn count(&self, sql: &str) -> u64 {
        self.query::<u64>(&format!("SELECT count(*) FROM {sql}"))
    }

    /// Changes rows as the application that owns them might.
    pub fn execute(&self, sql: &str) {
        if let Some(server) = &self.server {
            server.borrow().run(sql).unwrap();
            return;
        }
        let db = Connection::open(self.dir.path("rows.db")).unwrap();
        db.busy_timeout(TIMEOUT).unwrap();
        db.execute_batch(sql).unwrap();
    }

    /// The batches, newest first.
    pub fn batches(&self) -> Vec<Value> {
        let run = self.dir.run(&["batch", "list", "--json"]).ok();
        run.json().as_array().unwrap().clone()
    }

    /// The only batch.
    pub fn batch(&self) -> Value {
        let mut batches = self.batches();
        assert_eq!(batches.len(), 1, "{batches:?}");
        batches.remove(0)
    }

    /// The name of the only batch.
    pub fn name(&self) -> String {
        self.batch()["batch"].as_str().unwrap().to_owned()
    }

    /// Runs `batch VERB NAME …` on the only batch.
    pub fn operate(&self, verb: &str, more: &[&str]) -> CliOutput {
        self.dir.run(&[&["batch", verb, &self.name(), "--json"], more].concat())
    }

    /// Waits until this many rows have left an effect.
    pub fn wait_for_effects(&self, rows: u64) {
        let exists = || self.server.is_some() || self.dir.path("rows.db").exists();
        let done = || exists() && self.count("effects") >= rows;
        eventually(4 * TIMEOUT, || done().then_some(()));
    }

    /// The batch's rows in this state.
    pub fn rows(&self, batch: &str, state: &str) -> Vec<Value> {
        let args = ["batch", "rows", batch, "--state", state, "--limit", "10000", "--json"];
        self.dir.run(&args).ok().json().as_array().unwrap().clone()
    }

    /// Checks the invariants of a batch at rest: each effect once and for its own row, exact
    /// counters, no lease left.
    #[track_caller]
    pub fn assert_exact(&self) {
        assert_eq!(self.count("(SELECT row FROM effects GROUP BY row HAVING count(*) > 1) AS twice"), 0);
        assert_eq!(self.count("effects WHERE n <> row"), 0);
        assert_eq!(self.count("rows WHERE done <> (SELECT count(*) FROM effects WHERE row = id)"), 0);
        for batch in self.batches() {
            assert_eq!(batch["leased"], 0, "{batch}");
        }
        self.dir.run(&["verify"]).ok();
    }
}

/// The batch file with each first text replaced by the second.
pub fn edit_batch(edits: &[(&str, &str)]) -> String {
    replace_all(BATCH_FILE.to_owned(), edits)
}

fn replace_all(mut text: String, edits: &[(&str, &str)]) -> String {
    for (right, wrong) in edits {
        assert!(text.contains(right), "there is no {right} to be edited");
        text = text.replacen(right, wrong, 1);
    }
    text
}

/// A deterministic random number generator.
pub struct Rng(pub u64);

impl Rng {
    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// Sleeps for a random time of less than `max` milliseconds, so that the next kill hits a random
    /// step.
    pub fn sleep_up_to(&mut self, bound: u64) {
        std::thread::sleep(Duration::from_millis(self.below(bound)));
    }
}
