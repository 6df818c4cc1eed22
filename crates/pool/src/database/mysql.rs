//! MySQL and MariaDB, with mysql_async on a runtime per worker: the worker's thread blocks on it.
//!
//! A statement is stopped by `KILL QUERY` on a second connection, which is opened for that only.

use std::cell::Cell;
use std::future::Future;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{BinaryProtocol, Conn, Opts, Params, QueryResult};
use tokio::runtime::Runtime;

use super::deadline::{Deadline, STOP_GRACE};
use super::driver::{Connection, StatementResult};
use super::error::{DbError, Reason};
use super::options::ConnectionConfig;
use super::row_collector::{Fetch, ResultLimits, RowCollector, RowsWanted};
use super::sql;
use super::statement::Statement;
use super::value::Value;

pub mod connection_url;
mod error;
pub mod value;

/// Timeout of connecting to a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a commit or a rollback.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(30);
/// Rows beyond the needed ones are read and skipped up to this number; after that, stopping the
/// query costs less.
const MAX_SKIPPED_ROWS: u64 = 1_000;
/// Statements that commit the open transaction implicitly.
const IMPLICIT_COMMIT_VERBS: [&str; 17] = [
    "ALTER", "ANALYZE", "CACHE", "CREATE", "DROP", "FLUSH", "GRANT", "INSTALL", "LOAD", "LOCK", "OPTIMIZE",
    "RENAME", "REPAIR", "REVOKE", "SET", "TRUNCATE", "UNLOCK",
];

/// Checks a URL.
pub(super) fn check(url: &str) -> Result<(), DbError> {
    connection_url::parse_url(url, 0).map(drop).map_err(|error| error::of_address(&error))
}

pub(super) fn connect(
    url: &str,
    config: &ConnectionConfig,
    deadline: &Deadline,
) -> Result<Box<dyn Connection>, DbError> {
    let opts = connection_url::parse_url(url, config.statements);
    let opts = opts.map_err(|error| error::of_address(&error))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| DbError::new(Reason::Unreachable, format!("no runtime: {error}")))?;
    let timeout = deadline.remaining().map_or(CONNECT_TIMEOUT, |left| left.min(CONNECT_TIMEOUT));
    let conn = runtime.block_on(connect_within(&opts, timeout))?;
    let id = conn.id();
    let mut connection =
        Mysql { conn: Some(conn), killer: QueryKiller { opts, id, requested: Cell::new(false) }, runtime };
    connection.configure_session(config, deadline)?;
    Ok(Box::new(connection))
}

async fn connect_within(opts: &Opts, timeout: Duration) -> Result<Conn, DbError> {
    let shown = format!("{}:{}", opts.ip_or_hostname(), opts.tcp_port());
    match tokio::time::timeout(timeout, Conn::new(opts.clone())).await {
        Ok(joined) => joined.map_err(|error| error::of_connect(&shown, error)),
        Err(_) => Err(DbError::new(Reason::Unreachable, format!("{shown}: the server does not answer"))),
    }
}

struct Mysql {
    /// `Some` until it is dropped.
    conn: Option<Conn>,
    killer: QueryKiller,
    // Last, because the connection needs the runtime.
    runtime: Runtime,
}

/// Stops the statement of a session. The session is not used afterwards: if the statement ended a
/// moment earlier, the request would stop the next one.
struct QueryKiller {
    opts: Opts,
    id: u32,
    requested: Cell<bool>,
}

impl QueryKiller {
    /// If the request fails, the statement does not end in time, and the connection is dropped.
    async fn kill(&self) {
        self.requested.set(true);
        if let Ok(mut conn) = connect_within(&self.opts, STOP_GRACE).await {
            let _ = conn.query_drop(format!("KILL QUERY {}", self.id)).await;
            let _ = conn.disconnect().await;
        }
    }

    /// Runs `work`, and stops it when the deadline passes or the call is cancelled.
    async fn run_with_deadline<T>(
        &self,
        deadline: &Deadline,
        work: impl Future<Output = Result<T, DbError>>,
    ) -> Result<T, DbError> {
        deadline.run_or_stop(work, self.kill()).await
    }
}

impl Mysql {
    /// Applies the settings of the session.
    fn configure_session(&mut self, config: &ConnectionConfig, deadline: &Deadline) -> Result<(), DbError> {
        let lock = config.busy.as_secs().max(1);
        let mut settings = vec![
            format!("SET SESSION innodb_lock_wait_timeout = {lock}"),
            format!("SET SESSION lock_wait_timeout = {lock}"),
        ];
        settings.extend(config.init.iter().cloned());
        if config.read_only {
            settings.push("SET SESSION TRANSACTION READ ONLY".to_owned());
        }
        for sql in settings {
            self.batch(&sql, Some(deadline))
                .map_err(|error| DbError { message: format!("{sql}: {}", error.message), ..error })?;
        }
        Ok(())
    }

    fn batch(&mut self, sql: &str, deadline: Option<&Deadline>) -> Result<(), DbError> {
        let Self { conn, killer, runtime } = self;
        let Some(conn) = conn else { return Err(closed()) };
        let ran = async { conn.query_drop(sql).await.map_err(error::of) };
        runtime.block_on(async {
            match deadline {
                Some(deadline) => killer.run_with_deadline(deadline, ran).await,
                None => tokio::time::timeout(COMMIT_TIMEOUT, ran)
                    .await
                    .unwrap_or_else(|_| Err(DbError::lost(format!("{sql}: the server does not answer")))),
            }
        })
    }
}

fn closed() -> DbError {
    DbError::lost("the connection is closed").unsent()
}

async fn query(
    conn: &mut Conn,
    killer: &QueryKiller,
    statement: &Statement,
    want: RowsWanted,
    limits: ResultLimits,
) -> Result<StatementResult, DbError> {
    let params: Vec<_> = statement.params.iter().cloned().map(value::to_parameter).collect();
    // If preparing fails, no statement of the caller has run.
    let prepared = conn.prep(statement.sql.as_str()).await;
    let prepared = prepared.map_err(|error| error::of(error).unsent())?;
    let expected = usize::from(prepared.num_params());
    if params.len() != expected {
        let message = format!("{} values for {expected} parameters", params.len());
        return Err(DbError::new(Reason::Sql, message).code("07001"));
    }
    let params = if params.is_empty() { Params::Empty } else { Params::Positional(params) };
    let mut rows = conn.exec_iter(&prepared, params).await.map_err(error::of)?;
    collect_rows(&mut rows, killer, statement, want, limits).await
}

async fn collect_rows(
    rows: &mut QueryResult<'_, 'static, BinaryProtocol>,
    killer: &QueryKiller,
    statement: &Statement,
    want: RowsWanted,
    limits: ResultLimits,
) -> Result<StatementResult, DbError> {
    let columns = rows.columns().unwrap_or_default();
    let returns = !columns.is_empty();
    let names = columns.iter().map(|column| column.name_str().into_owned());
    let mut collector = RowCollector::new(want, limits, names);
    let (mut limit_error, mut skipped) = (None, 0);
    loop {
        let row = match rows.next().await {
            Ok(Some(row)) => row,
            Ok(None) => break,
            // The query was stopped on purpose.
            Err(_) if limit_error.is_some() || skipped > MAX_SKIPPED_ROWS => break,
            Err(error) => return Err(error::of(error)),
        };
        if limit_error.is_some() {
            continue;
        }
        match collector.take(|| value::row(row)) {
            Ok(Fetch::More) => {}
            Ok(Fetch::Enough) => {
                skipped += 1;
                if skipped == MAX_SKIPPED_ROWS + 1 && sql::is_read_only(&statement.sql) {
                    killer.kill().await;
                }
            }
            Err(error) => {
                limit_error = Some(error);
                killer.kill().await;
            }
        }
    }
    if let Some(error) = limit_error {
        return Err(error);
    }
    let affected = if returns { collector.count() } else { rows.affected_rows() };
    let last_id = rows.last_insert_id().filter(|_| !returns && affected > 0).map(id_value);
    Ok(StatementResult { returns, table: collector.into_table(), affected, last_id })
}

fn id_value(id: u64) -> Value {
    i64::try_from(id).map_or_else(|_| Value::Text(id.to_string()), Value::Int)
}

impl Connection for Mysql {
    fn is_closed(&self) -> bool {
        self.killer.requested.get()
    }

    fn ping(&mut self, deadline: &Deadline) -> Result<(), DbError> {
        let Self { conn, killer, runtime } = self;
        let Some(conn) = conn else { return Err(closed()) };
        let ping = async { conn.ping().await.map_err(error::of) };
        runtime.block_on(killer.run_with_deadline(deadline, ping))
    }

    fn run(
        &mut self,
        statement: &Statement,
        want: RowsWanted,
        limits: ResultLimits,
        deadline: &Deadline,
    ) -> Result<StatementResult, DbError> {
        let Self { conn, killer, runtime } = self;
        let Some(conn) = conn else { return Err(closed()) };
        let ran = query(conn, killer, statement, want, limits);
        runtime.block_on(killer.run_with_deadline(deadline, ran))
    }

    fn refuses_in_transaction(&self, sql: &str) -> Option<&'static str> {
        IMPLICIT_COMMIT_VERBS
            .contains(&sql::verb(sql).as_str())
            .then_some("this statement commits the transaction implicitly; run it with db.do")
    }

    fn begin(&mut self, deadline: &Deadline) -> Result<(), DbError> {
        self.batch("START TRANSACTION", Some(deadline))
    }

    fn commit(&mut self, _: &Deadline) -> Result<(), DbError> {
        self.batch("COMMIT", None)
    }

    fn rollback(&mut self) -> Result<(), DbError> {
        self.batch("ROLLBACK", None)
    }
}

impl Drop for Mysql {
    fn drop(&mut self) {
        // The driver's quit message needs the runtime; without it the server logs an aborted
        // connection.
        if let Some(conn) = self.conn.take() {
            self.runtime.block_on(async {
                let _ = tokio::time::timeout(Duration::from_secs(1), conn.disconnect()).await;
            });
        }
    }
}
