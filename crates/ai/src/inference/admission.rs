//! Admission of a call: breaker, concurrency limit, token reservation, pool permit, send slot,
//! acquired in this order, so that a waiting call holds as little as possible.

use std::pin::pin;
use std::sync::Arc;

use longshore::{AcquireError, Context, Permit, PoolName};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::call::ProfileCall;
use super::profile_cache::TenantContext;
use super::upstream_health::InFlight;
use super::yielding_wait::{WaitOutcome, wait};
use crate::model_api::{AskError, Code};
use crate::profile::WhenFull;
use crate::resilience::{BucketCharge, LimitError, TokenReservation};

/// What an admitted call holds: a slot of the profile's concurrency limit, reserved tokens, a pool
/// permit and a place in flight.
pub(super) struct AdmissionGuard<'l> {
    pub(super) _concurrency: Option<OwnedSemaphorePermit>,
    /// A permit of the pool that the profile names.
    pub(super) permit: Option<Permit>,
    pub(super) reservation: TokenReservation,
    pub(super) charges: Arc<[BucketCharge]>,
    pub(super) in_flight: InFlight<'l>,
}

/// Why a call was not admitted.
pub(super) enum AdmissionError {
    /// Another unit needs the worker's slot while this call waits.
    Yielded,
    /// It cannot be admitted before its deadline.
    Rejected(AskError),
}

impl From<AskError> for AdmissionError {
    fn from(error: AskError) -> Self {
        Self::Rejected(error)
    }
}

impl ProfileCall<'_> {
    /// Waits until the call is admitted or the question's deadline passes.
    pub(super) async fn admission(
        &self,
        run: Option<&Context>,
        tokens: u64,
        until: Instant,
    ) -> Result<AdmissionGuard<'_>, AdmissionError> {
        let limits = &self.entry.profile.limits;
        let upstream = &self.entry.upstream;
        // While the upstream is closed, wait without reserving tokens that other calls could use.
        while let Some(at) = upstream.closed_until(Instant::now(), tokens)
            && run.is_some()
            && at < until
        {
            completed(wait(run, until, sleep_until(at)).await)?;
        }
        let concurrency = match &self.entry.concurrency {
            None => None,
            Some(limit) if limits.when_full == WhenFull::Refuse => {
                let concurrency = Arc::clone(limit).try_acquire_owned();
                Some(concurrency.map_err(|_| {
                    rate_limited("the profile's limit of calls in flight is reached")
                })?)
            }
            Some(limit) => {
                let concurrency = pin!(timeout_at(until, Arc::clone(limit).acquire_owned()));
                let concurrency = completed(wait(run, until, concurrency).await)?;
                // The semaphore is never closed.
                concurrency
                    .map_err(|_| {
                        rate_limited("no slot for another call in flight before the deadline")
                    })?
                    .ok()
            }
        };
        let tenant = self.inner.profile_cache.tenant(&self.request.tenant).await?;
        let charges = self.charges(&tenant, tokens);
        let reserving =
            pin!(self.inner.limiter.take(Arc::clone(&charges), until, limits.when_full));
        let reservation = completed(wait(run, until, reserving).await)?.map_err(limit_error)?;
        let sent = async {
            let permit = match &self.entry.profile.pool {
                None => None,
                // Boxed: few profiles name a pool, and every call's future would carry the space.
                Some(name) => Some(Box::pin(self.permit(name, until)).await?),
            };
            Ok((permit, upstream.send(tokens, until).await?))
        };
        match completed(wait(run, until, pin!(sent)).await) {
            Ok(Ok((permit, in_flight))) => Ok(AdmissionGuard {
                _concurrency: concurrency,
                permit,
                reservation,
                charges,
                in_flight,
            }),
            Ok(Err(error)) => {
                reservation.release();
                Err(AdmissionError::Rejected(error))
            }
            Err(yields) => {
                reservation.release();
                Err(yields)
            }
        }
    }

    /// Acquires a permit of the pool that the profile names. Waits as long as the pool's
    /// configuration says, at most until the question's deadline.
    async fn permit(&self, name: &PoolName, until: Instant) -> Result<Permit, AskError> {
        let Some(pool) = self.inner.pools.get().and_then(|pools| pools.find(name)) else {
            let profile = &self.entry.name;
            let why = format!(
                "profile `{profile}` names pool `{name}`, which is not in the configuration"
            );
            return Err(AskError::new(Code::ProfileDisabled, why));
        };
        let priority = self.request.run.as_ref().map(|run| run.unit().priority);
        let left = until.saturating_duration_since(Instant::now());
        let request = pool.request().priority(priority.unwrap_or_default()).at_most(left);
        request.acquire().await.map_err(|error| match &error {
            AcquireError::TooHeavy { .. } => rate_limited(&error.to_string()),
            error if error.is_retryable() => rate_limited(&error.to_string()),
            error => AskError::new(Code::Internal, error.to_string()),
        })
    }

    /// What the question takes from each token bucket.
    fn charges(&self, tenant: &TenantContext, tokens: u64) -> Arc<[BucketCharge]> {
        let charges = tenant.charges.iter().chain(&self.entry.charges);
        charges.map(|charge| charge.with_tokens(tokens)).collect()
    }
}

fn completed<T>(waited: WaitOutcome<T>) -> Result<T, AdmissionError> {
    match waited {
        WaitOutcome::Ready(value) => Ok(value),
        WaitOutcome::SlotNeeded => Err(AdmissionError::Yielded),
    }
}

fn limit_error(error: LimitError) -> AskError {
    match &error {
        LimitError::Reached { wait, .. } => {
            AskError { retry_after: Some(*wait), ..rate_limited(&error.to_string()) }
        }
        LimitError::Deadline => rate_limited(&error.to_string()),
        _ => AskError::new(Code::Internal, error.to_string()),
    }
}

fn rate_limited(why: &str) -> AskError {
    AskError::new(Code::RateLimited, why)
}
