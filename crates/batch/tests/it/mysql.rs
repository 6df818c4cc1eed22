//! Rows in a real MariaDB.

use std::sync::Arc;

use longshore::SqlValue;
use longshore_batch::rows::{DatabaseRows, RowSource, SourceError, open};
use longshore_databases::DatabaseTarget;
use longshore_testkit::servers::PrivateMariaDb;
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use crate::remote::{self, TestDatabase, by_id, effect, int, pages_agree, text};

impl TestDatabase for PrivateMariaDb {
    fn rows(&self) -> Arc<dyn RowSource> {
        open(&self.url()).unwrap()
    }

    fn run(&self, sql: &str) -> String {
        PrivateMariaDb::run(self, sql).unwrap()
    }
}

fn server() -> PrivateMariaDb {
    PrivateMariaDb::start().unwrap()
}

#[tokio::test]
async fn statements_are_described_and_candidates_paged() {
    let server = server();
    server.lines(5);
    remote::statements_are_described(&server).await;
    let missing = ["Table 'longshore.elsewhere' doesn't exist", "Unknown column 'absent'"];
    remote::mistakes_are_told_with_their_place(&server, missing).await;
    remote::candidates_come_in_key_order(&server).await;
    remote::candidates_come_by_priority(&server).await;
    remote::a_read_changes_nothing(&server).await;
    let word = "CREATE TABLE word (id VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci)";
    remote::text_keys_keep_their_order(&server, word).await;
    syntax_errors_have_a_place(&*TestDatabase::rows(&server)).await;
    keys_of_other_types_keep_their_order(&server).await;
    a_function_that_writes_is_refused_in_a_read(&server).await;
    databases_are_told_apart(&server).await;
}

async fn databases_are_told_apart(server: &PrivateMariaDb) {
    let fingerprint = async |url: &str| open(url).unwrap().fingerprint().await.unwrap().unwrap();
    let known = fingerprint(&server.url()).await;
    assert_eq!(known, fingerprint(&server.url()).await);
    assert_eq!(known.database.as_deref(), Some("longshore"), "{known}");
    assert!(known.server.is_some(), "{known}");
    let url = server.url();
    // The user has the database's name.
    let (address, _) = url.rsplit_once('/').unwrap();
    assert_ne!(known, fingerprint(&format!("{address}/information_schema")).await);
}

async fn syntax_errors_have_a_place(rows: &dyn RowSource) {
    for (sql, database) in [("\n SELECT :a FRM line", 16), ("SELECT 'it\\'s :a'", 7), ("SELECT 1 # one", 9)] {
        let error = rows.describe(sql).await.unwrap_err();
        let SourceError::Statement { offset, .. } = error else { panic!("{sql}: {error:?}") };
        assert_eq!(offset, Some(database), "{sql}");
    }
}

async fn keys_of_other_types_keep_their_order(server: &PrivateMariaDb) {
    for (kind, values, keys) in [
        (
            "BIGINT UNSIGNED",
            "(18446744073709551615), (1), (9223372036854775808), (9223372036854775807)",
            [int(1), int(i64::MAX), text("9223372036854775808"), text("18446744073709551615")],
        ),
        (
            "DECIMAL(38, 20)",
            "(123456789012345678.00000000000000000002), (-1.5), (123456789012345678.00000000000000000001), (0)",
            [
                text("-1.50000000000000000000"),
                text("0.00000000000000000000"),
                text("123456789012345678.00000000000000000001"),
                text("123456789012345678.00000000000000000002"),
            ],
        ),
        (
            "DATETIME(6)",
            "('2026-01-02 03:04:05.000002'), ('2026-01-02 03:04:05.000001'), ('1999-12-31'), ('2026-10-02')",
            [
                text("1999-12-31 00:00:00.000000"),
                text("2026-01-02 03:04:05.000001"),
                text("2026-01-02 03:04:05.000002"),
                text("2026-10-02 00:00:00.000000"),
            ],
        ),
        (
            "VARCHAR(9) CHARACTER SET latin1 COLLATE latin1_german2_ci",
            "('ä'), ('ae'), ('Z'), ('é')",
            [text("Z"), text("ae"), text("ä"), text("é")],
        ),
    ] {
        server.run(&format!("CREATE TABLE k (id {kind}); INSERT INTO k VALUES {values}")).unwrap();
        let found = pages_agree(&*TestDatabase::rows(server), &by_id("SELECT id FROM k")).await;
        assert_eq!(found, keys, "{kind}");
        server.run("DROP TABLE k").unwrap();
    }
}

async fn a_function_that_writes_is_refused_in_a_read(server: &PrivateMariaDb) {
    let body = "BEGIN DELETE FROM line; RETURN 1; END";
    let function = format!("CREATE FUNCTION sly() RETURNS INT MODIFIES SQL DATA {body}");
    server.run(&format!("DELIMITER //\n{function}//")).unwrap();
    let error = TestDatabase::rows(server).fetch("SELECT sly() AS n", &[]).await.unwrap_err();
    assert!(error.to_string().contains("READ ONLY"), "{error}");
    assert_eq!(server.run("SELECT count(*) FROM line").unwrap().trim(), "5");
}

#[tokio::test]
async fn types_are_kept_both_ways() {
    let server = server();
    server.run(&format!("CREATE TABLE kinds ({KINDS}); CREATE TABLE copies LIKE kinds")).unwrap();
    server.run(&format!("INSERT INTO kinds VALUES {VALUES}")).unwrap();
    let rows = TestDatabase::rows(&server);
    let read = remote::copy_row(&*rows, "kinds", "copies").await;
    let value = |name: &str| read.iter().find(|(known, _)| known == name).unwrap().1.clone();
    for (name, expected) in [
        ("big", text("18446744073709551615")),
        ("small", int(i64::MIN)),
        ("price", text("12345678901234567890.0123456789")),
        ("day", text("2026-02-28")),
        ("moment", text("2026-02-28 23:59:59.123456")),
        ("stamp", text("2026-02-28 12:00:00")),
        ("clock", text("-838:59:58.5")),
        ("year", int(2026)),
        ("part", SqlValue::Real(0.1)),
        ("rough", SqlValue::Real(0.1)),
        ("words", text("Ünïcode 🦀 'quoted' \\ \"x\" :key ?")),
        ("latin", text("Größe")),
        ("choice", text("grün")),
        ("bytes", SqlValue::Blob(vec![0, 255, 0xf0, 0x9f, 39, 92])),
        ("yes", int(1)),
        ("bit1", SqlValue::Bool(true)),
        ("bits", int(0b1_0000_0001)),
        ("json", text(r#"{"a": [1, "ü"]}"#)),
        ("empty", SqlValue::Null),
    ] {
        assert_eq!(value(name), expected, "{name}");
    }
    let columns: Vec<String> = read.iter().map(|(name, _)| format!("k.{name} <=> c.{name}")).collect();
    let same = format!("SELECT {} FROM kinds k, copies c", columns.join(", "));
    let same = server.run(&same).unwrap();
    assert!(same.trim().split('\t').all(|same| same == "1"), "{same} of {read:?}");
    let sql = "SELECT HEX(all_bytes) = HEX(:bytes) AS same FROM kinds";
    let bytes = SqlValue::Blob((0..=255).collect());
    assert_eq!(value("all_bytes"), bytes);
    let found = rows.fetch(sql, &[("bytes".to_owned(), bytes)]).await.unwrap();
    assert_eq!(found[0].columns[0].1, int(1));
}

const KINDS: &str = "id BIGINT, big BIGINT UNSIGNED, small BIGINT, price DECIMAL(30, 10), day DATE,
    moment DATETIME(6), stamp TIMESTAMP NULL, clock TIME(1), year YEAR, part DOUBLE, rough FLOAT,
    words VARCHAR(200), latin VARCHAR(20) CHARACTER SET latin1, choice ENUM('rot', 'grün'),
    bytes VARBINARY(20), all_bytes BLOB, yes BOOL, bit1 BIT, bits BIT(9), json JSON, empty TEXT";
const VALUES: &str = r#"(1, 18446744073709551615, -9223372036854775808,
    12345678901234567890.0123456789, '2026-02-28', '2026-02-28 23:59:59.123456',
    '2026-02-28 12:00:00', '-838:59:58.5', 2026, 0.1, 0.1,
    'Ünïcode 🦀 ''quoted'' \\ "x" :key ?', 'Größe', 'grün', x'00fff09f275c',
    x'000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff',
    TRUE, b'1', b'100000001', '{"a": [1, "ü"]}', NULL)"#;

#[tokio::test]
async fn effects_are_applied_all_or_none() {
    let server = server();
    server.lines(5);
    remote::effects_are_applied_all_or_none(&server, "Duplicate entry", "doesn't exist").await;
    let rows = TestDatabase::rows(&server);
    let returning = "DELETE FROM line WHERE id > 3 RETURNING id";
    rows.apply(&[effect(returning, &[], Some(2))]).await.unwrap();
}

#[tokio::test]
async fn a_server_that_stops_is_away_until_it_is_back() {
    let mut server = server();
    server.lines(5);
    let rows = TestDatabase::rows(&server);
    // Opens several connections at once, so that several go stale.
    let read = || rows.fetch("SELECT * FROM line", &[]);
    let (a, b, c) = tokio::join!(read(), read(), read());
    assert_eq!([a, b, c].map(|rows| rows.unwrap().len()), [5; 3]);
    server.stop();
    remote::assert_unavailable(&*rows).await;
    server.restart().unwrap();
    let (a, b, c) = tokio::join!(read(), read(), read());
    assert_eq!([a, b, c].map(|rows| rows.unwrap().len()), [5; 3]);
    rows.apply(&[effect("UPDATE line SET note = 'back' WHERE id = 1", &[], Some(1))]).await.unwrap();
    assert_eq!(server.run("SELECT note FROM line WHERE id = 1").unwrap(), "back\n");
    a_wrong_password_is_not_repeated(&server).await;
    a_lock_that_is_held_too_long_is_away(&server).await;
}

async fn a_wrong_password_is_not_repeated(server: &PrivateMariaDb) {
    let rows = DatabaseRows::server(DatabaseTarget::Mysql(server.url_with("wrong-one"))).unwrap();
    let error = rows.describe("SELECT 1").await.unwrap_err();
    assert!(error.to_string().contains("Access denied for user 'longshore'"), "{error}");
    assert!(matches!(error, SourceError::Unavailable(_)));
    let shown = format!("{error:?} {rows:?}");
    assert!(!shown.contains("wrong-one") && !shown.contains(server.password()), "{shown}");
    let url = server.url().replace("127.0.0.1", "[127.0.0.1");
    let error = open(&url).err().unwrap().to_string();
    assert!(error.contains("not mysql://") && !error.contains("dock-side"), "{error}");
}

/// The server's lock timeout is a second.
async fn a_lock_that_is_held_too_long_is_away(server: &PrivateMariaDb) {
    let mut other = Conn::from_url(server.url()).await.unwrap();
    other.query_drop("START TRANSACTION").await.unwrap();
    other.query_drop("UPDATE line SET note = 'mine' WHERE id = 2").await.unwrap();
    let change = |id| effect("UPDATE line SET note = 'x' WHERE id = :id", &[("id", int(id))], None);
    let rows = TestDatabase::rows(server);
    let error = rows.apply(&[change(1), change(2)]).await.unwrap_err();
    assert!(matches!(&error, SourceError::Busy(words) if words.contains("Lock wait timeout")), "{error:?}");
    assert_eq!(server.run("SELECT note FROM line WHERE id = 1").unwrap(), "back\n", "all or none");
    other.query_drop("COMMIT").await.unwrap();
    rows.apply(&[change(1), change(2)]).await.unwrap();
}

#[tokio::test]
async fn a_batch_of_rows_runs_to_its_end() {
    let server = server();
    remote::a_batch_runs_to_its_end(&server, "BOOL").await;
}
