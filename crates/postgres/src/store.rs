//! [`PostgresStore`]: opens the database, and runs each operation as one transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longshore_core::effect_budget::EffectBudget;
use longshore_core::store::{FinishRequest, FinishResult, SendResult};
use longshore_core::{Error, NewUnit, Result, Scope, SessionId};
use longshore_postgres_url::Pool;
use tokio::task::JoinSet;

use crate::background_tasks::{BackgroundTasks, RecheckSet, RetryDelay};
use crate::commit_guard::CommitGuard;
use crate::connect::{self, Listen, PostgresOptions};
use crate::counter_rollup::PendingDeltas;
use crate::error::from_pool;
use crate::heartbeat_runtime::HeartbeatRuntime;
use crate::ledger::admission::BudgetedTenants;
use crate::maintenance::MaintenanceCache;
use crate::migrate::PostgresMigrator;
use crate::notifier::Notifier;
use crate::poll_backoff::PollBackoff;
use crate::server_clock::ServerClock;
use crate::streams::StreamCache;
use crate::stride::StrideState;
use crate::timeline::NewestTimeline;
use crate::tx::{Durability, PostCommit, Tx};
use crate::{batch, counter_rollup, dependency_outbox, finish, send};

mod accounts;
mod admin;
mod enqueue;
mod maintenance;
mod operations;
mod permits;
mod queries;
mod schedules;
mod worker_api;

pub(crate) use operations::operations;

/// How long after a claim the store checks for ready units that the claim skipped because they were
/// locked.
const RECHECK_DELAY: Duration = Duration::from_millis(10);

/// The store for many machines.
pub struct PostgresStore {
    inner: Arc<StoreInner>,
    /// Aborted when the store is dropped.
    _tasks: JoinSet<()>,
}

/// State shared by operations and the store's background tasks.
pub(crate) struct StoreInner {
    pub(crate) pool: Pool,
    pub(crate) options: PostgresOptions,
    pub(crate) clock: ServerClock,
    pub(crate) streams: Arc<StreamCache>,
    pub(crate) stride: StrideState,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) maintenance: MaintenanceCache,
    /// Poll interval of idle workers where no notifications arrive.
    pub(crate) poll_backoff: PollBackoff,
    /// Commits of this process that changed anything.
    pub(crate) commits: AtomicU64,
    /// Delta rows written since this process last rolled up counters.
    pending_deltas: PendingDeltas,
    background: BackgroundTasks,
    /// Delay until workers claim again after a claim that skipped locked rows.
    pub(crate) claim_retry: RetryDelay,
    /// Streams to check for ready units that a claim may have skipped.
    rechecks: RecheckSet,
    /// Tenants with a budget, against which their calls are checked.
    pub(crate) budgeted_tenants: BudgetedTenants,
    /// The bounded pools that this process has used.
    pub(crate) pool_registry: crate::permits::PoolRegistry,
    pub(crate) heartbeats: HeartbeatRuntime,
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the URL: it may hold a password.
        write!(f, "PostgresStore({} connections)", self.inner.options.connections)
    }
}

/// Runs `$body` as one transaction and retries it after a conflict with another transaction.
/// Returns the answer and the post-commit work. `$body` must not depend on an earlier attempt.
/// `$end` ends the transaction; the default is a commit.
macro_rules! retry_transaction {
    ($store:expr, $durability:ident, $tx:ident => $body:expr) => {
        crate::store::retry_transaction!($store, $durability, $tx => $body, $tx.commit())
    };
    ($store:expr, $durability:ident, $tx:ident => $body:expr, $end:expr) => {
        async {
            let mut tries = 0;
            loop {
                let mut $tx = $store.begin(crate::tx::Durability::$durability).await?;
                let answer = match $body.await {
                    Ok(answer) => match $end.await {
                        Ok(after) => Ok((answer, after)),
                        Err(error) => Err(error),
                    },
                    Err(error) => {
                        $tx.roll_back(&error).await;
                        Err(error)
                    }
                };
                match answer {
                    Err(error) if crate::error::is_conflict(&error) && tries < 10 => {
                        tries += 1;
                        tokio::task::yield_now().await;
                    }
                    answer => return answer,
                }
            }
        }
    };
}
pub(crate) use retry_transaction;

/// Runs `$body` as one transaction, then its post-commit work, without a time limit.
macro_rules! operation_without_timeout {
    ($store:expr, $durability:ident, $tx:ident => $body:expr) => {
        async {
            let store = &$store.inner;
            let committed = crate::store::retry_transaction!(
                store, $durability, $tx => $body, store.commit_and_notify($tx)
            );
            let (answer, notified) = committed.await?;
            notified?;
            Ok(answer)
        }
    };
}
pub(crate) use operation_without_timeout;

/// Runs `$body` as one transaction, then its post-commit work, within the store's timeout.
/// Operations that may be a single statement try that first: see [`crate::single_statement`].
macro_rules! operation {
    ($store:expr, $durability:ident, $tx:ident => $body:expr) => {{
        let run = crate::store::operation_without_timeout!($store, $durability, $tx => $body);
        $store.inner.with_timeout(run).await
    }};
}
pub(crate) use operation;

impl PostgresStore {
    /// Connects, compares the clocks and checks the schema, which [`PostgresOptions::migrate`] may create or migrate.
    /// Must be called inside a tokio runtime.
    pub async fn open(url: &str, options: PostgresOptions) -> Result<Self> {
        let address = connect::address(url)?;
        let newest = NewestTimeline::default();
        let pool = connect::pool(&address, &options, &newest)?;
        let heartbeat_pool = || connect::heartbeat_pool(&address, &newest);
        let heartbeats = HeartbeatRuntime::new(heartbeat_pool()?, heartbeat_pool()?);
        let notifier = Arc::new(Notifier::new());
        let (background, running) = BackgroundTasks::new(options.timeout);
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&notifier).run_writer(pool.clone()));
        tasks.spawn(Arc::clone(&notifier).run_permit_sender(pool.clone()));
        tasks.spawn(running);
        let listen_at = match &options.listen {
            Listen::Auto => Some(address),
            Listen::Url(url) => Some(connect::address(url)?),
            Listen::Off => None,
        };
        let inner = StoreInner {
            pool,
            clock: ServerClock::new(&options),
            options,
            streams: Arc::default(),
            stride: StrideState::default(),
            notifier,
            maintenance: MaintenanceCache::default(),
            poll_backoff: PollBackoff::default(),
            commits: AtomicU64::new(0),
            pending_deltas: PendingDeltas::new(),
            background,
            claim_retry: RetryDelay::default(),
            rechecks: RecheckSet::default(),
            budgeted_tenants: BudgetedTenants::default(),
            pool_registry: crate::permits::PoolRegistry::default(),
            heartbeats,
        };
        let inner = Arc::new(inner);
        inner.check_clock().await?;
        PostgresMigrator::on(inner.pool.clone()).prepare(inner.options.migrate).await?;
        tasks.spawn(Arc::clone(&inner).keep_clock());
        if let Some(address) = listen_at {
            let notifier = Arc::clone(&inner.notifier);
            tasks.spawn(notifier.run_listener(address, inner.pool.clone(), newest));
        }
        Ok(Self { inner, _tasks: tasks })
    }

    /// Whether notifications of other processes' commits arrive. If they do not, workers poll.
    pub fn is_listening(&self) -> bool {
        self.inner.notifier.is_listening()
    }

    /// Sends units inside the caller's own transaction on the same database: they exist if and only
    /// if the caller commits. Capacity in bounded queues is reserved beforehand, in a short
    /// transaction of its own; if the caller rolls back, the reservation expires after a minute. A
    /// full queue refuses the unit at once. No existing unit is locked, so other transactions do
    /// not wait for the caller. A limit that is *set* while the transaction is open does not count
    /// the caller's units until the commit, and they may exceed it then.
    ///
    /// If this future is dropped before it completes (a timeout, a `select!`), part of the work may
    /// be done, and the server refuses the caller's commit.
    ///
    /// In a transaction of the level REPEATABLE READ or SERIALIZABLE that has run a statement already, this fails with
    /// [`Error::Unavailable`] if a queue of these units is younger than that statement. Run the transaction again, or
    /// use READ COMMITTED.
    ///
    /// Pass [`TransactionResult::post_commit`] to [`Self::run_post_commit`] after the commit.
    /// Otherwise workers find the units when they next poll.
    pub async fn send_in(
        &self,
        transaction: &tokio_postgres::Transaction<'_>,
        scope: &Scope,
        units: &[NewUnit],
    ) -> Result<TransactionResult<Vec<SendResult>>> {
        send::send_in(&self.inner, transaction, scope, units).await
    }

    /// Finishes runs inside the caller's own transaction on the same database. Units that depend on
    /// these, or wait for their cap, become ready in [`Self::run_post_commit`], or at the next
    /// maintenance round. As with [`Self::send_in`], the server refuses the caller's commit if this
    /// future is dropped before it completes.
    ///
    /// In a transaction of the level REPEATABLE READ or SERIALIZABLE that has run a statement already, this can fail
    /// with [`Error::Unavailable`] (SQLSTATE 40001), as every write in such a transaction can. Run the transaction
    /// again: its next attempt succeeds.
    pub async fn finish_in(
        &self,
        transaction: &tokio_postgres::Transaction<'_>,
        session: SessionId,
        finishes: &[FinishRequest],
    ) -> Result<TransactionResult<Vec<FinishResult>>> {
        finish::check_calls(finishes)?;
        finish::settle_slow(&self.inner, session, finishes, true).await?;
        let streams = Arc::clone(&self.inner.streams);
        let mut tx = Tx::in_caller_transaction(transaction, &self.inner.clock, streams);
        let guard = CommitGuard::arm(&mut tx).await?;
        let done = async {
            let mut budget = EffectBudget::unlimited();
            let answer = finish::finish(&mut tx, session, finishes, &mut budget).await?;
            tx.flush().await?;
            Ok(answer)
        };
        let done = done.await;
        guard.disarm(&mut tx, done).await
    }

    /// Runs the post-commit work of a caller's transaction: wakes workers, writes the change feed
    /// and advances the batches that it touched. Without this call, the maintenance services do so
    /// a little later.
    pub async fn run_post_commit(&self, work: PostCommitWork) -> Result<()> {
        let inner = Arc::clone(&self.inner);
        self.inner.run_to_completion(async move { inner.run_post_commit(work.0).await }).await
    }
}

impl StoreInner {
    /// Takes a connection from the pool and begins a transaction on it.
    pub(crate) async fn begin(&self, durability: Durability) -> Result<Tx<'static>> {
        self.begin_on(&self.pool, durability).await
    }

    /// Begins a transaction on a connection of `pool`.
    pub(crate) async fn begin_on(&self, pool: &Pool, durability: Durability) -> Result<Tx<'static>> {
        let client = pool.get().await.map_err(from_pool)?;
        Ok(Tx::begin(client, durability, &self.clock, Arc::clone(&self.streams)))
    }

    /// Commits a transaction and runs its post-commit work. The outer result is that of the commit,
    /// the inner that of the work. If the caller drops the future, even during the commit, a
    /// background task completes it, so that a finished batch is not left open.
    pub(crate) async fn commit_and_notify(self: &Arc<Self>, tx: Tx<'static>) -> Result<Result<()>> {
        if !tx.has_effects() {
            return tx.commit().await.map(|_| Ok(()));
        }
        let inner = Arc::clone(self);
        self.run_to_completion(async move { Ok(inner.run_post_commit(tx.commit().await?).await) }).await
    }

    /// Runs `task` to completion. If the caller drops the future, a background task continues it.
    pub(crate) fn run_to_completion<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send {
        self.background.run_to_completion(task)
    }

    /// Fails with [`Error::TimedOut`] if `run` exceeds the store's timeout.
    pub(crate) async fn with_timeout<T>(&self, run: impl Future<Output = Result<T>>) -> Result<T> {
        self.with_time_limit(self.options.timeout, run).await
    }

    /// Fails with [`Error::TimedOut`] if `run` takes longer than `limit`.
    pub(crate) async fn with_time_limit<T>(
        &self,
        limit: Duration,
        run: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let late = |_| Error::timed_out(format!("PostgreSQL did not answer within {limit:?}"));
        tokio::time::timeout(limit, run).await.map_err(late)?
    }

    /// Does what other transactions must see committed first: advances batches, wakes workers,
    /// writes the change feed, and from time to time rolls up counters.
    pub(crate) async fn run_post_commit(self: &Arc<Self>, mut after: PostCommit) -> Result<()> {
        let rollup_due = self.pending_deltas.add(after.deltas);
        if !after.is_empty() {
            self.commits.fetch_add(1, Ordering::Relaxed);
        }
        if after.deltas > 0 || after.wake_workers {
            // There is activity, and more work may come soon.
            self.poll_backoff.reset();
        }
        if after.skipped {
            self.retry_claims_later();
        }
        self.recheck_later(std::mem::take(&mut after.rechecks));
        let released = self.release_deferred(&mut after).await;
        if std::mem::take(&mut after.outbox) {
            self.release_dependants_later();
        }
        let batches = std::mem::take(&mut after.batches);
        // Before the change feed is written, so that its readers see the batch in its new state.
        let advanced = match batches.is_empty() {
            true => Ok(()),
            false => batch::advance(self, batches).await.map(|more| after.merge(more)),
        };
        self.notifier.announce(std::mem::take(&mut after.changes), after.wake_workers);
        advanced.and(released)?;
        if rollup_due {
            // If this fails, a later call or the leader's maintenance does it.
            if let Err(error) = self.roll_up_counters().await {
                tracing::debug!(%error, "cannot roll up counters");
            }
        }
        Ok(())
    }

    /// Unparks units and drains the dependency outbox. A caller's transaction leaves both for after
    /// its commit, because they lock rows that other transactions need.
    async fn release_deferred(&self, after: &mut PostCommit) -> Result<()> {
        let unparks = std::mem::take(&mut after.unparks);
        let has_outbox = std::mem::take(&mut after.outbox);
        if unparks.is_empty() && !has_outbox {
            return Ok(());
        }
        let released = retry_transaction!(self, Durable, tx => async {
            finish::unpark_counted(&mut tx, &unparks).await?;
            dependency_outbox::drain(&mut tx).await
        });
        let ((), more) = released.await?;
        after.merge(more);
        Ok(())
    }

    /// Continues in the background with the dependants that exceeded a transaction.
    fn release_dependants_later(self: &Arc<Self>) {
        let inner = Arc::clone(self);
        self.background.spawn(async move {
            // If this fails, maintenance continues.
            let after = PostCommit { outbox: true, ..PostCommit::default() };
            if let Err(error) = inner.run_post_commit(after).await {
                tracing::debug!(%error, "cannot release dependants");
            }
        });
    }

    /// Wakes this process's workers after a delay: other transactions may have released the rows
    /// that a claim skipped.
    fn retry_claims_later(&self) {
        if let Some(wait) = self.claim_retry.begin_wait() {
            let (notifier, claim_retry) = (Arc::clone(&self.notifier), self.claim_retry.clone());
            self.background.spawn(async move {
                tokio::time::sleep(wait).await;
                claim_retry.end_wait();
                notifier.wake_workers();
            });
        }
    }

    /// Checks after a short delay whether these streams still have ready units: other transactions
    /// held some when a claim took the rest. The claim itself does not check, because its worker
    /// would wait for that.
    fn recheck_later(self: &Arc<Self>, streams: Vec<i64>) {
        if !self.rechecks.add(streams) {
            return;
        }
        let inner = Arc::clone(self);
        self.background.spawn(async move {
            tokio::time::sleep(RECHECK_DELAY).await;
            let streams = inner.rechecks.take();
            let sql = "SELECT 1 WHERE longshore_has_ready_units($1)";
            // If the check fails, polling finds the units.
            if inner.query_autocommit(sql, &[&streams]).await.is_ok_and(|left| !left.is_empty()) {
                inner.notifier.wake_workers();
            }
        });
    }

    /// Counts a delta row that calls wrote. If a rollup is due, it starts one in the background, so
    /// that the caller does not wait.
    pub(crate) fn count_spend(self: &Arc<Self>) {
        if self.pending_deltas.add(1) {
            let inner = Arc::clone(self);
            self.background.spawn(async move {
                if let Err(error) = inner.roll_up_counters().await {
                    tracing::debug!(%error, "cannot roll up counters");
                }
            });
        }
    }

    /// Rolls up counters. Runs no post-commit work: no count changes for readers.
    pub(crate) async fn roll_up_counters(&self) -> Result<Vec<i64>> {
        let mut tx = self.begin(Durability::Relaxed).await?;
        let result = counter_rollup::roll_up(&mut tx).await?;
        tx.commit().await?;
        self.pending_deltas.rolled_up(result.streams);
        Ok(result.batches)
    }
}

/// The result of an operation inside a caller's transaction.
#[derive(Debug)]
#[must_use = "pass `post_commit` to `PostgresStore::run_post_commit` after the commit"]
pub struct TransactionResult<T> {
    /// What the operation returned.
    pub value: T,
    /// The work to run after the commit.
    pub post_commit: PostCommitWork,
}

/// Post-commit work of a caller's transaction, for [`PostgresStore::run_post_commit`].
#[derive(Debug, Default)]
pub struct PostCommitWork(pub(crate) PostCommit);
