//! Reads: descriptions of statements, candidates, PRE's queries.

use longshore::SqlValue;
use mysql_async::prelude::Queryable;
use mysql_async::{Column, Conn, Params, Statement};
use tokio::time::timeout;

use super::error::ANSWER_TIMEOUT;
use super::{error, key, value, write};
use crate::definition::Candidates;
use crate::rows::placeholders::{self, PlaceholderStyle, PositionalStatement, reject_mysql_quirks};
use crate::rows::{Candidate, Row, SourceError, StatementInfo};

/// The columns and parameters of a statement.
pub(super) async fn describe(conn: &mut Conn, sql: &str) -> Result<StatementInfo, SourceError> {
    let (statement, read_only) = (positional(sql)?, placeholders::is_read(sql));
    let prepared =
        if read_only { prepare(conn, &statement).await? } else { prepare_change(conn, &statement).await? };
    Ok(StatementInfo { columns: names(&prepared.columns()), params: statement.names()?, read_only })
}

/// Prepares a write, which a read-only session rejects, in a transaction that is rolled back. Runs
/// nothing.
async fn prepare_change(conn: &mut Conn, statement: &PositionalStatement) -> Result<Statement, SourceError> {
    let mut transaction = write::begin(conn).await?;
    let prepared = prepare(&mut transaction, statement).await;
    transaction.rollback().await.map_err(error::of_run)?;
    prepared
}

/// The number of candidates.
pub(super) async fn count(conn: &mut Conn, candidates: &Candidates) -> Result<u64, SourceError> {
    reject_mysql_quirks(&candidates.sql)?;
    let statement = PositionalStatement::around(
        PlaceholderStyle::QuestionMark,
        "SELECT count(*) FROM (",
        &candidates.sql,
        "\n) AS c",
    )?;
    let rows = query(conn, &statement, &placeholders::candidate_params(candidates)).await?;
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
    // The comparison depends on the key's type.
    let own = prepare(conn, &positional(&candidates.sql)?).await?;
    let columns = own.columns();
    let at = placeholders::column_index(names(&columns).iter().map(String::as_str), &candidates.key)?;
    let (head, tail) = key::around(candidates, &columns[at], from.is_some());
    let statement =
        PositionalStatement::around(PlaceholderStyle::QuestionMark, &head, &candidates.sql, &tail)?;
    let mut params = placeholders::candidate_params(candidates);
    params.extend(from.map(|from| (key::FROM.to_owned(), from.clone())));
    params.push((key::LIMIT.to_owned(), SqlValue::Int(limit.into())));
    let rows = query(conn, &statement, &params).await?;
    rows.into_iter().map(|row| candidate(row, &candidates.key)).collect()
}

fn candidate(row: Row, name: &str) -> Result<Candidate, SourceError> {
    let mut values = row.columns.into_iter().map(|(_, value)| value);
    let key = placeholders::check_key(values.next().unwrap_or(SqlValue::Null), name)?;
    Ok(Candidate { key, priority: values.next() })
}

/// Runs a query.
pub(super) async fn fetch(
    conn: &mut Conn,
    sql: &str,
    params: &[(String, SqlValue)],
) -> Result<Vec<Row>, SourceError> {
    let statement = positional(sql)?;
    if !placeholders::is_read(sql) {
        return Err(placeholders::not_a_read_error());
    }
    query(conn, &statement, params).await
}

async fn query(
    conn: &mut Conn,
    statement: &PositionalStatement,
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
    let values =
        values.map(|(column, value)| Ok((column.name_str().into_owned(), value::of_column(value, column)?)));
    Ok(Row { columns: values.collect::<Result<_, SourceError>>()? })
}

/// Rewrites a statement that MySQL and our tokeniser read alike.
pub(super) fn positional(sql: &str) -> Result<PositionalStatement, SourceError> {
    reject_mysql_quirks(sql)?;
    PositionalStatement::of(PlaceholderStyle::QuestionMark, sql)
}

/// Prepares a statement, or takes it from the cache.
pub(super) async fn prepare(
    conn: &mut impl Queryable,
    statement: &PositionalStatement,
) -> Result<Statement, SourceError> {
    let prepared = timeout(ANSWER_TIMEOUT, conn.prep(statement.sql.as_str())).await;
    let prepared = prepared.map_err(|_| error::no_answer("the server", ANSWER_TIMEOUT))?;
    prepared.map_err(|error| error::of_statement(statement, error))
}

fn names(columns: &[Column]) -> Vec<String> {
    columns.iter().map(|column| column.name_str().into_owned()).collect()
}
