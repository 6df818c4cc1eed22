//! Looks up the columns of a query without running it and without a prepared statement.
//!
//! The lookup selects one row of NULLs with the query's columns: the names from `row_to_json`, the
//! types from the binary form of the record. The query itself is behind `ON false`: the server
//! parses and plans it but never runs it. The driver's own lookup would use a named prepared
//! statement and further queries for unknown types, which a pooler loses.

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore::SqlValue;
use tokio_postgres::types::{FromSql, Oid, Type};

use super::server::PostgresServer;
use super::statement;
use super::value::ColumnKind;
use crate::rows::SourceError;

/// Maximum number of cached queries: a batch has a handful, a worker serves many batches.
const MAX_CACHED_QUERIES: usize = 512;
const HEAD: &str = "SELECT ARRAY(SELECT json_object_keys(row_to_json(r))), r \
                    FROM (SELECT q.* FROM (SELECT 1) AS one LEFT JOIN (";
const TAIL: &str = "\n) AS q ON false) AS r";
/// The base types of domains; a domain may be based on another domain.
const DOMAINS: &str = "WITH RECURSIVE chain(domain, base) AS (
    SELECT oid, typbasetype FROM pg_catalog.pg_type WHERE typtype = 'd' AND oid = ANY (:oids::oid[])
    UNION ALL SELECT chain.domain, t.typbasetype
    FROM chain JOIN pg_catalog.pg_type t ON t.oid = chain.base AND t.typtype = 'd')
    SELECT domain, base FROM chain";

/// A column of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: ColumnKind,
}

/// Cache of queries' columns.
#[derive(Debug, Default)]
pub(super) struct ColumnCache {
    cached: Mutex<HashMap<String, Arc<[Column]>>>,
}

impl ColumnCache {
    /// The cached columns of a query.
    pub(super) fn cached(&self, sql: &str) -> Option<Arc<[Column]>> {
        self.lock().get(sql).cloned()
    }

    /// Reads a query's columns from the server and caches them.
    pub(super) async fn look_up(
        &self,
        server: &PostgresServer,
        sql: &str,
    ) -> Result<Arc<[Column]>, SourceError> {
        let columns: Arc<[Column]> = columns(server, sql).await?.into();
        let mut cached = self.lock();
        if cached.len() >= MAX_CACHED_QUERIES {
            cached.clear();
        }
        cached.insert(sql.to_owned(), Arc::clone(&columns));
        Ok(columns)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<[Column]>>> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn columns(server: &PostgresServer, sql: &str) -> Result<Vec<Column>, SourceError> {
    let statement = statement::around(HEAD, sql, TAIL)?;
    let nulls = vec![&SqlValue::Null; statement.parameter_count()];
    let rows = server.read(&statement, &nulls).await?;
    let row = rows.first().ok_or_else(|| description_error("no columns"))?;
    let names: Vec<String> = row.try_get(0).map_err(description_error)?;
    let RecordTypes(types) = row.try_get(1).map_err(description_error)?;
    let base_types = base_types(server, &types).await?;
    let kind = |oid| ColumnKind::of(Type::from_oid(*base_types.get(&oid).unwrap_or(&oid)).as_ref());
    let columns = names.into_iter().zip(types);
    Ok(columns.map(|(name, oid)| Column { name, kind: kind(oid) }).collect())
}

/// The base types of user-defined types that are domains.
async fn base_types(server: &PostgresServer, types: &[Oid]) -> Result<HashMap<Oid, Oid>, SourceError> {
    let unknown_oids = types.iter().filter(|oid| Type::from_oid(**oid).is_none());
    let unknown_oids: Vec<String> = unknown_oids.map(ToString::to_string).collect();
    if unknown_oids.is_empty() {
        return Ok(HashMap::new());
    }
    let unknown_oids = SqlValue::Text(format!("{{{}}}", unknown_oids.join(",")));
    let rows = server.read(&statement::of(DOMAINS)?, &[&unknown_oids]).await?;
    let mut base_types = HashMap::new();
    for row in rows {
        let (domain, base) =
            (row.try_get(0).map_err(description_error)?, row.try_get(1).map_err(description_error)?);
        if Type::from_oid(base).is_some() {
            base_types.insert(domain, base);
        }
    }
    Ok(base_types)
}

fn description_error(why: impl std::fmt::Display) -> SourceError {
    SourceError::Data(format!("the server's description of a query is not understood: {why}"))
}

/// The types of a record's fields. The wire format is a count, then each field's type, length and
/// bytes.
struct RecordTypes(Vec<Oid>);

impl<'r> FromSql<'r> for RecordTypes {
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
            // All values are NULL, which has no bytes.
            if i32::from_be_bytes(word()?) >= 0 {
                return Err("a column of the NULL row has a value".into());
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
        let RecordTypes(types) = RecordTypes::from_sql(&Type::RECORD, &record).unwrap();
        assert_eq!(types, [23, 25]);
        assert!(RecordTypes::from_sql(&Type::RECORD, &record[..19]).is_err());
        let with_value = [0, 0, 0, 1, 0, 0, 0, 23, 0, 0, 0, 1, 7];
        assert!(RecordTypes::from_sql(&Type::RECORD, &with_value).is_err());
    }
}
