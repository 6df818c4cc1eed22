//! Requests for permits: ask and wait.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::poll;
use longshore_core::permits::{AcquireRequest, AcquireResult, IfFull};
use longshore_core::{Error, PermitId, Priority};
use tokio::time::{Instant, timeout};

use super::alerts::PoolAlertKind;
use super::error::AcquireError;
use super::fallback::TRIES_BEFORE_FALLBACK;
use super::inner::PoolInner;
use super::permit::Permit;
use crate::Backoff;

/// Minimum time between two asks of a waiting request, however soon a lease expires.
const MIN_ASK_INTERVAL: Duration = Duration::from_millis(5);
/// How long leaving the wait queue may delay a request that timed out.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// A request for a permit with its own weight, priority or wait limit.
#[must_use = "a request does nothing until `acquire` is called"]
pub struct AcquireBuilder<'p> {
    inner: &'p Arc<PoolInner>,
    weight: u32,
    priority: Priority,
    wait: Option<Duration>,
    owner: Option<Arc<str>>,
}

impl<'p> AcquireBuilder<'p> {
    pub(super) fn new(inner: &'p Arc<PoolInner>) -> Self {
        let wait = inner.settings.wait;
        Self { inner, weight: 1, priority: super::NORMAL, wait, owner: None }
    }

    /// Sets the weight. Default 1.
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// Sets the priority in the wait queue.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the wait limit; zero waits for ever.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = (!limit.is_zero()).then_some(limit);
        self
    }

    /// Lowers the wait limit to `limit` if the pool's is longer.
    pub fn max_wait(mut self, limit: Duration) -> Self {
        self.wait = Some(self.wait.map_or(limit, |own| own.min(limit)));
        self
    }

    /// Sets the holder's name in statistics.
    pub fn owner(mut self, owner: &str) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// Waits for the permit: first come, first served within a priority. Dropping the future leaves
    /// the wait queue and releases a permit granted in the meantime.
    pub async fn acquire(self) -> Result<Permit, AcquireError> {
        let ask = self.ask(IfFull::Wait(self.inner.settings.queue_ttl()));
        if let Some(permit) = self.inner.ask_immediately(&ask) {
            return Ok(permit);
        }
        // Boxed: a request that waits needs a larger future than one that does not.
        Box::pin(self.wait_for(ask)).await
    }

    async fn wait_for(self, ask: AcquireRequest) -> Result<Permit, AcquireError> {
        let mut pending = PendingAsk::new(self.inner, ask.id);
        let mut last_error = None;
        let answer = {
            let mut attempt = pin!(ask_until_granted(self.inner, &ask, &mut last_error));
            // Usually a permit is free and no timer is needed.
            match (poll!(attempt.as_mut()), self.wait) {
                (Poll::Ready(answer), _) => Some(answer),
                (Poll::Pending, None) => Some(attempt.await),
                (Poll::Pending, Some(limit)) => timeout(limit, attempt).await.ok(),
            }
        };
        match answer {
            Some(answer) => answer.inspect(|permit| pending.resolve(permit.fence().is_some())),
            None => Err(pending.withdraw(self.wait.unwrap_or_default(), last_error).await),
        }
    }

    /// Acquires the permit if one is free and no other request waits for it.
    pub async fn try_acquire(self) -> Result<Option<Permit>, AcquireError> {
        let ask = self.ask(IfFull::Fail);
        let mut pending = PendingAsk::new(self.inner, ask.id);
        let mut backoff = Backoff::store();
        loop {
            if self.inner.uses_local_permits(backoff.tries()) {
                return Ok(self.inner.try_local_permit(ask.weight).await);
            }
            match self.inner.ask(&ask).await {
                Ok(granted) => {
                    pending.resolve(true);
                    return Ok(granted.ok());
                }
                Err(AskError::Retryable(error)) => {
                    self.inner.on_backend_error(&error);
                    backoff.wait().await;
                    if backoff.tries() >= TRIES_BEFORE_FALLBACK
                        && !self.inner.uses_local_permits(TRIES_BEFORE_FALLBACK)
                    {
                        return Err(AskError::Retryable(error).into_error(self.inner, ask.weight));
                    }
                }
                Err(error) => return Err(error.into_error(self.inner, ask.weight)),
            }
        }
    }

    fn ask(&self, otherwise: IfFull) -> AcquireRequest {
        self.inner.ensure_tasks();
        let settings = &self.inner.settings;
        AcquireRequest {
            id: PermitId::new(),
            max: settings.max,
            weight: self.weight,
            priority: self.priority,
            owner: Arc::clone(self.owner.as_ref().unwrap_or(&settings.owner)),
            ttl: settings.ttl,
            if_full: otherwise,
        }
    }
}

/// Asks until the permit is granted or the request fails permanently.
async fn ask_until_granted(
    inner: &Arc<PoolInner>,
    ask: &AcquireRequest,
    last_error: &mut Option<Error>,
) -> Result<Permit, AcquireError> {
    let mut backoff = Backoff::store();
    loop {
        if inner.uses_local_permits(backoff.tries())
            && let Some(permit) = inner.local_permit(ask.weight).await
        {
            return Ok(permit);
        }
        match inner.ask(ask).await {
            Ok(Ok(permit)) => return Ok(permit),
            Ok(Err(ask_again_in)) => {
                (*last_error, backoff) = (None, Backoff::store());
                let pause = ask_again_in.min(inner.settings.queue_ttl() / 3).max(MIN_ASK_INTERVAL);
                // A timeout is as good as a wake-up: either way it asks again.
                let _ = timeout(pause, inner.permits.wait_for_wakeup(&inner.name, ask.id)).await;
            }
            Err(AskError::Retryable(error)) => {
                inner.on_backend_error(&error);
                *last_error = Some(error);
                backoff.wait().await;
            }
            Err(other) => return Err(other.into_error(inner, ask.weight)),
        }
    }
}

/// Why an ask failed.
enum AskError {
    /// The backend is unavailable.
    Retryable(Error),
    /// The backend rejects the request.
    Permanent(Error),
    TooHeavy(u32),
}

impl AskError {
    fn into_error(self, inner: &PoolInner, weight: u32) -> AcquireError {
        let pool = inner.name.clone();
        match self {
            Self::Retryable(source) | Self::Permanent(source) => AcquireError::Unavailable { pool, source },
            Self::TooHeavy(max) => AcquireError::TooHeavy { pool, weight, max },
        }
    }
}

impl PoolInner {
    /// A permit, if the backend grants one without waiting. Otherwise the request may be in the
    /// wait queue.
    fn ask_immediately(self: &Arc<Self>, ask: &AcquireRequest) -> Option<Permit> {
        if ask.weight == 0 {
            return None;
        }
        let sent = Instant::now();
        match self.permits.try_acquire_now(&self.name, ask) {
            Some(AcquireResult::Granted(grant)) => Some(Permit::of_pool(self, ask.id, grant, sent)),
            _ => None,
        }
    }

    /// Asks once. Returns the permit, or how soon to ask again.
    async fn ask(self: &Arc<Self>, ask: &AcquireRequest) -> Result<Result<Permit, Duration>, AskError> {
        let sent = Instant::now();
        let answer = self.permits.acquire(&self.name, ask).await;
        if answer.is_ok() {
            self.outage.end();
        }
        match answer {
            Ok(AcquireResult::Granted(grant)) => Ok(Ok(Permit::of_pool(self, ask.id, grant, sent))),
            Ok(AcquireResult::Waiting { retry_after: ask_again_in, .. }) => {
                self.alert(PoolAlertKind::AtCapacity, "");
                Ok(Err(ask_again_in))
            }
            Ok(AcquireResult::Full) => {
                self.alert(PoolAlertKind::AtCapacity, "");
                Ok(Err(Duration::ZERO))
            }
            Ok(AcquireResult::TooHeavy { max }) => Err(AskError::TooHeavy(max)),
            Err(error) if error.is_retryable() => Err(AskError::Retryable(error)),
            Err(error) => Err(AskError::Permanent(error)),
        }
    }
}

/// An ask that may be queued or granted at the backend until it is resolved. Dropping it releases
/// both.
struct PendingAsk<'p> {
    inner: &'p Arc<PoolInner>,
    id: PermitId,
    open: bool,
}

impl<'p> PendingAsk<'p> {
    fn new(inner: &'p Arc<PoolInner>, id: PermitId) -> Self {
        Self { inner, id, open: true }
    }

    /// Resolves the ask: the backend has nothing left of it but what the permit guard knows. A
    /// local permit does not resolve it, because the backend may have granted it without an answer.
    fn resolve(&mut self, granted_by_backend: bool) {
        self.open = !granted_by_backend;
    }

    /// Leaves the wait queue after a timeout. Returns the error.
    async fn withdraw(&mut self, limit: Duration, last_error: Option<Error>) -> AcquireError {
        let pool = self.inner.name.clone();
        if let Some(source) = last_error {
            return AcquireError::Unavailable { pool, source };
        }
        let ids = [self.id];
        let leave = self.inner.permits.release(&pool, &ids, true);
        self.open = !matches!(timeout(LEAVE_TIMEOUT, leave).await, Ok(Ok(())));
        self.inner.alert(PoolAlertKind::TimedOut, "");
        AcquireError::TimedOut { pool, limit }
    }
}

impl Drop for PendingAsk<'_> {
    fn drop(&mut self) {
        if self.open {
            self.inner.release_in_background(self.id);
        }
    }
}
