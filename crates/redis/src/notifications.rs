//! Wake-ups for waiters: one pub/sub channel per process, one message per waiter to wake.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use longshore_core::permits::PermitGrant;
use longshore_core::{DoublingDelay, PermitId, PoolName, SessionId};
use redis::Client;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// The waiters of this process, by pool, and whether the channel is subscribed.
#[derive(Debug)]
pub(crate) struct Notifications {
    /// Identifies this process in the channel's name.
    client: String,
    pools: Mutex<HashMap<PoolName, PoolWaiters>>,
    subscribed: watch::Sender<bool>,
}

/// The waiters of one pool.
#[derive(Debug, Default)]
struct PoolWaiters {
    waiters: HashMap<PermitId, LocalWaiter>,
    /// How many of them are neither asking nor waiting for a wake-up at the moment.
    inactive: usize,
    /// Above this many waiters, expired ones are swept: a dropped waiter does not deregister.
    sweep_at: usize,
}

#[derive(Debug)]
struct LocalWaiter {
    /// Stores one wake-up until the waiter awaits it.
    wakeup: Arc<Notify>,
    /// When the waiter's place in the queue expires.
    expires_at: Instant,
    active: bool,
    /// A permit that was granted meanwhile.
    handed: Option<HandedGrant>,
}

impl PoolWaiters {
    /// Drops expired waiters once there are many.
    fn sweep(&mut self, now: Instant) {
        if self.waiters.len() > self.sweep_at.max(MIN_SWEEP) {
            self.waiters.retain(|_, waiter| waiter.expires_at > now);
            self.sweep_at = self.waiters.len() * 2;
            self.inactive = self.waiters.values().filter(|waiter| !waiter.active).count();
        }
    }

    fn set_active(&mut self, id: PermitId, active: bool) -> Option<&mut LocalWaiter> {
        let waiter = self.waiters.get_mut(&id)?;
        match (std::mem::replace(&mut waiter.active, active), active) {
            (false, true) => self.inactive -= 1,
            (true, false) => self.inactive += 1,
            (false, false) | (true, true) => {}
        }
        Some(waiter)
    }
}

/// A permit that was granted to a waiter with the reply to another request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HandedGrant {
    pub(crate) grant: PermitGrant,
    /// When that request was sent: the permit was granted later.
    pub(crate) requested_at: Instant,
}

/// A waiter that learns of its permit later than this asks again. The script adds the same time to
/// its TTL.
const HANDOVER_GRACE: Duration = Duration::from_secs(1);

/// Fewer waiters are not worth sweeping.
const MIN_SWEEP: usize = 1024;
/// How often the subscription's connection is checked.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// How long the first waiters wait for the subscription.
const SUBSCRIBE_WAIT: Duration = Duration::from_secs(1);

impl Notifications {
    pub(crate) fn new() -> Self {
        let client = SessionId::new().to_string();
        Self { client, pools: Mutex::default(), subscribed: watch::Sender::new(false) }
    }

    /// The name that the server publishes to.
    pub(crate) fn client(&self) -> &str {
        &self.client
    }

    fn with_pools<T>(&self, change: impl FnOnce(&mut HashMap<PoolName, PoolWaiters>) -> T) -> T {
        change(&mut self.pools.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn with_waiter<T>(
        &self,
        pool: &PoolName,
        id: PermitId,
        change: impl FnOnce(&mut LocalWaiter) -> T,
    ) -> Option<T> {
        self.with_pools(|pools| pools.get_mut(pool)?.waiters.get_mut(&id).map(change))
    }

    /// Registers a waiter before it asks, so that no wake-up is lost while its place is valid.
    pub(crate) fn register(&self, pool: &PoolName, id: PermitId, queue_ttl: Duration) {
        let now = Instant::now();
        self.with_pools(|pools| {
            let waiters = match pools.get_mut(pool) {
                Some(waiters) => waiters,
                None => pools.entry(pool.clone()).or_default(),
            };
            waiters.sweep(now);
            let expires_at = now + queue_ttl;
            match waiters.set_active(id, true) {
                Some(waiter) => waiter.expires_at = expires_at,
                None => {
                    let waiter =
                        LocalWaiter { wakeup: Arc::default(), expires_at, active: true, handed: None };
                    waiters.waiters.insert(id, waiter);
                }
            }
        });
    }

    /// Counts the waiters, requests that may wait included; the flag says whether all of them are
    /// active.
    pub(crate) fn waiter_count(&self, pool: &PoolName) -> (usize, bool) {
        self.with_pools(|pools| {
            pools.get(pool).map_or((0, true), |waiters| (waiters.waiters.len(), waiters.inactive == 0))
        })
    }

    /// Marks a waiter that was told to wait but does not await its wake-up yet.
    pub(crate) fn mark_inactive(&self, pool: &PoolName, id: PermitId) {
        self.with_pools(|pools| pools.get_mut(pool).map(|waiters| waiters.set_active(id, false).is_some()));
    }

    /// Removes a waiter.
    pub(crate) fn remove(&self, pool: &PoolName, id: PermitId) {
        self.with_pools(|pools| {
            let Some(waiters) = pools.get_mut(pool) else { return };
            waiters.set_active(id, true);
            waiters.waiters.remove(&id);
            if waiters.waiters.is_empty() {
                pools.remove(pool);
            }
        });
    }

    /// Returns at the next wake-up, or at once if one came since the waiter was registered.
    pub(crate) async fn wait(&self, pool: &PoolName, id: PermitId) {
        let wakeup = self.with_pools(|pools| {
            pools.get_mut(pool)?.set_active(id, true).map(|waiter| Arc::clone(&waiter.wakeup))
        });
        match wakeup {
            Some(wakeup) => wakeup.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Waits for the subscription, for at most [`SUBSCRIBE_WAIT`]; then waiters go on without it.
    pub(crate) async fn wait_until_subscribed(&self) {
        let mut subscribed = self.subscribed.subscribe();
        let _ = tokio::time::timeout(SUBSCRIBE_WAIT, subscribed.wait_for(|subscribed| *subscribed)).await;
    }

    /// Whether notifications can be received.
    pub(crate) fn is_subscribed(&self) -> bool {
        *self.subscribed.borrow()
    }

    /// Handles a message: the pool's name and a permit's id.
    fn on_message(&self, message: &str) {
        let Some((pool, id)) = message.split_once(' ') else { return };
        let (Ok(pool), Ok(id)) = (pool.parse(), id.parse()) else { return };
        self.notify(&pool, id);
    }

    /// Tells a waiter to ask again.
    pub(crate) fn notify(&self, pool: &PoolName, id: PermitId) {
        self.with_waiter(pool, id, |waiter| waiter.wakeup.notify_one());
    }

    /// Passes a granted permit to its waiter. If the waiter is gone, its release returns the
    /// permit.
    pub(crate) fn hand_over(&self, pool: &PoolName, id: PermitId, handed: HandedGrant) {
        self.with_waiter(pool, id, |waiter| {
            waiter.handed = Some(handed);
            waiter.wakeup.notify_one();
        });
    }

    /// The permit that was granted to this waiter, if that was less than [`HANDOVER_GRACE`] ago.
    pub(crate) fn take_grant(&self, pool: &PoolName, id: PermitId) -> Option<PermitGrant> {
        let handed = self.with_waiter(pool, id, |waiter| waiter.handed.take()).flatten()?;
        (handed.requested_at.elapsed() < HANDOVER_GRACE).then_some(handed.grant)
    }

    /// Wakes all waiters, because notifications may have been missed.
    fn notify_all(&self) {
        self.with_pools(|pools| {
            pools
                .values()
                .flat_map(|waiters| waiters.waiters.values())
                .for_each(|one| one.wakeup.notify_one());
        });
    }

    /// Receives notifications for ever; reconnects after failures.
    pub(crate) async fn listen(self: Arc<Self>, client: Client, timeout: Duration) {
        let mut pause = DoublingDelay::new(Duration::from_millis(50), Duration::from_secs(2));
        loop {
            let ended = self.subscribe_once(&client, timeout).await;
            if self.subscribed.send_replace(false) {
                pause.reset();
            }
            if let Err(error) = ended {
                tracing::debug!(%error, "the subscription to Redis failed; retrying");
            }
            tokio::time::sleep(pause.advance()).await;
        }
    }

    async fn subscribe_once(&self, client: &Client, timeout: Duration) -> redis::RedisResult<()> {
        let subscribe = async {
            let (mut sink, messages) = client.get_async_pubsub().await?.split();
            sink.subscribe(format!("longshore:turns:{}", self.client)).await?;
            Ok::<_, redis::RedisError>((sink, messages))
        };
        let late = |_| std::io::Error::from(std::io::ErrorKind::TimedOut);
        let (mut sink, mut messages) = tokio::time::timeout(timeout, subscribe).await.map_err(late)??;
        // Before waiters are told that the subscription is ready: they have missed nothing.
        self.notify_all();
        self.subscribed.send_replace(true);
        let mut ping_timer = tokio::time::interval(PING_INTERVAL);
        loop {
            tokio::select! {
                message = messages.next() => match message {
                    None => return Ok(()),
                    Some(message) => {
                        if let Ok(words) = message.get_payload::<String>() {
                            self.on_message(&words);
                            // Let the waiter that was notified first ask first; otherwise it would
                            // be told to wait and have to be notified again. Of tasks woken
                            // together the last would run first.
                            tokio::task::yield_now().await;
                        }
                    }
                },
                // The driver buffers messages meanwhile.
                _ = ping_timer.tick() => {
                    let ping = sink.ping::<redis::Value>();
                    tokio::time::timeout(timeout, ping).await.map_err(late)??;
                }
            }
        }
    }
}
