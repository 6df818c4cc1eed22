//! PostgreSQL through its ODBC driver.

use std::sync::Arc;

use longshore::SqlValue;
use longshore_batch::rows::{RowSource, SourceError, open};
use longshore_testkit::servers::PrivatePostgres;

use crate::remote::{self, TestDatabase, by_id, effect, int, pages_agree, text};

impl TestDatabase for PrivatePostgres {
    fn rows(&self) -> Arc<dyn RowSource> {
        open(&url(self, self.password())).unwrap()
    }

    fn run(&self, sql: &str) -> String {
        PrivatePostgres::run(self, sql).unwrap()
    }
}

fn url(server: &PrivatePostgres, password: &str) -> String {
    let (port, name) = (server.port(), server.name());
    format!(
        "odbc:DRIVER={{PostgreSQL Unicode}};SERVER=127.0.0.1;PORT={port};DATABASE={name};UID={name};PWD={{{password}}}"
    )
}

fn server() -> PrivatePostgres {
    PrivatePostgres::start().unwrap()
}

#[tokio::test]
async fn statements_are_described_and_candidates_paged() {
    let server = server();
    server.lines(5);
    remote::statements_are_described(&server).await;
    let missing = ["relation \"elsewhere\" does not exist", "column \"absent\" does not exist"];
    remote::mistakes_are_told_with_their_place(&server, missing).await;
    remote::candidates_come_in_key_order(&server).await;
    remote::candidates_come_by_priority(&server).await;
    remote::a_read_changes_nothing(&server).await;
    let unaware =
        "CREATE COLLATION unaware (provider = icu, locale = 'und-u-ks-level1', deterministic = false)";
    server.run(unaware).unwrap();
    let word = "CREATE TABLE word (id TEXT COLLATE unaware)";
    remote::text_keys_keep_their_order(&server, word).await;
    keys_of_other_types_keep_their_order(&server).await;
    a_function_that_writes_is_refused_in_a_read(&server).await;
}

async fn keys_of_other_types_keep_their_order(server: &PrivatePostgres) {
    for (kind, values, keys) in [
        (
            "NUMERIC(38, 20)",
            "(123456789012345678.00000000000000000002), (-1.5), (123456789012345678.00000000000000000001), (0)",
            [
                text("-1.50000000000000000000"),
                text("0.00000000000000000000"),
                text("123456789012345678.00000000000000000001"),
                text("123456789012345678.00000000000000000002"),
            ],
        ),
        (
            "TIMESTAMP",
            "('2026-01-02 03:04:05.000002'), ('2026-01-02 03:04:05.000001'), ('1999-12-31'), ('2026-10-02')",
            [
                text("1999-12-31 00:00:00"),
                text("2026-01-02 03:04:05.000001"),
                text("2026-01-02 03:04:05.000002"),
                text("2026-10-02 00:00:00"),
            ],
        ),
        ("INT", "(10), (9), (-1), (100)", [int(-1), int(9), int(10), int(100)]),
        (
            "UUID",
            "('a0000000-0000-0000-0000-000000000000'), ('B0000000-0000-0000-0000-000000000000'),
             ('00000000-0000-0000-0000-00000000000F'), ('00000000-0000-0000-0000-00000000000a')",
            [
                text("00000000-0000-0000-0000-00000000000a"),
                text("00000000-0000-0000-0000-00000000000f"),
                text("a0000000-0000-0000-0000-000000000000"),
                text("b0000000-0000-0000-0000-000000000000"),
            ],
        ),
    ] {
        server.run(&format!("CREATE TABLE k (id {kind}); INSERT INTO k VALUES {values}")).unwrap();
        let found = pages_agree(&*TestDatabase::rows(server), &by_id("SELECT id FROM k")).await;
        assert_eq!(found, keys, "{kind}");
        server.run("DROP TABLE k").unwrap();
    }
}

async fn a_function_that_writes_is_refused_in_a_read(server: &PrivatePostgres) {
    let body = "DELETE FROM line; SELECT 1";
    server.run(&format!("CREATE FUNCTION sly() RETURNS INT LANGUAGE sql AS '{body}'")).unwrap();
    let rows = TestDatabase::rows(server);
    let error = rows.fetch("SELECT sly() AS n", &[]).await.unwrap_err();
    assert!(error.to_string().contains("read-only transaction"), "{error}");
    let within = "WITH gone AS (DELETE FROM line RETURNING id) SELECT * FROM gone";
    let error = rows.fetch(within, &[]).await.unwrap_err();
    assert!(error.to_string().contains("only a SELECT"), "{error}");
    assert!(!rows.describe(within).await.unwrap().read_only);
    assert_eq!(server.run("SELECT count(*) FROM line").unwrap().trim(), "5");
}

#[tokio::test]
async fn types_are_kept_both_ways() {
    let server = server();
    server.run(&format!("CREATE TABLE kinds ({KINDS}); CREATE TABLE copies (LIKE kinds)")).unwrap();
    server.run(&format!("INSERT INTO kinds VALUES {VALUES}")).unwrap();
    let rows = TestDatabase::rows(&server);
    let read = remote::copy_row(&*rows, "kinds", "copies").await;
    let value = |name: &str| read.iter().find(|(known, _)| known == name).unwrap().1.clone();
    for (name, expected) in [
        ("small", int(i64::MIN)),
        ("price", text("12345678901234567890.0123456789")),
        ("day", text("2026-02-28")),
        ("moment", text("2026-02-28 23:59:59.123456")),
        ("clock", text("23:59:58")),
        ("part", SqlValue::Real(0.1)),
        ("words", text("Ünïcode 🦀 'quoted' \\ \"x\" :key ?")),
        ("bytes", SqlValue::Blob(vec![0, 255, 0xf0, 0x9f, 39, 92])),
        ("yes", text("1")),
        ("json", text(r#"{"a": [1, "ü"]}"#)),
        ("uuid", text("0190a0b0-0000-7000-8000-00000000002a")),
        ("empty", SqlValue::Null),
        ("no_number", SqlValue::Null),
        ("no_bytes", SqlValue::Null),
        ("long", SqlValue::Text("ü🦀".repeat(5000))),
    ] {
        assert_eq!(value(name), expected, "{name}");
    }
    let columns = read.iter().map(|(name, _)| format!("k.{name} IS NOT DISTINCT FROM c.{name}"));
    let columns: Vec<String> = columns.collect();
    let same = server.run(&format!("SELECT {} FROM kinds k, copies c", columns.join(", "))).unwrap();
    assert!(same.trim().split('\t').all(|same| same == "t"), "{same} of {read:?}");
}

const KINDS: &str = "id BIGINT, small BIGINT, price NUMERIC(30, 10), day DATE, moment TIMESTAMP,
    zoned TIMESTAMPTZ, clock TIME, part DOUBLE PRECISION, rough REAL, words VARCHAR(200),
    bytes BYTEA, yes BOOLEAN, json JSONB, uuid UUID, empty TEXT, no_number NUMERIC(9, 2),
    no_bytes BYTEA, long TEXT";
const VALUES: &str = r#"(1, -9223372036854775808, 12345678901234567890.0123456789, '2026-02-28',
    '2026-02-28 23:59:59.123456', '2026-02-28 12:00:00.5+00', '23:59:58', 0.1, 0.1,
    'Ünïcode 🦀 ''quoted'' \ "x" :key ?', '\x00fff09f275c', TRUE, '{"a": [1, "ü"]}',
    '0190a0b0-0000-7000-8000-00000000002a', NULL, NULL, NULL, repeat('ü🦀', 5000))"#;

#[tokio::test]
async fn effects_are_applied_all_or_none() {
    let server = server();
    server.lines(5);
    remote::effects_are_applied_all_or_none(&server, "duplicate key value", "does not exist").await;
    let rows = TestDatabase::rows(&server);
    let returning = "DELETE FROM line WHERE id > 3 RETURNING id";
    rows.apply(&[effect(returning, &[], Some(2))]).await.unwrap();
    assert_eq!(server.run("SELECT count(*) FROM line").unwrap().trim(), "3");
}

#[tokio::test]
async fn a_server_that_stops_is_away_until_it_is_back() {
    let mut server = server();
    server.lines(5);
    let rows = TestDatabase::rows(&server);
    let read = || rows.fetch("SELECT * FROM line", &[]);
    let change = || [effect("UPDATE line SET note = 'back' WHERE id = 1", &[], Some(1))];
    // Opens several connections at once, so that several go stale.
    let (a, b, c) = tokio::join!(read(), read(), read());
    assert_eq!([a, b, c].map(|rows| rows.unwrap().len()), [5; 3]);
    rows.apply(&change()).await.unwrap();
    server.stop();
    remote::assert_unavailable(&*rows).await;
    server.restart().unwrap();
    let (a, b, c) = tokio::join!(read(), read(), read());
    assert_eq!([a, b, c].map(|rows| rows.unwrap().len()), [5; 3]);
    rows.apply(&change()).await.unwrap();
    assert_eq!(server.run("SELECT note FROM line WHERE id = 1").unwrap(), "back\n");
    a_wrong_password_is_not_repeated(&server).await;
}

async fn a_wrong_password_is_not_repeated(server: &PrivatePostgres) {
    let rows = open(&url(server, "wrong-one")).unwrap();
    let error = rows.describe("SELECT 1").await.unwrap_err();
    assert!(error.to_string().contains("password authentication failed"), "{error}");
    assert!(matches!(error, SourceError::Unavailable(_)));
    let shown = format!("{error:?}");
    assert!(!shown.contains("wrong-one") && !shown.contains(server.password()), "{shown}");
}

#[tokio::test]
async fn a_batch_of_rows_runs_to_its_end() {
    let server = server();
    remote::a_batch_runs_to_its_end(&server, "BOOLEAN").await;
}
