//! What every database must do, over a table `line (id, item, amount)`.

use std::time::Duration;

use longshore_pool::database::{Db, Reason, Statement, Value};
use longshore_pool::{CallOptions, ErrorKind, params};
use serde_json::json;

use super::{db_error, reason};
use crate::helpers::eventually;

/// How a database writes its parameters: `?` or `$1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParameterStyle {
    QuestionMark,
    Dollar,
}

/// Converts a statement written with `?` for this database.
pub(crate) fn sql(style: ParameterStyle, sql: &str) -> String {
    if style == ParameterStyle::QuestionMark {
        return sql.to_owned();
    }
    let mut parts = sql.split('?').enumerate();
    let first = parts.next().map_or(String::new(), |(_, part)| part.to_owned());
    parts.fold(first, |all, (at, part)| format!("{all}${at}{part}"))
}

/// Creates a table with three rows.
pub(crate) async fn create_lines(db: &Db) {
    let table = "CREATE TABLE line (id INTEGER PRIMARY KEY, item VARCHAR(40) NOT NULL, amount INTEGER)";
    db.execute(table, []).await.unwrap();
    let rows =
        "INSERT INTO line (id, item, amount) VALUES (1, 'rope', 10), (2, 'chain', NULL), (3, 'tar', 7)";
    assert_eq!(db.execute(rows, []).await.unwrap(), 3);
}

async fn items(db: &Db) -> Vec<Value> {
    db.select_col("SELECT item FROM line ORDER BY id", []).await.unwrap()
}

pub(crate) async fn selects_give_rows_columns_and_values(db: &Db, style: ParameterStyle) {
    let by = sql(style, "SELECT item, id, amount FROM line WHERE id < ? ORDER BY id");
    let rows = db.select_all(&by, params![3]).await.unwrap();
    let names: Vec<&str> = rows[0].columns().iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["item", "id", "amount"], "in the statement's order");
    assert_eq!((rows.len(), rows[1].get("amount")), (2, Some(&Value::Null)));
    let json: serde_json::Value = db.pool().call("db.select_all", &json!([by, 2])).await.unwrap();
    assert_eq!(json, json!([{ "item": "rope", "id": 1, "amount": 10 }]));

    #[derive(serde::Deserialize, PartialEq, Debug)]
    struct OrderLine {
        item: String,
        amount: Option<u8>,
    }
    let lines: Vec<OrderLine> = db.select_as(&by, params![2]).await.unwrap();
    assert_eq!(lines, [OrderLine { item: "rope".to_owned(), amount: Some(10) }]);

    let one = sql(style, "SELECT amount, item FROM line WHERE id = ?");
    let row = db.select_row(&one, params![3]).await.unwrap().unwrap();
    assert_eq!(row.into_values().collect::<Vec<_>>(), params![7, "tar"]);
    assert_eq!(db.select_row(&one, params![99]).await.unwrap(), None);
    assert_eq!(db.select_value(&one, params![1]).await.unwrap(), Value::Int(10));
    assert_eq!(db.select_value(&one, params![99]).await.unwrap(), Value::Null);
    assert_eq!(items(db).await, params!["rope", "chain", "tar"]);
    db.ping().await.unwrap();
}

pub(crate) async fn what_is_bound_is_never_read_as_sql(db: &Db, style: ParameterStyle) {
    let evil = "'); DROP TABLE line; -- \\' \" ü 😀 ? $1 :a";
    let insert = sql(style, "INSERT INTO line (id, item) VALUES (?, ?)");
    assert_eq!(db.execute(&insert, params![50, evil]).await.unwrap(), 1);
    let same = sql(style, "SELECT item FROM line WHERE item = ?");
    assert_eq!(db.select_value(&same, params![evil]).await.unwrap(), Value::from(evil));
    let gone = db.execute(&sql(style, "DELETE FROM line WHERE id = ?"), params![50]).await;
    assert_eq!(gone.unwrap(), 1);
    for params in [params![], params![1, 2]] {
        let error = db_error(db.select_all(&sql(style, "SELECT item FROM line WHERE id = ?"), params).await);
        assert_eq!(error.code.as_deref(), Some("07001"), "{error}");
    }
}

pub(crate) async fn errors_carry_a_code_and_leave_the_worker_in_order(
    db: &Db,
    style: ParameterStyle,
    codes: [&str; 3],
) {
    let insert = sql(style, "INSERT INTO line (id, item) VALUES (?, ?)");
    let twice = db_error(db.execute(&insert, params![1, "rope"]).await);
    let missing = db_error(db.execute(&insert, params![60, None::<&str>]).await);
    let nonsense = db_error(db.select_all("SELECT absent FROM line", []).await);
    let found = [&twice, &missing, &nonsense].map(|error| error.code.as_deref().unwrap());
    assert_eq!(found, codes);
    assert!([&twice, &missing, &nonsense].iter().all(|error| error.reason == Reason::Sql));
    assert_eq!((twice.retryable, twice.outcome_unknown), (false, false));
    for bad in [json!(7), json!([]), json!(["SELECT 1", [1]]), json!({ "sql": "x", "y": 1 })] {
        let error = db.pool().call::<_, serde_json::Value>("db.do", &bad).await.unwrap_err();
        assert!(matches!(error.kind, ErrorKind::BadArguments { .. }), "{error}");
    }
    assert_eq!(items(db).await.len(), 3, "the same connection goes on");
}

pub(crate) async fn a_transaction_is_all_or_nothing(db: &Db, style: ParameterStyle) {
    let insert = sql(style, "INSERT INTO line (id, item) VALUES (?, ?)");
    let update = sql(style, "UPDATE line SET amount = ? WHERE id >= ?");
    let done = db
        .transaction([
            Statement::new(&insert, params![10, "oakum"]).expect_rows(1),
            Statement::new(&update, params![5, 3]).expect_rows(2),
            Statement::new("SELECT item FROM line WHERE id = 10", []).expect_rows(1),
        ])
        .await
        .unwrap();
    assert_eq!(done.iter().map(|one| one.rows_affected).collect::<Vec<_>>(), [1, 2, 1]);
    assert_eq!(done[0].rows, None);
    assert_eq!(done[2].rows.as_ref().unwrap()[0].get("item"), Some(&"oakum".into()));

    let twice = Statement::new(&insert, params![1, "again"]);
    let ok = |id: i64| Statement::new(&insert, params![id, "never"]);
    let error = db_error(db.transaction([ok(11), twice, ok(12)]).await);
    assert_eq!((error.reason, error.statement), (Reason::Sql, Some(1)));
    let none = Statement::new(&update, params![5, 1000]).expect_rows(1);
    let error = db_error(db.transaction([ok(11), none]).await);
    assert_eq!((error.reason, error.statement), (Reason::ExpectedRows, Some(1)));
    assert!(!error.outcome_unknown);
    let error = db_error(db.transaction([ok(11), Statement::new("COMMIT", [])]).await);
    assert_eq!((error.reason, error.statement), (Reason::Refused, Some(1)));
    for bound in ["BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT a"] {
        assert_eq!(reason(db.execute(bound, []).await), Reason::Refused, "{bound}");
    }
    assert_eq!(db.transaction([]).await.unwrap(), []);
    assert_eq!(items(db).await, params!["rope", "chain", "tar", "oakum"]);
    db.execute("DELETE FROM line WHERE id > 3", []).await.unwrap();
}

/// `db` may return two rows at most.
pub(crate) async fn more_rows_than_the_limit_are_an_error(db: &Db, style: ParameterStyle) {
    let all = "SELECT id FROM line ORDER BY id";
    assert_eq!(reason(db.select_all(all, []).await), Reason::RowLimit);
    assert_eq!(reason(db.select_col(all, []).await), Reason::RowLimit);
    assert_eq!(db.select_value(all, []).await.unwrap(), Value::Int(1), "one row was asked for");
    let two = sql(style, "SELECT id FROM line WHERE id < ?");
    assert_eq!(db.select_all(&two, params![3]).await.unwrap().len(), 2);
    let statements = [Statement::new("UPDATE line SET amount = 99", []), Statement::new(all, [])];
    assert_eq!(reason(db.transaction(statements).await), Reason::RowLimit);
    let changed = db.select_value("SELECT count(*) FROM line WHERE amount = 99", []).await;
    assert_eq!(changed.unwrap(), Value::Int(0), "rolled back");
}

/// The statement timeout of the next case.
pub(crate) const STATEMENT_TIMEOUT: Duration = Duration::from_secs(1);

/// `slow` takes a minute; `brief` has [`STATEMENT_TIMEOUT`] as statement timeout, and one worker.
pub(crate) async fn a_slow_statement_is_stopped_and_rolled_back(
    brief: &Db,
    style: ParameterStyle,
    slow: &str,
) {
    let insert = sql(style, "INSERT INTO line (id, item) VALUES (?, ?)");
    assert_eq!(reason(brief.select_all(slow, []).await), Reason::TimeLimit);
    let statements = [Statement::new(&insert, params![70, "late"]), Statement::new(slow, [])];
    let error = db_error(brief.transaction(statements).await);
    assert_eq!((error.reason, error.statement), (Reason::TimeLimit, Some(1)));
    assert_eq!(items(brief).await.len(), 3, "rolled back, and the worker is free");
    let stats = brief.pool().stats();
    assert_eq!((stats.workers, stats.abandoned), (1, 0), "no worker was abandoned");
}

/// A call's deadline passes during a slow statement. Whether the worker answers before the deadline
/// depends on the machine; in any case nothing of the transaction is left.
pub(crate) async fn a_call_that_took_too_long_is_rolled_back(db: &Db, style: ParameterStyle, slow: &str) {
    let insert = sql(style, "INSERT INTO line (id, item) VALUES (?, ?)");
    let brief = db.with(CallOptions::default().timeout(STATEMENT_TIMEOUT));
    let statements = [Statement::new(&insert, params![70, "late"]), Statement::new(slow, [])];
    let error = brief.transaction(statements).await.unwrap_err();
    let stopped = error.db_error().is_some_and(|error| error.reason == Reason::TimeLimit);
    assert!(stopped || matches!(error.kind, ErrorKind::Timeout { .. }), "{error:?}");
    eventually("the worker is free", || {
        let stats = db.pool().stats();
        (stats.busy, stats.abandoned) == (0, 0)
    })
    .await;
    assert_eq!(items(db).await.len(), 3);
}

/// `db` is read-only.
pub(crate) async fn a_reader_cannot_write(db: &Db) {
    let update = "UPDATE line SET amount = 1 WHERE id = 1";
    let error = db_error(db.execute(update, []).await);
    assert_eq!(error.reason, Reason::Sql, "{error}");
    assert_eq!(reason(db.transaction([Statement::new(update, [])]).await), Reason::Sql);
    assert_eq!(items(db).await.len(), 3);
    let operations = db.pool().list_operations();
    assert!(operations.iter().all(|operation| operation.idempotent), "it may all be done twice");
}
