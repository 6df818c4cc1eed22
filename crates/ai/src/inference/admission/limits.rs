//! Admission by the limits of the tenant, the profile and its templates: calls in flight, then
//! requests and tokens per minute.

use std::pin::pin;
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout_at;

use super::{AdmissionError, ProfileCall, YieldingWait, rate_limited};
use crate::model_api::AskError;
use crate::profile::WhenPoolFull;
use crate::resilience::{BucketCharge, LimitError, TokenReservation};

impl ProfileCall<'_> {
    /// Acquires one of the profile's calls in flight, if they are limited.
    pub(super) async fn concurrency_slot(
        &self,
        wait: YieldingWait<'_>,
    ) -> Result<Option<OwnedSemaphorePermit>, AdmissionError> {
        let Some(limit) = self.entry.concurrency.clone() else { return Ok(None) };
        if self.entry.profile.limits.when_full == WhenPoolFull::Refuse {
            let slot = limit.try_acquire_owned();
            let full = |_| rate_limited("the profile's limit of calls in flight is reached");
            return Ok(Some(slot.map_err(full)?));
        }
        let slot = wait.wait(pin!(timeout_at(wait.until, limit.acquire_owned()))).await?;
        let late = |_| rate_limited("no slot for another call in flight before the deadline");
        // The semaphore is never closed.
        Ok(slot.map_err(late)?.ok())
    }

    /// What the call takes from each token bucket.
    pub(in crate::inference) async fn charges(&self, tokens: u64) -> Result<Arc<[BucketCharge]>, AskError> {
        let tenant = self.inner.profile_cache.tenant(&self.request.tenant).await?;
        let charges = tenant.charges.iter().chain(&self.entry.charges);
        Ok(charges.map(|charge| charge.with_tokens(tokens)).collect())
    }

    /// Reserves the call's requests and tokens.
    pub(in crate::inference) async fn reserve_tokens(
        &self,
        wait: YieldingWait<'_>,
        charges: &Arc<[BucketCharge]>,
    ) -> Result<TokenReservation, AdmissionError> {
        let when_full = self.entry.profile.limits.when_full;
        let owner = self.inner.profile_cache.tenant(&self.request.tenant).await?;
        let limiter = &self.inner.limiter;
        let reserving = pin!(limiter.take(&owner.waiting, Arc::clone(charges), wait.until, when_full));
        Ok(wait.wait(reserving).await?.map_err(limit_error)?)
    }
}

fn limit_error(error: LimitError) -> AskError {
    match &error {
        LimitError::Reached { wait, .. } => {
            AskError { retry_after: Some(*wait), ..rate_limited(&error.to_string()) }
        }
        LimitError::Deadline => rate_limited(&error.to_string()),
        _ => AskError::not_sent(error.to_string()),
    }
}
