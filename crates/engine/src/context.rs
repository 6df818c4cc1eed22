//! A handler's context: its unit, checkpoints, progress and cancellation.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longshore_core::outcome::MAX_MESSAGE;
use longshore_core::store::CheckpointRequest;
use longshore_core::text::truncate_bytes;
use longshore_core::unit::Progress;
use longshore_core::{Error, Payload, SessionId, Timestamp, Unit};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::slot_yield::{SlotWait, WaitTracker};
use crate::unit_table::BoxedUnit;

/// A handler's view of its unit. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    inner: Arc<ContextInner>,
}

struct ContextInner {
    held: BoxedUnit,
    session: SessionId,
    until: Option<Instant>,
    run_control: Arc<RunControl>,
    client: Client,
    waits: Arc<WaitTracker>,
}

/// Why a handler is cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelReason {
    /// A user cancelled the unit.
    Cancelled,
    /// The worker stops. The unit runs again on another worker, and no attempt is used.
    Stopping,
    /// The lease is lost: the store will reject the handler's outcome.
    LeaseLost,
    /// The timeout or deadline has passed.
    TimedOut,
}

/// Why a checkpoint was not stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The lease is lost: another worker may run the unit.
    #[error("the lease is lost: another worker may run the unit")]
    LeaseLost,
    /// The store returned an error.
    #[error(transparent)]
    Store(#[from] Error),
}

impl Context {
    pub(crate) fn new(
        held: BoxedUnit,
        session: SessionId,
        until: Option<Instant>,
        run_control: Arc<RunControl>,
        client: Client,
        waits: Arc<WaitTracker>,
    ) -> Self {
        Self { inner: Arc::new(ContextInner { held, session, until, run_control, client, waits }) }
    }

    /// The unit that runs.
    pub fn unit(&self) -> &Unit {
        &self.inner.held.unit
    }

    /// The worker's session.
    pub fn session(&self) -> SessionId {
        self.inner.session
    }

    /// The number of this attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.inner.held.unit.attempt
    }

    /// The checkpoint that an earlier run stored.
    pub fn checkpoint(&self) -> Option<&Payload> {
        self.inner.held.unit.checkpoint.as_ref()
    }

    /// Stores a checkpoint for the next run, in case this one is lost. Durable when it returns.
    pub async fn save_checkpoint(&self, state: Payload) -> Result<(), CheckpointError> {
        self.save_checkpoint_with(CheckpointRequest::new(state)).await
    }

    /// Stores a checkpoint, adds to the sums of the unit's batch and records calls, in one
    /// transaction: a cost is counted when its checkpoint is stored. If the same checkpoint is
    /// stored already, nothing is added.
    pub async fn save_checkpoint_with(&self, checkpoint: CheckpointRequest) -> Result<(), CheckpointError> {
        let ContextInner { held, session, client, run_control, .. } = &*self.inner;
        let save = || client.store().checkpoint(*session, held.lease, checkpoint.clone());
        if client.retry_unavailable(save).await? {
            return Ok(());
        }
        run_control.cancel(CancelReason::LeaseLost);
        Err(CheckpointError::LeaseLost)
    }

    /// Reports progress; the latest report is sent with the next heartbeat.
    pub fn progress(&self, fraction: Option<f64>, message: Option<&str>) {
        let progress = Progress { fraction, message: message.map(|text| truncate_bytes(text, MAX_MESSAGE)) };
        self.inner.run_control.set_progress(progress);
    }

    /// A token that is cancelled when the handler should end;
    /// `context.cancelled().cancelled().await` waits for it. A handler that ignores it is dropped
    /// after the grace.
    pub fn cancelled(&self) -> CancellationToken {
        self.inner.run_control.token.clone()
    }

    /// Why [`Self::cancelled`] was cancelled, if it was.
    pub fn cancel_reason(&self) -> Option<CancelReason> {
        self.inner.run_control.reason()
    }

    /// The unit's deadline, by the store's clock.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.inner.held.unit.deadline
    }

    /// How much time this run has left, by timeout and deadline.
    pub fn time_left(&self) -> Option<Duration> {
        self.inner.until.map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// Reports that the run waits, for example for its tenant's rate limit, until the guard is
    /// dropped. If many runs wait, the worker claims units of other tenants and asks for some slots
    /// back: see [`SlotWait::slot_needed`].
    pub fn begin_wait(&self) -> SlotWait {
        self.inner.waits.begin(&self.inner.held.unit.tenant)
    }

    /// A client to send further units. It does not wait for capacity: the queue may need the
    /// handler's own slot to shrink.
    pub fn client(&self) -> &Client {
        &self.inner.client
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let unit = &self.inner.held.unit;
        f.debug_struct("Context").field("unit", &unit.id).field("kind", &unit.kind).finish_non_exhaustive()
    }
}

/// Control of one run: cancellation and progress.
#[derive(Debug, Default)]
pub(crate) struct RunControl {
    pub(crate) token: CancellationToken,
    reason: AtomicU8,
    progress: Mutex<Option<Progress>>,
}

impl RunControl {
    /// Cancels the handler. The first reason is kept, except that a lost lease overrides all
    /// others.
    pub(crate) fn cancel(&self, reason: CancelReason) {
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

    fn set_progress(&self, progress: Progress) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress);
    }

    /// Puts back progress that could not be sent, unless there is newer progress.
    pub(crate) fn restore_progress(&self, progress: Progress) {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(progress);
    }

    /// Takes the latest progress.
    pub(crate) fn take_progress(&self) -> Option<Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
