//! The reader's side of a reply queue.
//!
//! A reply queue belongs to a session of the store, not to a process: each process that knows its
//! tenant and name can read it. A read leases replies to that session, and returns them again until
//! they are acknowledged. The queue is closed when its session ends: by [`Inbox::close`], or after
//! its TTL without a read.

use std::sync::Arc;
use std::time::Duration;

use longshore::accounts::Ledger;
use longshore::store::{ClaimRequest, FinishRequest, FinishResult, Heartbeat, Queues};
use longshore::worker_session::NewSession;
use longshore::{Error, Kind, Outcome, Payload, QueueName, Scope, SessionId, Store, TenantId, UnitId};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::REPLY_KIND;

/// Default time without a read after which a reply queue is closed.
pub const REPLY_QUEUE_TTL: Duration = Duration::from_secs(60);

/// Most replies of one read, and so most replies that are not acknowledged.
pub const MAX_REPLIES: u32 = 100;

/// A read takes no further replies after this many bytes.
const MAX_READ_BYTES: usize = 4 << 20;

/// The names of queues that are opened without one. They are used again, because the number of a tenant's
/// queues is limited.
const UNNAMED_QUEUES: u16 = 500;

/// Interval of heartbeats during a read that waits; shorter than every TTL.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(3);

/// Least time between two claims of a read that waits: on a busy store most wakeups concern others.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A reply, or a part of one, that waits for its acknowledgement.
#[derive(Debug, Clone, PartialEq)]
pub struct QueuedReply {
    /// Its id, to acknowledge it with.
    pub id: UnitId,
    /// The reply, as JSON of the contract.
    pub payload: Payload,
}

/// An open reply queue. Reading sends the heartbeats. A dropped `Inbox` leaves the queue open.
pub struct Inbox {
    store: Arc<dyn Store>,
    ledger: Arc<dyn Ledger>,
    session: SessionId,
    tenant: TenantId,
    queue: QueueName,
    kind: Kind,
    read_permits: Option<Arc<Semaphore>>,
}

impl Inbox {
    /// Opens `tenant`'s reply queue `name`, which is closed after `ttl` without a read.
    pub async fn open(
        store: Arc<dyn Store>,
        ledger: Arc<dyn Ledger>,
        tenant: TenantId,
        name: &str,
        ttl: Duration,
    ) -> longshore::Result<Self> {
        let inbox = Self::new(store, ledger, tenant, name, SessionId::new())?;
        let Self { store, ledger, session, tenant, queue, kind, .. } = &inbox;
        let new = NewSession {
            kinds: [(kind.clone(), longshore::Policy::default())].into(),
            ttl,
            ..NewSession::new(*session, format!("replies {queue}"))
        };
        store.open_session(new).await?;
        let assigned = ledger.assign_reply_queue(&inbox.scope(), tenant, queue, Some(*session)).await;
        if let Err(error) = assigned {
            store.close_session(*session).await?;
            return Err(error);
        }
        Ok(inbox)
    }

    /// Opens a reply queue by a free name of `replies-1` to `replies-500`. The name is random, so that
    /// concurrent clients rarely meet, and a name that was just closed is rarely used again.
    pub async fn open_unnamed(
        store: Arc<dyn Store>,
        ledger: Arc<dyn Ledger>,
        tenant: TenantId,
        ttl: Duration,
    ) -> longshore::Result<Self> {
        let open = ledger.reply_queues(&Scope::Tenant(tenant.clone()), &tenant, None).await?;
        let id = *SessionId::new().as_bytes();
        let first = u16::from_be_bytes([id[14], id[15]]) % UNNAMED_QUEUES;
        for n in (first..UNNAMED_QUEUES).chain(0..first) {
            let name = format!("replies-{}", n + 1);
            let full = format!("{tenant}/{name}");
            if open.iter().any(|open| open.queue.as_str() == full) {
                continue;
            }
            match Self::open(Arc::clone(&store), Arc::clone(&ledger), tenant.clone(), &name, ttl).await {
                // Another client was faster.
                Err(Error::ReplyQueueOpen(_)) => {}
                opened => return opened,
            }
        }
        let message =
            format!("all {UNNAMED_QUEUES} names of reply queues are in use: close some, or give a name");
        Err(Error::Invalid(message))
    }

    /// Finds `tenant`'s reply queue `name`; [`Error::NotFound`] if it is not open.
    pub async fn find(
        store: Arc<dyn Store>,
        ledger: Arc<dyn Ledger>,
        tenant: TenantId,
        name: &str,
    ) -> longshore::Result<Self> {
        let mut inbox = Self::new(store, ledger, tenant, name, SessionId::new())?;
        let Self { ledger, tenant, queue, .. } = &inbox;
        let open = ledger.reply_queues(&inbox.scope(), tenant, Some(queue.clone())).await?;
        inbox.session = open.first().ok_or_else(|| inbox.closed())?.session;
        Ok(inbox)
    }

    fn new(
        store: Arc<dyn Store>,
        ledger: Arc<dyn Ledger>,
        tenant: TenantId,
        name: &str,
        session: SessionId,
    ) -> longshore::Result<Self> {
        let invalid = |error: longshore::name::NameError| Error::Invalid(error.to_string());
        let queue = QueueName::new(format!("{tenant}/{name}")).map_err(invalid)?;
        let kind = Kind::new(REPLY_KIND).map_err(invalid)?;
        Ok(Self { store, ledger, session, tenant, queue, kind, read_permits: None })
    }

    /// Takes one of these permits for each access of [`Self::read`] to the store, not while it waits.
    #[must_use]
    pub fn with_read_permits(self, permits: Arc<Semaphore>) -> Self {
        Self { read_permits: Some(permits), ..self }
    }

    /// The tenant.
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// The queue's name, with its tenant.
    pub fn queue(&self) -> &QueueName {
        &self.queue
    }

    /// Up to `limit` replies and parts, oldest first. Replies of an earlier read that are not
    /// acknowledged are returned first, without new ones. Waits up to `wait` for the first one.
    /// [`Error::NotFound`] if the queue is closed.
    pub async fn read(&self, limit: u32, wait: Duration) -> longshore::Result<Vec<QueuedReply>> {
        self.read_open(limit.clamp(1, MAX_REPLIES) as usize, wait).await.map_err(|error| self.explain(error))
    }

    async fn read_open(&self, limit: usize, wait: Duration) -> longshore::Result<Vec<QueuedReply>> {
        let until = Instant::now() + wait;
        self.store.heartbeat(self.session, Heartbeat::default()).await?;
        let mut last_heartbeat = Instant::now();
        let unacknowledged = self.unacknowledged(limit).await?;
        if !unacknowledged.is_empty() {
            return Ok(unacknowledged);
        }
        let mut seq = 0;
        loop {
            let polled = Instant::now();
            let replies = self.claim(limit).await?;
            let left = until.saturating_duration_since(Instant::now());
            if !replies.is_empty() || left.is_zero() {
                return Ok(replies);
            }
            seq = self.store.wait_for_ready(seq, left.min(HEARTBEAT_INTERVAL)).await;
            tokio::time::sleep_until(polled + MIN_POLL_INTERVAL).await;
            if last_heartbeat.elapsed() >= HEARTBEAT_INTERVAL {
                self.store.heartbeat(self.session, Heartbeat::default()).await?;
                last_heartbeat = Instant::now();
            }
        }
    }

    /// Acknowledges replies: they are not returned again. Returns how many there were; a repeat
    /// finds none. [`Error::NotFound`] if the queue is closed.
    pub async fn acknowledge(&self, ids: &[UnitId]) -> longshore::Result<usize> {
        self.acknowledge_open(ids).await.map_err(|error| self.explain(error))
    }

    async fn acknowledge_open(&self, ids: &[UnitId]) -> longshore::Result<usize> {
        let leases = self.store.leases_of(self.session).await?;
        let done = leases.into_iter().filter(|lease| ids.contains(&lease.unit));
        let done: Vec<_> = done.map(|lease| FinishRequest::new(lease, Outcome::Done(None))).collect();
        let ended = self.store.finish(self.session, done).await?;
        Ok(ended.iter().filter(|end| matches!(end, FinishResult::Recorded(_))).count())
    }

    /// The next reply or part of one, acknowledged; `None` if none arrives in time. If the reader
    /// dies before it has processed it, it is lost.
    pub async fn receive(&self, wait: Duration) -> longshore::Result<Option<Payload>> {
        let Some(reply) = self.read(1, wait).await?.pop() else { return Ok(None) };
        self.acknowledge(&[reply.id]).await?;
        Ok(Some(reply.payload))
    }

    /// Closes the queue. Replies that are not acknowledged are cancelled.
    pub async fn close(self) -> longshore::Result<()> {
        self.ledger.assign_reply_queue(&self.scope(), &self.tenant, &self.queue, None).await?;
        match self.store.close_session(self.session).await {
            Err(Error::SessionGone(_)) => Ok(()),
            closed => closed,
        }
    }

    fn scope(&self) -> Scope {
        Scope::Tenant(self.tenant.clone())
    }

    fn closed(&self) -> Error {
        Error::not_found("open reply queue", &self.queue)
    }

    /// The session ends with the queue.
    fn explain(&self, error: Error) -> Error {
        if matches!(error, Error::SessionGone(_)) { self.closed() } else { error }
    }

    async fn read_permit(&self) -> Option<SemaphorePermit<'_>> {
        match &self.read_permits {
            // It is never closed.
            Some(permits) => permits.acquire().await.ok(),
            None => None,
        }
    }

    /// Replies that were read before.
    async fn unacknowledged(&self, limit: usize) -> longshore::Result<Vec<QueuedReply>> {
        let _permit = self.read_permit().await;
        let mut units = Vec::new();
        for lease in self.store.leases_of(self.session).await? {
            match self.store.unit(&self.scope(), lease.unit).await {
                Ok(unit) => units.push(unit),
                // Acknowledged and removed meanwhile.
                Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        units.sort_by_key(|unit| (unit.created_at, unit.id));
        let replies = units.into_iter().map(|unit| QueuedReply { id: unit.id, payload: unit.payload });
        Ok(replies.take(limit).collect())
    }

    /// Leases waiting replies, one by one because each may be large.
    async fn claim(&self, limit: usize) -> longshore::Result<Vec<QueuedReply>> {
        let _permit = self.read_permit().await;
        let (mut replies, mut bytes) = (Vec::new(), 0);
        while replies.len() < limit && bytes < MAX_READ_BYTES {
            let request = ClaimRequest {
                scope: self.scope(),
                queues: Queues::Named(vec![self.queue.clone()]),
                ..ClaimRequest::new(self.session, vec![self.kind.clone()], 1)
            };
            let Some(leased) = self.store.claim(request).await?.units.pop() else { break };
            let reply = QueuedReply { id: leased.unit.id, payload: leased.unit.payload };
            bytes += reply.payload.as_bytes().len();
            replies.push(reply);
        }
        Ok(replies)
    }
}
