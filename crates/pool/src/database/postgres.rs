//! PostgreSQL, with tokio-postgres on a runtime per worker: the worker's thread blocks on it.
//!
//! Parameters are sent as text, like a literal, so that the server chooses their types. Prepared
//! statements are cached; see `prepared`. A statement is stopped by a cancel request to the server.

use std::cell::Cell;
use std::future::Future;
use std::time::Duration;

use futures_util::{StreamExt, pin_mut};
use longshore_postgres_url::{PostgresUrl, parse};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio_postgres::{CancelToken, Client};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::deadline::Deadline;
use super::driver::{Connection, StatementResult};
use super::error::{DbError, Reason};
use super::options::ConnectionConfig;
use super::row::ResultTable;
use super::row_collector::{Fetch, ResultLimits, RowCollector, RowsWanted};
use super::sql;
use super::statement::Statement;
use prepared::{Cache, Prepared};

mod error;
mod prepared;
mod value;

/// Timeout of connecting to a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a commit or a rollback.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(30);
/// The server ends the idle transaction of a client that vanished after this many milliseconds, and
/// releases its locks.
const IDLE_TRANSACTION_TIMEOUT_MS: u32 = 60_000;
/// Rows beyond the needed ones are read and skipped up to this number; after that, stopping the
/// query costs less.
const MAX_SKIPPED_ROWS: u64 = 1_000;

/// Checks a URL.
pub(super) fn check(url: &str) -> Result<(), DbError> {
    parse(url).map(drop).map_err(error::of_address)
}

pub(super) fn connect(
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
        cancel: Canceller { token: client.cancel_token(), tls, requested: Cell::new(false) },
        cache: Cache::new(config.statements),
        pooled: config.statements == 0,
        read_only: config.read_only,
        client,
        in_transaction: false,
        _tasks: tasks,
        runtime,
    };
    connection.configure_session(config, deadline)?;
    Ok(Box::new(connection))
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
    /// Behind a transaction pooler: no session state survives a transaction.
    pooled: bool,
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
    requested: Cell<bool>,
}

impl Canceller {
    async fn cancel(&self) {
        self.requested.set(true);
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
        let lock = config.busy.as_millis().clamp(1, 1 << 30);
        let mut settings = vec![
            "SET datestyle TO 'ISO'".to_owned(),
            format!("SET lock_timeout TO {lock}"),
            format!("SET idle_in_transaction_session_timeout TO {IDLE_TRANSACTION_TIMEOUT_MS}"),
            // Servers from 14 on notice during a statement that the client is gone.
            "SELECT set_config(name, '2s', false) FROM pg_catalog.pg_settings \
             WHERE name = 'client_connection_check_interval'"
                .to_owned(),
        ];
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
                .map_err(|error| DbError { message: format!("{sql}: {}", error.message), ..error })?;
        }
        Ok(())
    }

    fn batch(&self, sql: &str) -> Result<(), DbError> {
        self.runtime.block_on(async {
            let ran = tokio::time::timeout(COMMIT_TIMEOUT, self.client.batch_execute(sql)).await;
            let ran = ran.map_err(|_| DbError::lost(format!("{sql}: the server does not answer")))?;
            ran.map_err(|error| error::of(&error))
        })
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
            Ok(StatementResult { returns, table: to_table(collector, want), affected, last_id: None })
        }
    }
}

fn to_table(collector: RowCollector, want: RowsWanted) -> ResultTable {
    match want {
        RowsWanted::Count => ResultTable::default(),
        RowsWanted::First | RowsWanted::All => collector.into_table(),
    }
}

impl Connection for Postgres {
    fn is_closed(&self) -> bool {
        self.client.is_closed() || self.cancel.requested.get()
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
        let how = if self.read_only { "BEGIN READ ONLY" } else { "BEGIN" };
        match self.pooled {
            true => self.batch(&format!("{how}; SET LOCAL datestyle TO 'ISO'"))?,
            false => self.batch(how)?,
        }
        self.in_transaction = true;
        Ok(())
    }

    fn commit(&mut self, _: &Deadline) -> Result<(), DbError> {
        self.in_transaction = false;
        self.batch("COMMIT")
    }

    fn rollback(&mut self) -> Result<(), DbError> {
        self.in_transaction = false;
        self.batch("ROLLBACK")
    }
}
