//! Cases for all databases behind a driver, over a table `line (id, priority, status, note)`. Each
//! database has a file of its own with the tests.

mod batch;

use std::sync::Arc;

use longshore::outcome::Params;
use longshore::{Effect, SqlValue};
use longshore_batch::definition::Candidates;
use longshore_batch::rows::{PriorityPass, RowSource, SourceError};

use crate::support::candidates;

pub(crate) use batch::a_batch_runs_to_its_end;

/// A database under test.
pub(crate) trait TestDatabase {
    /// Opens its rows.
    fn rows(&self) -> Arc<dyn RowSource>;

    /// Runs statements outside of Longshore: a line per row, tabs between columns.
    fn run(&self, sql: &str) -> String;

    /// Creates the table of most cases, with lines numbered from 1.
    fn lines(&self, count: u32) {
        self.run(
            "CREATE TABLE line (id BIGINT PRIMARY KEY, priority INT,
             status VARCHAR(20) DEFAULT 'open', note VARCHAR(200))",
        );
        let rows: Vec<String> = (1..=count).map(|id| format!("({id})")).collect();
        self.run(&format!("INSERT INTO line (id) VALUES {}", rows.join(", ")));
    }
}

pub(crate) fn int(value: i64) -> SqlValue {
    SqlValue::Int(value)
}

pub(crate) fn text(value: &str) -> SqlValue {
    SqlValue::Text(value.to_owned())
}

pub(crate) fn effect(sql: &str, params: &[(&str, SqlValue)], expected: Option<u64>) -> Effect {
    let named = params.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    Effect { sql: sql.to_owned(), params: Params::Named(named.collect()), expected_rows: expected }
}

pub(crate) fn by_id(sql: &str) -> Candidates {
    Candidates { priority: None, ..candidates(sql) }
}

/// The keys of a page.
pub(crate) async fn page(
    rows: &dyn RowSource,
    of: &Candidates,
    from: Option<&SqlValue>,
    limit: u32,
) -> Vec<SqlValue> {
    let found = rows.candidates(of, from, limit).await.unwrap();
    found.into_iter().map(|row| row.key).collect()
}

/// Reads all keys in pages of every size, starting at every key: always the same keys in the same
/// order.
pub(crate) async fn pages_agree(rows: &dyn RowSource, of: &Candidates) -> Vec<SqlValue> {
    let all = page(rows, of, None, 1000).await;
    for (at, key) in all.iter().enumerate() {
        for limit in 1..=3 {
            let until = all.len().min(at + limit as usize);
            assert_eq!(page(rows, of, Some(key), limit).await, all[at..until], "from {key:?}");
        }
    }
    all
}

pub(crate) async fn statements_are_described(database: &dyn TestDatabase) {
    let rows = database.rows();
    let read = "SELECT id, note AS words FROM line -- :not ?\nWHERE id = :key OR id = :also;";
    let read = rows.describe(read).await.unwrap();
    assert_eq!((read.columns, read.read_only), (vec!["id".into(), "words".into()], true));
    assert_eq!(read.params, ["key", "also"]);
    let change = "UPDATE line SET note = :note, status = ':x' WHERE id = :key";
    let change = rows.describe(change).await.unwrap();
    assert_eq!((change.columns, change.read_only), (Vec::<String>::new(), false));
    assert_eq!(change.params, ["note", "key"]);
    assert!(!rows.describe("DELETE FROM line").await.unwrap().read_only);
    assert_eq!(database.run("SELECT count(*) FROM line").trim(), "5", "nothing was run");
}

/// `missing` has the messages for a missing table and a missing column.
pub(crate) async fn mistakes_are_told_with_their_place(database: &dyn TestDatabase, missing: [&str; 2]) {
    let rows = database.rows();
    for (sql, words, at) in [
        ("SELECT *\nFROM elsewhere", missing[0], Some(14)),
        ("SELECT id,\n absent FROM line", missing[1], Some(12)),
        ("UPDATE elsewhere SET a = :key", missing[0], Some(7)),
        ("SELECT 1; SELECT 2", "only one statement", Some(10)),
        (" -- nothing\n", "no statement", None),
        ("SELECT ?", "write `:name`", None),
    ] {
        let error = rows.describe(sql).await.unwrap_err();
        let SourceError::Statement { message, offset } = &error else { panic!("{sql}: {error:?}") };
        assert!(message.contains(words), "{sql}: {message}");
        assert_eq!(*offset, at, "{sql}: {message}");
        assert!(!error.is_retryable());
    }
    let error = rows.candidates(&by_id("SELECT id AS other FROM line"), None, 1).await.unwrap_err();
    assert!(error.to_string().contains("no column `id`"), "{error}");
}

pub(crate) async fn candidates_come_in_key_order(database: &dyn TestDatabase) {
    let rows = database.rows();
    database.run("UPDATE line SET priority = 3 WHERE id = 2");
    let of = candidates("SELECT id, priority FROM line; -- all of them");
    assert_eq!(pages_agree(&*rows, &of).await, [1, 2, 3, 4, 5].map(int));
    let second = rows.candidates(&of, Some(&int(2)), 1).await.unwrap().remove(0);
    assert_eq!(second.priority, Some(int(3)));
    assert_eq!(rows.count(&of).await.unwrap(), 5);
    let mut some = by_id("SELECT id FROM line WHERE id >= :from AND status = :status");
    some.params = [("from", 3.into()), ("status", "open".into()), ("spare", 1.into())]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
    assert_eq!(page(&*rows, &some, Some(&int(4)), 9).await, [4, 5].map(int));
    assert_eq!(rows.count(&some).await.unwrap(), 3);
    some.params.remove("status");
    let error = rows.candidates(&some, None, 9).await.unwrap_err();
    assert_eq!(error.to_string(), "parameter `:status` has no value");
    let null = by_id("SELECT id FROM line WHERE id = 1 UNION ALL SELECT NULL");
    let error = rows.candidates(&null, None, 9).await.unwrap_err();
    assert!(error.to_string().contains("`id` is NULL"), "{error}");
}

pub(crate) async fn candidates_come_by_priority(database: &dyn TestDatabase) {
    database.run("UPDATE line SET priority = CASE id WHEN 4 THEN 1 WHEN 2 THEN 9 WHEN 5 THEN 77 END");
    let (rows, of) = (database.rows(), candidates("SELECT id, priority FROM line; -- all of them"));
    let (mut order, mut pass) = (Vec::new(), Some(PriorityPass::FIRST));
    while let Some(current) = pass {
        let of = rows.in_pass(&of, current).unwrap();
        order.extend(pages_agree(&*rows, &of).await);
        pass = current.next();
    }
    assert_eq!(order, [4, 1, 3, 2, 5].map(int), "an invalid priority comes last");
    database.run("UPDATE line SET priority = NULL");
}

/// `table` has the text column `id`, case-insensitive if the database supports that.
pub(crate) async fn text_keys_keep_their_order(database: &dyn TestDatabase, table: &str) {
    database.run(table);
    let mut keys = ["a", "A", "b", "B", "ä", "Ä", "z ", "z", "0", "10", "9", " ", "%3A:", "🦀", "🦐", "日本"];
    for key in keys {
        database.run(&format!("INSERT INTO word (id) VALUES ('{key}')"));
    }
    database.run("INSERT INTO word (id) VALUES ('it''s'), (':from'), ('\"; --')");
    let rows = database.rows();
    let found = pages_agree(&*rows, &by_id("SELECT id FROM word")).await;
    keys.sort_unstable();
    let mut expected: Vec<SqlValue> = keys.map(text).to_vec();
    for odd in ["it's", ":from", "\"; --"] {
        let at = expected.partition_point(|key| matches!(key, SqlValue::Text(key) if **key < *odd));
        expected.insert(at, text(odd));
    }
    assert_eq!(found, expected, "byte by byte");
    for key in &found {
        let sql = "SELECT id FROM word WHERE id = :key";
        let same = rows.fetch(sql, &[("key".to_owned(), key.clone())]).await.unwrap();
        assert!(same.iter().any(|row| row.columns[0].1 == *key), "{key:?}");
    }
}

pub(crate) async fn a_read_changes_nothing(database: &dyn TestDatabase) {
    let rows = database.rows();
    for sql in ["DELETE FROM line", "WITH x AS (SELECT 1) DELETE FROM line", "COMMIT", "DROP TABLE line"] {
        let error = rows.fetch(sql, &[]).await.unwrap_err();
        assert!(error.to_string().contains("only a SELECT"), "{sql}: {error}");
    }
    assert_eq!(database.run("SELECT count(*) FROM line").trim(), "5");
}

/// `twice` is the message for a duplicate key.
pub(crate) async fn effects_are_applied_all_or_none(database: &dyn TestDatabase, twice: &str, none: &str) {
    let rows = database.rows();
    let close = "UPDATE line SET status = 'done', note = :note WHERE id = :key";
    let with = |key, note: &str| [("key", int(key)), ("note", text(note))];
    let done = || database.run("SELECT id, note FROM line WHERE status = 'done'");
    let first = effect(close, &with(1, "x'); DROP TABLE line; -- 🦀"), Some(1));
    rows.apply(std::slice::from_ref(&first)).await.unwrap();
    assert_eq!(done(), "1\tx'); DROP TABLE line; -- 🦀\n");
    rows.apply(&[first]).await.expect("a row that has the value already counts all the same");
    let good = || effect(close, &with(2, "good"), Some(1));
    for (bad, words) in [
        (effect(close, &with(9, ""), Some(1)), "changed 0 rows instead of 1"),
        (effect("UPDATE line SET note = 'x'", &[], Some(1)), "changed 5 rows instead of 1"),
        (effect(close, &[("key", int(3))], None), "parameter `:note` has no value"),
        (effect("INSERT INTO line (id) VALUES (1)", &[], None), twice),
        (effect("UPDATE nowhere SET x = 1", &[], None), none),
        (effect("COMMIT", &[], None), "may only insert, update or delete"),
    ] {
        let error = rows.apply(&[good(), bad.clone(), good()]).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains(words) && text.contains(&bad.sql), "{words}: {text}");
        assert!(!error.is_retryable());
        assert_eq!(done(), "1\tx'); DROP TABLE line; -- 🦀\n", "{}", bad.sql);
    }
    rows.apply(&[good(), effect(close, &with(3, ""), Some(1))]).await.unwrap();
    assert_eq!(database.run("SELECT count(*) FROM line WHERE status = 'done'").trim(), "3");
    let ordered = Effect {
        sql: "UPDATE line SET note = ?1 WHERE id = ?2".to_owned(),
        params: Params::Ordered(vec![text("in order"), int(4)]),
        expected_rows: Some(1),
    };
    rows.apply(&[ordered]).await.unwrap();
    assert_eq!(database.run("SELECT note FROM line WHERE id = 4").trim(), "in order");
}

/// Reads a row as PRE does and writes what it read as POST does.
pub(crate) async fn copy_row(rows: &dyn RowSource, from: &str, to: &str) -> Vec<(String, SqlValue)> {
    let key = [("key".to_owned(), int(1))];
    let sql = format!("SELECT * FROM {from} WHERE id = :key");
    let row = rows.fetch(&sql, &key).await.unwrap().remove(0);
    let names: Vec<String> = row.columns.iter().map(|(name, _)| format!(":{name}")).collect();
    let sql = format!("INSERT INTO {to} VALUES ({})", names.join(", "));
    let params = Params::Named(row.columns.clone());
    rows.apply(&[Effect { sql, params, expected_rows: Some(1) }]).await.unwrap();
    row.columns
}

/// Asserts that a read and an effect both fail as retryable.
pub(crate) async fn assert_unavailable(rows: &dyn RowSource) {
    let change = [effect("UPDATE line SET note = 'x' WHERE id = 1", &[], None)];
    for error in [
        rows.fetch("SELECT * FROM line", &[]).await.map(drop).unwrap_err(),
        rows.apply(&change).await.unwrap_err(),
        rows.describe("SELECT * FROM line").await.map(drop).unwrap_err(),
        rows.count(&by_id("SELECT id FROM line")).await.map(drop).unwrap_err(),
    ] {
        assert!(matches!(error, SourceError::Unavailable(_)) && error.is_retryable(), "{error:?}");
    }
}
