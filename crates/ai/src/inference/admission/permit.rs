//! Admission by the bounded pool that a profile names: one permit for each call.

use longshore::{AcquireError, Permit, PoolName};
use tokio::time::Instant;

use super::{AdmissionError, ProfileCall, YieldingWait, rate_limited};
use crate::model_api::{AskError, Code};

impl ProfileCall<'_> {
    /// Acquires a permit of the pool that the profile names.
    pub(super) async fn pool_permit(&self, wait: YieldingWait<'_>) -> Result<Option<Permit>, AdmissionError> {
        let Some(name) = &self.entry.profile.pool else { return Ok(None) };
        // Boxed: few profiles name a pool, and every call's future would carry the space.
        let permit = wait.wait(Box::pin(self.acquire_permit(name, wait.until))).await??;
        Ok(Some(permit))
    }

    /// Waits as long as the pool's configuration says, at most until the question's deadline.
    async fn acquire_permit(&self, name: &PoolName, until: Instant) -> Result<Permit, AskError> {
        let Some(pool) = self.inner.pools.get().and_then(|pools| pools.find(name)) else {
            let profile = &self.entry.name;
            let why = format!("profile `{profile}` names pool `{name}`, which is not in the configuration");
            return Err(AskError::new(Code::ProfileDisabled, why));
        };
        let priority = self.request.run.as_ref().map(|run| run.unit().priority);
        let left = until.saturating_duration_since(Instant::now());
        let request = pool.request().priority(priority.unwrap_or_default()).max_wait(left);
        request.acquire().await.map_err(|error| match &error {
            AcquireError::TooHeavy { .. } => rate_limited(&error.to_string()),
            error if error.is_retryable() => rate_limited(&error.to_string()),
            error => AskError::new(Code::Internal, error.to_string()),
        })
    }
}
