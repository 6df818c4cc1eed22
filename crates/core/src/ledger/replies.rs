//! Reply queues: opened by who waits for replies, gone with the session that opened them.

use async_trait::async_trait;

use crate::Result;
use crate::name::{QueueName, Scope, SessionId, TenantId};
use crate::store::Sent;
use crate::unit::NewUnit;

/// Reply queues.
#[async_trait]
pub trait Replies: Send + Sync + 'static {
    /// Opens a reply queue for a session's life. [`crate::Error::Invalid`] if another session has
    /// it: two who read one queue would take each other's replies. [`crate::Error::SessionGone`] if
    /// this one has ended. Whoever adopts a session's leases has its reply queues too.
    async fn open_replies(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        queue: &QueueName,
        session: SessionId,
    ) -> Result<()>;

    /// Closes it. What is left in it is cancelled, as it is when its session ends.
    async fn close_replies(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        queue: &QueueName,
    ) -> Result<()>;

    /// Sends a unit into a reply queue, if somebody has it open; `None` if nobody has, and nothing was
    /// sent. Whoever closes it at the same time comes before, or cancels what was sent: no reply is
    /// left in a queue that is gone.
    async fn reply(&self, scope: &Scope, unit: NewUnit) -> Result<Option<Sent>>;

    /// Whether somebody has it open.
    async fn replies_open(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        queue: &QueueName,
    ) -> Result<bool>;
}
