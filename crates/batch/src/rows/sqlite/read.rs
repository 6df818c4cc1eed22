//! Reads: descriptions of statements, candidates, PRE's queries.

use longshore::SqlValue;
use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Connection, Statement};

use super::{bind, error, statement_kind};
use crate::definition::Candidates;
use crate::rows::{Candidate, Row, SourceError, StatementInfo};
use crate::sql;
use crate::sql_json::from_json;

/// Names of our own parameters, unlikely to clash with the user's.
const FROM: &str = "longshore_from";
const LIMIT: &str = "longshore_limit";

/// The columns and parameters of a statement.
pub(super) fn describe(db: &Connection, sql: &str) -> Result<StatementInfo, SourceError> {
    let statement = db.prepare(sql).map_err(|error| error::of_statement(sql, error))?;
    if sql::split(sql).is_empty() {
        return Err(statement_error("there is no statement here"));
    }
    let params = (1..=statement.parameter_count()).map(|at| parameter(&statement, at));
    Ok(StatementInfo {
        params: params.collect::<Result<_, _>>()?,
        columns: statement.column_names().map(str::to_owned).collect(),
        read_only: statement.readonly() && statement_kind::is_read(sql),
    })
}

fn parameter(statement: &Statement<'_>, at: usize) -> Result<String, SourceError> {
    let name = bind::name(statement, at).filter(|name| !name.starts_with(char::is_numeric));
    let name = name.ok_or_else(|| statement_error("a parameter has no name: write `:name`, not `?`"))?;
    Ok(name.to_owned())
}

/// The number of candidates.
pub(super) fn count(db: &Connection, candidates: &Candidates) -> Result<u64, SourceError> {
    let mut statement = prepare_around(db, "SELECT count(*) FROM (", &candidates.sql, ")")?;
    let params = params(candidates);
    bind::bind(&mut statement, |_, name| bind::named(&params, name))?;
    let mut rows = statement.raw_query();
    let row = rows.next().map_err(error::of_run)?;
    let count = row.map_or(Ok(0), |row| row.get::<_, i64>(0)).map_err(error::of_run)?;
    Ok(u64::try_from(count).unwrap_or(0))
}

/// A page of candidates in key order.
pub(super) fn candidates(
    db: &Connection,
    candidates: &Candidates,
    from: Option<&SqlValue>,
    limit: u32,
) -> Result<Vec<Candidate>, SourceError> {
    let (head, tail) = page_sql(candidates, from.is_some());
    let mut statement = prepare_around(db, &head, &candidates.sql, &tail)?;
    let mut params = params(candidates);
    params.extend(from.map(|from| (FROM.to_owned(), from.clone())));
    params.push((LIMIT.to_owned(), SqlValue::Int(limit.into())));
    bind::bind(&mut statement, |_, name| bind::named(&params, name))?;
    let mut found = Vec::new();
    for_each_row(&mut statement, |row, names| {
        let priority = candidates.priority.as_ref().map(|_| value(row, 1, names)).transpose()?;
        found.push(Candidate { key: check_key(row, names)?, priority });
        Ok(())
    })?;
    Ok(found)
}

/// The SQL before and after the candidates' SQL that selects a page.
///
/// Text is compared byte by byte, whatever the column's collation: keys that a collation treats as
/// equal would have no order, and a page could end between them. Columns are qualified because
/// SQLite takes an unknown quoted name for text.
fn page_sql(candidates: &Candidates, bounded: bool) -> (String, String) {
    let column = |name: &String| format!("c.\"{}\"", name.replace('"', "\"\""));
    let columns = [Some(&candidates.key), candidates.priority.as_ref()];
    let columns: Vec<String> = columns.into_iter().flatten().map(column).collect();
    let key = format!("{} COLLATE BINARY", column(&candidates.key));
    let bound = if bounded { format!("WHERE {key} >= :{FROM} ") } else { String::new() };
    let head = format!("SELECT {} FROM (", columns.join(", "));
    (head, format!(") AS c {bound}ORDER BY {key} LIMIT :{LIMIT}"))
}

fn check_key(row: &rusqlite::Row<'_>, names: &[String]) -> Result<SqlValue, SourceError> {
    let invalid_key = |what| Err(SourceError::Data(format!("the key column `{}` {what}", names[0])));
    match value(row, 0, names)? {
        SqlValue::Null => invalid_key("is NULL in a row: a key must name its row"),
        SqlValue::Blob(_) => invalid_key("holds bytes: a key must be a number or text"),
        key => Ok(key),
    }
}

/// Runs a query.
pub(super) fn fetch(
    db: &Connection,
    sql: &str,
    params: &[(String, SqlValue)],
) -> Result<Vec<Row>, SourceError> {
    let mut statement = prepare(db, sql)?;
    if !(statement.readonly() && statement_kind::is_read(sql)) {
        return Err(statement_error("only a SELECT may stand here"));
    }
    bind::bind(&mut statement, |_, name| bind::named(params, name))?;
    let mut found = Vec::new();
    for_each_row(&mut statement, |row, names| {
        let columns = names.iter().enumerate();
        let columns = columns.map(|(at, name)| Ok((name.clone(), value(row, at, names)?)));
        found.push(Row { columns: columns.collect::<Result<_, SourceError>>()? });
        Ok(())
    })?;
    Ok(found)
}

/// Runs a bound statement; `take` gets each row and the columns' names.
fn for_each_row(
    statement: &mut Statement<'_>,
    mut take: impl FnMut(&rusqlite::Row<'_>, &[String]) -> Result<(), SourceError>,
) -> Result<(), SourceError> {
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next().map_err(error::of_run)? {
        take(row, &names)?;
    }
    Ok(())
}

fn value(row: &rusqlite::Row<'_>, at: usize, names: &[String]) -> Result<SqlValue, SourceError> {
    Ok(match row.get_ref(at).map_err(error::of_run)? {
        ValueRef::Null => SqlValue::Null,
        ValueRef::Integer(value) => SqlValue::Int(value),
        ValueRef::Real(value) => SqlValue::Real(value),
        ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => SqlValue::Text(text.to_owned()),
            Err(_) => {
                let message = format!("column `{}` holds text that is not UTF-8", names[at]);
                return Err(SourceError::Data(message));
            }
        },
        ValueRef::Blob(bytes) => SqlValue::Blob(bytes.to_owned()),
    })
}

fn params(candidates: &Candidates) -> Vec<(String, SqlValue)> {
    candidates.params.iter().map(|(name, value)| (name.clone(), from_json(value))).collect()
}

fn prepare<'d>(db: &'d Connection, sql: &str) -> Result<CachedStatement<'d>, SourceError> {
    db.prepare_cached(sql).map_err(|error| error::of_statement(sql, error))
}

/// Prepares the candidates' SQL between `head` and `tail`. Its semicolon is removed, and a line
/// break follows because it may end in a comment. Offsets in errors refer to the user's text.
fn prepare_around<'d>(
    db: &'d Connection,
    head: &str,
    sql: &str,
    tail: &str,
) -> Result<CachedStatement<'d>, SourceError> {
    let (body, at) = match sql::split(sql)[..] {
        [one] => (one.sql, one.at),
        _ => (sql, 0),
    };
    prepare(db, &format!("{head}{body}\n{tail}")).map_err(|error| match error {
        SourceError::Statement { message, offset } => {
            let offset = offset.and_then(|offset| offset.checked_sub(head.len()));
            let offset = offset.map(|offset| offset + at).filter(|offset| *offset < sql.len());
            SourceError::Statement { message, offset }
        }
        error => error,
    })
}

fn statement_error(message: &str) -> SourceError {
    SourceError::Statement { message: message.to_owned(), offset: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(db: &Connection, sql: &str) -> String {
        let (sql, key) = (sql.to_owned(), "id".to_owned());
        let (params, limit, claim) = (std::collections::BTreeMap::new(), None, None);
        let candidates = Candidates {
            sql,
            key,
            priority: None,
            params,
            limit,
            sample: None,
            keys: None,
            skip_since: None,
            claim,
            ahead: 1,
        };
        let (head, tail) = page_sql(&candidates, true);
        let head = format!("EXPLAIN QUERY PLAN {head}");
        let mut statement = prepare_around(db, &head, &candidates.sql, &tail).unwrap();
        let mut rows = statement.raw_query();
        let mut plan = String::new();
        while let Some(row) = rows.next().unwrap() {
            plan += &row.get::<_, String>(3).unwrap();
        }
        plan
    }

    #[test]
    fn a_page_is_found_by_the_keys_index_and_not_sorted() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(
            "CREATE TABLE whole (id INTEGER PRIMARY KEY, open);
             CREATE TABLE words (id TEXT PRIMARY KEY, open);",
        )
        .unwrap();
        for table in ["whole", "words"] {
            let plan = plan(&db, &format!("SELECT id, open FROM {table} WHERE open = 1 -- why\n;"));
            assert!(plan.starts_with(&format!("SEARCH {table} USING")), "{plan}");
            assert!(!plan.contains("B-TREE"), "{plan}");
        }
    }
}
