//! A [`Provider`] that asks through the request queue.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use longshore::{BatchId, Clock, ProfileName, TenantId};
use tokio::time::Instant;

use super::RequestClient;
use crate::contract::{Prompt, ReplyBody, Request};
use crate::inference::InferenceOutcome;
use crate::model_api::{Answer, AskError, Code, Provider, Question};

/// Asks by sending requests to `longshore ai worker`, which applies limits and keys and records the
/// calls.
pub struct QueuedProvider {
    caller: RequestClient,
    tenant: TenantId,
    profile: ProfileName,
    batch: Option<BatchId>,
    clock: Arc<dyn Clock>,
}

/// Longest timeout of a request.
const MAX_TIMEOUT: Duration = Duration::from_secs(3_600);

impl QueuedProvider {
    /// Asks by a tenant's profile.
    pub fn new(caller: RequestClient, tenant: TenantId, profile: ProfileName, clock: Arc<dyn Clock>) -> Self {
        Self { caller, tenant, profile, batch: None, clock }
    }

    /// Sets the batch that the calls are recorded with.
    #[must_use]
    pub fn for_batch(mut self, batch: Option<BatchId>) -> Self {
        self.batch = batch;
        self
    }

    /// Asks, and returns the outcome. The worker that answers writes the records.
    pub async fn outcome(&self, question: &Question) -> InferenceOutcome {
        let request = match self.request(question) {
            Ok(request) => request,
            Err(error) => return InferenceOutcome::unrecorded(Err(error), 0),
        };
        match self.caller.ask(&request, &*self.clock).await.body {
            ReplyBody::Success(success) => {
                let cost = success.cost_picos.unwrap_or_default();
                InferenceOutcome::unrecorded(Ok(success.into()), cost)
            }
            ReplyBody::Error(failure) => match failure.attempts {
                0 => InferenceOutcome::not_sent(failure.into()),
                _ => InferenceOutcome::unrecorded(Err(failure.into()), 0),
            },
            ReplyBody::Partial(_) => {
                let why = "received a partial reply instead of the whole";
                InferenceOutcome::unrecorded(Err(AskError::new(Code::Internal, why)), 0)
            }
        }
    }

    fn request(&self, question: &Question) -> Result<Request, AskError> {
        if question.chat.is_some() {
            let why = "a conversation cannot be asked through the queue";
            return Err(AskError::new(Code::InvalidRequest, why));
        }
        let left = question.until.saturating_duration_since(Instant::now());
        Ok(Request {
            system: question.system.clone(),
            max_tokens: Some(question.max_tokens),
            temperature: Some(question.temperature),
            schema: question.schema.as_deref().cloned(),
            model: question.model.clone(),
            timeout: left.clamp(Duration::from_millis(1), MAX_TIMEOUT),
            batch: self.batch.clone(),
            ..Request::new(
                question.request_id.clone(),
                self.tenant.clone(),
                self.profile.clone(),
                Prompt::Text(question.prompt.clone()),
            )
        })
    }
}

#[async_trait]
impl Provider for QueuedProvider {
    async fn ask(&self, question: &Question) -> Result<Answer, AskError> {
        self.outcome(question).await.result
    }
}
