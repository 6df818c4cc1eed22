//! What a handler knows and may do while it runs.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longshore_core::store::Kept;
use longshore_core::unit::Progress;
use longshore_core::{Error, Payload, SessionId, Timestamp, Unit};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::held::Held;
use crate::waiting::{Waiting, Waits};

/// A handler's view of its unit. Cheap to clone, so parts of the work can have their own.
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

struct Inner {
    held: Held,
    session: SessionId,
    until: Option<Instant>,
    reins: Arc<Reins>,
    client: Client,
    waits: Arc<Waits>,
}

/// Why a handler is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelReason {
    /// Someone cancelled the unit.
    Cancelled,
    /// The worker stops; the unit will run again elsewhere and no attempt is used.
    Stopping,
    /// The unit was taken away: whatever the handler answers will be refused.
    LeaseLost,
    /// Its time is over.
    TimedOut,
}

/// Why a checkpoint was not kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The unit was taken away: someone else runs it.
    #[error("the unit was given to another worker")]
    LeaseLost,
    /// The store could not keep it.
    #[error(transparent)]
    Store(#[from] Error),
}

impl Context {
    pub(crate) fn new(
        held: Held,
        session: SessionId,
        until: Option<Instant>,
        reins: Arc<Reins>,
        client: Client,
        waits: Arc<Waits>,
    ) -> Self {
        Self { inner: Arc::new(Inner { held, session, until, reins, client, waits }) }
    }

    /// The unit.
    pub fn unit(&self) -> &Unit {
        &self.inner.held.unit
    }

    /// The worker's session.
    pub fn session(&self) -> SessionId {
        self.inner.session
    }

    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.inner.held.unit.attempt
    }

    /// What an earlier run had reached.
    pub fn checkpoint(&self) -> Option<&Payload> {
        self.inner.held.unit.checkpoint.as_ref()
    }

    /// Keeps what this run has reached, for the next run should this one be lost. Durable when it
    /// returns.
    pub async fn save_checkpoint(&self, state: Payload) -> Result<(), CheckpointError> {
        self.keep(Kept::new(state)).await
    }

    /// The same, and adds to the sums of the unit's batch and writes what calls came to, all or
    /// nothing: what was paid is counted when it is kept. A state that is kept already adds nothing.
    pub async fn keep(&self, kept: Kept) -> Result<(), CheckpointError> {
        let Inner { held, session, client, reins, .. } = &*self.inner;
        let keep = || client.store().checkpoint(*session, held.lease, kept.clone());
        if client.patiently(keep).await? {
            return Ok(());
        }
        reins.pull(CancelReason::LeaseLost);
        Err(CheckpointError::LeaseLost)
    }

    /// Says how far the run is; the latest word travels with the next heartbeat.
    pub fn progress(&self, fraction: Option<f64>, message: Option<&str>) {
        let progress = Progress { fraction, message: message.map(str::to_owned) };
        self.inner.reins.note(progress);
    }

    /// Is cancelled when the handler should end; `context.cancelled().cancelled().await` waits for
    /// it. A handler that does not look is dropped after a grace.
    pub fn cancelled(&self) -> CancellationToken {
        self.inner.reins.token.clone()
    }

    /// Why [`Self::cancelled`] was pulled, if it was.
    pub fn cancel_reason(&self) -> Option<CancelReason> {
        self.inner.reins.reason()
    }

    /// The unit's own deadline, by the store's clock.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.inner.held.unit.deadline
    }

    /// How long this run may still take, by timeout and deadline.
    pub fn time_left(&self) -> Option<Duration> {
        self.inner.until.map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// Says that the run only waits, until what is returned is dropped: for a limit that its tenant has
    /// reached, say. When many wait, the worker takes units of other tenants, and wants some slots
    /// back: see [`Waiting::unwanted`].
    pub fn waits(&self) -> Waiting {
        self.inner.waits.begin(&self.inner.held.unit.tenant)
    }

    /// A client to send further units with. It does not wait for room: a handler that waits holds
    /// a slot that the queue may need to get emptier.
    pub fn client(&self) -> &Client {
        &self.inner.client
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let unit = &self.inner.held.unit;
        f.debug_struct("Context")
            .field("unit", &unit.id)
            .field("kind", &unit.kind)
            .finish_non_exhaustive()
    }
}

/// How the worker reaches a run: to end it, and to hear how far it is.
#[derive(Debug, Default)]
pub(crate) struct Reins {
    pub(crate) token: CancellationToken,
    reason: AtomicU8,
    progress: Mutex<Option<Progress>>,
}

impl Reins {
    /// Asks the handler to end. The first reason stands, save that a lost lease overrides all.
    pub(crate) fn pull(&self, reason: CancelReason) {
        let code = reason as u8 + 1;
        if reason == CancelReason::LeaseLost {
            self.reason.store(code, Ordering::Release);
        } else {
            let _ = self.reason.compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire);
        }
        self.token.cancel();
    }

    pub(crate) fn reason(&self) -> Option<CancelReason> {
        use CancelReason::{Cancelled, LeaseLost, Stopping, TimedOut};
        let code = self.reason.load(Ordering::Acquire);
        [Cancelled, Stopping, LeaseLost, TimedOut].into_iter().find(|r| *r as u8 + 1 == code)
    }

    fn note(&self, progress: Progress) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress);
    }

    /// Puts a word back that was taken in vain.
    pub(crate) fn keep_progress(&self, progress: Progress) {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(progress);
    }

    /// The latest word, once.
    pub(crate) fn take_progress(&self) -> Option<Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
