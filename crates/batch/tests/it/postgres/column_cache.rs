//! Columns of queries are cached, and read again when they change.

use longshore::SqlValue;

use super::through_a_pooler;
use crate::remote::{TestDatabase, effect, int, text};

#[tokio::test]
async fn a_table_may_change_while_its_rows_are_read() {
    let database = through_a_pooler();
    database.run("CREATE TABLE t (id INT, a INT); INSERT INTO t VALUES (1, 7)");
    let rows = database.rows();
    let sql = "SELECT a AS first, id, a AS first FROM t WHERE id = :key";
    let key = [("key".to_owned(), int(1))];
    let read = || async { rows.fetch(sql, &key).await.unwrap().remove(0).columns };
    let named = |name: &str, value| (name.to_owned(), value);
    let before = [named("first", int(7)), named("id", int(1)), named("first", int(7))];
    assert_eq!(read().await, before, "also two of one name");
    database.run("ALTER TABLE t ALTER a TYPE TEXT USING 'seven'");
    let after = [named("first", text("seven")), named("id", int(1)), named("first", text("seven"))];
    assert_eq!(read().await, after);
    let all = "SELECT * FROM t";
    assert_eq!(rows.fetch(all, &[]).await.unwrap()[0].columns.len(), 2);
    database.run("ALTER TABLE t DROP a");
    assert_eq!(rows.fetch(all, &[]).await.unwrap()[0].columns, [named("id", int(1))]);
    database.run("DROP TABLE t");
    let error = rows.fetch(all, &[]).await.unwrap_err().to_string();
    assert!(error.contains("relation \"t\" does not exist"), "{error}");
}

#[tokio::test]
async fn postgresqls_own_ways_of_writing_are_understood() {
    let database = through_a_pooler();
    database.run("CREATE TABLE t (id INT, tags JSONB); INSERT INTO t VALUES (1, '{\"x\": 1}')");
    let rows = database.rows();
    let sql = r"SELECT tags ? 'x' AS has, $$it's :no$$ AS dollars, E'it\'s :no' AS escaped, :key::text AS shown
                FROM t WHERE id = :key::int AND :key = ANY (ARRAY['1', 'a'])";
    let row = rows.fetch(sql, &[("key".to_owned(), int(1))]).await.unwrap().remove(0);
    let values: Vec<SqlValue> = row.columns.into_iter().map(|(_, value)| value).collect();
    let words = || text("it's :no");
    assert_eq!(values, [SqlValue::Bool(true), words(), words(), text("1")]);
    let change = "INSERT INTO t VALUES (:id, :tags) ON CONFLICT DO NOTHING";
    let tags = text(r#"{"y": ["ü"]}"#);
    rows.apply(&[effect(change, &[("id", int(2)), ("tags", tags)], Some(1))]).await.unwrap();
    assert_eq!(database.run("SELECT tags->'y'->>0 FROM t WHERE id = 2").trim(), "ü");
}

#[tokio::test]
async fn a_value_that_does_not_fit_is_the_rows_mistake() {
    let database = through_a_pooler();
    database.lines(2);
    let rows = database.rows();
    let set = "UPDATE line SET priority = :p WHERE id = 1";
    for (value, words) in [
        (text("high"), "invalid input syntax for type integer: \"high\""),
        (int(1 << 40), "out of range for type integer"),
        (text("a\0b"), "invalid byte sequence"),
    ] {
        let error = rows.apply(&[effect(set, &[("p", value)], None)]).await.unwrap_err();
        assert!(error.to_string().contains(words) && !error.is_retryable(), "{error}");
    }
    rows.apply(&[effect(set, &[("p", SqlValue::Null)], Some(1))]).await.unwrap();
}
