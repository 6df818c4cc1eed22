//! One operation's transaction: the connection, the time, and the effects of moved units.
//!
//! Operations report which units change state ([`Tx::count_transition`]). [`Tx::flush`] then writes
//! counts and releases dependants in the same transaction, once per operation instead of once per
//! unit. Work that must wait until other transactions can see the change (advancing batches,
//! wake-ups, the change feed) is collected in [`PostCommit`]; the store runs it after the commit.

mod counters;
mod post_commit;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use longshore_core::batch::Sums;
use longshore_core::{Error, Result, Timestamp, UnitId};
use longshore_postgres_url::PooledConnection;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use self::counters::{CounterDelta, DeltaColumns};
pub(crate) use self::post_commit::PostCommit;
use crate::connect::ClockSource;
use crate::error::{Translate, damaged, is_read_only};
use crate::row::value;
use crate::server_clock::{CLOCK_SQL, ServerClock};
use crate::streams::{NewStreams, StreamCache};
use crate::typed_params::{SqlParam, typed};

/// Whether a commit waits for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// The commit waits for the disk.
    Durable,
    /// The commit does not wait for the disk: claims, starts and heartbeats, which are worthless
    /// once their session is gone.
    Relaxed,
    /// Read-only: nothing to commit.
    Read,
}

/// If this process or the network fails, the server releases the transaction's locks after these
/// timeouts. They are shorter than the store's own timeout, so that the server tells what is slow.
const TIMEOUTS: &str = "SET LOCAL idle_in_transaction_session_timeout = '15s'; \
    SET LOCAL lock_timeout = '10s'; SET LOCAL statement_timeout = '20s'; SET LOCAL jit = off";

/// Makes the planner prefer indexes. Operations read a few hundred rows of a large table by index.
/// With outdated statistics the planner reads whole tables instead, or for each row everything a
/// session holds. Disabling sequential scans is no alternative: where one is unavoidable, its
/// penalty drowns all other cost differences.
const INDEX_PLANS: &str = "SET LOCAL random_page_cost = 0.01; SET LOCAL enable_bitmapscan = off; \
    SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off";

/// Restores the default planner settings for a caller's own statements.
const DEFAULT_PLANS: &str = "SET LOCAL random_page_cost TO DEFAULT; \
    SET LOCAL enable_bitmapscan TO DEFAULT; SET LOCAL enable_hashjoin TO DEFAULT; \
    SET LOCAL enable_mergejoin TO DEFAULT";

/// Most dependants that one transaction releases or cancels. The outbox keeps the rest.
const MAX_DEPENDANTS: i64 = 2_000;

/// One operation's transaction.
pub(crate) struct Tx<'c> {
    db: TxConnection<'c>,
    /// The time by the server's clock.
    pub(crate) now: Timestamp,
    pub(crate) clock_source: ClockSource,
    pub(crate) streams: Arc<StreamCache>,
    pub(crate) after: PostCommit,
    /// Roll back instead of committing, although the operation has a result.
    pub(crate) abandon: bool,
    /// Streams created by this transaction; cached by the process only after the commit.
    pub(crate) new_streams: NewStreams,
    deltas: BTreeMap<i64, CounterDelta>,
    /// Streams with counts that a server function has updated, and whether leased units were
    /// released.
    counted: BTreeMap<i64, bool>,
    /// Amounts that checkpoints add to the sums of batches, by stream.
    sums: BTreeMap<i64, Sums>,
    ended: Vec<(UnitId, bool)>,
    /// How many more dependants this transaction may release or cancel.
    pub(crate) dependants_left: i64,
    final_statements: Vec<FinalStatement>,
    /// Whether effects of a unit have left all constraints immediate.
    pub(crate) constraints_are_immediate: bool,
}

/// A statement pipelined with the commit.
struct FinalStatement {
    sql: &'static str,
    params: Vec<Box<dyn SqlParam + Send>>,
}

impl FinalStatement {
    fn params(&self) -> Vec<&dyn SqlParam> {
        self.params.iter().map(|param| -> &dyn SqlParam { param.as_ref() }).collect()
    }
}

enum TxConnection<'c> {
    /// A connection of the pool. `BEGIN` is pipelined with the first statement.
    Pooled { client: Option<Arc<PooledConnection>>, begin: Option<BeginFuture> },
    /// The caller's transaction.
    Caller(&'c tokio_postgres::Transaction<'c>),
}

type BeginFuture = BoxFuture<'static, Result<(), tokio_postgres::Error>>;

impl Tx<'static> {
    /// Begins a transaction on a connection of the pool.
    pub(crate) fn begin(
        client: PooledConnection,
        durability: Durability,
        clock: &ServerClock,
        streams: Arc<StreamCache>,
    ) -> Self {
        let client = Arc::new(client);
        let own = Arc::clone(&client);
        let sql = match durability {
            Durability::Durable => format!("BEGIN; {TIMEOUTS}; {INDEX_PLANS}"),
            Durability::Relaxed => {
                format!("BEGIN; {TIMEOUTS}; {INDEX_PLANS}; SET LOCAL synchronous_commit = off")
            }
            Durability::Read => format!("BEGIN READ ONLY; {TIMEOUTS}"),
        };
        let begin = async move { own.batch_execute(&sql).await }.boxed();
        Self::new(TxConnection::Pooled { client: Some(client), begin: Some(begin) }, clock, streams)
    }

    /// Commits, and returns the post-commit work.
    pub(crate) async fn commit(mut self) -> Result<PostCommit> {
        if self.abandon {
            self.end("ROLLBACK").await?;
            return Ok(PostCommit::default());
        }
        let more = !self.counted.is_empty() || !self.final_statements.is_empty();
        match self.prepare().await {
            Ok(None) if !more => self.end("COMMIT").await?,
            Ok(columns) => self.commit_with(columns).await?,
            Err(error) => {
                self.roll_back(&error).await;
                return Err(error);
            }
        }
        for stream in self.new_streams.take() {
            self.streams.insert(stream);
        }
        Ok(std::mem::take(&mut self.after))
    }

    /// Whether the transaction changed anything or has post-commit work.
    pub(crate) fn has_effects(&self) -> bool {
        let counts = !self.deltas.is_empty() || !self.counted.is_empty();
        let moved = counts || !self.sums.is_empty() || !self.ended.is_empty();
        let moved = moved || !self.final_statements.is_empty();
        !self.abandon && (moved || !self.after.is_empty() || self.after.skipped)
    }

    /// Writes the final statements and commits in one round trip. If a statement fails, the server
    /// rolls back instead of committing.
    async fn commit_with(&mut self, columns: Option<DeltaColumns>) -> Result<()> {
        let TxConnection::Pooled { client, .. } = &mut self.db else { return Ok(()) };
        let own = connection(client)?;
        let final_statements = std::mem::take(&mut self.final_statements);
        let final_statements: Vec<_> =
            final_statements.iter().map(|last| (last.sql, last.params())).collect();
        let finals = final_statements
            .iter()
            .map(|(sql, params)| async move { own.query_typed(sql, &typed(params)).await.map(|_| ()) });
        let finals = futures_util::future::join_all(finals);
        let write = async {
            match &columns {
                Some(columns) => {
                    let params = columns.params();
                    own.query_typed(DeltaColumns::SQL, &typed(&params)).await.map(|_| ())
                }
                None => Ok(()),
            }
        };
        let commit = own.batch_execute("COMMIT");
        // All are sent in this order before the first reply is read.
        let (results, written, committed) = futures_util::future::join3(finals, write, commit).await;
        let written = results.into_iter().chain([written]).try_for_each(Translate::or_translate);
        // The server replied to all of them, so the connection can be reused.
        if committed.is_ok() && !written.as_ref().is_err_and(is_read_only) {
            *client = None;
        }
        written?;
        committed.or_translate()
    }

    /// Rolls back after `error`. If that fails, or the server is read-only, the connection is closed.
    pub(crate) async fn roll_back(mut self, error: &Error) {
        if is_read_only(error) {
            return;
        }
        if let Err(error) = self.end("ROLLBACK").await {
            tracing::debug!(%error, "cannot roll back: the connection is closed");
        }
    }

    /// Ends the transaction and returns the connection to the pool.
    async fn end(&mut self, how: &str) -> Result<()> {
        if let TxConnection::Pooled { client, begin } = &mut self.db
            && begin.take().is_none()
            && let Some(own) = client
        {
            own.batch_execute(how).await.or_translate()?;
            // Only after the reply: `Drop` closes a connection that is still here.
            *client = None;
        } else if let TxConnection::Pooled { client, .. } = &mut self.db {
            *client = None;
        }
        Ok(())
    }
}

impl<'c> Tx<'c> {
    /// An operation inside the caller's own transaction.
    pub(crate) fn in_caller_transaction(
        transaction: &'c tokio_postgres::Transaction<'c>,
        clock: &ServerClock,
        streams: Arc<StreamCache>,
    ) -> Self {
        Self::new(TxConnection::Caller(transaction), clock, streams)
    }

    fn new(db: TxConnection<'c>, clock: &ServerClock, streams: Arc<StreamCache>) -> Self {
        Self {
            db,
            now: clock.now(),
            clock_source: clock.source,
            streams,
            after: PostCommit::default(),
            abandon: false,
            new_streams: NewStreams::default(),
            deltas: BTreeMap::new(),
            counted: BTreeMap::new(),
            sums: BTreeMap::new(),
            ended: Vec::new(),
            dependants_left: MAX_DEPENDANTS,
            final_statements: Vec::new(),
            constraints_are_immediate: false,
        }
    }

    /// Runs a statement and returns its rows.
    pub(crate) async fn query(&mut self, sql: &str, params: &[&dyn SqlParam]) -> Result<Vec<Row>> {
        self.query_raw(sql, &typed(params)).await
    }

    /// Runs a statement with typed parameters, and returns its rows.
    pub(crate) async fn query_raw(
        &mut self,
        sql: &str,
        params: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>> {
        match &mut self.db {
            TxConnection::Caller(transaction) => transaction.query_typed(sql, params).await.or_translate(),
            TxConnection::Pooled { client, begin } => {
                let client = connection(client)?;
                let query = client.query_typed(sql, params);
                let Some(begin) = begin.take() else { return query.await.or_translate() };
                // Both are sent before the first reply is read.
                let (begun, rows) = futures_util::future::join(begin, query).await;
                begun.or_translate()?;
                rows.or_translate()
            }
        }
    }

    /// Sends a statement together with the commit. Its rows are ignored; if it fails, so does the
    /// commit.
    pub(crate) fn pipeline_with_commit(&mut self, sql: &'static str, params: Vec<Box<dyn SqlParam + Send>>) {
        self.final_statements.push(FinalStatement { sql, params });
    }

    /// Runs a statement and returns the number of rows it changed.
    pub(crate) async fn execute(&mut self, sql: &str, params: &[&dyn SqlParam]) -> Result<u64> {
        self.execute_raw(sql, &typed(params)).await
    }

    /// Runs a statement with typed parameters, and returns the number of rows it changed.
    pub(crate) async fn execute_raw(
        &mut self,
        sql: &str,
        params: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<u64> {
        self.ensure_begun().await?;
        match &self.db {
            TxConnection::Caller(transaction) => transaction.execute_typed(sql, params).await.or_translate(),
            TxConnection::Pooled { client, .. } => {
                connection(client)?.execute_typed(sql, params).await.or_translate()
            }
        }
    }

    /// Runs statements without parameters and results (`SAVEPOINT`).
    pub(crate) async fn batch(&mut self, sql: &str) -> Result<()> {
        self.ensure_begun().await?;
        match &self.db {
            TxConnection::Caller(transaction) => transaction.batch_execute(sql).await.or_translate(),
            TxConnection::Pooled { client, .. } => {
                connection(client)?.batch_execute(sql).await.or_translate()
            }
        }
    }

    async fn ensure_begun(&mut self) -> Result<()> {
        match &mut self.db {
            TxConnection::Pooled { begin, .. } => match begin.take() {
                Some(begin) => begin.await.or_translate(),
                None => Ok(()),
            },
            TxConnection::Caller(_) => Ok(()),
        }
    }

    /// Whether this is part of the caller's own transaction, which may stay open for long.
    pub(crate) fn is_caller_transaction(&self) -> bool {
        matches!(self.db, TxConnection::Caller(_))
    }

    /// The settings to apply before effects, and those to apply after them. The latter reset
    /// whatever the effects have set, since `set_config` is a function that any statement can call.
    /// A caller's own transaction keeps its settings.
    pub(crate) fn effect_settings(&mut self, limit: Option<Duration>) -> (String, String) {
        match self.db {
            TxConnection::Pooled { .. } => {
                let limit = limit.map(effect_timeouts).unwrap_or_default();
                let before = format!("{DEFAULT_PLANS}; {limit}");
                (before, format!("RESET ROLE; RESET ALL; {TIMEOUTS}; {INDEX_PLANS}"))
            }
            TxConnection::Caller(_) => (String::new(), String::new()),
        }
    }

    /// Reads the server's clock, and makes it the time of this transaction.
    pub(crate) async fn read_clock(&mut self) -> Result<Timestamp> {
        if self.clock_source == ClockSource::Server {
            self.now = Timestamp::from_micros(value(&self.query_one(CLOCK_SQL, &[]).await?, 0)?);
        }
        Ok(self.now)
    }

    /// Runs a statement that returns exactly one row.
    pub(crate) async fn query_one(&mut self, sql: &str, params: &[&dyn SqlParam]) -> Result<Row> {
        self.query_opt(sql, params).await?.ok_or_else(|| damaged("no row where one is required"))
    }

    /// Runs a statement that returns at most one row.
    pub(crate) async fn query_opt(&mut self, sql: &str, params: &[&dyn SqlParam]) -> Result<Option<Row>> {
        Ok(self.query(sql, params).await?.into_iter().next())
    }
}

impl Drop for Tx<'_> {
    /// Closes the connection if it is dropped within a transaction (an error, or a caller that
    /// dropped its future): its protocol state is unknown. The server then rolls back.
    fn drop(&mut self) {
        if let TxConnection::Pooled { client, begin } = &mut self.db {
            let untouched = begin.take().is_some();
            if let Some(client) = client.take().and_then(Arc::into_inner)
                && !untouched
            {
                drop(PooledConnection::take(client));
            }
        }
    }
}

/// Statements that limit the time of the following effects. Rounded up: 0 means no limit. A wait for a lock ends
/// first: it is not the effect that takes long.
pub(crate) fn effect_timeouts(limit: Duration) -> String {
    let millis = |limit: Duration| limit.as_millis().min(i32::MAX as u128 - 1) + 1;
    let (statement, lock) = (millis(limit), millis(limit / 10 * 9));
    format!("SET LOCAL statement_timeout = {statement}; SET LOCAL lock_timeout = {lock}")
}

fn connection(client: &Option<Arc<PooledConnection>>) -> Result<&Arc<PooledConnection>> {
    client.as_ref().ok_or_else(|| Error::unavailable("the transaction has ended"))
}
