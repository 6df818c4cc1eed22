//! SQLite through its ODBC driver. The test itself uses the `sqlite3` command: a second SQLite
//! library in this process would drop the first one's locks.

use std::process::Command;
use std::sync::Arc;

use longshore::SqlValue;
use longshore_batch::rows::{RowSource, SourceError, open};
use tempfile::TempDir;

use crate::remote::{self, TestDatabase, by_id, effect, int, pages_agree, text};

/// A SQLite file.
struct SqliteFile {
    dir: TempDir,
}

impl SqliteFile {
    fn new() -> Self {
        Self { dir: TempDir::new().unwrap() }
    }

    fn path(&self) -> String {
        self.dir.path().join("rows.db").display().to_string()
    }
}

impl TestDatabase for SqliteFile {
    fn rows(&self) -> Arc<dyn RowSource> {
        open(&format!("odbc:DRIVER={{SQLite3}};Database={};Timeout=5000", self.path())).unwrap()
    }

    fn run(&self, sql: &str) -> String {
        let mut command = Command::new("sqlite3");
        command.args(["-bail", "-separator", "\t", "-cmd", ".timeout 5000"]).arg(self.path()).arg(sql);
        let output = command.output().expect("sqlite3 is missing: install the Debian package sqlite3");
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

#[tokio::test]
async fn statements_are_described_and_candidates_paged() {
    let file = SqliteFile::new();
    file.lines(5);
    remote::statements_are_described(&file).await;
    let missing = ["no such table: elsewhere", "no such column: absent"];
    remote::mistakes_are_told_with_their_place(&file, missing).await;
    remote::candidates_come_in_key_order(&file).await;
    remote::candidates_come_by_priority(&file).await;
    remote::a_read_changes_nothing(&file).await;
    let word = "CREATE TABLE word (id VARCHAR(20) COLLATE NOCASE)";
    remote::text_keys_keep_their_order(&file, word).await;
    file.run("CREATE TABLE mixed (id); INSERT INTO mixed VALUES (10), ('9'), (2.5), ('x')");
    let found = pages_agree(&*file.rows(), &by_id("SELECT id FROM mixed")).await;
    assert_eq!(found, ["10", "2.5", "9", "x"].map(text), "no type, so all are text");
}

#[tokio::test]
async fn types_are_kept_both_ways() {
    let file = SqliteFile::new();
    file.run(&format!("CREATE TABLE kinds ({KINDS}); CREATE TABLE copies ({KINDS})"));
    file.run(&format!("INSERT INTO kinds VALUES {VALUES}"));
    let rows = file.rows();
    let read = remote::copy_row(&*rows, "kinds", "copies").await;
    let value = |name: &str| read.iter().find(|(known, _)| known == name).unwrap().1.clone();
    for (name, expected) in [
        ("small", int(i64::MIN)),
        ("price", text("12345678901234567890.0123456789")),
        ("day", text("2026-02-28")),
        ("moment", text("2026-02-28 23:59:59.123")),
        ("part", SqlValue::Real(0.1)),
        ("words", text("Ünïcode 🦀 'quoted' \\ \"x\" :key ?")),
        ("bytes", SqlValue::Blob(vec![0, 255, 0xf0, 0x9f, 39, 92])),
        ("yes", SqlValue::Bool(true)),
        ("empty", SqlValue::Null),
        ("long", SqlValue::Text("ü🦀".repeat(5000))),
    ] {
        assert_eq!(value(name), expected, "{name}");
    }
    let columns =
        read.iter().map(|(name, _)| format!("k.{name} IS c.{name} AND typeof(k.{name}) = typeof(c.{name})"));
    let columns: Vec<String> = columns.collect();
    let same = file.run(&format!("SELECT {} FROM kinds k, copies c", columns.join(", ")));
    assert!(same.trim().split('\t').all(|same| same == "1"), "{same} of {read:?}");
}

const KINDS: &str = "id BIGINT, small BIGINT, price TEXT, day DATE, moment TIMESTAMP, part DOUBLE,
    words VARCHAR(200), bytes BLOB, yes BOOLEAN, empty TEXT, long TEXT";
const VALUES: &str = r#"(1, -9223372036854775808, '12345678901234567890.0123456789', '2026-02-28',
    '2026-02-28 23:59:59.123', 0.1, 'Ünïcode 🦀 ''quoted'' \ "x" :key ?', x'00fff09f275c', TRUE,
    NULL, replace(hex(zeroblob(2500)), '00', 'ü🦀ü🦀'))"#;

#[tokio::test]
async fn effects_are_applied_all_or_none() {
    let file = SqliteFile::new();
    file.lines(5);
    remote::effects_are_applied_all_or_none(&file, "UNIQUE constraint failed", "no such table").await;
}

#[tokio::test]
async fn a_locked_file_is_away_for_now() {
    let file = SqliteFile::new();
    file.lines(5);
    let hasty = format!("odbc:DRIVER={{SQLite3}};Database={};Timeout=1", file.path());
    let (rows, other) = (open(&hasty).unwrap(), open(&hasty).unwrap());
    let change = [effect("UPDATE line SET note = 'x'", &[], Some(5))];
    rows.apply(&change).await.unwrap();
    let mut shell = Command::new("sqlite3");
    shell.arg(file.path()).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    let mut input = shell.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, b"BEGIN EXCLUSIVE; SELECT 'held';\n").unwrap();
    let mut held = [0; 5];
    std::io::Read::read_exact(&mut shell.stdout.take().unwrap(), &mut held).unwrap();
    for error in [rows.apply(&change).await.unwrap_err(), other.apply(&change).await.unwrap_err()] {
        assert!(matches!(error, SourceError::Unavailable(_)) && error.is_retryable(), "{error:?}");
    }
    drop(input);
    shell.wait().unwrap();
    rows.apply(&change).await.unwrap();
}

#[tokio::test]
async fn a_batch_of_rows_runs_to_its_end() {
    let file = SqliteFile::new();
    file.run("PRAGMA journal_mode = WAL");
    remote::a_batch_runs_to_its_end(&file, "BOOLEAN").await;
}
