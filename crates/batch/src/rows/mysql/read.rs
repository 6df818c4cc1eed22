//! Reading: what a statement is, which rows are candidates, what PRE asks for.

use longshore::SqlValue;
use mysql_async::prelude::Queryable;
use mysql_async::{Column, Conn, Params, Statement};

use super::{error, key, value, write};
use crate::definition::Candidates;
use crate::rows::positional::{self, Marks, Positional, refuse_mysql_quirks};
use crate::rows::{Candidate, Described, Row, SourceError};

/// What a statement would return and wants bound.
pub(super) async fn describe(conn: &mut Conn, sql: &str) -> Result<Described, SourceError> {
    let (statement, reads_only) = (positional(sql)?, positional::reads(sql));
    let prepared = if reads_only {
        prepare(conn, &statement).await?
    } else {
        prepare_change(conn, &statement).await?
    };
    Ok(Described { columns: names(&prepared.columns()), params: statement.names()?, reads_only })
}

/// Prepares what a read-only session would not even look at. Nothing is run.
async fn prepare_change(conn: &mut Conn, statement: &Positional) -> Result<Statement, SourceError> {
    let mut transaction = write::begin(conn).await?;
    let prepared = prepare(&mut transaction, statement).await;
    transaction.rollback().await.map_err(error::of_run)?;
    prepared
}

/// How many candidates there are.
pub(super) async fn count(conn: &mut Conn, candidates: &Candidates) -> Result<u64, SourceError> {
    refuse_mysql_quirks(&candidates.sql)?;
    let statement = Positional::around(
        Marks::Questions,
        "SELECT count(*) FROM (",
        &candidates.sql,
        "\n) AS c",
    )?;
    let rows = query(conn, &statement, &positional::params(candidates)).await?;
    match rows.first().and_then(|row| row.columns.first()) {
        Some((_, SqlValue::Int(count))) => Ok(u64::try_from(*count).unwrap_or(0)),
        _ => Ok(0),
    }
}

/// A page of candidates in key order.
pub(super) async fn candidates(
    conn: &mut Conn,
    candidates: &Candidates,
    from: Option<&SqlValue>,
    limit: u32,
) -> Result<Vec<Candidate>, SourceError> {
    // How keys are compared depends on what they are.
    let own = prepare(conn, &positional(&candidates.sql)?).await?;
    let columns = own.columns();
    let at = positional::column(names(&columns).iter().map(String::as_str), &candidates.key)?;
    let (head, tail) = key::around(candidates, &columns[at], from.is_some());
    let statement = Positional::around(Marks::Questions, &head, &candidates.sql, &tail)?;
    let mut params = positional::params(candidates);
    params.extend(from.map(|from| (key::FROM.to_owned(), from.clone())));
    params.push((key::LIMIT.to_owned(), SqlValue::Int(limit.into())));
    let rows = query(conn, &statement, &params).await?;
    rows.into_iter().map(|row| candidate(row, &candidates.key)).collect()
}

fn candidate(row: Row, name: &str) -> Result<Candidate, SourceError> {
    let mut values = row.columns.into_iter().map(|(_, value)| value);
    let key = positional::key(values.next().unwrap_or(SqlValue::Null), name)?;
    Ok(Candidate { key, priority: values.next() })
}

/// All rows of a query.
pub(super) async fn fetch(
    conn: &mut Conn,
    sql: &str,
    params: &[(String, SqlValue)],
) -> Result<Vec<Row>, SourceError> {
    let statement = positional(sql)?;
    if !positional::reads(sql) {
        return Err(positional::not_a_read());
    }
    query(conn, &statement, params).await
}

async fn query(
    conn: &mut Conn,
    statement: &Positional,
    params: &[(String, SqlValue)],
) -> Result<Vec<Row>, SourceError> {
    let values = statement.named(params)?.into_iter().map(value::bound).collect();
    let prepared = prepare(conn, statement).await?;
    let found: Vec<mysql_async::Row> =
        conn.exec(&prepared, Params::Positional(values)).await.map_err(error::of_run)?;
    found.into_iter().map(row).collect()
}

fn row(row: mysql_async::Row) -> Result<Row, SourceError> {
    let columns = row.columns();
    let values = columns.iter().zip(row.unwrap());
    let values = values.map(|(column, value)| {
        Ok((column.name_str().into_owned(), value::of_column(value, column)?))
    });
    Ok(Row { columns: values.collect::<Result<_, SourceError>>()? })
}

/// A statement that MySQL and we read in the same way.
pub(super) fn positional(sql: &str) -> Result<Positional, SourceError> {
    refuse_mysql_quirks(sql)?;
    Positional::of(Marks::Questions, sql)
}

/// Prepares a statement, or finds it prepared.
pub(super) async fn prepare(
    conn: &mut impl Queryable,
    statement: &Positional,
) -> Result<Statement, SourceError> {
    conn.prep(statement.sql.as_str()).await.map_err(|error| error::of_statement(statement, error))
}

fn names(columns: &[Column]) -> Vec<String> {
    columns.iter().map(|column| column.name_str().into_owned()).collect()
}
