//! MySQL and MariaDB, with mysql_async on a runtime per worker: the worker's thread blocks on it.
//!
//! A statement is stopped by `KILL QUERY` on a second connection, which is opened for that only.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{BinaryProtocol, Conn, Opts, Params, QueryResult};
use tokio::runtime::Runtime;

use crate::column::Column;
use crate::deadline::{Deadline, STOP_GRACE};
use crate::dialect::Dialect;
use crate::error::{DbError, Reason};
use crate::options::ConnectionConfig;
use crate::row_collector::{Fetch, ResultLimits, RowCollector, RowsWanted};
use crate::sql;
use crate::statement::Statement;
use crate::value::Value;
use crate::{Connection, StatementResult};

mod connection_url;
mod error;
mod value;

/// Timeout of connecting to a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a commit or a rollback.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the server may take to prepare a statement.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Rows beyond the needed ones are read and skipped up to this number; after that, stopping the
/// query costs less.
const MAX_SKIPPED_ROWS: u64 = 1_000;
/// Statements that commit the open transaction implicitly.
const IMPLICIT_COMMIT_VERBS: [&str; 17] = [
    "ALTER", "ANALYZE", "CACHE", "CREATE", "DROP", "FLUSH", "GRANT", "INSTALL", "LOAD", "LOCK", "OPTIMIZE",
    "RENAME", "REPAIR", "REVOKE", "SET", "TRUNCATE", "UNLOCK",
];

/// Checks a URL.
pub(crate) fn check(url: &str) -> Result<(), DbError> {
    connection_url::parse_url(url, 0).map(drop).map_err(|error| error::of_address(&error))
}

pub(crate) fn connect(
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
    let mut connection = Mysql {
        conn: Some(conn),
        killer: QueryKiller { opts, id, requested: AtomicBool::new(false) },
        runtime,
        answer: config.stateless.then_some(ANSWER_TIMEOUT),
    };
    connection.configure_session(config, deadline)?;
    Ok(Box::new(connection))
}

async fn connect_within(opts: &Opts, timeout: Duration) -> Result<Conn, DbError> {
    let shown = host_and_port(opts);
    match tokio::time::timeout(timeout, Conn::new(opts.clone())).await {
        Ok(joined) => joined.map_err(|error| error::of_connect(&shown, error)),
        Err(_) => Err(DbError::new(
            Reason::Unreachable,
            format!("{shown} did not answer within {} s", timeout.as_secs()),
        )),
    }
}

/// The server of a URL, without its password.
pub(crate) fn display_name(url: &str) -> String {
    connection_url::parse_url(url, 0).map_or_else(|_| "mysql".to_owned(), |opts| host_and_port(&opts))
}

/// `pool_max` of a URL.
pub(crate) fn max_connections(url: &str) -> Option<usize> {
    let opts = connection_url::parse_url(url, 0).ok()?;
    Some(opts.pool_opts().constraints().max())
}

fn host_and_port(opts: &Opts) -> String {
    format!("{}:{}", opts.ip_or_hostname(), opts.tcp_port())
}

struct Mysql {
    /// `Some` until it is dropped.
    conn: Option<Conn>,
    killer: QueryKiller,
    // Last, because the connection needs the runtime.
    runtime: Runtime,
    /// How long the server may take to prepare a statement.
    answer: Option<Duration>,
}

/// Stops the statement of a session. The session is not used afterwards: if the statement ended a
/// moment earlier, the request would stop the next one.
struct QueryKiller {
    opts: Opts,
    id: u32,
    requested: AtomicBool,
}

impl QueryKiller {
    /// If the request fails, the statement does not end in time, and the connection is dropped.
    async fn kill(&self) {
        self.requested.store(true, Ordering::Relaxed);
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
        let mut settings = Vec::new();
        if let Some(lock) = config.busy.map(|limit| limit.as_secs().max(1)) {
            settings.push(format!("SET SESSION innodb_lock_wait_timeout = {lock}"));
            settings.push(format!("SET SESSION lock_wait_timeout = {lock}"));
        }
        settings.extend(config.init.iter().cloned());
        if config.read_only {
            settings.push("SET SESSION TRANSACTION READ ONLY".to_owned());
        }
        for sql in settings {
            self.batch(&sql, Some(deadline)).map_err(|error| error.of_statement(&sql))?;
        }
        Ok(())
    }

    fn batch(&mut self, sql: &str, deadline: Option<&Deadline>) -> Result<(), DbError> {
        let Self { conn, killer, runtime, .. } = self;
        let Some(conn) = conn else { return Err(closed()) };
        let ran = async { conn.query_drop(sql).await.map_err(error::of) };
        runtime.block_on(async {
            match deadline {
                Some(deadline) => killer.run_with_deadline(deadline, ran).await,
                None => tokio::time::timeout(COMMIT_TIMEOUT, ran)
                    .await
                    .unwrap_or_else(|_| Err(DbError::lost(format!("{sql}: the server did not answer")))),
            }
        })
    }
}

fn closed() -> DbError {
    DbError::lost("the connection is closed").unsent()
}

/// Prepares a statement, which may wait for a lock of its table. If it fails, no statement of the caller has run.
async fn prepare(
    conn: &mut Conn,
    sql: &str,
    answer: Option<Duration>,
) -> Result<mysql_async::Statement, DbError> {
    let preparing = conn.prep(sql);
    let prepared = match answer {
        None => preparing.await,
        Some(limit) => tokio::time::timeout(limit, preparing).await.map_err(|_| {
            DbError::lost(format!("the server did not answer within {} s", limit.as_secs())).unsent()
        })?,
    };
    prepared.map_err(|error| error::of(error).unsent().rejected())
}

async fn query(
    conn: &mut Conn,
    killer: &QueryKiller,
    answer: Option<Duration>,
    statement: &Statement,
    want: RowsWanted,
    limits: ResultLimits,
) -> Result<StatementResult, DbError> {
    let params: Vec<_> = statement.params.iter().cloned().map(value::to_parameter).collect();
    let prepared = prepare(conn, &statement.sql, answer).await?;
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
    Ok(StatementResult { returns, table: collector.into_table(), affected: Some(affected), last_id })
}

fn id_value(id: u64) -> Value {
    i64::try_from(id).map_or_else(|_| Value::Text(id.to_string()), Value::Int)
}

impl Mysql {
    /// The columns of a statement that is prepared and not run.
    fn prepare(&mut self, sql: &str, deadline: &Deadline) -> Result<Vec<Column>, DbError> {
        let Self { conn, killer, runtime, answer } = self;
        let Some(conn) = conn else { return Err(closed()) };
        let prepared = prepare(conn, sql, *answer);
        let prepared = runtime.block_on(killer.run_with_deadline(deadline, prepared))?;
        Ok(prepared.columns().iter().map(value::describe).collect())
    }
}

impl Connection for Mysql {
    fn dialect(&self) -> Dialect {
        Dialect::Mysql
    }

    fn quote(&self) -> char {
        '`'
    }

    fn describe(
        &mut self,
        statement: &Statement,
        is_query: bool,
        deadline: &Deadline,
    ) -> Result<Vec<Column>, DbError> {
        if is_query {
            return self.prepare(&statement.sql, deadline);
        }
        // A read-only session does not even prepare a write.
        self.begin_write(deadline)?;
        let prepared = self.prepare(&statement.sql, deadline);
        self.rollback()?;
        prepared
    }

    fn begin_write(&mut self, deadline: &Deadline) -> Result<(), DbError> {
        self.batch("START TRANSACTION READ WRITE", Some(deadline))
    }

    fn is_closed(&self) -> bool {
        self.killer.requested.load(Ordering::Relaxed)
    }

    fn ping(&mut self, deadline: &Deadline) -> Result<(), DbError> {
        let Self { conn, killer, runtime, .. } = self;
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
        let Self { conn, killer, runtime, answer } = self;
        let Some(conn) = conn else { return Err(closed()) };
        let ran = query(conn, killer, *answer, statement, want, limits);
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
