//! Identifies a database, so that a batch's rows are read and written in the database that it was started with and
//! not in whatever a worker's `env:` variable names.

use std::fmt;

use longshore_databases::{Connection, Deadline, Dialect, Statement, Value};
use serde::{Deserialize, Serialize};

use super::error::{self, CallError};
use super::{RowSource, SourceError};
use crate::definition::Definition;

/// What identifies a database. Parts that a database does not tell are `None`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DatabaseFingerprint {
    /// The product: `PostgreSQL`, `MySQL`, `SQLite`, or what an ODBC driver says.
    pub product: String,
    /// The server or cluster: an identifier that it keeps when it is restarted, moved or replicated. For SQLite the
    /// file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
    /// The schemas in which names without one are looked up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schemas: Option<String>,
    /// Where a SQLite file is, for messages. Workers may see it under other paths, so it identifies nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

impl PartialEq for DatabaseFingerprint {
    fn eq(&self, other: &Self) -> bool {
        let Self { product, server, database, schemas, path: _ } = self;
        *product == other.product
            && *server == other.server
            && *database == other.database
            && *schemas == other.schemas
    }
}

impl Eq for DatabaseFingerprint {}

impl DatabaseFingerprint {
    /// A fingerprint without parts.
    pub(super) fn new(product: &str) -> Self {
        let product = product.to_owned();
        Self { product, server: None, database: None, schemas: None, path: None }
    }

    /// The fingerprint in a row with the columns server, database and schemas.
    fn of_row(product: &str, row: &[Value]) -> Self {
        let part = |at: usize| match row.get(at) {
            Some(Value::Text(text)) => Some(text.trim().to_owned()),
            Some(Value::Int(number)) => Some(number.to_string()),
            _ => None,
        };
        let (server, database, schemas) = (part(0), part(1), part(2));
        Self { server, database, schemas, ..Self::new(product) }
    }

    /// Fails unless the batch's database is this one.
    pub(super) fn require(&self, expected: Option<&Self>) -> Result<(), SourceError> {
        match expected {
            Some(expected) if expected != self => {
                Err(SourceError::WrongDatabase { expected: expected.to_string(), found: self.to_string() })
            }
            _ => Ok(()),
        }
    }
}

/// Fails unless the source is the database that the batch was started with.
pub(crate) async fn require_database(
    definition: &Definition,
    source: &dyn RowSource,
) -> Result<(), SourceError> {
    if definition.fingerprint.is_none() {
        return Ok(());
    }
    match source.fingerprint().await? {
        Some(found) => found.require(definition.fingerprint.as_ref()),
        None => Ok(()),
    }
}

/// Whether two sources read one database now. Copies of a PostgreSQL server's files have one fingerprint, but are
/// started at different times.
pub async fn is_same_database(one: &dyn RowSource, other: &dyn RowSource) -> Result<bool, SourceError> {
    let fingerprint = one.fingerprint().await?;
    if fingerprint.is_none() || fingerprint != other.fingerprint().await? {
        return Ok(false);
    }
    if fingerprint.is_none_or(|known| known.product != POSTGRES_PRODUCT) {
        return Ok(true);
    }
    let started_at = async |source: &dyn RowSource| {
        let rows = source
            .fetch("SELECT extract(epoch FROM pg_postmaster_start_time())::text AS started_at", &[])
            .await?;
        Ok::<_, SourceError>(rows.into_iter().next().map(|row| row.columns))
    };
    Ok(started_at(one).await? == started_at(other).await?)
}

impl fmt::Display for DatabaseFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { product, server, database, schemas, path, .. } = self;
        f.write_str(product)?;
        let mut part = |name: &str, value: &Option<String>| match value {
            Some(value) => write!(f, " {name} `{value}`"),
            None => Ok(()),
        };
        part("file", path)?;
        part("database", database)?;
        part("schema", schemas)?;
        part("server", server)
    }
}

const POSTGRES_PRODUCT: &str = "PostgreSQL";

/// A product, and a query for what tells its databases apart.
type Query = (&'static str, &'static str);

/// A dropped and restored database has another oid. The second query is for users that may not ask for the cluster's
/// identifier.
const POSTGRES: [Query; 2] = [
    (
        POSTGRES_PRODUCT,
        "SELECT (SELECT system_identifier::text FROM pg_control_system()) || '/' || d.oid::text AS server,
                current_database()::text, array_to_string(current_schemas(false), ',')
         FROM pg_database d WHERE d.datname = current_database()",
    ),
    (
        POSTGRES_PRODUCT,
        "SELECT d.oid::text AS server, current_database()::text, array_to_string(current_schemas(false), ',')
         FROM pg_database d WHERE d.datname = current_database()",
    ),
];
/// MySQL's, MariaDB's, and that of versions that have no identifier.
const MYSQL: [Query; 3] = [
    ("MySQL", "SELECT @@server_uuid AS server, DATABASE()"),
    ("MySQL", "SELECT @@server_uid AS server, DATABASE()"),
    ("MySQL", "SELECT CONCAT(@@hostname, @@datadir) AS server, DATABASE()"),
];
const SQL_SERVER: [Query; 1] = [("SQL Server", "SELECT @@SERVERNAME AS server, DB_NAME(), SCHEMA_NAME()")];
const DB2: [Query; 1] =
    [("Db2", "SELECT CURRENT SERVER, CURRENT SERVER, CURRENT SCHEMA FROM SYSIBM.SYSDUMMY1")];
const ORACLE: [Query; 1] = [(
    "Oracle",
    "SELECT SYS_CONTEXT('USERENV', 'DB_UNIQUE_NAME'), SYS_CONTEXT('USERENV', 'DB_NAME'), \
            SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA') FROM DUAL",
)];
const SQLITE: [Query; 1] = [("SQLite", "SELECT file FROM pragma_database_list WHERE name = 'main'")];

/// The fingerprint of a connection's database, by the first query that it knows; `None` if it does not tell.
pub(super) fn read(
    db: &mut dyn Connection,
    deadline: &Deadline,
) -> Result<Option<DatabaseFingerprint>, CallError> {
    // A product of another name may know one of them.
    let all = || [&POSTGRES[..], &MYSQL, &SQL_SERVER, &DB2, &ORACLE, &SQLITE].concat();
    let queries: Vec<Query> = match db.dialect() {
        Dialect::Postgres => POSTGRES.to_vec(),
        Dialect::Mysql => MYSQL.to_vec(),
        Dialect::SqlServer => SQL_SERVER.to_vec(),
        Dialect::Db2 => DB2.to_vec(),
        Dialect::Oracle => ORACLE.to_vec(),
        Dialect::Sqlite => SQLITE.to_vec(),
        Dialect::Standard => all(),
    };
    for (product, sql) in queries {
        match db.read(&Statement::new(sql, []), &[], deadline).map_err(error::of_call) {
            Ok(found) => {
                return Ok(found.table.rows.first().map(|row| DatabaseFingerprint::of_row(product, row)));
            }
            Err(failed) if failed.error.is_retryable() => return Err(failed),
            Err(_) => {}
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_have_several_paths_and_a_schema_is_another_database() {
        let one = DatabaseFingerprint::new("PostgreSQL");
        assert_eq!(one, DatabaseFingerprint { path: Some("/other".to_owned()), ..one.clone() });
        let elsewhere = DatabaseFingerprint { schemas: Some("barco".to_owned()), ..one.clone() };
        let error = elsewhere.require(Some(&one)).unwrap_err().to_string();
        assert_eq!(
            error,
            "the batch's rows are in PostgreSQL, but `database` names PostgreSQL schema `barco` here"
        );
        assert!(elsewhere.require(None).is_ok(), "batches of earlier versions have no fingerprint");
    }
}
