//! [`PostgresStore`]: opens the database, and runs each verb as one transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use longshore_core::store::{Finish, Finished, Sent};
use longshore_core::{Error, NewUnit, Result, Scope, SessionId};
use longshore_postgres_address::Address;
use longshore_postgres_address::Pool;
use tokio::task::JoinSet;

use crate::background_tasks::{BackgroundTasks, RecheckSet, RetryDelay};
use crate::commit_guard::CommitGuard;
use crate::connect::{self, Listen, PostgresOptions};
use crate::error::from_pool;
use crate::ledger::admission::BudgetedTenants;
use crate::maintenance::MaintenanceCache;
use crate::notifier::Notifier;
use crate::poll_backoff::PollBackoff;
use crate::streams::StreamCache;
use crate::stride::StrideState;
use crate::tx::{Durability, PostCommit, Tx};
use crate::{batch, counter_rollup, dependency_outbox, finish, migrate, send};

mod admin;
mod enqueue;
mod ledger;
mod maintenance;
mod permits;
mod provider_batches;
mod queries;
mod schedules;
mod tenants;
mod tokens;
mod worker_api;

/// In how long it is made sure that nothing was left behind by a claim.
const RECHECK_DELAY: Duration = Duration::from_millis(10);

/// The store for many machines.
pub struct PostgresStore {
    inner: Arc<StoreInner>,
    /// End with the store.
    _tasks: JoinSet<()>,
}

/// What verbs and the store's own tasks share.
pub(crate) struct StoreInner {
    pub(crate) pool: Pool,
    pub(crate) options: PostgresOptions,
    pub(crate) streams: Arc<StreamCache>,
    pub(crate) stride: StrideState,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) maintenance: MaintenanceCache,
    /// How long a worker waits that hears of nothing.
    pub(crate) poll_backoff: PollBackoff,
    /// Commits that moved anything.
    pub(crate) commits: AtomicU64,
    /// Differences written since this process last folded.
    pending_deltas: AtomicUsize,
    background: BackgroundTasks,
    /// When a claim is tried again that came upon what others held.
    pub(crate) claim_retry: RetryDelay,
    /// What claims could not tell.
    rechecks: RecheckSet,
    /// Which tenants' calls are to be weighed.
    pub(crate) budgeted_tenants: BudgetedTenants,
    /// What is asked of bounded pools.
    pub(crate) pool_coalescers: crate::permits::PoolCoalescers,
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the URL: it may hold a password.
        write!(f, "PostgresStore({} connections)", self.inner.options.connections)
    }
}

/// Runs `$body` as one transaction, again if others got in the way; its answer, and what is to be
/// done now. `$body` must not depend on an earlier try. `$end` ends the transaction; without it,
/// that is a commit.
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
                        $tx.roll_back().await;
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

/// Runs `$body` as one transaction with all that follows from it, however long it takes.
macro_rules! verb_without_timeout {
    ($store:expr, $durability:ident, $tx:ident => $body:expr) => {
        async {
            let store = &$store.inner;
            let ended =
                crate::store::retry_transaction!(store, $durability, $tx => $body, store.commit_and_notify($tx));
            let (answer, followed) = ended.await?;
            followed?;
            Ok(answer)
        }
    };
}
pub(crate) use verb_without_timeout;

/// The same, never longer than the store's patience. Verbs that can be a single statement try that
/// first: see [`crate::single_statement`].
macro_rules! verb {
    ($store:expr, $durability:ident, $tx:ident => $body:expr) => {{
        let run = crate::store::verb_without_timeout!($store, $durability, $tx => $body);
        $store.inner.with_timeout(run).await
    }};
}
pub(crate) use verb;

impl PostgresStore {
    /// Connects, and brings the schema up to date. Must be called inside a tokio runtime.
    pub async fn open(url: &str, options: PostgresOptions) -> Result<Self> {
        let address = connect::address(url)?;
        let pool = connect::pool(&address, &options)?;
        let notifier = Arc::new(Notifier::new());
        let (background, running) = BackgroundTasks::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&notifier).run_writer(pool.clone()));
        tasks.spawn(Arc::clone(&notifier).run_permit_sender(pool.clone()));
        tasks.spawn(running);
        let listen_at = match &options.listen {
            Listen::Auto => Some(address),
            Listen::At(url) => Some(connect::address(url)?),
            Listen::Off => None,
        };
        let inner = StoreInner {
            pool,
            options,
            streams: Arc::default(),
            stride: StrideState::default(),
            notifier,
            maintenance: MaintenanceCache::default(),
            poll_backoff: PollBackoff::default(),
            commits: AtomicU64::new(0),
            pending_deltas: AtomicUsize::new(0),
            background,
            claim_retry: RetryDelay::default(),
            rechecks: RecheckSet::default(),
            budgeted_tenants: BudgetedTenants::default(),
            pool_coalescers: crate::permits::PoolCoalescers::default(),
        };
        let store = Self { inner: Arc::new(inner), _tasks: tasks };
        store.migrate_schema().await?;
        Ok(store.listen(listen_at))
    }

    fn listen(mut self, at: Option<Address>) -> Self {
        if let Some(address) = at {
            let notifier = Arc::clone(&self.inner.notifier);
            self._tasks.spawn(notifier.run_listener(address, self.inner.pool.clone()));
        }
        self
    }

    /// Whether notices of other processes' commits arrive; where they do not, workers poll.
    pub fn is_listening(&self) -> bool {
        self.inner.notifier.is_listening()
    }

    /// However long it takes: a migration that is cut short begins anew the next time.
    pub(crate) async fn migrate_schema(&self) -> Result<u32> {
        verb_without_timeout!(self, Durable, tx => migrate::migrate(&mut tx)).await
    }

    /// Sends units inside the caller's own transaction on the same database: they are there if and
    /// only if the caller commits. Room in bounded queues is reserved beforehand, in a short
    /// transaction of its own; if the caller rolls back, it is free again after a minute. Nobody
    /// waits for room here: a full queue refuses. Nor does anybody wait for the caller: no unit
    /// that is there already is locked. A bound that is *set* while the transaction is open does
    /// not know of its units until the commit, and may be exceeded by them then.
    ///
    /// If this future is dropped before it is ready (a timeout, a `select!`), nobody knows how much
    /// of it was done, and the server refuses the caller's commit.
    ///
    /// Hand the notice to [`Self::committed`] after the commit; without it workers find the units
    /// when they next poll.
    pub async fn send_in(
        &self,
        transaction: &tokio_postgres::Transaction<'_>,
        scope: &Scope,
        units: &[NewUnit],
    ) -> Result<TransactionResult<Vec<Sent>>> {
        send::send_in(&self.inner, transaction, scope, units).await
    }

    /// Finishes runs inside the caller's own transaction on the same database. Units that wait for
    /// these, or for a place under their cap, hear of it with the notice, or from upkeep. As with
    /// [`Self::send_in`], a future that is dropped midway takes the caller's commit with it.
    pub async fn finish_in(
        &self,
        transaction: &tokio_postgres::Transaction<'_>,
        session: SessionId,
        finishes: &[Finish],
    ) -> Result<TransactionResult<Vec<Finished>>> {
        finish::check_calls(finishes)?;
        let now = self.inner.options.clock.now();
        let mut tx = Tx::in_caller_transaction(transaction, now, Arc::clone(&self.inner.streams));
        let guard = CommitGuard::arm(&mut tx).await?;
        let done = async {
            let answer = finish::finish(&mut tx, session, finishes).await?;
            tx.flush().await?;
            Ok(answer)
        };
        let done = done.await;
        guard.disarm(&mut tx, done).await
    }

    /// Tells others of what a caller's transaction did, now that it is committed, and moves the
    /// batches it touched. What is not told here is found by the services, a little later.
    pub async fn committed(&self, notice: CommitNotice) -> Result<()> {
        let inner = Arc::clone(&self.inner);
        self.inner.run_to_completion(async move { inner.run_post_commit(notice.0).await }).await
    }
}

impl StoreInner {
    /// A connection with a transaction on it.
    pub(crate) async fn begin(&self, durability: Durability) -> Result<Tx<'static>> {
        let client = self.pool.get().await.map_err(from_pool)?;
        let now = self.options.clock.now();
        Ok(Tx::begin(client, durability, now, Arc::clone(&self.streams)))
    }

    /// Commits a verb's transaction and does what follows from it; what came of both. From here on
    /// it is the store's own task: a caller that gives up, in the middle of the commit perhaps,
    /// does not keep a batch from its end.
    pub(crate) async fn commit_and_notify(self: &Arc<Self>, tx: Tx<'static>) -> Result<Result<()>> {
        if !tx.has_effects() {
            return tx.commit().await.map(|_| Ok(()));
        }
        let inner = Arc::clone(self);
        self.run_to_completion(async move { Ok(inner.run_post_commit(tx.commit().await?).await) })
            .await
    }

    /// Has something done to its end, even if the caller gives up: then by a task of the store.
    pub(crate) fn run_to_completion<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send {
        self.background.run_to_completion(task)
    }

    /// Never longer than the store's patience.
    pub(crate) async fn with_timeout<T>(&self, run: impl Future<Output = Result<T>>) -> Result<T> {
        let late = |_| Error::unavailable("PostgreSQL did not answer in time");
        tokio::time::timeout(self.options.timeout, run).await.map_err(late)?
    }

    /// Does what can only be done once others see the commit: batches that came to an end, word to
    /// others, and now and then the folding.
    pub(crate) async fn run_post_commit(self: &Arc<Self>, mut after: PostCommit) -> Result<()> {
        let deltas = self.pending_deltas.fetch_add(after.deltas, Ordering::Relaxed) + after.deltas;
        if !after.is_empty() {
            self.commits.fetch_add(1, Ordering::Relaxed);
        }
        if after.deltas > 0 || after.wake_workers {
            // Things move, and more may come soon.
            self.poll_backoff.reset();
        }
        if after.skipped {
            self.retry_claims_later();
        }
        self.recheck_later(std::mem::take(&mut after.rechecks));
        let released = self.release_deferred(&mut after).await;
        let batches = std::mem::take(&mut after.batches);
        // First, so that whoever hears of a batch sees it as it stands now.
        let advanced = match batches.is_empty() {
            true => Ok(()),
            false => batch::advance(self, batches).await.map(|more| after.merge(more)),
        };
        self.notifier.announce(std::mem::take(&mut after.changes), after.wake_workers);
        advanced.and(released)?;
        if deltas >= counter_rollup::DELTA_THRESHOLD {
            self.pending_deltas.store(0, Ordering::Relaxed);
            // What fails here is done by the next, or by the leader's upkeep.
            if let Err(error) = self.roll_up_counters().await {
                tracing::debug!(%error, "counts could not be folded");
            }
        }
        Ok(())
    }

    /// Does what a caller's transaction could not do without having others wait for it.
    async fn release_deferred(&self, after: &mut PostCommit) -> Result<()> {
        let unparks = std::mem::take(&mut after.unparks);
        let dependency_outbox = std::mem::take(&mut after.outbox);
        if unparks.is_empty() && !dependency_outbox {
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

    /// Has this process's workers look again soon: what others held may be left to us.
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

    /// Looks a little later whether these streams have ready units left, which others held when a
    /// claim took the rest. Not in the claim itself: whoever waits for its units would wait for it.
    fn recheck_later(self: &Arc<Self>, streams: Vec<i64>) {
        if !self.rechecks.add(streams) {
            return;
        }
        let inner = Arc::clone(self);
        self.background.spawn(async move {
            tokio::time::sleep(RECHECK_DELAY).await;
            let streams = inner.rechecks.take();
            let sql = "SELECT 1 WHERE longshore_has_ready($1)";
            // What cannot be looked at now is found by polling.
            if inner.query_autocommit(sql, &[&streams]).await.is_ok_and(|left| !left.is_empty()) {
                inner.notifier.wake_workers();
            }
        });
    }

    /// Counts a difference that calls wrote, and has all folded now and then. Whoever wrote it does not
    /// wait for that.
    pub(crate) fn count_spend(self: &Arc<Self>) {
        if self.pending_deltas.fetch_add(1, Ordering::Relaxed) + 1
            >= counter_rollup::DELTA_THRESHOLD
        {
            self.pending_deltas.store(0, Ordering::Relaxed);
            let inner = Arc::clone(self);
            self.background.spawn(async move {
                if let Err(error) = inner.roll_up_counters().await {
                    tracing::debug!(%error, "counts could not be folded");
                }
            });
        }
    }

    /// Folds counts, without what follows from a commit: nothing has changed for anybody.
    pub(crate) async fn roll_up_counters(&self) -> Result<Vec<i64>> {
        let mut tx = self.begin(Durability::Relaxed).await?;
        let batches = counter_rollup::roll_up(&mut tx).await?;
        tx.commit().await?;
        Ok(batches)
    }
}

/// The answer to a verb inside a caller's transaction.
#[derive(Debug)]
#[must_use = "hand the notice to `PostgresStore::committed` after the commit"]
pub struct TransactionResult<T> {
    /// The answer.
    pub value: T,
    /// What others are to hear once the transaction is committed.
    pub notice: CommitNotice,
}

/// What others are to hear once a transaction is committed.
#[derive(Debug, Default)]
pub struct CommitNotice(pub(crate) PostCommit);
