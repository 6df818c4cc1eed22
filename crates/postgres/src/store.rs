//! [`PostgresStore`]: opens the database, and runs each verb as one transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use longshore_core::store::{Finish, Finished, Sent};
use longshore_core::{Error, NewUnit, Result, Scope, SessionId};
use longshore_postgres_address::Address;
use longshore_postgres_address::Pool;
use tokio::task::JoinSet;

use crate::connect::{self, Listen, PostgresOptions};
use crate::errands::{Again, Doubts, Errands};
use crate::error::from_pool;
use crate::feed::Feed;
use crate::ledger::admit::Budgeted;
use crate::maintain::Rounds;
use crate::poll::Poll;
use crate::promise::Promise;
use crate::streams::Streams;
use crate::turns::Turns;
use crate::tx::{Aftermath, Durability, Tx};
use crate::{batch, finish, fold, migrate, send, untold};

mod inspect;
mod intake;
mod leases;
mod ledger;
mod operate;
mod parking;
mod permits;
mod schedules;
mod tenants;
mod tokens;
mod upkeep;

/// In how long it is made sure that nothing was left behind by a claim.
const MAKE_SURE: Duration = Duration::from_millis(10);

/// The store for many machines.
pub struct PostgresStore {
    shared: Arc<Shared>,
    /// End with the store.
    _tasks: JoinSet<()>,
}

/// What verbs and the store's own tasks share.
pub(crate) struct Shared {
    pub(crate) pool: Pool,
    pub(crate) options: PostgresOptions,
    pub(crate) streams: Arc<Streams>,
    pub(crate) turns: Turns,
    pub(crate) feed: Arc<Feed>,
    pub(crate) rounds: Rounds,
    /// How long a worker waits that hears of nothing.
    pub(crate) poll: Poll,
    /// Commits that moved anything.
    pub(crate) moves: AtomicU64,
    /// Differences written since this process last folded.
    unfolded: AtomicUsize,
    errands: Errands,
    /// When a claim is tried again that came upon what others held.
    pub(crate) again: Again,
    /// What claims could not tell.
    doubts: Doubts,
    /// Which tenants' calls are to be weighed.
    pub(crate) budgeted: Budgeted,
    /// What is asked of bounded pools.
    pub(crate) pools: crate::permits::Pools,
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the URL: it may hold a password.
        write!(f, "PostgresStore({} connections)", self.shared.options.connections)
    }
}

/// Runs `$body` as one transaction, again if others got in the way; its answer, and what is to be
/// done now. `$body` must not depend on an earlier try. `$end` ends the transaction; without it,
/// that is a commit.
macro_rules! attempt {
    ($store:expr, $durability:ident, $tx:ident => $body:expr) => {
        crate::store::attempt!($store, $durability, $tx => $body, $tx.commit())
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
pub(crate) use attempt;

/// Runs `$body` as one transaction with all that follows from it, however long it takes.
macro_rules! patient_verb {
    ($store:expr, $durability:ident, $tx:ident => $body:expr) => {
        async {
            let store = &$store.shared;
            let ended =
                crate::store::attempt!(store, $durability, $tx => $body, store.conclude($tx));
            let (answer, followed) = ended.await?;
            followed?;
            Ok(answer)
        }
    };
}
pub(crate) use patient_verb;

/// The same, never longer than the store's patience. Verbs that can be a single statement try that
/// first: see [`crate::lone`].
macro_rules! verb {
    ($store:expr, $durability:ident, $tx:ident => $body:expr) => {{
        let run = crate::store::patient_verb!($store, $durability, $tx => $body);
        $store.shared.in_time(run).await
    }};
}
pub(crate) use verb;

impl PostgresStore {
    /// Connects, and brings the schema up to date. Must be called inside a tokio runtime.
    pub async fn open(url: &str, options: PostgresOptions) -> Result<Self> {
        let address = connect::address(url)?;
        let pool = connect::pool(&address, &options)?;
        let feed = Arc::new(Feed::new());
        let (errands, running) = Errands::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&feed).write(pool.clone()));
        tasks.spawn(Arc::clone(&feed).pass_on(pool.clone()));
        tasks.spawn(running);
        let listen_at = match &options.listen {
            Listen::Auto => Some(address),
            Listen::At(url) => Some(connect::address(url)?),
            Listen::Off => None,
        };
        let shared = Shared {
            pool,
            options,
            streams: Arc::default(),
            turns: Turns::default(),
            feed,
            rounds: Rounds::default(),
            poll: Poll::default(),
            moves: AtomicU64::new(0),
            unfolded: AtomicUsize::new(0),
            errands,
            again: Again::default(),
            doubts: Doubts::default(),
            budgeted: Budgeted::default(),
            pools: crate::permits::Pools::default(),
        };
        let store = Self { shared: Arc::new(shared), _tasks: tasks };
        store.migrate_schema().await?;
        Ok(store.listen(listen_at))
    }

    fn listen(mut self, at: Option<Address>) -> Self {
        if let Some(address) = at {
            let feed = Arc::clone(&self.shared.feed);
            self._tasks.spawn(feed.listen(address, self.shared.pool.clone()));
        }
        self
    }

    /// Whether notices of other processes' commits arrive; where they do not, workers poll.
    pub fn is_listening(&self) -> bool {
        self.shared.feed.is_listening()
    }

    /// However long it takes: a migration that is cut short begins anew the next time.
    pub(crate) async fn migrate_schema(&self) -> Result<u32> {
        patient_verb!(self, Durable, tx => migrate::migrate(&mut tx)).await
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
    ) -> Result<InTransaction<Vec<Sent>>> {
        send::send_in(&self.shared, transaction, scope, units).await
    }

    /// Finishes runs inside the caller's own transaction on the same database. Units that wait for
    /// these, or for a place under their cap, hear of it with the notice, or from upkeep. As with
    /// [`Self::send_in`], a future that is dropped midway takes the caller's commit with it.
    pub async fn finish_in(
        &self,
        transaction: &tokio_postgres::Transaction<'_>,
        session: SessionId,
        finishes: &[Finish],
    ) -> Result<InTransaction<Vec<Finished>>> {
        finish::check_calls(finishes)?;
        let now = self.shared.options.clock.now();
        let mut tx = Tx::foreign(transaction, now, Arc::clone(&self.shared.streams));
        let promise = Promise::give(&mut tx).await?;
        let done = async {
            let answer = finish::finish(&mut tx, session, finishes).await?;
            tx.flush().await?;
            Ok(answer)
        };
        let done = done.await;
        promise.settle(&mut tx, done).await
    }

    /// Tells others of what a caller's transaction did, now that it is committed, and moves the
    /// batches it touched. What is not told here is found by the services, a little later.
    pub async fn committed(&self, notice: Notice) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        self.shared.see_to(async move { shared.follow(notice.0).await }).await
    }
}

impl Shared {
    /// A connection with a transaction on it.
    pub(crate) async fn begin(&self, durability: Durability) -> Result<Tx<'static>> {
        let client = self.pool.get().await.map_err(from_pool)?;
        let now = self.options.clock.now();
        Ok(Tx::begin(client, durability, now, Arc::clone(&self.streams)))
    }

    /// Commits a verb's transaction and does what follows from it; what came of both. From here on
    /// it is the store's own task: a caller that gives up, in the middle of the commit perhaps,
    /// does not keep a batch from its end.
    pub(crate) async fn conclude(self: &Arc<Self>, tx: Tx<'static>) -> Result<Result<()>> {
        if !tx.has_news() {
            return tx.commit().await.map(|_| Ok(()));
        }
        let shared = Arc::clone(self);
        self.see_to(async move { Ok(shared.follow(tx.commit().await?).await) }).await
    }

    /// Has something done to its end, even if the caller gives up: then by a task of the store.
    pub(crate) fn see_to<T: Send + 'static>(
        &self,
        errand: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send {
        self.errands.see_to(errand)
    }

    /// Never longer than the store's patience.
    pub(crate) async fn in_time<T>(&self, run: impl Future<Output = Result<T>>) -> Result<T> {
        let late = |_| Error::unavailable("PostgreSQL did not answer in time");
        tokio::time::timeout(self.options.patience, run).await.map_err(late)?
    }

    /// Does what can only be done once others see the commit: batches that came to an end, word to
    /// others, and now and then the folding.
    pub(crate) async fn follow(self: &Arc<Self>, mut after: Aftermath) -> Result<()> {
        let due = self.unfolded.fetch_add(after.deltas, Ordering::Relaxed) + after.deltas;
        if !after.is_empty() {
            self.moves.fetch_add(1, Ordering::Relaxed);
        }
        if after.deltas > 0 || after.woke {
            // Things move, and more may come soon.
            self.poll.reset();
        }
        if after.skipped {
            self.try_again();
        }
        self.make_sure(std::mem::take(&mut after.doubts));
        let told = self.tell(&mut after).await;
        let batches = std::mem::take(&mut after.batches);
        // First, so that whoever hears of a batch sees it as it stands now.
        let advanced = match batches.is_empty() {
            true => Ok(()),
            false => batch::advance(self, batches).await.map(|more| after.merge(more)),
        };
        self.feed.announce(std::mem::take(&mut after.topics), after.woke);
        advanced.and(told)?;
        if due >= fold::EVERY {
            self.unfolded.store(0, Ordering::Relaxed);
            // What fails here is done by the next, or by the leader's upkeep.
            if let Err(error) = self.fold().await {
                tracing::debug!(%error, "counts could not be folded");
            }
        }
        Ok(())
    }

    /// Does what a caller's transaction could not do without having others wait for it.
    async fn tell(&self, after: &mut Aftermath) -> Result<()> {
        let unparks = std::mem::take(&mut after.unparks);
        let untold = std::mem::take(&mut after.untold);
        if unparks.is_empty() && !untold {
            return Ok(());
        }
        let told = attempt!(self, Durable, tx => async {
            finish::unpark_counted(&mut tx, &unparks).await?;
            untold::tell(&mut tx).await
        });
        let ((), more) = told.await?;
        after.merge(more);
        Ok(())
    }

    /// Has this process's workers look again soon: what others held may be left to us.
    fn try_again(&self) {
        if let Some(wait) = self.again.next() {
            let (feed, again) = (Arc::clone(&self.feed), self.again.clone());
            self.errands.run(async move {
                tokio::time::sleep(wait).await;
                again.over();
                feed.suspect();
            });
        }
    }

    /// Looks a little later whether these streams have ready units left, which others held when a
    /// claim took the rest. Not in the claim itself: whoever waits for its units would wait for it.
    fn make_sure(self: &Arc<Self>, streams: Vec<i64>) {
        if !self.doubts.add(streams) {
            return;
        }
        let shared = Arc::clone(self);
        self.errands.run(async move {
            tokio::time::sleep(MAKE_SURE).await;
            let streams = shared.doubts.take();
            let sql = "SELECT 1 WHERE longshore_has_ready($1)";
            // What cannot be looked at now is found by polling.
            if shared.ask(sql, &[&streams]).await.is_ok_and(|left| !left.is_empty()) {
                shared.feed.suspect();
            }
        });
    }

    /// Counts a difference that calls wrote, and has all folded now and then. Whoever wrote it does not
    /// wait for that.
    pub(crate) fn spent(self: &Arc<Self>) {
        if self.unfolded.fetch_add(1, Ordering::Relaxed) + 1 >= fold::EVERY {
            self.unfolded.store(0, Ordering::Relaxed);
            let shared = Arc::clone(self);
            self.errands.run(async move {
                if let Err(error) = shared.fold().await {
                    tracing::debug!(%error, "counts could not be folded");
                }
            });
        }
    }

    /// Folds counts, without what follows from a commit: nothing has changed for anybody.
    pub(crate) async fn fold(&self) -> Result<Vec<i64>> {
        let mut tx = self.begin(Durability::Relaxed).await?;
        let batches = fold::fold(&mut tx).await?;
        tx.commit().await?;
        Ok(batches)
    }
}

/// The answer to a verb inside a caller's transaction.
#[derive(Debug)]
#[must_use = "hand the notice to `PostgresStore::committed` after the commit"]
pub struct InTransaction<T> {
    /// The answer.
    pub answer: T,
    /// What others are to hear once the transaction is committed.
    pub notice: Notice,
}

/// What others are to hear once a transaction is committed.
#[derive(Debug, Default)]
pub struct Notice(pub(crate) Aftermath);
