//! Reads: descriptions of statements, candidates, PRE's queries.

use longshore::SqlValue;
use longshore_databases::{Column, ColumnKind, Connection, Deadline, Dialect, Statement, Value};

use super::dialect::PagedDialect;
use super::error::{self, CallError};
use super::placeholders::{
    self, PlaceholderStyle, PositionalStatement, reject_foreign_parameters, reject_mysql_quirks,
};
use super::{Candidate, Row, SourceError, StatementInfo, value_convert};
use crate::definition::Candidates;

/// Name of our own parameter, unlikely to clash with the user's.
const FROM: &str = "longshore_from";

/// The columns and parameters of a statement.
pub(super) fn describe(
    db: &mut dyn Connection,
    sql: &str,
    deadline: &Deadline,
) -> Result<StatementInfo, CallError> {
    let (statement, read_only) = (positional(db, sql)?, placeholders::is_read(sql));
    let params = statement.names()?;
    let columns = columns(db, &statement, read_only, deadline)?;
    Ok(StatementInfo { columns: columns.into_iter().map(|column| column.name).collect(), params, read_only })
}

/// The number of candidates.
pub(super) fn count(
    db: &mut dyn Connection,
    candidates: &Candidates,
    deadline: &Deadline,
) -> Result<u64, CallError> {
    let statement = around(db, "SELECT count(*) FROM (", &candidates.sql, "\n) c")?;
    let rows = query(db, &statement, &placeholders::candidate_params(candidates), &[], deadline)?;
    let count = rows.first().and_then(|row| row.columns.first()).map(|(_, count)| count);
    Ok(match count {
        Some(SqlValue::Int(count)) => u64::try_from(*count).unwrap_or(0),
        Some(SqlValue::Text(count)) => count.parse().unwrap_or(0),
        _ => 0,
    })
}

/// A page of candidates in key order.
pub(super) fn candidates(
    db: &mut dyn Connection,
    candidates: &Candidates,
    from: Option<&SqlValue>,
    limit: u32,
    deadline: &Deadline,
) -> Result<Vec<Candidate>, CallError> {
    // The comparison depends on the key's type.
    let own = positional(db, &candidates.sql)?;
    let columns = columns(db, &own, true, deadline)?;
    let names = columns.iter().map(|column| column.name.as_str());
    let key = &columns[placeholders::column_index(names, &candidates.key)?];
    let mut params = placeholders::candidate_params(candidates);
    if from.is_none() {
        reject_null_keys(db, candidates, &params, deadline)?;
    }
    let (head, tail) = page_sql(db, candidates, key, from.is_some(), limit);
    let statement = around(db, &head, &candidates.sql, &tail)?;
    params.extend(from.map(|from| (FROM.to_owned(), from.clone())));
    // Keys are read as the type that they are compared as: SQLite's ODBC driver infers a column's type
    // from its first row.
    let rows = query(db, &statement, &params, &[key.kind], deadline)?;
    let candidates = rows.into_iter().map(|row| candidate(row, &candidates.key));
    Ok(candidates.collect::<Result<_, SourceError>>()?)
}

/// Rejects NULL keys where NULLs sort last, so that no page would begin there.
fn reject_null_keys(
    db: &mut dyn Connection,
    candidates: &Candidates,
    params: &[(String, SqlValue)],
    deadline: &Deadline,
) -> Result<(), CallError> {
    if db.dialect() != Dialect::Postgres {
        return Ok(());
    }
    let tail = format!("\n) c WHERE {} IS NULL LIMIT 1", named(db, &candidates.key));
    let statement = around(db, "SELECT 1 FROM (", &candidates.sql, &tail)?;
    if query(db, &statement, params, &[], deadline)?.is_empty() {
        return Ok(());
    }
    Ok(placeholders::check_key(SqlValue::Null, &candidates.key).map(drop)?)
}

/// The SQL before and after the candidates' SQL that selects a page.
fn page_sql(
    db: &dyn Connection,
    candidates: &Candidates,
    key: &Column,
    bounded: bool,
    limit: u32,
) -> (String, String) {
    let columns = [Some(&candidates.key), candidates.priority.as_ref()];
    let columns: Vec<String> = columns.into_iter().flatten().map(|name| named(db, name)).collect();
    let dialect = db.dialect();
    let (key, from) = dialect.compared(key.kind, &named(db, &candidates.key), &format!(":{FROM}"));
    let bound = if bounded { format!("WHERE {key} >= {from} ") } else { String::new() };
    let head = format!("SELECT {} FROM (", columns.join(", "));
    (head, format!("\n) c {bound}ORDER BY {key} {}", dialect.limit(limit)))
}

/// A column of the candidates, which are named `c`.
fn named(db: &dyn Connection, name: &str) -> String {
    let open = db.quote();
    let close = if open == '[' { ']' } else { open };
    format!("c.{open}{}{close}", name.replace(close, &format!("{close}{close}")))
}

fn candidate(row: Row, name: &str) -> Result<Candidate, SourceError> {
    let mut values = row.columns.into_iter().map(|(_, value)| value);
    let key = placeholders::check_key(values.next().unwrap_or(SqlValue::Null), name)?;
    Ok(Candidate { key, priority: values.next() })
}

/// Runs a query.
pub(super) fn fetch(
    db: &mut dyn Connection,
    sql: &str,
    params: &[(String, SqlValue)],
    deadline: &Deadline,
) -> Result<Vec<Row>, CallError> {
    let statement = positional(db, sql)?;
    if !placeholders::is_read(sql) {
        return Err(placeholders::not_a_read_error().into());
    }
    query(db, &statement, params, &[], deadline)
}

fn query(
    db: &mut dyn Connection,
    statement: &PositionalStatement,
    params: &[(String, SqlValue)],
    kinds: &[ColumnKind],
    deadline: &Deadline,
) -> Result<Vec<Row>, CallError> {
    let bound = value_convert::bind(statement, statement.named(params)?);
    let found = db.read(&bound, kinds, deadline);
    let found = found.map_err(|error| error::of_statement(db, statement, error))?;
    Ok(value_convert::rows(found.table))
}

/// The columns of a statement that is not run.
fn columns(
    db: &mut dyn Connection,
    statement: &PositionalStatement,
    is_query: bool,
    deadline: &Deadline,
) -> Result<Vec<Column>, CallError> {
    let nulls = vec![Value::Null; statement.parameter_count()];
    let columns = db.describe(&Statement::new(statement.sql.as_str(), nulls), is_query, deadline);
    columns.map_err(|error| error::of_statement(db, statement, error))
}

/// Rewrites a statement that the database and our tokeniser read alike.
pub(super) fn positional(db: &dyn Connection, sql: &str) -> Result<PositionalStatement, SourceError> {
    around(db, "", sql, "")
}

/// One statement of the user between `head` and `tail`, which are ours.
fn around(
    db: &dyn Connection,
    head: &str,
    sql: &str,
    tail: &str,
) -> Result<PositionalStatement, SourceError> {
    match db.dialect() {
        Dialect::Mysql => reject_mysql_quirks(sql)?,
        Dialect::Sqlite => reject_foreign_parameters(sql, &["@", "$"], char::is_alphanumeric)?,
        _ => {}
    }
    let style = match db.numbers_parameters() {
        true => PlaceholderStyle::DollarNumber,
        false => PlaceholderStyle::QuestionMark,
    };
    PositionalStatement::around(style, head, sql, tail)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use longshore_databases::{ConnectionConfig, DatabaseTarget};

    use super::*;

    fn plan(db: &mut dyn Connection, sql: &str, deadline: &Deadline) -> String {
        let candidates = Candidates {
            sql: sql.to_owned(),
            key: "id".to_owned(),
            priority: None,
            params: std::collections::BTreeMap::new(),
            limit: None,
            sample: None,
            keys: None,
            skip_since: None,
            claim: None,
            ahead: 1,
        };
        let key = Column { name: "id".to_owned(), kind: ColumnKind::Inferred };
        let (head, tail) = page_sql(db, &candidates, &key, true, 10);
        let statement = around(db, &format!("EXPLAIN QUERY PLAN {head}"), sql, &tail).unwrap();
        let from = [(FROM.to_owned(), SqlValue::Int(1))];
        let rows = query(db, &statement, &from, &[], deadline).map_err(|failed| failed.error).unwrap();
        rows.into_iter().map(|row| format!("{:?}", row.columns[3].1)).collect()
    }

    #[test]
    fn a_page_is_found_by_the_keys_index_and_not_sorted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.db");
        let file = rusqlite::Connection::open(&path).unwrap();
        file.execute_batch(
            "CREATE TABLE whole (id INTEGER PRIMARY KEY, open);
             CREATE TABLE words (id TEXT PRIMARY KEY, open);",
        )
        .unwrap();
        let deadline = Deadline::until(Instant::now() + Duration::from_secs(60));
        let mut db = DatabaseTarget::Sqlite(path).connect(&ConnectionConfig::default(), &deadline).unwrap();
        for table in ["whole", "words"] {
            let plan =
                plan(&mut *db, &format!("SELECT id, open FROM {table} WHERE open = 1 -- why\n;"), &deadline);
            assert!(plan.contains(&format!("SEARCH {table} USING")), "{plan}");
            assert!(!plan.contains("B-TREE"), "{plan}");
        }
    }
}
