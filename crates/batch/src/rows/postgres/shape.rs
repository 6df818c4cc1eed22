//! The columns of a query, looked up without running it and without preparing anything.
//!
//! One row of NULLs with the query's columns is asked for: its names as JSON's, its types as those
//! of a record, which carries them. The query itself stands behind `ON false`: it is read and planned,
//! never run. The driver's own way would prepare a statement with a name, and ask for types that it
//! does not know with others, which a pooler loses.

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore::SqlValue;
use tokio_postgres::types::{FromSql, Oid, Type};

use super::server::Server;
use super::statement;
use super::value::Kind;
use crate::rows::SourceError;

/// Queries whose columns are remembered: a batch has a handful, a worker serves many batches.
const QUERIES: usize = 512;
const HEAD: &str = "SELECT ARRAY(SELECT json_object_keys(row_to_json(r))), r \
                    FROM (SELECT q.* FROM (SELECT 1) AS one LEFT JOIN (";
const TAIL: &str = "\n) AS q ON false) AS r";
/// A domain may be one of another domain.
const DOMAINS: &str = "WITH RECURSIVE chain(domain, base) AS (
    SELECT oid, typbasetype FROM pg_catalog.pg_type WHERE typtype = 'd' AND oid = ANY (:oids::oid[])
    UNION ALL SELECT chain.domain, t.typbasetype
    FROM chain JOIN pg_catalog.pg_type t ON t.oid = chain.base AND t.typtype = 'd')
    SELECT domain, base FROM chain";

/// A column of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: Kind,
}

/// What is known of queries' columns.
#[derive(Debug, Default)]
pub(super) struct Shapes {
    known: Mutex<HashMap<String, Arc<[Column]>>>,
}

impl Shapes {
    /// The columns of a query that was looked up before.
    pub(super) fn known(&self, sql: &str) -> Option<Arc<[Column]>> {
        self.lock().get(sql).cloned()
    }

    /// Asks the server for a query's columns.
    pub(super) async fn look_up(
        &self,
        server: &Server,
        sql: &str,
    ) -> Result<Arc<[Column]>, SourceError> {
        let columns: Arc<[Column]> = columns(server, sql).await?.into();
        let mut known = self.lock();
        if known.len() >= QUERIES {
            known.clear();
        }
        known.insert(sql.to_owned(), Arc::clone(&columns));
        Ok(columns)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<[Column]>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn columns(server: &Server, sql: &str) -> Result<Vec<Column>, SourceError> {
    let statement = statement::around(HEAD, sql, TAIL)?;
    let nulls = vec![&SqlValue::Null; statement.width()];
    let rows = server.read(&statement, &nulls).await?;
    let row = rows.first().ok_or_else(|| unread("no columns"))?;
    let names: Vec<String> = row.try_get(0).map_err(unread)?;
    let Types(types) = row.try_get(1).map_err(unread)?;
    let bases = bases(server, &types).await?;
    let kind = |oid| Kind::of(Type::from_oid(*bases.get(&oid).unwrap_or(&oid)).as_ref());
    let columns = names.into_iter().zip(types);
    Ok(columns.map(|(name, oid)| Column { name, kind: kind(oid) }).collect())
}

/// The types under those that the server does not bring itself, where they are domains.
async fn bases(server: &Server, types: &[Oid]) -> Result<HashMap<Oid, Oid>, SourceError> {
    let own = types.iter().filter(|oid| Type::from_oid(**oid).is_none());
    let own: Vec<String> = own.map(ToString::to_string).collect();
    if own.is_empty() {
        return Ok(HashMap::new());
    }
    let own = SqlValue::Text(format!("{{{}}}", own.join(",")));
    let rows = server.read(&statement::of(DOMAINS)?, &[&own]).await?;
    let mut bases = HashMap::new();
    for row in rows {
        let (domain, base) = (row.try_get(0).map_err(unread)?, row.try_get(1).map_err(unread)?);
        if Type::from_oid(base).is_some() {
            bases.insert(domain, base);
        }
    }
    Ok(bases)
}

fn unread(why: impl std::fmt::Display) -> SourceError {
    SourceError::Data(format!("the server's description of a query is not understood: {why}"))
}

/// The types of a record's fields: a count, then each one's type, length and bytes.
struct Types(Vec<Oid>);

impl<'r> FromSql<'r> for Types {
    fn from_sql(_: &Type, raw: &'r [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        let mut rest = raw;
        let mut word = || {
            let (word, after) = rest.split_first_chunk::<4>().ok_or("the record is too short")?;
            rest = after;
            Ok::<_, &str>(*word)
        };
        let mut types = Vec::new();
        for _ in 0..u32::from_be_bytes(word()?) {
            types.push(u32::from_be_bytes(word()?));
            // All are NULL, which has no bytes.
            if i32::from_be_bytes(word()?) >= 0 {
                return Err("a column of a row that is not there has a value".into());
            }
        }
        Ok(Self(types))
    }

    fn accepts(type_: &Type) -> bool {
        *type_ == Type::RECORD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_records_types_are_read_and_anything_else_is_refused() {
        let record = [0, 0, 0, 2, 0, 0, 0, 23, 255, 255, 255, 255, 0, 0, 0, 25, 255, 255, 255, 255];
        let Types(types) = Types::from_sql(&Type::RECORD, &record).unwrap();
        assert_eq!(types, [23, 25]);
        assert!(Types::from_sql(&Type::RECORD, &record[..19]).is_err());
        let with_value = [0, 0, 0, 1, 0, 0, 0, 23, 0, 0, 0, 1, 7];
        assert!(Types::from_sql(&Type::RECORD, &with_value).is_err());
    }
}
