//! PostgreSQL, with tokio-postgres on a runtime per worker: the worker's thread blocks on it.
//!
//! Parameters are sent as text, like a literal, so that the server chooses their types. Prepared
//! statements are cached; see `prepared`. A statement is stopped by a cancel request to the server.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::{StreamExt, pin_mut};
use longshore_postgres_url::{PostgresUrl, parse};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio_postgres::{CancelToken, Client, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::column::{Column, ColumnKind};
use crate::deadline::Deadline;
use crate::dialect::Dialect;
use crate::error::{DbError, Reason};
use crate::options::ConnectionConfig;
use crate::row::ResultTable;
use crate::row_collector::{Fetch, ResultLimits, RowCollector, RowsWanted};
use crate::sql;
use crate::statement::Statement;
use crate::value::Value;
use crate::{Connection, StatementResult};
use prepared::{Cache, Prepared};

mod columns;
mod error;
mod prepared;
mod value;

/// Timeout of connecting to a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a commit or a rollback.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the server may take to answer BEGIN.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// A read must not write, whatever functions it calls. Dates are in ISO format, whatever the server's setting.
const BEGIN_READ: &str = "BEGIN READ ONLY; SET LOCAL datestyle TO 'ISO'";
/// The server ends the idle transaction of a client that vanished after this many milliseconds, and
/// releases its locks.
const IDLE_TRANSACTION_TIMEOUT_MS: u32 = 60_000;
/// Rows beyond the needed ones are read and skipped up to this number; after that, stopping the
/// query costs less.
const MAX_SKIPPED_ROWS: u64 = 1_000;

/// Checks a URL, and the certificates that it names.
pub(crate) fn check(url: &str) -> Result<(), DbError> {
    parse(url).and_then(|address| address.connector()).map(drop).map_err(error::of_address)
}

pub(crate) fn connect(
    url: &str,
    config: &ConnectionConfig,
    deadline: &Deadline,
) -> Result<Box<dyn Connection>, DbError> {
    let address = parse(url).map_err(error::of_address)?;
    let tls = address.connector().map_err(error::of_address)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| unreachable_at("no runtime", &error.to_string()))?;
    let (shown, mut tasks) = (address.host_and_port(), JoinSet::new());
    let timeout = deadline.remaining().map_or(CONNECT_TIMEOUT, |left| left.min(CONNECT_TIMEOUT));
    let client = runtime.block_on(async {
        let joined = tokio::time::timeout(timeout, connect_within(&address, tls.clone(), &mut tasks)).await;
        let joined = joined.map_err(|_| unreachable_at(&shown, "the server does not answer"))?;
        joined.map_err(|error| error::of_connect(&shown, &error))
    })?;
    let connection = Postgres {
        cancel: Canceller { token: client.cancel_token(), tls, requested: AtomicBool::new(false) },
        cache: Cache::new(config.statements),
        pooled: config.statements == 0 || config.stateless,
        answer: if config.stateless { ANSWER_TIMEOUT } else { COMMIT_TIMEOUT },
        columns: columns::ColumnCache::default(),
        read_only: config.read_only,
        client,
        in_transaction: false,
        _tasks: tasks,
        runtime,
    };
    if !config.stateless {
        connection.configure_session(config, deadline)?;
    }
    Ok(Box::new(connection))
}

/// The server of a URL, without its password.
pub(crate) fn display_name(url: &str) -> String {
    parse(url).map_or_else(|_| "postgres".to_owned(), |address| address.host_and_port())
}

fn unreachable_at(shown: &str, reason: &str) -> DbError {
    DbError::new(Reason::Unreachable, format!("{shown}: {reason}"))
}

/// Connects, and spawns the connection's task.
async fn connect_within(
    address: &PostgresUrl,
    tls: MakeRustlsConnect,
    tasks: &mut JoinSet<()>,
) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = address.connect(&tls).await?;
    // The error of the connection is also returned by the statement that waits for an answer.
    tasks.spawn(async move { _ = connection.await });
    Ok(client)
}

struct Postgres {
    cancel: Canceller,
    cache: Cache,
    /// The columns of queries that were read without preparing them.
    columns: columns::ColumnCache,
    /// Behind a transaction pooler: no session state survives a transaction.
    pooled: bool,
    /// How long the server, or a pooler before it, may take to begin a transaction.
    answer: Duration,
    read_only: bool,
    client: Client,
    in_transaction: bool,
    _tasks: JoinSet<()>,
    // Last, because the other fields need the runtime.
    runtime: Runtime,
}

/// Stops the statement of a session.
///
/// The session is not used afterwards: the server delivers the request as two signals, and under
/// load the second one was seen to stop the statement after the intended one.
struct Canceller {
    token: CancelToken,
    tls: MakeRustlsConnect,
    requested: AtomicBool,
}

impl Canceller {
    async fn cancel(&self) {
        self.requested.store(true, Ordering::Relaxed);
        // If the request fails, the statement does not end in time, and the connection is dropped.
        let _ = self.token.cancel_query(self.tls.clone()).await;
    }

    /// Runs `work`, and stops it when the deadline passes or the call is cancelled.
    async fn run_with_deadline<T>(
        &self,
        deadline: &Deadline,
        work: impl Future<Output = Result<T, DbError>>,
    ) -> Result<T, DbError> {
        deadline.run_or_stop(work, self.cancel()).await
    }
}

impl Postgres {
    /// Applies the settings of the session.
    fn configure_session(&self, config: &ConnectionConfig, deadline: &Deadline) -> Result<(), DbError> {
        let mut settings = vec![
            "SET datestyle TO 'ISO'".to_owned(),
            format!("SET idle_in_transaction_session_timeout TO {IDLE_TRANSACTION_TIMEOUT_MS}"),
            // Servers from 14 on notice during a statement that the client is gone.
            "SELECT set_config(name, '2s', false) FROM pg_catalog.pg_settings \
             WHERE name = 'client_connection_check_interval'"
                .to_owned(),
        ];
        let lock = config.busy.map(|limit| limit.as_millis().clamp(1, 1 << 30));
        settings.extend(lock.map(|limit| format!("SET lock_timeout TO {limit}")));
        if let Some(limit) = config.statement_timeout {
            // This process stops it earlier, unless it has died.
            let limit = limit.as_millis().clamp(1, 1 << 30) + 1_000;
            settings.push(format!("SET statement_timeout TO {limit}"));
        }
        settings.extend(config.init.iter().cloned());
        if config.read_only {
            settings.push("SET default_transaction_read_only TO on".to_owned());
        }
        for sql in settings {
            let ran = async { self.client.batch_execute(&sql).await.map_err(|error| error::of(&error)) };
            self.runtime
                .block_on(self.cancel.run_with_deadline(deadline, ran))
                .map_err(|error| error.of_statement(&sql))?;
        }
        Ok(())
    }

    fn batch(&self, sql: &str, limit: Duration) -> Result<(), DbError> {
        self.runtime.block_on(async {
            let ran = tokio::time::timeout(limit, self.client.batch_execute(sql)).await;
            let ran = ran.map_err(|_| no_answer(sql, limit))?;
            ran.map_err(|error| error::of(&error))
        })
    }

    /// Begins a transaction. The server answers at once, whatever follows.
    fn begin_with(&mut self, begin: &str) -> Result<(), DbError> {
        match self.pooled {
            true => self.batch(&format!("{begin}; SET LOCAL datestyle TO 'ISO'"), self.answer)?,
            false => self.batch(begin, self.answer)?,
        }
        self.in_transaction = true;
        Ok(())
    }

    /// Runs a statement without preparing it, and drops its rows.
    fn execute(&self, statement: &Statement, deadline: &Deadline) -> Result<StatementResult, DbError> {
        let work = async {
            let params = value::untyped(&statement.params);
            let changed = self.client.execute_typed(&statement.sql, &value::typed(&params)).await;
            changed.map_err(|error| error::of_sql(&statement.sql, &error))
        };
        let affected = self.runtime.block_on(self.cancel.run_with_deadline(deadline, work))?;
        Ok(StatementResult { affected: Some(affected), ..StatementResult::default() })
    }

    fn run_once(
        &mut self,
        statement: &Statement,
        want: RowsWanted,
        limits: ResultLimits,
        deadline: &Deadline,
    ) -> Result<StatementResult, DbError> {
        let (client, cache, cancel) = (&self.client, &mut self.cache, &self.cancel);
        self.runtime.block_on(cancel.run_with_deadline(deadline, async {
            // The runtime did not run while the thread was idle: the first yield receives pending
            // bytes, the second lets the connection's task see that the server closed it.
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            if client.is_closed() {
                return Err(DbError::lost("the connection was closed").unsent());
            }
            let prepared = cache.prepared(client, &statement.sql).await?;
            query(client, cancel, &prepared, statement, want, limits).await
        }))
    }
}

/// Runs a prepared statement.
async fn query(
    client: &Client,
    cancel: &Canceller,
    prepared: &Prepared,
    statement: &Statement,
    want: RowsWanted,
    limits: ResultLimits,
) -> Result<StatementResult, DbError> {
    let expected = prepared.statement.params().len();
    if statement.params.len() != expected {
        let message = format!("{} values for {expected} parameters", statement.params.len());
        return Err(DbError::new(Reason::Sql, message).code("07001"));
    }
    let params = statement.params.iter().map(value::Bound);
    let rows = client.query_raw(&prepared.statement, params).await;
    let rows = rows.map_err(|error| error::of(&error))?;
    pin_mut!(rows);
    let returns = !prepared.names.is_empty();
    let mut collector = RowCollector::new(want, limits, prepared.names.iter().cloned());
    let (mut limit_error, mut skipped) = (None, 0);
    while let Some(row) = rows.next().await {
        let row = match row {
            Ok(row) => row,
            // The query was stopped on purpose.
            Err(_) if limit_error.is_some() || skipped > MAX_SKIPPED_ROWS => break,
            Err(error) => return Err(error::of(&error)),
        };
        if limit_error.is_some() {
            continue;
        }
        match collector.take(|| value::row(&row, &prepared.kinds)) {
            Ok(Fetch::More) => {}
            Ok(Fetch::Enough) => {
                skipped += 1;
                if skipped == MAX_SKIPPED_ROWS + 1 && sql::is_read_only(&statement.sql) {
                    cancel.cancel().await;
                }
            }
            Err(error) => {
                limit_error = Some(error);
                cancel.cancel().await;
            }
        }
    }
    match limit_error {
        Some(error) => Err(error),
        None => {
            let affected = if returns { collector.count() } else { rows.rows_affected().unwrap_or(0) };
            let (table, affected) = (to_table(collector, want), Some(affected));
            Ok(StatementResult { returns, table, affected, last_id: None })
        }
    }
}

fn to_table(collector: RowCollector, want: RowsWanted) -> ResultTable {
    match want {
        RowsWanted::Count => ResultTable::default(),
        RowsWanted::First | RowsWanted::All => collector.into_table(),
    }
}

fn no_answer(sql: &str, limit: Duration) -> DbError {
    DbError::lost(format!("{sql}: the server did not answer within {} s", limit.as_secs()))
}

/// Sends BEGIN, the query and COMMIT together: a read costs one round trip. If BEGIN fails, the
/// others find no connection or an ended transaction.
async fn read(client: &Client, sql: &str, params: &[Value]) -> Result<Vec<Row>, DbError> {
    let params = value::untyped(params);
    let params = value::typed(&params);
    let begin = async {
        let begun = tokio::time::timeout(ANSWER_TIMEOUT, client.batch_execute(BEGIN_READ)).await;
        // The other statements are answered after BEGIN, if it is.
        begun.map_err(|_| no_answer("BEGIN", ANSWER_TIMEOUT))
    };
    let query = async { Ok(client.query_typed(sql, &params).await) };
    let commit = async { Ok(client.batch_execute("COMMIT").await) };
    let (begun, rows, ended) = tokio::try_join!(begin, query, commit)?;
    let rows = begun.and(rows).and_then(|rows| ended.map(|()| rows));
    rows.map_err(|error| error::of_sql(sql, &error))
}

impl Connection for Postgres {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn numbers_parameters(&self) -> bool {
        true
    }

    fn describe(
        &mut self,
        statement: &Statement,
        is_query: bool,
        deadline: &Deadline,
    ) -> Result<Vec<Column>, DbError> {
        let Self { client, columns, cancel, runtime, .. } = self;
        runtime.block_on(cancel.run_with_deadline(deadline, async {
            if !is_query {
                return columns::explain(client, statement).await.map(|()| Vec::new());
            }
            let found = columns.look_up(client, statement).await?;
            Ok(found.iter().map(columns::QueryColumn::describe).collect())
        }))
    }

    fn read(
        &mut self,
        statement: &Statement,
        _: &[ColumnKind],
        deadline: &Deadline,
    ) -> Result<StatementResult, DbError> {
        let Self { client, columns, cancel, runtime, .. } = self;
        let table = runtime.block_on(cancel.run_with_deadline(deadline, columns.read(client, statement)))?;
        Ok(StatementResult { returns: true, table, ..StatementResult::default() })
    }

    fn is_closed(&self) -> bool {
        self.client.is_closed() || self.cancel.requested.load(Ordering::Relaxed)
    }

    fn ping(&mut self, deadline: &Deadline) -> Result<(), DbError> {
        let ping = async { self.client.check_connection().await.map_err(|error| error::of(&error)) };
        self.runtime.block_on(self.cancel.run_with_deadline(deadline, ping))
    }

    fn run(
        &mut self,
        statement: &Statement,
        want: RowsWanted,
        limits: ResultLimits,
        deadline: &Deadline,
    ) -> Result<StatementResult, DbError> {
        if self.pooled && self.in_transaction && want == RowsWanted::Count {
            return self.execute(statement, deadline);
        }
        if self.pooled && !self.in_transaction {
            self.begin(deadline).map_err(DbError::unsent)?;
            let result = self.run_once(statement, want, limits, deadline);
            let ended = if result.is_ok() { self.commit(deadline) } else { self.rollback() };
            return result.and_then(|result| ended.map(|()| result));
        }
        match self.run_once(statement, want, limits, deadline) {
            // A table has changed since the statement was prepared. It did not run.
            Err(error) if prepared::is_stale(&error) => {
                self.cache.remove_statement(&statement.sql);
                match self.in_transaction {
                    true => Err(DbError { retryable: true, ..error }),
                    false => self.run_once(statement, want, limits, deadline),
                }
            }
            answer => answer,
        }
    }

    fn begin(&mut self, _: &Deadline) -> Result<(), DbError> {
        self.begin_with(if self.read_only { "BEGIN READ ONLY" } else { "BEGIN" })
    }

    fn begin_write(&mut self, _: &Deadline) -> Result<(), DbError> {
        self.begin_with("BEGIN READ WRITE")
    }

    fn commit(&mut self, _: &Deadline) -> Result<(), DbError> {
        self.in_transaction = false;
        self.batch("COMMIT", COMMIT_TIMEOUT)
    }

    fn rollback(&mut self) -> Result<(), DbError> {
        self.in_transaction = false;
        self.batch("ROLLBACK", COMMIT_TIMEOUT)
    }
}
