//! Reads: descriptions of statements, candidates, PRE's queries.

use longshore::SqlValue;
use longshore_pool::database::odbc::dialect::Dialect;
use odbc_api::parameter::InputParameter;
use odbc_api::{ColumnDescription, Cursor, ResultSetMetadata};

use super::connection::OdbcConnection;
use super::dialect::PagedDialect;
use super::error;
use super::value::{self, Column, ColumnKind};
use crate::definition::Candidates;
use crate::rows::placeholders::{self, PlaceholderStyle, PositionalStatement, reject_mysql_quirks};
use crate::rows::{Candidate, Row, SourceError, StatementInfo};

/// Name of our own parameter, unlikely to clash with the user's.
const FROM: &str = "longshore_from";

/// The columns and parameters of a statement.
pub(super) fn describe(db: &OdbcConnection, sql: &str) -> Result<StatementInfo, SourceError> {
    let (statement, read_only) = (positional(db, sql)?, placeholders::is_read(sql));
    let params = statement.names()?;
    if let Some(explain_prefix) = db.dialect.explain_prefix().filter(|_| placeholders::is_write(sql)) {
        explain(db, explain_prefix, sql)?;
    }
    let columns = columns(db, &statement)?;
    let columns = columns.into_iter().map(|column| column.name).collect();
    Ok(StatementInfo { columns, params, read_only })
}

/// Makes the database plan a write without running it. All values are NULL.
fn explain(db: &OdbcConnection, explain_prefix: &str, sql: &str) -> Result<(), SourceError> {
    let statement = PositionalStatement::around(PlaceholderStyle::QuestionMark, explain_prefix, sql, "")?;
    let nulls: Vec<_> = statement.names()?.into_iter().map(|name| (name, SqlValue::Null)).collect();
    query(db, &statement, &nulls).map(drop).map_err(|error| match error {
        // Nothing was run, so the statement itself is wrong.
        SourceError::Data(message) => SourceError::Statement { message, offset: None },
        error => error,
    })
}

/// The number of candidates.
pub(super) fn count(db: &OdbcConnection, candidates: &Candidates) -> Result<u64, SourceError> {
    positional(db, &candidates.sql)?;
    let statement = PositionalStatement::around(
        PlaceholderStyle::QuestionMark,
        "SELECT count(*) FROM (",
        &candidates.sql,
        "\n) c",
    )?;
    let rows = query(db, &statement, &placeholders::candidate_params(candidates))?;
    let count = rows.first().and_then(|row| row.columns.first()).map(|(_, count)| count);
    Ok(match count {
        Some(SqlValue::Int(count)) => u64::try_from(*count).unwrap_or(0),
        Some(SqlValue::Text(count)) => count.parse().unwrap_or(0),
        _ => 0,
    })
}

/// A page of candidates in key order.
pub(super) fn candidates(
    db: &OdbcConnection,
    candidates: &Candidates,
    from: Option<&SqlValue>,
    limit: u32,
) -> Result<Vec<Candidate>, SourceError> {
    // The comparison depends on the key's type.
    let columns = columns(db, &positional(db, &candidates.sql)?)?;
    let names = columns.iter().map(|column| column.name.as_str());
    let key = &columns[placeholders::column_index(names, &candidates.key)?];
    let (head, tail) = page_sql(db, candidates, key, from.is_some(), limit);
    let statement =
        PositionalStatement::around(PlaceholderStyle::QuestionMark, &head, &candidates.sql, &tail)?;
    let mut params = placeholders::candidate_params(candidates);
    params.extend(from.map(|from| (FROM.to_owned(), from.clone())));
    // Keys are read as the type that they are compared as: SQLite's driver infers a column's type
    // from its first row.
    let rows = query_as(db, &statement, &params, |at, own| if at == 0 { key.kind } else { own })?;
    rows.into_iter().map(|row| candidate(row, &candidates.key)).collect()
}

/// The SQL before and after the candidates' SQL that selects a page.
fn page_sql(
    db: &OdbcConnection,
    candidates: &Candidates,
    key: &Column,
    bounded: bool,
    limit: u32,
) -> (String, String) {
    let named = |name: &str| {
        let close = if db.quote == '[' { ']' } else { db.quote };
        let name = name.replace(close, &format!("{close}{close}"));
        format!("c.{}{name}{close}", db.quote)
    };
    let columns = [Some(&candidates.key), candidates.priority.as_ref()];
    let columns: Vec<String> = columns.into_iter().flatten().map(|name| named(name)).collect();
    let (key, from) = db.dialect.compared(key.kind, &named(&candidates.key), &format!(":{FROM}"));
    let bound = if bounded { format!("WHERE {key} >= {from} ") } else { String::new() };
    let head = format!("SELECT {} FROM (", columns.join(", "));
    (head, format!("\n) c {bound}ORDER BY {key} {}", db.dialect.limit(limit)))
}

fn candidate(row: Row, name: &str) -> Result<Candidate, SourceError> {
    let mut values = row.columns.into_iter().map(|(_, value)| value);
    let key = placeholders::check_key(values.next().unwrap_or(SqlValue::Null), name)?;
    Ok(Candidate { key, priority: values.next() })
}

/// Runs a query.
pub(super) fn fetch(
    db: &OdbcConnection,
    sql: &str,
    params: &[(String, SqlValue)],
) -> Result<Vec<Row>, SourceError> {
    let statement = positional(db, sql)?;
    if !placeholders::is_read(sql) {
        return Err(placeholders::not_a_read_error());
    }
    query(db, &statement, params)
}

fn query(
    db: &OdbcConnection,
    statement: &PositionalStatement,
    params: &[(String, SqlValue)],
) -> Result<Vec<Row>, SourceError> {
    query_as(db, statement, params, |_, own| own)
}

/// Runs a query; `kind_of` overrides the type of a column, counted from 0.
fn query_as(
    db: &OdbcConnection,
    statement: &PositionalStatement,
    params: &[(String, SqlValue)],
    kind_of: impl Fn(usize, ColumnKind) -> ColumnKind,
) -> Result<Vec<Row>, SourceError> {
    let values = bind(statement.named(params)?, db.dialect);
    let cursor = db.handle()?.execute(&statement.sql, values.as_slice(), None);
    let Some(mut cursor) = cursor.map_err(|error| error::of_statement(statement, error))? else {
        return Ok(Vec::new());
    };
    let columns = described(&mut cursor).map_err(error::of_run)?;
    let mut rows = Vec::new();
    while let Some(mut row) = cursor.next_row().map_err(error::of_run)? {
        let values = columns.iter().enumerate().map(|(at, column)| {
            let kind = kind_of(at, column.kind);
            let value = value::read(&mut row, at, kind).map_err(error::of_run)?;
            Ok((column.name.clone(), value))
        });
        rows.push(Row { columns: values.collect::<Result<_, SourceError>>()? });
    }
    Ok(rows)
}

/// The columns of a statement that is not run.
fn columns(db: &OdbcConnection, statement: &PositionalStatement) -> Result<Vec<Column>, SourceError> {
    let statement_error = |error| error::of_statement(statement, error);
    let mut prepared = db.handle()?.prepare(&statement.sql).map_err(statement_error)?;
    described(&mut prepared).map_err(statement_error)
}

fn described(result: &mut impl ResultSetMetadata) -> Result<Vec<Column>, odbc_api::Error> {
    let count = u16::try_from(result.num_result_cols()?).unwrap_or(0);
    let mut description = ColumnDescription::default();
    let columns = (1..=count).map(|at| {
        result.describe_col(at, &mut description)?;
        // Not the description's own name: SQLite's driver truncates it.
        Ok(Column { name: result.col_name(at)?, kind: ColumnKind::of(description.data_type) })
    });
    columns.collect()
}

/// Rewrites a statement that the database and our tokeniser read alike.
pub(super) fn positional(db: &OdbcConnection, sql: &str) -> Result<PositionalStatement, SourceError> {
    if db.dialect == Dialect::Mysql {
        reject_mysql_quirks(sql)?;
    }
    PositionalStatement::of(PlaceholderStyle::QuestionMark, sql)
}

/// The values as ODBC parameters.
pub(super) fn bind(values: Vec<&SqlValue>, dialect: Dialect) -> Vec<Box<dyn InputParameter>> {
    values.into_iter().map(|value| value::bound(value, dialect)).collect()
}
