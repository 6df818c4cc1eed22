//! Implements [`Permits`] for [`RedisPermits`].

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use longshore_core::permits::{
    AcquireRequest, AcquireResult, IfFull, PermitReply, PermitRequest, Permits, PoolChange, PoolStats,
};
use longshore_core::{Error, PermitId, PoolName, Result, SessionId};
use redis::cmd;
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

use crate::connection::{ServerConnection, push_args};
use crate::error::damaged;
use crate::inner::PermitsInner;
use crate::notifications::Notifications;
use crate::registry::{self, PoolRegistry};
use crate::script::{ALERT, EXTEND, INIT, RESET, RESIZE, STATS};
use crate::server_info::micros;
use crate::stats;

/// How to connect to Redis.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// How long a request may take.
    pub timeout: Duration,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(5) }
    }
}

/// Placeholder where a script expects an id first but needs none.
const NO_ID: &str = "-";
/// How soon a waiter asks again while notifications cannot be received.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Bounded pools on Redis or Valkey. Uses one connection for requests, one for renewals and one for notifications.
#[derive(Debug)]
pub struct RedisPermits {
    inner: Arc<PermitsInner>,
    registry: PoolRegistry,
    /// Receives notifications; started by the first wait, aborted on drop.
    listener: Mutex<JoinSet<()>>,
    /// Set once the first waiter has waited for the subscription.
    subscribed: OnceCell<()>,
}

impl RedisPermits {
    /// Parses `redis://USER:PASSWORD@HOST:PORT/NUMBER`, or `rediss://…` with TLS. Connects on first
    /// use; see [`Self::check`].
    pub fn open(url: &str, options: &RedisOptions) -> Result<Self> {
        let connect = || ServerConnection::new(url, options.timeout);
        let (connection, renewals) = (connect()?, connect()?);
        let notifications = Arc::new(Notifications::new());
        let inner = Arc::new(PermitsInner { connection, renewals, notifications });
        let (registry, listener) = (PoolRegistry::default(), Mutex::default());
        Ok(Self { inner, registry, listener, subscribed: OnceCell::new() })
    }

    /// Connects. Fails if the server is unreachable or cannot be trusted with permits.
    pub async fn check(&self) -> Result<()> {
        self.inner.connection.get().await.map(drop)
    }

    /// Starts the subscription at the first wait.
    async fn listen(&self) {
        {
            let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
            if listener.is_empty() {
                let notifications = Arc::clone(&self.inner.notifications);
                listener.spawn(
                    notifications
                        .listen(self.inner.connection.client().clone(), self.inner.connection.timeout()),
                );
            }
        }
        // Only once: without notifications waiting is slower, but works.
        self.subscribed.get_or_init(|| self.inner.notifications.wait_until_subscribed()).await;
    }

    /// Sends a request, coalesced with concurrent requests to the same pool.
    async fn submit(&self, pool: &PoolName, job: PermitRequest) -> PermitReply {
        let entry = self.registry.entry(pool);
        let (inner, name) = (Arc::clone(&self.inner), pool.clone());
        let target = Arc::clone(&entry);
        let call = move |jobs| {
            let (inner, name, target) = (Arc::clone(&inner), name.clone(), Arc::clone(&target));
            async move { inner.run(&name, &target, jobs).await }
        };
        entry.jobs.run(job, call).await.unwrap_or_else(|| Err(damaged("a request ended without a reply")))
    }

    async fn init(&self, pool: &PoolName, max: u32) -> Result<Option<u32>> {
        let entry = self.registry.entry(pool);
        let known_created_at = entry.created_at();
        let (created_at, known_max): (String, String) = self
            .inner
            .connection
            .script(&INIT, &entry.keys, |server, command| {
                command.arg(NO_ID).arg(max).arg(&server.run_id).arg(server.started_at);
                command.arg(u8::from(server.keeps_data)).arg(&known_created_at);
            })
            .await?;
        self.inner.register_pool(pool, &entry, created_at).await;
        Ok(known_max.parse().ok())
    }

    async fn resize(&self, pool: &PoolName, max: u32) -> Result<()> {
        let entry = self.registry.entry(pool);
        let known_created_at = entry.created_at();
        let created_at: String = self
            .inner
            .connection
            .script(&RESIZE, &entry.keys, |server, command| {
                command.arg(NO_ID).arg(max).arg(&server.run_id).arg(server.started_at);
                command.arg(u8::from(server.keeps_data)).arg(&known_created_at);
            })
            .await?;
        self.inner.register_pool(pool, &entry, created_at).await;
        Ok(())
    }

    async fn reset(&self, pool: &PoolName) -> Result<()> {
        let entry = self.registry.entry(pool);
        self.inner
            .connection
            .script(&RESET, &entry.keys, |_, command| {
                command.arg(NO_ID);
            })
            .await
    }

    async fn stats(&self, pool: &PoolName) -> Result<Option<PoolStats>> {
        let entry = self.registry.entry(pool);
        let raw = self.inner.connection.script(&STATS, &entry.keys, |_, command| {
            command.arg(NO_ID);
        });
        let raw = raw.await?;
        stats::parse(raw)
    }

    async fn names(&self) -> Result<Vec<PoolName>> {
        let listed = self.inner.connection.run(|_| {
            let mut command = cmd("SMEMBERS");
            command.arg(registry::POOL_NAMES_KEY);
            command
        });
        let listed: Vec<String> = listed.await?;
        let mut names = Vec::new();
        for name in listed.iter().filter_map(|name| name.parse::<PoolName>().ok()) {
            let exists = self.inner.connection.run(|_| {
                let mut command = cmd("HEXISTS");
                command.arg(registry::pool_key(&name)).arg("state");
                command
            });
            if exists.await? {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }
}

#[async_trait]
impl Permits for RedisPermits {
    async fn acquire(&self, pool: &PoolName, ask: &AcquireRequest) -> Result<AcquireResult> {
        if ask.weight == 0 {
            return Err(Error::Invalid("a permit weighs at least 1".to_owned()));
        }
        if let Some(grant) = self.inner.notifications.take_grant(pool, ask.id) {
            self.inner.notifications.remove(pool, ask.id);
            return Ok(AcquireResult::Granted(grant));
        }
        if let IfFull::Wait(queue_ttl) = ask.if_full {
            self.listen().await;
            self.inner.notifications.register(pool, ask.id, queue_ttl);
        }
        let done = self.submit(pool, PermitRequest::Ask(ask.clone())).await?;
        let answer = done.ok_or_else(|| damaged("no reply to an acquire"))?;
        Ok(match answer {
            AcquireResult::Waiting { position, retry_after } => {
                self.inner.notifications.mark_inactive(pool, ask.id);
                let subscribed = self.inner.notifications.is_subscribed();
                let limit = if subscribed { retry_after } else { POLL_INTERVAL };
                AcquireResult::Waiting { position, retry_after: retry_after.min(limit) }
            }
            AcquireResult::Granted(_) | AcquireResult::Full | AcquireResult::TooHeavy { .. } => {
                self.inner.notifications.remove(pool, ask.id);
                answer
            }
        })
    }

    async fn wait_for_wakeup(&self, pool: &PoolName, id: PermitId) {
        self.inner.notifications.wait(pool, id).await;
    }

    async fn renew(&self, pool: &PoolName, ids: &[PermitId], ttl: Duration) -> Result<Vec<PermitId>> {
        let entry = self.registry.entry(pool);
        let created_at = entry.created_at();
        let texts: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let gone: HashSet<String> = self
            .inner
            .renewals
            .script(&EXTEND, &entry.keys, |_, command| {
                command.arg(NO_ID).arg(micros(ttl)).arg(&created_at);
                push_args(command, &texts);
            })
            .await?;
        Ok(ids
            .iter()
            .zip(&texts)
            .filter(|(_, text)| gone.contains(text.as_str()))
            .map(|(id, _)| *id)
            .collect())
    }

    async fn release(&self, pool: &PoolName, ids: &[PermitId], timed_out: bool) -> Result<()> {
        ids.iter().for_each(|id| self.inner.notifications.remove(pool, *id));
        self.submit(pool, PermitRequest::Release { ids: ids.to_vec(), late: timed_out }).await.map(drop)
    }

    async fn change_pool(&self, pool: &PoolName, change: PoolChange) -> Result<Option<u32>> {
        match change {
            PoolChange::Create(max) => return self.init(pool, max).await,
            PoolChange::Resize(max) => self.resize(pool, max).await?,
            PoolChange::Reset => self.reset(pool).await?,
        }
        Ok(None)
    }

    async fn pools(&self, name: Option<&PoolName>) -> Result<Vec<(PoolName, PoolStats)>> {
        let names = match name {
            Some(name) => vec![name.clone()],
            None => self.names().await?,
        };
        let mut pools = Vec::new();
        for name in names {
            pools.extend(self.stats(&name).await?.map(|stats| (name, stats)));
        }
        Ok(pools)
    }

    async fn acquire_alert(&self, pool: &PoolName, alert: &str, every: Duration) -> Result<bool> {
        let (key, token) = (registry::alert_key(pool, alert), SessionId::new().to_string());
        let millis = u64::try_from(every.as_millis()).unwrap_or(u64::MAX).max(1);
        let keys = [key];
        let acquired = self.inner.connection.script(&ALERT, &keys, |_, command| {
            command.arg(&token).arg(millis);
        });
        acquired.await
    }
}
