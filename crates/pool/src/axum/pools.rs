//! The pools of an app, by name: the router's state.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

#[cfg(feature = "database")]
use crate::database::Db;
use crate::error::CallError;
use crate::health::Health;
use crate::job::call_error;
use crate::pool::WorkerPool;
use crate::shared::start_failed;

/// The pools of an app. Clones share the same set. Use it as the router's state, or as a part of it
/// (`impl FromRef<AppState> for Pools`, or axum's derive).
#[derive(Debug, Clone, Default)]
#[must_use = "handlers see it only as the router's state"]
pub struct Pools {
    members: Arc<Vec<Member>>,
}

/// An element of [`Pools`]: a [`WorkerPool`] or a database.
#[derive(Debug, Clone)]
pub struct Member {
    pool: WorkerPool,
    #[cfg(feature = "database")]
    db: Option<Db>,
}

impl From<WorkerPool> for Member {
    fn from(pool: WorkerPool) -> Self {
        Self {
            pool,
            #[cfg(feature = "database")]
            db: None,
        }
    }
}

#[cfg(feature = "database")]
impl From<Db> for Member {
    fn from(db: Db) -> Self {
        Self { pool: db.pool().clone(), db: Some(db) }
    }
}

impl Member {
    fn is_database(&self) -> bool {
        #[cfg(feature = "database")]
        return self.db.is_some();
        #[cfg(not(feature = "database"))]
        false
    }
}

impl Pools {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a pool or a database. [`WorkerPools`](super::WorkerPools) extracts the first pool, and a
    /// handler's `Db` the first database. A member of the same name is replaced.
    #[expect(clippy::should_implement_trait, reason = "the word that `Operations` has, too")]
    pub fn add(mut self, member: impl Into<Member>) -> Self {
        let member = member.into();
        let members = Arc::make_mut(&mut self.members);
        match members.iter_mut().find(|other| other.pool.name() == member.pool.name()) {
            Some(other) => {
                tracing::warn!(pool = member.pool.name(), "replacing another pool of this name");
                *other = member;
            }
            None => members.push(member),
        }
        self
    }

    /// All pools, databases included, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &WorkerPool> {
        self.members.iter().map(|member| &member.pool)
    }

    /// A pool by name; also finds the pool of a database.
    pub fn pool(&self, name: &str) -> Result<&WorkerPool, CallError> {
        let found = self.iter().find(|pool| pool.name() == name);
        found.ok_or_else(|| self.missing(name, "this app has no pool of that name"))
    }

    /// A database by name.
    #[cfg(feature = "database")]
    pub fn db(&self, name: &str) -> Result<&Db, CallError> {
        let mut databases = self.databases();
        let found = databases.find(|db| db.pool().name() == name);
        found.ok_or_else(|| self.missing(name, "this app has no database of that name"))
    }

    /// The first pool that is not a database.
    pub(super) fn first(&self) -> Result<&WorkerPool, CallError> {
        let mut pools = self.members.iter().filter(|member| !member.is_database());
        let found = pools.next().map(|member| &member.pool);
        found.ok_or_else(|| self.missing("", "this app has no pool"))
    }

    /// The first pool of threads that is not a database.
    pub(super) fn first_of_threads(&self) -> Result<&WorkerPool, CallError> {
        let mut pools = self.members.iter().filter(|member| !member.is_database());
        let found = pools.find(|member| member.pool.runs_closures()).map(|member| &member.pool);
        found.ok_or_else(|| self.missing("", "this app has no pool of threads"))
    }

    #[cfg(feature = "database")]
    pub(super) fn first_db(&self) -> Result<&Db, CallError> {
        self.databases().next().ok_or_else(|| self.missing("", "this app has no database"))
    }

    #[cfg(feature = "database")]
    fn databases(&self) -> impl Iterator<Item = &Db> {
        self.members.iter().filter_map(|member| member.db.as_ref())
    }

    fn missing(&self, name: &str, message: &str) -> CallError {
        let known: Vec<&str> = self.iter().map(WorkerPool::name).collect();
        let message = format!("{message} (there are: {})", known.join(", "));
        call_error(name, "", start_failed(message), None)
    }

    /// The worst health of all pools, with the first reason.
    pub fn health(&self) -> Health {
        let all = self.iter().map(|pool| (pool.name(), pool.health()));
        all.fold(Health::Ok, |worst, (name, health)| match (&worst, health) {
            (Health::Ok | Health::Degraded { .. }, Health::Failed { reason }) => {
                Health::Failed { reason: format!("{name}: {reason}") }
            }
            (Health::Ok, Health::Degraded { reason }) => {
                Health::Degraded { reason: format!("{name}: {reason}") }
            }
            _ => worst,
        })
    }

    /// Closes all pools at the same time; see [`WorkerPool::close`].
    pub async fn close(&self, limit: Duration) {
        join_all(self.iter().map(|pool| pool.close(limit))).await;
    }
}
