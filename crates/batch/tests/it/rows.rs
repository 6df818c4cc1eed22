//! A SQLite file as a source of rows.

use std::time::Duration;

use longshore::outcome::Params;
use longshore::{Effect, SqlValue};
use longshore_batch::definition::Candidates;
use longshore_batch::rows::{DatabaseRows, OpenMode, RowSource, SourceError};
use rusqlite::Connection;

use crate::support::{Orders, candidates};

mod files;

fn int(value: i64) -> SqlValue {
    SqlValue::Int(value)
}

fn text(value: &str) -> SqlValue {
    SqlValue::Text(value.to_owned())
}

fn effect(sql: &str, params: &[(&str, SqlValue)], expected_rows: Option<u64>) -> Effect {
    let named = params.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    Effect { sql: sql.to_owned(), params: Params::Named(named.collect()), expected_rows }
}

fn by_id(sql: &str) -> Candidates {
    Candidates { priority: None, ..candidates(sql) }
}

async fn page(orders: &Orders, of: &Candidates, from: Option<SqlValue>, limit: u32) -> Vec<SqlValue> {
    let rows = orders.rows().candidates(of, from.as_ref(), limit).await.unwrap();
    rows.into_iter().map(|row| row.key).collect()
}

async fn refused(orders: &Orders, of: &Candidates) -> SourceError {
    orders.rows().candidates(of, None, 10).await.unwrap_err()
}

#[tokio::test]
async fn a_statement_is_described_without_being_run() {
    let orders = Orders::new(2);
    let rows = orders.rows();
    let read = rows.describe("SELECT id, note AS words FROM line WHERE id = :key OR :also = :key");
    let read = read.await.unwrap();
    assert_eq!(
        (read.columns, read.params),
        (vec!["id".into(), "words".into()], vec!["key".into(), "also".into()])
    );
    assert!(read.read_only);
    for change in ["DELETE FROM line", "PRAGMA query_only = 0", "ATTACH 'x.db' AS x", "COMMIT"] {
        assert!(!rows.describe(change).await.unwrap().read_only, "{change}");
    }
    assert_eq!(orders.read::<u32>("SELECT count(*) FROM line"), 2);
}

#[tokio::test]
async fn a_bad_statement_is_refused_with_the_place_of_the_mistake() {
    let orders = Orders::new(0);
    for (sql, words, place) in [
        ("SELECT missing FROM line", "no such column: missing", Some(7)),
        ("\n SELECT 1 FRM line", "near \"line\"", Some(15)),
        ("SELECT 1; SELECT oops FROM line", "only one statement", Some(10)),
        ("SELECT * FROM elsewhere", "no such table: elsewhere", Some(14)),
        ("SELECT 1; SELECT 2", "only one statement", Some(10)),
        (" -- nothing\n", "no statement", None),
        ("SELECT ?", "write `:name`", None),
        ("SELECT ?1", "write `:name`", None),
    ] {
        let error = orders.rows().describe(sql).await.unwrap_err();
        let SourceError::Statement { message, offset } = &error else { panic!("{sql}: {error:?}") };
        assert!(message.contains(words), "{sql}: {message}");
        assert_eq!(*offset, place, "{sql}: {message}");
        assert!(!error.is_retryable());
    }
}

#[tokio::test]
async fn candidates_come_in_key_order_from_a_key_on() {
    let orders = Orders::new(0);
    orders.run("INSERT INTO line (id, priority) VALUES (3, 1), (1, NULL), (2, 'low'), (10, 5)");
    let of = candidates("SELECT id, priority FROM line; -- all of them");
    let rows = orders.rows().candidates(&of, None, 10).await.unwrap();
    let found: Vec<_> = rows.iter().map(|row| (row.key.clone(), row.priority.clone())).collect();
    let expected = [(1, SqlValue::Null), (2, text("low")), (3, int(1)), (10, int(5))];
    assert_eq!(found, expected.map(|(key, priority)| (int(key), Some(priority))));
    assert_eq!(page(&orders, &of, Some(int(2)), 2).await, [int(2), int(3)]);
    assert_eq!(page(&orders, &of, Some(int(4)), 2).await, [int(10)]);
    assert_eq!(orders.rows().count(&of).await.unwrap(), 4);
}

#[tokio::test]
async fn parameters_are_bound_whatever_they_are_called() {
    let orders = Orders::new(9);
    let mut of = by_id("SELECT id FROM line WHERE id >= :from AND id <= :limit AND status = :status");
    of.params = [("from", 3.into()), ("limit", 7.into()), ("status", "open".into()), ("spare", 1.into())]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
    assert_eq!(page(&orders, &of, Some(int(4)), 3).await, [int(4), int(5), int(6)]);
    assert_eq!(orders.rows().count(&of).await.unwrap(), 5);
    of.params.remove("status");
    let error = refused(&orders, &of).await.to_string();
    assert_eq!(error, "parameter `:status` has no value");
}

#[tokio::test]
async fn a_key_column_is_a_column_whatever_it_is_called() {
    let orders = Orders::new(2);
    let mut of = by_id("SELECT id AS \"a \"\"key\"\"; --\" FROM line");
    of.key = "a \"key\"; --".to_owned();
    assert_eq!(page(&orders, &of, Some(int(2)), 9).await, [int(2)]);
    // SQLite would take an unknown name in double quotes for text.
    of.key = "line_id".to_owned();
    let error = refused(&orders, &of).await;
    assert!(
        matches!(&error, SourceError::Statement { message, .. } if message.contains("line_id")),
        "{error:?}"
    );
}

#[tokio::test]
async fn keys_that_name_no_row_are_refused() {
    let orders = Orders::new(1);
    let null = refused(&orders, &by_id("SELECT id FROM line UNION ALL SELECT NULL")).await;
    assert!(null.to_string().contains("`id` is NULL"), "{null}");
    let blob = refused(&orders, &by_id("SELECT x'00' AS id")).await;
    assert!(blob.to_string().contains("`id` holds bytes"), "{blob}");
}

#[tokio::test]
async fn keys_that_look_alike_keep_their_order() {
    let orders = Orders::new(0);
    orders.run(
        "CREATE TABLE word (id TEXT COLLATE NOCASE); INSERT INTO word VALUES ('a'), ('B'), ('A'), ('b')",
    );
    let of = by_id("SELECT id FROM word");
    let all = ["A", "B", "a", "b"].map(text);
    assert_eq!(page(&orders, &of, None, 9).await, all);
    for (at, key) in all.iter().enumerate() {
        assert_eq!(page(&orders, &of, Some(key.clone()), 9).await, all[at..]);
    }
}

#[tokio::test]
async fn a_row_keeps_its_types() {
    let orders = Orders::new(0);
    let sql = "SELECT :whole AS whole, 2.5 AS part, 'ü' || :words AS words, x'00ff' AS bytes, NULL AS none";
    let params = [("whole".to_owned(), int(i64::MIN)), ("words".to_owned(), text("🦀\0'"))];
    let found = orders.rows().fetch(sql, &params).await.unwrap();
    let values: Vec<_> =
        found[0].columns.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    let expected = [
        ("whole", int(i64::MIN)),
        ("part", SqlValue::Real(2.5)),
        ("words", text("ü🦀\0'")),
        ("bytes", SqlValue::Blob(vec![0, 255])),
        ("none", SqlValue::Null),
    ];
    assert_eq!(values, expected);
    let error = orders.rows().fetch("SELECT CAST(x'ff' AS TEXT) AS name", &[]).await.unwrap_err();
    assert!(error.to_string().contains("`name` holds text that is not UTF-8"), "{error}");
}

#[tokio::test]
async fn a_read_changes_nothing() {
    let orders = Orders::new(2);
    let rows = orders.rows();
    for sql in [
        "DELETE FROM line",
        "WITH x AS (SELECT 1) DELETE FROM line",
        "PRAGMA query_only = 0",
        "ATTACH ':memory:' AS x",
        "BEGIN",
    ] {
        let error = rows.fetch(sql, &[]).await.unwrap_err();
        assert!(error.to_string().contains("only a SELECT"), "{sql}: {error}");
    }
    assert_eq!(orders.read::<u32>("SELECT count(*) FROM line"), 2);
}

#[tokio::test]
async fn effects_are_applied_all_or_none() {
    let orders = Orders::new(3);
    let rows = orders.rows();
    let close = "UPDATE line SET status = 'done', note = :note WHERE id = :key";
    let with = |key, note: &str| [("key", int(key)), ("note", text(note))];
    rows.apply(&[effect(close, &with(1, "x'); DROP TABLE line; --"), Some(1))]).await.unwrap();
    assert_eq!(orders.read::<String>("SELECT note FROM line WHERE id = 1"), "x'); DROP TABLE line; --");
    let good = || effect(close, &with(2, "good"), Some(1));
    for (bad, words) in [
        (effect(close, &with(9, ""), Some(1)), "changed 0 rows instead of 1"),
        (effect(close, &[("key", int(3))], None), "parameter `:note` has no value"),
        (effect("INSERT INTO line (id) VALUES (1)", &[], None), "UNIQUE constraint failed"),
        (effect("UPDATE nowhere SET x = 1", &[], None), "no such table"),
        (effect("COMMIT", &[], None), "may only insert, update or delete"),
        (effect("INSERT OR ROLLBACK INTO line (id) VALUES (1)", &[], None), "rolled back the transaction"),
    ] {
        let error = rows.apply(&[good(), bad]).await.unwrap_err();
        assert!(error.to_string().contains(words), "{words}: {error}");
        assert!(!error.is_retryable());
        assert_eq!(orders.read::<u32>("SELECT count(*) FROM line WHERE status = 'done'"), 1);
    }
    let returning = "UPDATE line SET status = 'done' RETURNING id";
    rows.apply(&[effect(returning, &[], Some(3))]).await.unwrap();
}

#[tokio::test]
async fn ordered_values_must_be_as_many_as_the_parameters() {
    let orders = Orders::new(1);
    let sql = "UPDATE line SET note = ?1 WHERE id = ?2".to_owned();
    let with = |values| Effect { sql: sql.clone(), params: Params::Ordered(values), expected_rows: Some(1) };
    orders.rows().apply(&[with(vec![text("hello"), int(1)])]).await.unwrap();
    let error = orders.rows().apply(&[with(vec![text("hello")])]).await.unwrap_err();
    assert!(error.to_string().contains("1 values for 2 parameters"), "{error}");
}

#[tokio::test]
async fn a_locked_file_is_away_for_now() {
    let orders = Orders::new(1);
    orders.run("PRAGMA journal_mode = DELETE");
    let brief = Duration::from_millis(1);
    let rows = DatabaseRows::sqlite_with_busy_timeout(&orders.path(), OpenMode::Write, brief).unwrap();
    let other = Connection::open(orders.path()).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let change = [effect("UPDATE line SET note = 'x'", &[], None)];
    for error in [
        rows.fetch("SELECT * FROM line", &[]).await.unwrap_err(),
        rows.describe("SELECT * FROM line").await.unwrap_err(),
        rows.apply(&change).await.unwrap_err(),
        DatabaseRows::sqlite_with_busy_timeout(&orders.path(), OpenMode::Read, brief).unwrap_err(),
    ] {
        assert!(matches!(error, SourceError::Unavailable(_)) && error.is_retryable(), "{error:?}");
    }
    other.execute_batch("COMMIT").unwrap();
    rows.apply(&change).await.unwrap();
    assert_eq!(orders.read::<String>("SELECT note FROM line"), "x");
}
