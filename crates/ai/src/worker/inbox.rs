//! The reader's side of a reply queue: open while its session lives.

use std::sync::Arc;
use std::time::Duration;

use longshore::accounts::Ledger;
use longshore::store::{ClaimRequest, FinishRequest, Queues};
use longshore::worker_session::NewSession;
use longshore::{Kind, Outcome, Payload, QueueName, Scope, SessionId, Store, TenantId};
use tokio::time::Instant;

use super::REPLY_KIND;

/// The queue is closed after this long without a heartbeat.
const SESSION_TTL: Duration = Duration::from_secs(60);

/// An open reply queue. Reading sends the heartbeats; a queue that is not read for a minute is
/// closed. Call [`Inbox::close`] when done: a dropped queue stays open until then.
pub struct Inbox {
    store: Arc<dyn Store>,
    ledger: Arc<dyn Ledger>,
    session: SessionId,
    tenant: TenantId,
    queue: QueueName,
    kind: Kind,
}

impl Inbox {
    /// Opens `tenant`'s reply queue `name`.
    pub async fn open(
        store: Arc<dyn Store>,
        ledger: Arc<dyn Ledger>,
        tenant: TenantId,
        name: &str,
    ) -> longshore::Result<Self> {
        let invalid = |error: longshore::name::NameError| longshore::Error::Invalid(error.to_string());
        let queue = QueueName::new(format!("{tenant}/{name}")).map_err(invalid)?;
        let kind = Kind::new(REPLY_KIND).map_err(invalid)?;
        let session = SessionId::new();
        let new = NewSession {
            kinds: [(kind.clone(), longshore::Policy::default())].into(),
            ttl: SESSION_TTL,
            ..NewSession::new(session, format!("replies {queue}"))
        };
        store.open_session(new).await?;
        let inbox = Self { store, ledger, session, tenant, queue, kind };
        let scope = inbox.scope();
        let Self { ledger, tenant, queue, .. } = &inbox;
        ledger.assign_reply_queue(&scope, tenant, queue, Some(session)).await?;
        Ok(inbox)
    }

    /// The next reply or part of one; `None` if none arrives in time. It is removed from the queue:
    /// if the reader dies before it has processed it, it is lost.
    pub async fn receive(&self, limit: Duration) -> longshore::Result<Option<Payload>> {
        let until = Instant::now() + limit;
        let mut seq = 0;
        loop {
            self.store.heartbeat(self.session, longshore::store::Heartbeat::default()).await?;
            if let Some(held) = self.store.claim(self.claim()).await?.units.pop() {
                let done = FinishRequest::new(held.lease, Outcome::Done(None));
                self.store.finish(self.session, vec![done]).await?;
                return Ok(Some(held.unit.payload));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            seq = self.store.wait_for_ready(seq, left.min(SESSION_TTL / 4)).await;
        }
    }

    /// Closes the queue. Unread replies are cancelled.
    pub async fn close(self) -> longshore::Result<()> {
        self.ledger.assign_reply_queue(&self.scope(), &self.tenant, &self.queue, None).await?;
        self.store.close_session(self.session).await
    }

    fn scope(&self) -> Scope {
        Scope::Tenant(self.tenant.clone())
    }

    fn claim(&self) -> ClaimRequest {
        ClaimRequest {
            scope: self.scope(),
            queues: Queues::Named(vec![self.queue.clone()]),
            ..ClaimRequest::new(self.session, vec![self.kind.clone()], 1)
        }
    }
}
