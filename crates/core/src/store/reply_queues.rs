//! Reply queues: opened by a session that waits for replies, closed when it ends.

use async_trait::async_trait;

use crate::Result;
use crate::name::{QueueName, Scope, SessionId, TenantId};
use crate::store::SendResult;
use crate::unit::NewUnit;

/// An open reply queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenReplyQueue {
    /// The queue.
    pub queue: QueueName,
    /// The session that reads it.
    pub session: SessionId,
}

/// Reply queues.
#[async_trait]
pub trait ReplyQueues: Send + Sync + 'static {
    /// Opens a reply queue for a session's lifetime. [`crate::Error::ReplyQueueOpen`] if another session
    /// has it open: two readers of one queue would take each other's replies.
    /// [`crate::Error::SessionGone`] if the session has ended. A session that adopts another's
    /// leases also gets its reply queues.
    ///
    /// Without a session, closes the queue. Units left in it are cancelled, as when its session
    /// ends.
    async fn assign_reply_queue(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        queue: &QueueName,
        session: Option<SessionId>,
    ) -> Result<()>;

    /// A tenant's open reply queues, ordered by name; with `queue` that one, if it is open. Empty if
    /// the scope does not cover the tenant.
    async fn reply_queues(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        queue: Option<QueueName>,
    ) -> Result<Vec<OpenReplyQueue>>;

    /// Sends a unit into a reply queue, if it is open, and if `reader`, where given, is the session that
    /// has it open: a queue of the same name may be another program's by now. Returns `None` and sends
    /// nothing if not. A concurrent close either comes first, or cancels the unit: no reply is left in a
    /// closed queue.
    async fn send_reply(
        &self,
        scope: &Scope,
        unit: NewUnit,
        reader: Option<SessionId>,
    ) -> Result<Option<SendResult>>;
}
