//! Reading: what a statement is, which rows are candidates, what PRE asks for.

use std::sync::Arc;

use longshore::SqlValue;
use tokio_postgres::Row as Found;

use super::server::Server;
use super::shape::{Column, Shapes};
use super::{error, key, statement, value};
use crate::definition::Candidates;
use crate::rows::positional::{self, Positional};
use crate::rows::{Candidate, Described, Row, SourceError};

/// What a statement would return and wants bound.
pub(super) async fn describe(
    server: &Server,
    shapes: &Shapes,
    sql: &str,
) -> Result<Described, SourceError> {
    let (params, reads_only) = (statement::of(sql)?.names()?, positional::reads(sql));
    let mut columns = Vec::new();
    if reads_only {
        let shape = shapes.look_up(server, sql).await?;
        columns.extend(shape.iter().map(|column| column.name.clone()));
    } else {
        rehearse(server, sql).await?;
    }
    Ok(Described { columns, params, reads_only })
}

/// Has a change planned, which shows its mistakes, and not run.
async fn rehearse(server: &Server, sql: &str) -> Result<(), SourceError> {
    let statement = statement::around("EXPLAIN ", sql, "")?;
    let nulls = vec![&SqlValue::Null; statement.width()];
    server.read(&statement, &nulls).await.map(drop)
}

/// Refuses what is not a query.
pub(super) fn refuse_changes(sql: &str) -> Result<(), SourceError> {
    statement::of(sql)?;
    if positional::reads(sql) { Ok(()) } else { Err(positional::not_a_read()) }
}

/// How many candidates there are.
pub(super) async fn count(server: &Server, candidates: &Candidates) -> Result<u64, SourceError> {
    let statement = statement::around("SELECT count(*) FROM (", &candidates.sql, "\n) AS c")?;
    let found = query(server, &statement, &positional::params(candidates)).await?;
    let count =
        found.first().map_or(Ok(0), |row| row.try_get::<_, i64>(0)).map_err(error::of_value)?;
    Ok(u64::try_from(count).unwrap_or(0))
}

/// A page of candidates in key order.
pub(super) async fn candidates(
    server: &Server,
    shape: Arc<[Column]>,
    candidates: &Candidates,
    from: Option<&SqlValue>,
    limit: u32,
) -> Result<Vec<Candidate>, SourceError> {
    let column = |name: &str| {
        let names = shape.iter().map(|column| column.name.as_str());
        positional::column(names, name).map(|at| &shape[at])
    };
    let mut columns = vec![column(&candidates.key)?];
    columns.extend(candidates.priority.as_deref().map(column).transpose()?);
    let mut params = positional::params(candidates);
    if from.is_none() {
        refuse_nulls(server, columns[0], candidates, &params).await?;
    }
    let (head, tail) = key::around(&columns, from.is_some());
    let statement = statement::around(&head, &candidates.sql, &tail)?;
    params.extend(from.map(|from| (key::FROM.to_owned(), from.clone())));
    params.push((key::LIMIT.to_owned(), SqlValue::Int(limit.into())));
    let found = query(server, &statement, &params).await?;
    found.iter().map(|row| candidate(row, &columns)).collect()
}

/// Once per batch, before its first page.
async fn refuse_nulls(
    server: &Server,
    key: &Column,
    candidates: &Candidates,
    params: &[(String, SqlValue)],
) -> Result<(), SourceError> {
    let (head, tail) = key::around_nulls(key);
    let statement = statement::around(head, &candidates.sql, &tail)?;
    let found = query(server, &statement, params).await?;
    if found.is_empty() { Ok(()) } else { positional::key(SqlValue::Null, &key.name).map(drop) }
}

fn candidate(row: &Found, columns: &[&Column]) -> Result<Candidate, SourceError> {
    let value = |at: usize| value::read(row, at, columns[at].kind).map_err(error::of_value);
    let key = positional::key(value(0)?, &columns[0].name)?;
    let priority = columns.get(1).map(|_| value(1)).transpose()?;
    Ok(Candidate { key, priority })
}

/// All rows of a query.
pub(super) async fn fetch(
    server: &Server,
    shape: Arc<[Column]>,
    sql: &str,
    params: &[(String, SqlValue)],
) -> Result<Vec<Row>, SourceError> {
    let (head, tail) = around(&shape);
    let statement = statement::around(&head, sql, &tail)?;
    let found = query(server, &statement, params).await?;
    found.iter().map(|found| row(found, &shape)).collect()
}

/// Casts each column to what we understand. They get names of our own: two may have the same.
fn around(shape: &[Column]) -> (String, String) {
    let numbered = || shape.iter().enumerate();
    let cast = numbered().map(|(at, column)| format!("c{at}::{}", column.kind.cast()));
    let head = format!("SELECT {} FROM (", cast.collect::<Vec<_>>().join(", "));
    if shape.is_empty() {
        return (head, "\n) AS q".to_owned());
    }
    let names: Vec<String> = numbered().map(|(at, _)| format!("c{at}")).collect();
    (head, format!("\n) AS q({})", names.join(", ")))
}

fn row(found: &Found, shape: &[Column]) -> Result<Row, SourceError> {
    let columns = shape.iter().enumerate().map(|(at, column)| {
        let value = value::read(found, at, column.kind).map_err(error::of_value)?;
        Ok((column.name.clone(), value))
    });
    Ok(Row { columns: columns.collect::<Result<_, SourceError>>()? })
}

async fn query(
    server: &Server,
    statement: &Positional,
    params: &[(String, SqlValue)],
) -> Result<Vec<Found>, SourceError> {
    server.read(statement, &statement.named(params)?).await
}
