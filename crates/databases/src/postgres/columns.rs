//! Reads queries without a prepared statement: behind a pooler, the next transaction may be another session's.
//!
//! The driver can read the types of [`Kind`] only, so the columns are looked up first, once per query. The lookup selects
//! one row of NULLs with the query's columns: the names from `row_to_json`, the types from the binary form of the
//! record. The query itself is behind `ON false`: the server parses and plans it but never runs it. The driver's own
//! lookup would use a named prepared statement and further queries for unknown types, which a pooler loses.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;

use tokio_postgres::types::{FromSql, Oid, Type};
use tokio_postgres::{Client, Row};

use super::value::{self, Kind};
use crate::column::{Column, ColumnKind};
use crate::dialect::Dialect;
use crate::error::{DbError, ErrorClass, Reason};
use crate::row::ResultTable;
use crate::statement::Statement;
use crate::value::Value;

/// Maximum number of cached queries: a batch has a handful, a worker serves many batches.
const MAX_CACHED_QUERIES: usize = 512;
const HEAD: &str = "SELECT ARRAY(SELECT json_object_keys(row_to_json(r))), r \
                    FROM (SELECT q.* FROM (SELECT 1) AS one LEFT JOIN (";
const TAIL: &str = "\n) AS q ON false) AS r";
/// The base types of domains; a domain may be based on another domain.
const DOMAINS: &str = "WITH RECURSIVE chain(domain, base) AS (
    SELECT oid, typbasetype FROM pg_catalog.pg_type WHERE typtype = 'd' AND oid = ANY ($1::oid[])
    UNION ALL SELECT chain.domain, t.typbasetype
    FROM chain JOIN pg_catalog.pg_type t ON t.oid = chain.base AND t.typtype = 'd')
    SELECT domain, base FROM chain";

/// A column of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QueryColumn {
    name: String,
    /// Its type, or its domain's base type, if the driver knows that.
    base: Option<Type>,
    is_domain: bool,
}

impl QueryColumn {
    /// For callers: types with a total order of their own are compared as they are.
    pub(super) fn describe(&self) -> Column {
        let is_ordered = |base: &Type| {
            [Type::NUMERIC, Type::DATE, Type::TIME, Type::TIMESTAMP, Type::TIMESTAMPTZ, Type::UUID]
                .contains(base)
        };
        let kind = match self.kind() {
            Kind::Bytes => ColumnKind::Bytes,
            Kind::Whole | Kind::Real | Kind::Truth => ColumnKind::Inferred,
            _ if self.base.as_ref().is_some_and(is_ordered) => ColumnKind::Inferred,
            Kind::Text | Kind::Void | Kind::Other => ColumnKind::Text,
        };
        Column { name: self.name.clone(), kind }
    }

    fn kind(&self) -> Kind {
        self.base.as_ref().map_or(Kind::Other, Kind::of)
    }

    /// How the column is read after [`Self::cast`].
    fn read_kind(&self) -> Kind {
        if self.kind() == Kind::Other { Kind::Text } else { self.kind() }
    }

    /// The type to which the column is cast, if the driver cannot read its own.
    fn cast(&self) -> Option<&'static str> {
        match self.kind() {
            Kind::Other => Some("text"),
            // Its binary form is padded with blanks.
            _ if self.base == Some(Type::BPCHAR) => Some("text"),
            _ if !self.is_domain => None,
            Kind::Whole => Some("int8"),
            Kind::Real if self.base == Some(Type::FLOAT4) => Some("float4"),
            Kind::Real => Some("float8"),
            Kind::Truth => Some("bool"),
            Kind::Bytes => Some("bytea"),
            Kind::Text | Kind::Void => Some("text"),
        }
    }
}

/// Queries and their columns.
#[derive(Debug, Default)]
pub(super) struct ColumnCache(HashMap<String, Arc<[QueryColumn]>>);

impl ColumnCache {
    /// Reads a query's columns from the server and caches them.
    pub(super) async fn look_up(
        &mut self,
        client: &Client,
        query: &Statement,
    ) -> Result<Arc<[QueryColumn]>, DbError> {
        let columns: Arc<[QueryColumn]> = columns(client, query).await?.into();
        if self.0.len() >= MAX_CACHED_QUERIES {
            self.0.clear();
        }
        self.0.insert(query.sql.clone(), Arc::clone(&columns));
        Ok(columns)
    }

    /// Runs a query. If it fails with cached columns and they have changed since, runs it once more.
    pub(super) async fn read(&mut self, client: &Client, query: &Statement) -> Result<ResultTable, DbError> {
        let cached = self.0.get(&query.sql).map(Arc::clone);
        let columns = match &cached {
            Some(columns) => Arc::clone(columns),
            None => self.look_up(client, query).await?,
        };
        let answer = read(client, query, &columns).await;
        let is_rejected = |error: &DbError| matches!(error.class(), ErrorClass::Statement | ErrorClass::Data);
        if cached.is_none() || !answer.as_ref().is_err_and(is_rejected) {
            return answer;
        }
        let now = self.look_up(client, query).await?;
        if now == columns { answer } else { read(client, query, &now).await }
    }
}

/// Makes the server plan a write without running it, which finds its mistakes.
pub(super) async fn explain(client: &Client, change: &Statement) -> Result<(), DbError> {
    let prefix = Dialect::Postgres.explain_prefix().unwrap_or_default();
    read_around(client, prefix, change, "").await.map(drop)
}

/// Runs a query between `head` and `tail`, to which places of mistakes do not refer.
async fn read_around(
    client: &Client,
    head: &str,
    query: &Statement,
    tail: &str,
) -> Result<Vec<Row>, DbError> {
    let rows = super::read(client, &format!("{head}{}{tail}", query.sql), &query.params).await;
    rows.map_err(|error| {
        let position = error.position.and_then(|at| at.checked_sub(head.len()));
        DbError { position: position.filter(|at| *at < query.sql.len()), ..error }
    })
}

async fn read(client: &Client, query: &Statement, columns: &[QueryColumn]) -> Result<ResultTable, DbError> {
    let (head, tail) = casts_around(columns);
    let found = read_around(client, &head, query, &tail).await?;
    let kinds: Vec<Kind> = columns.iter().map(QueryColumn::read_kind).collect();
    let changed = || DbError::new(Reason::Sql, "the columns of the query have changed").code("0A000");
    let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
    let rows = found.iter().map(|row| {
        // An unchanged query of `*` may have other columns by now.
        let own = || row.columns().iter();
        let is_same = own().map(|column| Kind::of(column.type_())).eq(kinds.iter().copied())
            && (!head.is_empty() || own().map(tokio_postgres::Column::name).eq(&names));
        if is_same { value::row(row, &kinds) } else { Err(changed()) }
    });
    let rows = rows.collect::<Result<_, _>>()?;
    Ok(ResultTable { names: names.into(), rows })
}

/// The SQL around a query that casts columns to types that the driver reads. The columns get names of their own, because
/// two may have the same name.
fn casts_around(columns: &[QueryColumn]) -> (String, String) {
    if columns.iter().all(|column| column.cast().is_none()) {
        return (String::new(), String::new());
    }
    let select = columns.iter().enumerate().map(|(at, column)| match column.cast() {
        Some(cast) => format!("c{at}::{cast}"),
        None => format!("c{at}"),
    });
    let head = format!("SELECT {} FROM (", select.collect::<Vec<_>>().join(", "));
    let names: Vec<String> = (0..columns.len()).map(|at| format!("c{at}")).collect();
    (head, format!("\n) AS q({})", names.join(", ")))
}

async fn columns(client: &Client, query: &Statement) -> Result<Vec<QueryColumn>, DbError> {
    let nulls = Statement::new(query.sql.as_str(), query.params.iter().map(|_| Value::Null));
    let rows = read_around(client, HEAD, &nulls, TAIL).await?;
    let row = rows.first().ok_or_else(|| description_error("no columns"))?;
    let names: Vec<String> = row.try_get(0).map_err(description_error)?;
    let RecordTypes(types) = row.try_get(1).map_err(description_error)?;
    let base_types = base_types(client, &types).await?;
    let columns = names.into_iter().zip(types).map(|(name, oid)| {
        let base = base_types.get(&oid);
        QueryColumn { name, base: Type::from_oid(*base.unwrap_or(&oid)), is_domain: base.is_some() }
    });
    Ok(columns.collect())
}

/// The base types of user-defined types that are domains.
async fn base_types(client: &Client, types: &[Oid]) -> Result<HashMap<Oid, Oid>, DbError> {
    let unknown_oids = types.iter().filter(|oid| Type::from_oid(**oid).is_none());
    let unknown_oids: Vec<String> = unknown_oids.map(ToString::to_string).collect();
    if unknown_oids.is_empty() {
        return Ok(HashMap::new());
    }
    let unknown_oids = Value::Text(format!("{{{}}}", unknown_oids.join(",")));
    let mut base_types = HashMap::new();
    for row in super::read(client, DOMAINS, &[unknown_oids]).await? {
        let (domain, base) =
            (row.try_get(0).map_err(description_error)?, row.try_get(1).map_err(description_error)?);
        if Type::from_oid(base).is_some() {
            base_types.insert(domain, base);
        }
    }
    Ok(base_types)
}

fn description_error(why: impl std::fmt::Display) -> DbError {
    let message = format!("the server's description of a query is not understood: {why}");
    DbError::new(Reason::Sql, message)
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
