//! Statements that a connection has prepared, and how their columns are read.
//!
//! The driver asks for results in binary form, which it knows for the types that we have ourselves.
//! A statement with columns of other types is prepared a second time, inside one that casts those to
//! text: so arrays, ranges, enums and whatever an extension brings come as the server writes them.

use std::collections::HashMap;
use std::sync::Arc;

use tokio_postgres::types::{Kind as TypeKind, Type};
use tokio_postgres::{Client, Statement};

use super::error;
use super::value::Kind;
use crate::database::error::{DbError, Reason};
use crate::database::sql;

/// A prepared statement.
pub(super) struct Prepared {
    pub(super) statement: Statement,
    pub(super) names: Vec<String>,
    pub(super) kinds: Vec<Kind>,
}

/// Those that are kept, the least lately used of which goes first.
pub(super) struct Cache {
    capacity: usize,
    known: HashMap<String, (u64, Arc<Prepared>)>,
    uses: u64,
}

impl Cache {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, known: HashMap::new(), uses: 0 }
    }

    /// Prepares a statement, or finds it prepared.
    pub(super) async fn prepared(
        &mut self,
        client: &Client,
        sql: &str,
    ) -> Result<Arc<Prepared>, DbError> {
        self.uses += 1;
        if let Some((used, known)) = self.known.get_mut(sql) {
            *used = self.uses;
            return Ok(Arc::clone(known));
        }
        // Nothing of the caller's has been run if this comes to nothing.
        let prepared = Arc::new(prepare(client, sql).await.map_err(DbError::unsent)?);
        if self.capacity > 0 {
            self.make_room();
            self.known.insert(sql.to_owned(), (self.uses, Arc::clone(&prepared)));
        }
        Ok(prepared)
    }

    fn make_room(&mut self) {
        if self.known.len() < self.capacity {
            return;
        }
        let oldest = self.known.iter().min_by_key(|(_, (used, _))| *used);
        if let Some(oldest) = oldest.map(|(sql, _)| sql.clone()) {
            self.known.remove(&oldest);
        }
    }

    pub(super) fn forget(&mut self, sql: &str) {
        self.known.remove(sql);
    }
}

/// Whether a prepared statement is of no more use: what it speaks of was changed, or the session's
/// statements were thrown away.
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
    let Some(wrapped) = wrapped(sql, &kinds) else { return Err(unread(&names, &kinds)) };
    // A statement that changes rows in a WITH of its own cannot stand inside another.
    let statement = client.prepare(&wrapped).await.map_err(|_| unread(&names, &kinds))?;
    let kinds = kinds.into_iter().map(|kind| if kind == Kind::Other { Kind::Text } else { kind });
    Ok(Prepared { statement, names, kinds: kinds.collect() })
}

/// What a type is to us; domains are their bases'.
fn kind(type_: &Type) -> Kind {
    match type_.kind() {
        TypeKind::Domain(base) => kind(base),
        TypeKind::Enum(_) => Kind::Text,
        _ => Kind::of(type_),
    }
}

/// The statement inside one that casts what we cannot read. Columns get names of ours: theirs may be
/// missing, or come twice.
fn wrapped(sql: &str, kinds: &[Kind]) -> Option<String> {
    let verb = sql::verb(sql);
    if !["SELECT", "VALUES", "TABLE", "WITH", "INSERT", "UPDATE", "DELETE"].contains(&&*verb) {
        return None;
    }
    let body = sql.trim_end().trim_end_matches(';');
    let names: Vec<String> = (1..=kinds.len()).map(|at| format!("c{at}")).collect();
    let columns: Vec<String> = names
        .iter()
        .zip(kinds)
        .map(
            |(name, kind)| {
                if *kind == Kind::Other { format!("{name}::text") } else { name.clone() }
            },
        )
        .collect();
    // A line of its own, because it may end in a comment.
    let (names, columns) = (names.join(", "), columns.join(", "));
    Some(format!("WITH longshore_q ({names}) AS ({body}\n) SELECT {columns} FROM longshore_q"))
}

fn unread(names: &[String], kinds: &[Kind]) -> DbError {
    let column = kinds.iter().position(|kind| *kind == Kind::Other).and_then(|at| names.get(at));
    let column = column.map_or("a column", String::as_str);
    let words = format!("`{column}` has a type that is read as text only: write {column}::text");
    DbError::new(Reason::Sql, words).code("0A000")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_we_cannot_read_is_cast_by_the_server() {
        let kinds = [Kind::Whole, Kind::Other];
        let expected = "WITH longshore_q (c1, c2) AS (SELECT a, b FROM t -- why\n\
                        ) SELECT c1, c2::text FROM longshore_q";
        assert_eq!(wrapped("SELECT a, b FROM t -- why", &kinds).as_deref(), Some(expected));
        assert!(wrapped("SHOW all", &kinds).is_none());
    }
}
