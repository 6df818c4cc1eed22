//! PostgreSQL, with tokio-postgres on a runtime per worker: the worker's thread blocks on it.
//!
//! Parameters are sent as text, like a literal, so that the server chooses their types. Prepared
//! statements are cached; see `prepared`. A statement is stopped by a cancel request to the server.

use std::cell::Cell;
use std::future::Future;
use std::time::Duration;

use futures_util::{StreamExt, pin_mut};
use longshore_postgres_address::{Address, read};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio_postgres::{CancelToken, Client};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::deadline::Watch;
use super::driver::{Connection, Reply};
use super::error::{DbError, Reason};
use super::options::Habits;
use super::row::Table;
use super::row_collector::{Bounds, Gathering, Next, Want};
use super::sql;
use super::statement::Statement;
use prepared::{Cache, Prepared};

mod error;
mod prepared;
mod value;

/// Timeout of connecting to a server.
const PATIENCE: Duration = Duration::from_secs(10);
/// Timeout of a commit or a rollback.
const ENDING: Duration = Duration::from_secs(30);
/// The server ends the idle transaction of a client that vanished after this many milliseconds, and
/// releases its locks.
const ABANDONED_MS: u32 = 60_000;
/// Rows beyond the needed ones are read and skipped up to this number; after that, stopping the
/// query costs less.
const TO_SKIP: u64 = 1_000;

/// Checks a URL.
pub(super) fn check(url: &str) -> Result<(), DbError> {
    read(url).map(drop).map_err(error::of_address)
}

pub(super) fn connect(
    url: &str,
    habits: &Habits,
    watch: &Watch,
) -> Result<Box<dyn Connection>, DbError> {
    let address = read(url).map_err(error::of_address)?;
    let tls = address.connector().map_err(error::of_address)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| unreachable_at("no runtime", &error.to_string()))?;
    let (shown, mut tasks) = (address.shown(), JoinSet::new());
    let patience = watch.left().map_or(PATIENCE, |left| left.min(PATIENCE));
    let client = runtime.block_on(async {
        let joined = tokio::time::timeout(patience, join(&address, tls.clone(), &mut tasks)).await;
        let joined = joined.map_err(|_| unreachable_at(&shown, "it does not answer"))?;
        joined.map_err(|error| error::of_connect(&shown, &error))
    })?;
    let connection = Postgres {
        cancel: Canceller { token: client.cancel_token(), tls, asked: Cell::new(false) },
        cache: Cache::new(habits.statements),
        pooled: habits.statements == 0,
        read_only: habits.read_only,
        client,
        in_transaction: false,
        _tasks: tasks,
        runtime,
    };
    connection.set_up(habits, watch)?;
    Ok(Box::new(connection))
}

fn unreachable_at(shown: &str, why: &str) -> DbError {
    DbError::new(Reason::Unreachable, format!("{shown}: {why}"))
}

/// Connects, and spawns the connection's task.
async fn join(
    address: &Address,
    tls: MakeRustlsConnect,
    tasks: &mut JoinSet<()>,
) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = address.config.connect(tls).await?;
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
    asked: Cell<bool>,
}

impl Canceller {
    async fn cancel(&self) {
        self.asked.set(true);
        // If the request fails, the statement does not end in time, and the connection is dropped.
        let _ = self.token.cancel_query(self.tls.clone()).await;
    }

    /// Runs `work`, and stops it when the deadline passes or the call is cancelled.
    async fn guarded<T>(
        &self,
        watch: &Watch,
        work: impl Future<Output = Result<T, DbError>>,
    ) -> Result<T, DbError> {
        watch.guard(work, self.cancel()).await
    }
}

impl Postgres {
    /// Applies the settings of the session.
    fn set_up(&self, habits: &Habits, watch: &Watch) -> Result<(), DbError> {
        let lock = habits.busy.as_millis().clamp(1, 1 << 30);
        let mut settings = vec![
            "SET datestyle TO 'ISO'".to_owned(),
            format!("SET lock_timeout TO {lock}"),
            format!("SET idle_in_transaction_session_timeout TO {ABANDONED_MS}"),
            // Servers from 14 on notice during a statement that the client is gone.
            "SELECT set_config(name, '2s', false) FROM pg_catalog.pg_settings \
             WHERE name = 'client_connection_check_interval'"
                .to_owned(),
        ];
        if let Some(limit) = habits.statement_timeout {
            // This process stops it earlier, unless it has died.
            let limit = limit.as_millis().clamp(1, 1 << 30) + 1_000;
            settings.push(format!("SET statement_timeout TO {limit}"));
        }
        settings.extend(habits.init.iter().cloned());
        if habits.read_only {
            settings.push("SET default_transaction_read_only TO on".to_owned());
        }
        for sql in settings {
            let ran =
                async { self.client.batch_execute(&sql).await.map_err(|error| error::of(&error)) };
            self.runtime.block_on(self.cancel.guarded(watch, ran)).map_err(|error| DbError {
                message: format!("{sql}: {}", error.message),
                ..error
            })?;
        }
        Ok(())
    }

    fn batch(&self, sql: &str) -> Result<(), DbError> {
        self.runtime.block_on(async {
            let ran = tokio::time::timeout(ENDING, self.client.batch_execute(sql)).await;
            let ran =
                ran.map_err(|_| DbError::lost(format!("{sql}: the server does not answer")))?;
            ran.map_err(|error| error::of(&error))
        })
    }

    fn run_once(
        &mut self,
        statement: &Statement,
        want: Want,
        bounds: Bounds,
        watch: &Watch,
    ) -> Result<Reply, DbError> {
        let (client, cache, cancel) = (&self.client, &mut self.cache, &self.cancel);
        self.runtime.block_on(cancel.guarded(watch, async {
            // The runtime did not run while the thread was idle: the first yield receives pending
            // bytes, the second lets the connection's task see that the server closed it.
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            if client.is_closed() {
                return Err(DbError::lost("the connection was closed").unsent());
            }
            let prepared = cache.prepared(client, &statement.sql).await?;
            query(client, cancel, &prepared, statement, want, bounds).await
        }))
    }
}

/// Runs a prepared statement.
async fn query(
    client: &Client,
    cancel: &Canceller,
    prepared: &Prepared,
    statement: &Statement,
    want: Want,
    bounds: Bounds,
) -> Result<Reply, DbError> {
    let wanted = prepared.statement.params().len();
    if statement.params.len() != wanted {
        let words = format!("{} values for {wanted} parameters", statement.params.len());
        return Err(DbError::new(Reason::Sql, words).code("07001"));
    }
    let params = statement.params.iter().map(value::Bound);
    let rows = client.query_raw(&prepared.statement, params).await;
    let rows = rows.map_err(|error| error::of(&error))?;
    pin_mut!(rows);
    let returns = !prepared.names.is_empty();
    let mut gathering = Gathering::new(want, bounds, prepared.names.iter().cloned());
    let (mut refused, mut skipped) = (None, 0);
    while let Some(row) = rows.next().await {
        let row = match row {
            Ok(row) => row,
            // The query was stopped on purpose.
            Err(_) if refused.is_some() || skipped > TO_SKIP => break,
            Err(error) => return Err(error::of(&error)),
        };
        if refused.is_some() {
            continue;
        }
        match gathering.take(|| value::row(&row, &prepared.kinds)) {
            Ok(Next::More) => {}
            Ok(Next::Enough) => {
                skipped += 1;
                if skipped == TO_SKIP + 1 && sql::reads(&statement.sql) {
                    cancel.cancel().await;
                }
            }
            Err(error) => {
                refused = Some(error);
                cancel.cancel().await;
            }
        }
    }
    match refused {
        Some(error) => Err(error),
        None => {
            let affected =
                if returns { gathering.count() } else { rows.rows_affected().unwrap_or(0) };
            Ok(Reply { returns, table: table(gathering, want), affected, last_id: None })
        }
    }
}

fn table(gathering: Gathering, want: Want) -> Table {
    match want {
        Want::Count => Table::default(),
        Want::First | Want::All => gathering.into_table(),
    }
}

impl Connection for Postgres {
    fn is_closed(&self) -> bool {
        self.client.is_closed() || self.cancel.asked.get()
    }

    fn ping(&mut self, watch: &Watch) -> Result<(), DbError> {
        let asked =
            async { self.client.check_connection().await.map_err(|error| error::of(&error)) };
        self.runtime.block_on(self.cancel.guarded(watch, asked))
    }

    fn run(
        &mut self,
        statement: &Statement,
        want: Want,
        bounds: Bounds,
        watch: &Watch,
    ) -> Result<Reply, DbError> {
        if self.pooled && !self.in_transaction {
            self.begin(watch).map_err(DbError::unsent)?;
            let reply = self.run_once(statement, want, bounds, watch);
            let ended = if reply.is_ok() { self.commit(watch) } else { self.rollback() };
            return reply.and_then(|reply| ended.map(|()| reply));
        }
        match self.run_once(statement, want, bounds, watch) {
            // A table has changed since the statement was prepared. It did not run.
            Err(error) if prepared::is_stale(&error) => {
                self.cache.forget(&statement.sql);
                match self.in_transaction {
                    true => Err(DbError { retryable: true, ..error }),
                    false => self.run_once(statement, want, bounds, watch),
                }
            }
            answer => answer,
        }
    }

    fn begin(&mut self, _: &Watch) -> Result<(), DbError> {
        let how = if self.read_only { "BEGIN READ ONLY" } else { "BEGIN" };
        match self.pooled {
            true => self.batch(&format!("{how}; SET LOCAL datestyle TO 'ISO'"))?,
            false => self.batch(how)?,
        }
        self.in_transaction = true;
        Ok(())
    }

    fn commit(&mut self, _: &Watch) -> Result<(), DbError> {
        self.in_transaction = false;
        self.batch("COMMIT")
    }

    fn rollback(&mut self) -> Result<(), DbError> {
        self.in_transaction = false;
        self.batch("ROLLBACK")
    }
}
