//! The prepared statements of a connection, and how their columns are read.
//!
//! The driver requests results in binary format, which it can parse for the types of `Value`. A
//! statement with columns of other types is prepared a second time, inside a query that casts those
//! to text. So arrays, ranges, enums and extension types arrive as the server prints them.

use std::collections::HashMap;
use std::sync::Arc;

use tokio_postgres::types::{Kind as TypeKind, Type};
use tokio_postgres::{Client, Statement};

use super::error;
use super::value::Kind;
use crate::error::{DbError, Reason};
use crate::sql;

/// A prepared statement.
pub(super) struct Prepared {
    pub(super) statement: Statement,
    pub(super) names: Vec<String>,
    pub(super) kinds: Vec<Kind>,
}

/// Cache of prepared statements; evicts the least recently used.
pub(super) struct Cache {
    capacity: usize,
    entries: HashMap<String, (u64, Arc<Prepared>)>,
    uses: u64,
}

impl Cache {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, entries: HashMap::new(), uses: 0 }
    }

    /// Finds a prepared statement, or prepares it.
    pub(super) async fn prepared(&mut self, client: &Client, sql: &str) -> Result<Arc<Prepared>, DbError> {
        self.uses += 1;
        if let Some((used, entries)) = self.entries.get_mut(sql) {
            *used = self.uses;
            return Ok(Arc::clone(entries));
        }
        // If preparing fails, no statement of the caller has run.
        let prepared = Arc::new(prepare(client, sql).await.map_err(DbError::unsent)?);
        if self.capacity > 0 {
            self.evict_oldest();
            self.entries.insert(sql.to_owned(), (self.uses, Arc::clone(&prepared)));
        }
        Ok(prepared)
    }

    fn evict_oldest(&mut self) {
        if self.entries.len() < self.capacity {
            return;
        }
        let oldest = self.entries.iter().min_by_key(|(_, (used, _))| *used);
        if let Some(oldest) = oldest.map(|(sql, _)| sql.clone()) {
            self.entries.remove(&oldest);
        }
    }

    pub(super) fn remove_statement(&mut self, sql: &str) {
        self.entries.remove(sql);
    }
}

/// Whether a prepared statement is invalid: its tables were changed, or the session's statements
/// were deallocated.
pub(super) fn is_stale(error: &DbError) -> bool {
    match error.code.as_deref() {
        Some("0A000") => error.message.contains("cached plan must not change result type"),
        Some("26000") => true,
        _ => false,
    }
}

async fn prepare(client: &Client, sql: &str) -> Result<Prepared, DbError> {
    let statement = client.prepare(sql).await.map_err(|error| error::of(&error))?;
    let columns = statement.columns();
    let names: Vec<String> = columns.iter().map(|column| column.name().to_owned()).collect();
    let kinds: Vec<Kind> = columns.iter().map(|column| kind(column.type_())).collect();
    if !kinds.contains(&Kind::Other) {
        return Ok(Prepared { statement, names, kinds });
    }
    let Some(with_casts) = with_casts(sql, &kinds) else {
        return Err(unreadable_type(&names, &kinds));
    };
    // A statement with a data-modifying WITH cannot be nested.
    let statement = client.prepare(&with_casts).await.map_err(|_| unreadable_type(&names, &kinds))?;
    let kinds = kinds.into_iter().map(|kind| if kind == Kind::Other { Kind::Text } else { kind });
    Ok(Prepared { statement, names, kinds: kinds.collect() })
}

/// How a type is read; a domain is read as its base type.
fn kind(type_: &Type) -> Kind {
    match type_.kind() {
        TypeKind::Domain(base) => kind(base),
        TypeKind::Enum(_) => Kind::Text,
        _ => Kind::of(type_),
    }
}

/// The statement inside a query that casts the columns of other types to text. The columns get new
/// names, because the original names may be missing or duplicate.
fn with_casts(sql: &str, kinds: &[Kind]) -> Option<String> {
    let verb = sql::verb(sql);
    if !["SELECT", "VALUES", "TABLE", "WITH", "INSERT", "UPDATE", "DELETE"].contains(&&*verb) {
        return None;
    }
    let body = sql.trim_end().trim_end_matches(';');
    let names: Vec<String> = (1..=kinds.len()).map(|at| format!("c{at}")).collect();
    let columns: Vec<String> = names
        .iter()
        .zip(kinds)
        .map(|(name, kind)| if *kind == Kind::Other { format!("{name}::text") } else { name.clone() })
        .collect();
    // On its own line, because the statement may end in a comment.
    let (names, columns) = (names.join(", "), columns.join(", "));
    Some(format!("WITH longshore_q ({names}) AS ({body}\n) SELECT {columns} FROM longshore_q"))
}

fn unreadable_type(names: &[String], kinds: &[Kind]) -> DbError {
    let column = kinds.iter().position(|kind| *kind == Kind::Other).and_then(|at| names.get(at));
    let column = column.map_or("a column", String::as_str);
    let message = format!("`{column}` has a type that is read as text only: write {column}::text");
    DbError::new(Reason::Sql, message).code("0A000")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_we_cannot_read_is_cast_by_the_server() {
        let kinds = [Kind::Whole, Kind::Other];
        let expected = "WITH longshore_q (c1, c2) AS (SELECT a, b FROM t -- why\n\
                        ) SELECT c1, c2::text FROM longshore_q";
        assert_eq!(with_casts("SELECT a, b FROM t -- why", &kinds).as_deref(), Some(expected));
        assert!(with_casts("SHOW all", &kinds).is_none());
    }
}
