//! Asking through the queue, for whoever wants a [`Provider`].

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use longshore::{Clock, ProfileName, TenantId};
use tokio::time::Instant;

use super::Caller;
use crate::ask::{Answer, AskError, Code, Provider, Question};
use crate::contract::{Prompt, Request, Said};

/// Asks by sending requests to `longshore ai worker`: limits, keys and books are there.
pub struct QueuedProvider {
    caller: Caller,
    tenant: TenantId,
    profile: ProfileName,
    clock: Arc<dyn Clock>,
}

impl QueuedProvider {
    /// Asks by a tenant's profile.
    pub fn new(
        caller: Caller,
        tenant: TenantId,
        profile: ProfileName,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { caller, tenant, profile, clock }
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
            timeout: left.max(Duration::from_millis(1)),
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
        let request = self.request(question)?;
        match self.caller.ask(&request, &*self.clock).await.said {
            Said::Success(success) => Ok(success.into()),
            Said::Error(failure) => Err(failure.into()),
            Said::Partial(_) => Err(AskError::new(Code::Internal, "a part came for a whole")),
        }
    }
}
