//! Reads: descriptions of statements, candidates, PRE's queries.

use std::sync::Arc;

use longshore::SqlValue;
use tokio_postgres::Row as DbRow;

use super::columns::{Column, ColumnCache};
use super::server::PostgresServer;
use super::{error, key, statement, value};
use crate::definition::Candidates;
use crate::rows::placeholders::{self, PositionalStatement};
use crate::rows::{Candidate, Row, SourceError, StatementInfo};

/// The columns and parameters of a statement.
pub(super) async fn describe(
    server: &PostgresServer,
    column_cache: &ColumnCache,
    sql: &str,
) -> Result<StatementInfo, SourceError> {
    let (params, read_only) = (statement::of(sql)?.names()?, placeholders::is_read(sql));
    let mut columns = Vec::new();
    if read_only {
        let found = column_cache.look_up(server, sql).await?;
        columns.extend(found.iter().map(|column| column.name.clone()));
    } else {
        explain(server, sql).await?;
    }
    Ok(StatementInfo { columns, params, read_only })
}

/// Makes the server plan a write without running it, which finds its mistakes.
async fn explain(server: &PostgresServer, sql: &str) -> Result<(), SourceError> {
    let statement = statement::around("EXPLAIN ", sql, "")?;
    let nulls = vec![&SqlValue::Null; statement.parameter_count()];
    server.read(&statement, &nulls).await.map(drop)
}

/// Rejects a statement that is no query.
pub(super) fn reject_writes(sql: &str) -> Result<(), SourceError> {
    statement::of(sql)?;
    if placeholders::is_read(sql) { Ok(()) } else { Err(placeholders::not_a_read_error()) }
}

/// The number of candidates.
pub(super) async fn count(server: &PostgresServer, candidates: &Candidates) -> Result<u64, SourceError> {
    let statement = statement::around("SELECT count(*) FROM (", &candidates.sql, "\n) AS c")?;
    let found = query(server, &statement, &placeholders::candidate_params(candidates)).await?;
    let count = found.first().map_or(Ok(0), |row| row.try_get::<_, i64>(0)).map_err(error::of_value)?;
    Ok(u64::try_from(count).unwrap_or(0))
}

/// A page of candidates in key order.
pub(super) async fn candidates(
    server: &PostgresServer,
    columns: Arc<[Column]>,
    candidates: &Candidates,
    from: Option<&SqlValue>,
    limit: u32,
) -> Result<Vec<Candidate>, SourceError> {
    let column = |name: &str| {
        let names = columns.iter().map(|column| column.name.as_str());
        placeholders::column_index(names, name).map(|at| &columns[at])
    };
    let mut columns = vec![column(&candidates.key)?];
    columns.extend(candidates.priority.as_deref().map(column).transpose()?);
    let mut params = placeholders::candidate_params(candidates);
    if from.is_none() {
        reject_null_keys(server, columns[0], candidates, &params).await?;
    }
    let (head, tail) = key::around(&columns, from.is_some());
    let statement = statement::around(&head, &candidates.sql, &tail)?;
    params.extend(from.map(|from| (key::FROM.to_owned(), from.clone())));
    params.push((key::LIMIT.to_owned(), SqlValue::Int(limit.into())));
    let found = query(server, &statement, &params).await?;
    found.iter().map(|row| candidate(row, &columns)).collect()
}

/// Rejects NULL keys; runs once per batch, before its first page.
async fn reject_null_keys(
    server: &PostgresServer,
    key: &Column,
    candidates: &Candidates,
    params: &[(String, SqlValue)],
) -> Result<(), SourceError> {
    let (head, tail) = key::around_nulls(key);
    let statement = statement::around(head, &candidates.sql, &tail)?;
    let found = query(server, &statement, params).await?;
    if found.is_empty() { Ok(()) } else { placeholders::check_key(SqlValue::Null, &key.name).map(drop) }
}

fn candidate(row: &DbRow, columns: &[&Column]) -> Result<Candidate, SourceError> {
    let value = |at: usize| value::read(row, at, columns[at].kind).map_err(error::of_value);
    let key = placeholders::check_key(value(0)?, &columns[0].name)?;
    let priority = columns.get(1).map(|_| value(1)).transpose()?;
    Ok(Candidate { key, priority })
}

/// Runs a query.
pub(super) async fn fetch(
    server: &PostgresServer,
    columns: Arc<[Column]>,
    sql: &str,
    params: &[(String, SqlValue)],
) -> Result<Vec<Row>, SourceError> {
    let (head, tail) = page_sql(&columns);
    let statement = statement::around(&head, sql, &tail)?;
    let found = query(server, &statement, params).await?;
    found.iter().map(|found| row(found, &columns)).collect()
}

/// Casts each column to a type that we read. The columns get names of our own, because two may have
/// the same name.
fn page_sql(columns: &[Column]) -> (String, String) {
    let numbered = || columns.iter().enumerate();
    let cast = numbered().map(|(at, column)| format!("c{at}::{}", column.kind.cast()));
    let head = format!("SELECT {} FROM (", cast.collect::<Vec<_>>().join(", "));
    if columns.is_empty() {
        return (head, "\n) AS q".to_owned());
    }
    let names: Vec<String> = numbered().map(|(at, _)| format!("c{at}")).collect();
    (head, format!("\n) AS q({})", names.join(", ")))
}

fn row(found: &DbRow, columns: &[Column]) -> Result<Row, SourceError> {
    let columns = columns.iter().enumerate().map(|(at, column)| {
        let value = value::read(found, at, column.kind).map_err(error::of_value)?;
        Ok((column.name.clone(), value))
    });
    Ok(Row { columns: columns.collect::<Result<_, SourceError>>()? })
}

async fn query(
    server: &PostgresServer,
    statement: &PositionalStatement,
    params: &[(String, SqlValue)],
) -> Result<Vec<DbRow>, SourceError> {
    server.read(statement, &statement.named(params)?).await
}
