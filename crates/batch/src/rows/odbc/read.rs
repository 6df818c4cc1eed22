//! Reading: what a statement is, which rows are candidates, what PRE asks for.

use longshore::SqlValue;
use longshore_pool::database::odbc::dialect::Dialect;
use odbc_api::parameter::InputParameter;
use odbc_api::{ColumnDescription, Cursor, ResultSetMetadata};

use super::connection::Live;
use super::dialect::Paged;
use super::error;
use super::value::{self, Column, Kind};
use crate::definition::Candidates;
use crate::rows::positional::{self, Marks, Positional, refuse_mysql_quirks};
use crate::rows::{Candidate, Described, Row, SourceError};

/// Our own parameter has a name that no person would choose.
const FROM: &str = "longshore_from";

/// What a statement would return and wants bound.
pub(super) fn describe(live: &Live, sql: &str) -> Result<Described, SourceError> {
    let (statement, reads_only) = (positional(live, sql)?, positional::reads(sql));
    let params = statement.names()?;
    if let Some(rehearsal) = live.dialect.rehearsal().filter(|_| positional::changes(sql)) {
        rehearse(live, rehearsal, sql)?;
    }
    let columns = columns(live, &statement)?;
    let columns = columns.into_iter().map(|column| column.name).collect();
    Ok(Described { columns, params, reads_only })
}

/// Has the database plan a change. All values are NULL; none is used.
fn rehearse(live: &Live, rehearsal: &str, sql: &str) -> Result<(), SourceError> {
    let statement = Positional::around(Marks::Questions, rehearsal, sql, "")?;
    let nulls: Vec<_> = statement.names()?.into_iter().map(|name| (name, SqlValue::Null)).collect();
    query(live, &statement, &nulls).map(drop).map_err(|error| match error {
        // It was not run: what is wrong is the statement.
        SourceError::Data(message) => SourceError::Statement { message, offset: None },
        error => error,
    })
}

/// How many candidates there are.
pub(super) fn count(live: &Live, candidates: &Candidates) -> Result<u64, SourceError> {
    positional(live, &candidates.sql)?;
    let statement =
        Positional::around(Marks::Questions, "SELECT count(*) FROM (", &candidates.sql, "\n) c")?;
    let rows = query(live, &statement, &positional::params(candidates))?;
    let count = rows.first().and_then(|row| row.columns.first()).map(|(_, count)| count);
    Ok(match count {
        Some(SqlValue::Int(count)) => u64::try_from(*count).unwrap_or(0),
        Some(SqlValue::Text(count)) => count.parse().unwrap_or(0),
        _ => 0,
    })
}

/// A page of candidates in key order.
pub(super) fn candidates(
    live: &Live,
    candidates: &Candidates,
    from: Option<&SqlValue>,
    limit: u32,
) -> Result<Vec<Candidate>, SourceError> {
    // How keys are compared depends on what they are.
    let columns = columns(live, &positional(live, &candidates.sql)?)?;
    let names = columns.iter().map(|column| column.name.as_str());
    let key = &columns[positional::column(names, &candidates.key)?];
    let (head, tail) = around(live, candidates, key, from.is_some(), limit);
    let statement = Positional::around(Marks::Questions, &head, &candidates.sql, &tail)?;
    let mut params = positional::params(candidates);
    params.extend(from.map(|from| (FROM.to_owned(), from.clone())));
    // Read as what they are compared as: SQLite's driver judges a column by its first row.
    let rows = query_as(live, &statement, &params, |at, own| if at == 0 { key.kind } else { own })?;
    rows.into_iter().map(|row| candidate(row, &candidates.key)).collect()
}

/// What goes around the candidates' SQL to make a page of it.
fn around(
    live: &Live,
    candidates: &Candidates,
    key: &Column,
    bounded: bool,
    limit: u32,
) -> (String, String) {
    let named = |name: &str| {
        let close = if live.quote == '[' { ']' } else { live.quote };
        let name = name.replace(close, &format!("{close}{close}"));
        format!("c.{}{name}{close}", live.quote)
    };
    let columns = [Some(&candidates.key), candidates.priority.as_ref()];
    let columns: Vec<String> = columns.into_iter().flatten().map(|name| named(name)).collect();
    let (key, from) = live.dialect.compared(key.kind, &named(&candidates.key), &format!(":{FROM}"));
    let bound = if bounded { format!("WHERE {key} >= {from} ") } else { String::new() };
    let head = format!("SELECT {} FROM (", columns.join(", "));
    (head, format!("\n) c {bound}ORDER BY {key} {}", live.dialect.limit(limit)))
}

fn candidate(row: Row, name: &str) -> Result<Candidate, SourceError> {
    let mut values = row.columns.into_iter().map(|(_, value)| value);
    let key = positional::key(values.next().unwrap_or(SqlValue::Null), name)?;
    Ok(Candidate { key, priority: values.next() })
}

/// All rows of a query.
pub(super) fn fetch(
    live: &Live,
    sql: &str,
    params: &[(String, SqlValue)],
) -> Result<Vec<Row>, SourceError> {
    let statement = positional(live, sql)?;
    if !positional::reads(sql) {
        return Err(positional::not_a_read());
    }
    query(live, &statement, params)
}

fn query(
    live: &Live,
    statement: &Positional,
    params: &[(String, SqlValue)],
) -> Result<Vec<Row>, SourceError> {
    query_as(live, statement, params, |_, own| own)
}

/// The same; `kind_of` has the last word on what a column, from 0, holds.
fn query_as(
    live: &Live,
    statement: &Positional,
    params: &[(String, SqlValue)],
    kind_of: impl Fn(usize, Kind) -> Kind,
) -> Result<Vec<Row>, SourceError> {
    let values = bound(statement.named(params)?, live.dialect);
    let cursor = live.connection()?.execute(&statement.sql, values.as_slice(), None);
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
fn columns(live: &Live, statement: &Positional) -> Result<Vec<Column>, SourceError> {
    let refused = |error| error::of_statement(statement, error);
    let mut prepared = live.connection()?.prepare(&statement.sql).map_err(refused)?;
    described(&mut prepared).map_err(refused)
}

fn described(result: &mut impl ResultSetMetadata) -> Result<Vec<Column>, odbc_api::Error> {
    let count = u16::try_from(result.num_result_cols()?).unwrap_or(0);
    let mut description = ColumnDescription::default();
    let columns = (1..=count).map(|at| {
        result.describe_col(at, &mut description)?;
        // Not the description's own name: SQLite's driver cuts that.
        Ok(Column { name: result.col_name(at)?, kind: Kind::of(description.data_type) })
    });
    columns.collect()
}

/// A statement that the database and we read in the same way.
pub(super) fn positional(live: &Live, sql: &str) -> Result<Positional, SourceError> {
    if live.dialect == Dialect::Mysql {
        refuse_mysql_quirks(sql)?;
    }
    Positional::of(Marks::Questions, sql)
}

/// Values as ODBC wants them.
pub(super) fn bound(values: Vec<&SqlValue>, dialect: Dialect) -> Vec<Box<dyn InputParameter>> {
    values.into_iter().map(|value| value::bound(value, dialect)).collect()
}
