//! Reading: what a statement is, which rows are candidates, what PRE asks for.

use longshore::SqlValue;
use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Connection, Statement};

use super::{bind, error, verb};
use crate::definition::Candidates;
use crate::rows::{Candidate, Described, Row, SourceError};
use crate::sql;
use crate::value::from_json;

/// Our own parameters have names that no person would choose.
const FROM: &str = "longshore_from";
const LIMIT: &str = "longshore_limit";

/// What a statement would return and wants bound.
pub(super) fn describe(db: &Connection, sql: &str) -> Result<Described, SourceError> {
    let statement = db.prepare(sql).map_err(|error| error::of_statement(sql, error))?;
    if sql::split(sql).is_empty() {
        return Err(refused("there is no statement here"));
    }
    let params = (1..=statement.parameter_count()).map(|at| parameter(&statement, at));
    Ok(Described {
        params: params.collect::<Result<_, _>>()?,
        columns: statement.column_names().map(str::to_owned).collect(),
        reads_only: statement.readonly() && verb::reads(sql),
    })
}

fn parameter(statement: &Statement<'_>, at: usize) -> Result<String, SourceError> {
    let name = bind::name(statement, at).filter(|name| !name.starts_with(char::is_numeric));
    let name = name.ok_or_else(|| refused("a parameter has no name: write `:name`, not `?`"))?;
    Ok(name.to_owned())
}

/// How many candidates there are.
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
    let (head, tail) = around(candidates, from.is_some());
    let mut statement = prepare_around(db, &head, &candidates.sql, &tail)?;
    let mut params = params(candidates);
    params.extend(from.map(|from| (FROM.to_owned(), from.clone())));
    params.push((LIMIT.to_owned(), SqlValue::Int(limit.into())));
    bind::bind(&mut statement, |_, name| bind::named(&params, name))?;
    let mut found = Vec::new();
    each(&mut statement, |row, names| {
        let priority = candidates.priority.as_ref().map(|_| value(row, 1, names)).transpose()?;
        found.push(Candidate { key: key_of(row, names)?, priority });
        Ok(())
    })?;
    Ok(found)
}

/// What goes around the candidates' SQL to make a page of it.
///
/// Text is compared byte by byte whatever the column says: two keys that are equal in some
/// language's eyes would have no order among themselves, and a page could end between them.
/// Columns are qualified because SQLite takes a quoted name that it does not know for text.
fn around(candidates: &Candidates, bounded: bool) -> (String, String) {
    let column = |name: &String| format!("c.\"{}\"", name.replace('"', "\"\""));
    let columns = [Some(&candidates.key), candidates.priority.as_ref()];
    let columns: Vec<String> = columns.into_iter().flatten().map(column).collect();
    let key = format!("{} COLLATE BINARY", column(&candidates.key));
    let bound = if bounded { format!("WHERE {key} >= :{FROM} ") } else { String::new() };
    let head = format!("SELECT {} FROM (", columns.join(", "));
    (head, format!(") AS c {bound}ORDER BY {key} LIMIT :{LIMIT}"))
}

fn key_of(row: &rusqlite::Row<'_>, names: &[String]) -> Result<SqlValue, SourceError> {
    let refuse = |what| Err(SourceError::Data(format!("the key column `{}` {what}", names[0])));
    match value(row, 0, names)? {
        SqlValue::Null => refuse("is NULL in a row: a key must name its row"),
        SqlValue::Blob(_) => refuse("holds bytes: a key must be a number or text"),
        key => Ok(key),
    }
}

/// All rows of a query.
pub(super) fn fetch(
    db: &Connection,
    sql: &str,
    params: &[(String, SqlValue)],
) -> Result<Vec<Row>, SourceError> {
    let mut statement = prepare(db, sql)?;
    if !(statement.readonly() && verb::reads(sql)) {
        return Err(refused("only a SELECT may stand here"));
    }
    bind::bind(&mut statement, |_, name| bind::named(params, name))?;
    let mut found = Vec::new();
    each(&mut statement, |row, names| {
        let columns = names.iter().enumerate();
        let columns = columns.map(|(at, name)| Ok((name.clone(), value(row, at, names)?)));
        found.push(Row { columns: columns.collect::<Result<_, SourceError>>()? });
        Ok(())
    })?;
    Ok(found)
}

/// Runs a bound statement; `take` sees each row and the columns' names.
fn each(
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
                let words = format!("column `{}` holds text that is not UTF-8", names[at]);
                return Err(SourceError::Data(words));
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

/// Prepares the candidates' SQL between `head` and `tail`. It loses its semicolon, and gets a line
/// of its own because it may end in a comment; errors point into it as it was written.
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

fn refused(words: &str) -> SourceError {
    SourceError::Statement { message: words.to_owned(), offset: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(db: &Connection, sql: &str) -> String {
        let (sql, key) = (sql.to_owned(), "id".to_owned());
        let (params, limit, claim) = (std::collections::BTreeMap::new(), None, None);
        let candidates = Candidates { sql, key, priority: None, params, limit, claim, ahead: 1 };
        let (head, tail) = around(&candidates, true);
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
