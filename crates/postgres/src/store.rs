//! [`PostgresStore`]: opens the database, and runs each verb as one transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use deadpool_postgres::Pool;
use longshore_core::store::{Finish, Finished, Sent};
use longshore_core::{NewUnit, Result, Scope, SessionId};
use tokio::task::JoinSet;

use crate::connect::{self, Listen, PostgresOptions};
use crate::error::from_pool;
use crate::feed::Feed;
use crate::maintain::Rounds;
use crate::poll::Poll;
use crate::streams::Streams;
use crate::turns::Turns;
use crate::tx::{Aftermath, Durability, Tx};
use crate::{batch, finish, fold, migrate, send};

mod inspect;
mod intake;
mod leases;
mod operate;
mod schedules;
mod tenants;
mod upkeep;

/// The store for many machines.
pub struct PostgresStore {
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
    /// Ends with the store.
    _tasks: JoinSet<()>,
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the URL: it may hold a password.
        write!(f, "PostgresStore({} connections)", self.options.connections)
    }
}

/// Runs `$body` as one transaction, again if others got in the way; its answer, and what is to be
/// done now. `$body` must not depend on an earlier try.
macro_rules! attempt {
    ($store:expr, $durability:ident, $tx:ident => $body:expr) => {
        async {
            let mut tries = 0;
            loop {
                let mut $tx = $store.begin(crate::tx::Durability::$durability).await?;
                let answer = match $body.await {
                    Ok(answer) => match $tx.commit().await {
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

/// Runs `$body` as one transaction with all that follows from it, never longer than the store's
/// patience.
macro_rules! verb {
    ($store:expr, $durability:ident, $tx:ident => $body:expr) => {{
        let store = $store;
        let run = async {
            let (answer, after) =
                crate::store::attempt!(store, $durability, $tx => $body).await?;
            store.follow(after).await?;
            Ok(answer)
        };
        match tokio::time::timeout(store.options.patience, run).await {
            Ok(answer) => answer,
            Err(_) => Err(longshore_core::Error::unavailable("PostgreSQL did not answer in time")),
        }
    }};
}
pub(crate) use verb;

impl PostgresStore {
    /// Connects, and brings the schema up to date. Must be called inside a tokio runtime.
    pub async fn open(url: &str, options: PostgresOptions) -> Result<Self> {
        let config = connect::config(url)?;
        let pool = connect::pool(config.clone(), &options)?;
        let feed = Arc::new(Feed::new());
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&feed).write(pool.clone()));
        let listen_at = match &options.listen {
            Listen::Auto => Some(config),
            Listen::At(url) => Some(connect::config(url)?),
            Listen::Off => None,
        };
        let store = Self {
            pool,
            options,
            streams: Arc::default(),
            turns: Turns::default(),
            feed,
            rounds: Rounds::default(),
            poll: Poll::default(),
            moves: AtomicU64::new(0),
            unfolded: AtomicUsize::new(0),
            _tasks: tasks,
        };
        store.migrate_schema().await?;
        store.listen(listen_at)
    }

    fn listen(mut self, at: Option<tokio_postgres::Config>) -> Result<Self> {
        if let Some(config) = at {
            let feed = Arc::clone(&self.feed);
            self._tasks.spawn(feed.listen(config, self.pool.clone()));
        }
        Ok(self)
    }

    /// Whether notices of other processes' commits arrive; where they do not, workers poll.
    pub fn is_listening(&self) -> bool {
        self.feed.is_listening()
    }

    pub(crate) async fn migrate_schema(&self) -> Result<u32> {
        verb!(self, Durable, tx => migrate::migrate(&mut tx))
    }

    /// A connection with a transaction on it.
    pub(crate) async fn begin(&self, durability: Durability) -> Result<Tx<'static>> {
        let client = self.pool.get().await.map_err(from_pool)?;
        let now = self.options.clock.now();
        Ok(Tx::begin(client, durability, now, Arc::clone(&self.streams)))
    }

    /// Does what can only be done once others see the commit: batches that came to an end, word to
    /// others, and now and then the folding.
    pub(crate) async fn follow(&self, mut after: Aftermath) -> Result<()> {
        let due = self.unfolded.fetch_add(after.deltas, Ordering::Relaxed) + after.deltas;
        if !after.is_empty() {
            self.moves.fetch_add(1, Ordering::Relaxed);
        }
        if after.deltas > 0 || after.woke {
            // Things move, and more may come soon.
            self.poll.reset();
        }
        let batches = std::mem::take(&mut after.batches);
        // First, so that whoever hears of a batch sees it as it stands now.
        let advanced = match batches.is_empty() {
            true => Ok(Aftermath::default()),
            false => batch::advance(self, batches).await,
        };
        if let Ok(more) = &advanced {
            after.merge(more.clone());
        }
        self.feed.announce(std::mem::take(&mut after.topics), after.woke);
        advanced?;
        if due >= fold::EVERY {
            self.unfolded.store(0, Ordering::Relaxed);
            // What fails here is done by the next, or by the leader's upkeep.
            if let Err(error) = self.fold().await {
                tracing::debug!(%error, "counts could not be folded");
            }
        }
        Ok(())
    }

    /// Folds counts, without what follows from a commit: nothing has changed for anybody.
    pub(crate) async fn fold(&self) -> Result<Vec<i64>> {
        let mut tx = self.begin(Durability::Relaxed).await?;
        let batches = fold::fold(&mut tx).await?;
        tx.commit().await?;
        Ok(batches)
    }

    /// Sends units inside the caller's own transaction on the same database: they are there if and
    /// only if the caller commits. Room in bounded queues is reserved beforehand, in a short
    /// transaction of its own; if the caller rolls back, it is free again after a minute. Nobody
    /// waits for room here: a full queue refuses.
    ///
    /// Hand the notice to [`Self::committed`] after the commit; without it workers find the units
    /// when they next poll.
    pub async fn send_in(
        &self,
        transaction: &tokio_postgres::Transaction<'_>,
        scope: &Scope,
        units: &[NewUnit],
    ) -> Result<InTransaction<Vec<Sent>>> {
        send::send_in(self, transaction, scope, units).await
    }

    /// Finishes runs inside the caller's own transaction on the same database.
    pub async fn finish_in(
        &self,
        transaction: &tokio_postgres::Transaction<'_>,
        session: SessionId,
        finishes: &[Finish],
    ) -> Result<InTransaction<Vec<Finished>>> {
        let now = self.options.clock.now();
        let mut tx = Tx::foreign(transaction, now, Arc::clone(&self.streams));
        // Of a verb that fails nothing may stay behind, should the caller commit all the same.
        tx.batch("SAVEPOINT longshore").await?;
        let done = async {
            let answer = finish::finish(&mut tx, session, finishes).await?;
            tx.flush().await?;
            Ok(answer)
        };
        let done = done.await;
        tx.batch(match done {
            Ok(_) => "RELEASE longshore",
            Err(_) => "ROLLBACK TO longshore; RELEASE longshore",
        })
        .await?;
        let after = Notice(std::mem::take(&mut tx.after));
        done.map(|answer| InTransaction { answer, notice: after })
    }

    /// Tells others of what a caller's transaction did, now that it is committed, and moves the
    /// batches it touched. What is not told here is found by the services, a little later.
    pub async fn committed(&self, notice: Notice) -> Result<()> {
        self.follow(notice.0).await
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
