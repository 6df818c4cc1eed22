//! Health of a profile: its provider is reachable, accepts the key, has the model, and the model
//! answers.

use longshore::{CallId, ProfileName, TenantId};
use tokio::time::Instant;

use super::call::ProfileCall;
use super::{Inference, InferenceOutcome, InferenceRequest};
use crate::gateway::InferenceBackend;
use crate::model_api::{AskError, Code, Question};

/// How far a health check goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthCheck {
    /// Free requests only.
    NoCall,
    /// Also asks the model for one token. The call is billed and recorded.
    Call,
}

impl Inference {
    /// Checks a profile's provider and model; fallback profiles are not asked. Returns the
    /// provider's description of itself.
    pub async fn health(
        &self,
        tenant: &TenantId,
        name: Option<&ProfileName>,
        until: Instant,
        check: HealthCheck,
    ) -> Result<String, AskError> {
        let entry = self.inner.profile_cache.find(tenant, name).await?;
        let described = entry.provider.health(until).await;
        if check == HealthCheck::NoCall || entry.provider.is_simulated() {
            return described;
        }
        let says = match described {
            Ok(says) => says,
            // Compatible servers need not list their models: the call decides.
            Err(error) if error.code == Code::InvalidRequest => "answers".to_owned(),
            Err(error) => return Err(error),
        };
        let question = Question::new(CallId::new().to_string(), "Say OK.", until);
        let question = Question { max_tokens: 1, ..question };
        let request = InferenceRequest::new(tenant.clone(), name.cloned(), question);
        let mut outcome = InferenceOutcome::default();
        let call = ProfileCall { inner: &self.inner, entry: &entry, request: &request, has_fallback: false };
        Box::pin(call.make(None, &mut outcome)).await;
        self.record(outcome.records);
        let answer = outcome.result?;
        Ok(format!("{says}; `{}` answered in {} ms", answer.model, answer.latency_ms))
    }
}
