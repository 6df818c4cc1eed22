//! Database workers: run blocking drivers outside the async path, with one persistent connection
//! per worker.
//!
//! [`Db`] is the public type: `select_all`, `select_row`, `select_col`, `select_value`, `execute`,
//! `insert`, `transaction`, `ping`. It uses a [`WorkerPool`] with one connection per worker, with
//! all features of a pool: bounded queue, timeouts, priorities, statistics, recycling. Values are
//! always bound, never pasted into SQL.
//!
//! Workers in any language may offer the same operations (`db.select_all` and so on): see
//! [`Db::over`].

mod operations;
mod options;
mod session;

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use longshore_databases::{ConnectionConfig, DatabaseTarget, sql};
pub use longshore_databases::{DbError, Reason, ResultRow, Statement, StatementOutcome, Value};

use self::operations as names;
pub use self::options::{DbIsolation, DbOptions};
use crate::call_options::CallOptions;
use crate::error::{CallError, ErrorKind, OperationError};
use crate::operation::{Operation, OperationSet, Operator};
use crate::pool::WorkerPool;
use crate::program::Program;
use crate::shared::start_failed;

/// The environment variable with the database of a worker process.
const CONFIG_VARIABLE: &str = "LONGSHORE_DATABASE";

/// A database behind a pool of workers. Clones share the same pool.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use longshore_pool::database::{Db, DbOptions, Statement};
/// use longshore_pool::params;
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("orders.db");
/// let db = Db::sqlite(&path, DbOptions::default().create_if_missing()).await?;
/// db.execute("CREATE TABLE line (id INTEGER PRIMARY KEY, item TEXT)", []).await?;
/// let id = db.insert("INSERT INTO line (item) VALUES (?)", params!["rope"]).await?;
/// let row = db.select_row("SELECT id, item FROM line WHERE id = ?", [id]).await?;
/// assert_eq!(row.unwrap_or_default().get("item"), Some(&"rope".into()));
/// db.transaction([
///     Statement::new("UPDATE line SET item = ? WHERE id = ?", params!["chain", 1]).expect_rows(1),
///     Statement::new("INSERT INTO line (item) VALUES (?)", params!["anchor"]),
/// ])
/// .await?;
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sqlite"))]
/// # fn main() {}
/// ```
#[derive(Debug, Clone)]
pub struct Db {
    pool: WorkerPool,
    options: CallOptions,
}

impl Db {
    /// A SQLite file.
    #[cfg(feature = "sqlite")]
    pub async fn sqlite(path: impl Into<std::path::PathBuf>, options: DbOptions) -> Result<Self, CallError> {
        Self::open(DatabaseTarget::Sqlite(path.into()), options).await
    }

    /// A PostgreSQL database, as `postgres://user:password@host:5432/orders`, with the options that
    /// `psql` knows (`?sslmode=verify-full&sslrootcert=…`).
    #[cfg(feature = "postgres")]
    pub async fn postgres(url: impl Into<String>, options: DbOptions) -> Result<Self, CallError> {
        Self::open(DatabaseTarget::Postgres(url.into()), options).await
    }

    /// A MySQL or MariaDB database, as `mysql://user:password@host:3306/orders`
    /// (`?require_ssl=true&ssl_ca=…`).
    #[cfg(feature = "mysql")]
    pub async fn mysql(url: impl Into<String>, options: DbOptions) -> Result<Self, CallError> {
        Self::open(DatabaseTarget::Mysql(url.into()), options).await
    }

    /// A database behind an ODBC driver, as `DSN=orders;UID=me;PWD=…`.
    #[cfg(feature = "odbc")]
    pub async fn odbc(string: impl Into<String>, options: DbOptions) -> Result<Self, CallError> {
        Self::open(DatabaseTarget::Odbc(string.into()), options).await
    }

    /// Wraps a pool of workers that implement the database operations themselves.
    pub fn over(pool: WorkerPool) -> Self {
        Self { pool, options: CallOptions::default() }
    }

    #[cfg_attr(
        not(any(feature = "sqlite", feature = "postgres", feature = "mysql", feature = "odbc")),
        expect(dead_code, reason = "no driver")
    )]
    async fn open(target: DatabaseTarget, options: DbOptions) -> Result<Self, CallError> {
        let DbOptions { name, settings, isolation, connection } = options;
        if let Err(error) = target.check() {
            let kind = start_failed(error.to_string());
            return Err(crate::job::call_error(&name, "", kind, None));
        }
        let pool = match isolation {
            DbIsolation::Threads => {
                WorkerPool::threads(name, operations::operations(target, connection), settings).await?
            }
            DbIsolation::Processes(program) => {
                let program = program.unwrap_or_else(Program::this);
                let config = WorkerConfig { pool: name.clone(), target, connection }.to_string();
                WorkerPool::processes(name, program.env(CONFIG_VARIABLE, config), settings).await?
            }
        };
        Ok(Self::over(pool))
    }

    /// The same database, with these options for every call.
    #[must_use]
    pub fn with(&self, options: CallOptions) -> Self {
        Self { pool: self.pool.clone(), options }
    }

    /// The pool behind it.
    pub fn pool(&self) -> &WorkerPool {
        &self.pool
    }

    /// Accepts no more calls, finishes queued and running ones, and closes the connections; see
    /// [`WorkerPool::close`].
    pub async fn close(&self, limit: Duration) {
        self.pool.close(limit).await;
    }
}

/// Calls.
impl Db {
    /// Returns all rows.
    pub async fn select_all(
        &self,
        sql: &str,
        params: impl IntoIterator<Item = Value>,
    ) -> Result<Vec<ResultRow>, CallError> {
        self.run(names::SELECT_ALL, sql, params).await
    }

    /// Returns all rows, each deserialised into `T`: a struct with a field per column.
    pub async fn select_as<T: DeserializeOwned>(
        &self,
        sql: &str,
        params: impl IntoIterator<Item = Value>,
    ) -> Result<Vec<T>, CallError> {
        self.run(names::SELECT_ALL, sql, params).await
    }

    /// Returns the first row, if there is one.
    pub async fn select_row(
        &self,
        sql: &str,
        params: impl IntoIterator<Item = Value>,
    ) -> Result<Option<ResultRow>, CallError> {
        self.run(names::SELECT_ROW, sql, params).await
    }

    /// Returns the first column of all rows.
    pub async fn select_col(
        &self,
        sql: &str,
        params: impl IntoIterator<Item = Value>,
    ) -> Result<Vec<Value>, CallError> {
        self.run(names::SELECT_COL, sql, params).await
    }

    /// Returns the first column of the first row; NULL if there is no row.
    pub async fn select_value(
        &self,
        sql: &str,
        params: impl IntoIterator<Item = Value>,
    ) -> Result<Value, CallError> {
        self.run(names::SELECT_VALUE, sql, params).await
    }

    /// Runs a statement (`db.do`), and returns the number of rows that it changed.
    pub async fn execute(
        &self,
        sql: &str,
        params: impl IntoIterator<Item = Value>,
    ) -> Result<u64, CallError> {
        self.run(names::DO, sql, params).await
    }

    /// Runs an INSERT, and returns the new row's id: the one that the database reports by itself
    /// (SQLite, MySQL), or the first column of RETURNING; NULL if nothing was inserted.
    pub async fn insert(
        &self,
        sql: &str,
        params: impl IntoIterator<Item = Value>,
    ) -> Result<Value, CallError> {
        self.run(names::INSERT, sql, params).await
    }

    /// Runs statements in one transaction, all or none, and returns the outcome of each. Rolls back
    /// on any error, on a timeout, and when the worker dies.
    pub async fn transaction(
        &self,
        statements: impl IntoIterator<Item = Statement>,
    ) -> Result<Vec<StatementOutcome>, CallError> {
        let statements: Vec<Statement> = statements.into_iter().collect();
        self.ask(names::TRANSACTION, &statements, false).await
    }

    /// Checks that the database responds.
    pub async fn ping(&self) -> Result<(), CallError> {
        let _: bool = self.ask(names::PING, &(), true).await?;
        Ok(())
    }

    async fn run<R: DeserializeOwned>(
        &self,
        operation: &str,
        sql: &str,
        params: impl IntoIterator<Item = Value>,
    ) -> Result<R, CallError> {
        let repeatable = operation != names::DO && operation != names::INSERT && sql::is_read_only(sql);
        self.ask(operation, &Statement::new(sql, params), repeatable).await
    }

    /// If the worker died, the statement may have run or not: only a read is retried, once.
    async fn ask<A: Serialize + ?Sized, R: DeserializeOwned>(
        &self,
        operation: &str,
        arguments: &A,
        repeatable: bool,
    ) -> Result<R, CallError> {
        let answer = self.pool.call_with(operation, arguments, self.options.clone()).await;
        match answer {
            Err(CallError { kind: ErrorKind::WorkerDied { .. }, .. }) if repeatable => {
                self.pool.call_with(operation, arguments, self.options.clone()).await
            }
            answer => answer,
        }
    }
}

/// The operations of a worker process of a [`Db`], for [`crate::child::run_if_worker`]; `None` if
/// this process was not started for one.
///
/// ```no_run
/// use std::process::ExitCode;
/// use longshore_pool::{child, database};
///
/// fn main() -> ExitCode {
///     if let Some(ended) = child::run_if_worker(database::of_worker) {
///         return ended;
///     }
///     // The program's own work.
///     ExitCode::SUCCESS
/// }
/// ```
pub fn of_worker(pool: &str) -> Option<Box<dyn OperationSet>> {
    let config = std::env::var(CONFIG_VARIABLE).ok()?;
    match serde_json::from_str::<WorkerConfig>(&config) {
        Ok(config) if config.pool == pool => {
            Some(Box::new(operations::operations(config.target, config.connection)))
        }
        Ok(_) => None,
        Err(error) => Some(Box::new(InvalidConfig(error.to_string()))),
    }
}

/// The configuration of a worker process.
#[derive(Serialize, Deserialize)]
struct WorkerConfig {
    pool: String,
    target: DatabaseTarget,
    #[serde(rename = "habits")]
    connection: ConnectionConfig,
}

impl std::fmt::Display for WorkerConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&serde_json::to_string(self).unwrap_or_default())
    }
}

/// Operations for a configuration that cannot be parsed: no worker starts.
struct InvalidConfig(String);

impl OperationSet for InvalidConfig {
    fn list(&self) -> Vec<Operation> {
        Vec::new()
    }

    fn open(&self) -> Result<Box<dyn Operator>, OperationError> {
        let message = format!("{CONFIG_VARIABLE} is not readable: {}", self.0);
        Err(OperationError::of(message))
    }
}

impl CallError {
    /// The database's error, if the operation of a database failed with one.
    pub fn db_error(&self) -> Option<DbError> {
        let ErrorKind::Handler { message, data: Some(data), .. } = &self.kind else { return None };
        let mut found = DbError::deserialize(data).ok()?;
        found.message.clone_from(message);
        Some(found)
    }
}

impl From<DbError> for OperationError {
    fn from(error: DbError) -> Self {
        let data = serde_json::to_value(&error).ok();
        Self(ErrorKind::Handler { message: error.message, chain: Vec::new(), data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_comes_through_a_call_as_it_was() {
        let error = DbError::new(Reason::Sql, "twice").at(1);
        let OperationError(kind) = error.clone().into();
        let call = CallError { pool: "db".to_owned(), operation: "db.do".to_owned(), kind, worker: None };
        assert_eq!(call.db_error(), Some(error));
        let other = CallError { kind: ErrorKind::ShuttingDown, ..call };
        assert_eq!(other.db_error(), None);
    }
}
