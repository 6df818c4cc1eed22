//! The gateway: serves the tenants' profiles through the APIs of OpenAI and Anthropic.
//!
//! A [`Gateway`] makes a router for OpenAI's chat completions and Anthropic's messages, complete
//! and streamed, and lists the tenant's profiles as models. `model` names a profile;
//! `profile/model` asks another model that it offers. [`Authenticator`] authenticates a request; the [`InferenceBackend`]
//! answers it, through the same limits, vault and ledger as every other call. If the provider has
//! the API that the client uses, the request is passed through unchanged ([`crate::PassthroughRequest`]).
//! Otherwise it is translated, and rejected if the translation would lose something.

mod anthropic_request;
mod anthropic_response;
mod auth;
mod completions;
mod embeddings;
mod error;
mod fields;
pub mod local_request;
mod models;
mod openai_request;
mod openai_response;
mod request;
mod response;
mod responses_request;
mod responses_response;
mod server;

use async_trait::async_trait;
use longshore::accounts::CallRecord;
use longshore::{ProfileName, TenantId};
use tokio::sync::mpsc;

use crate::chat::AnswerPiece;
use crate::inference::{InferenceOutcome, InferenceRequest};
use crate::model_api::{AskError, Question};
use crate::passthrough::OnUnsupported;
use crate::profile::ProviderName;

pub use self::auth::{AccessDenied, AuthenticatedTenant, Authenticator, PreAuthenticated, SingleTenant};
pub use self::request::MAX_BODY_BYTES;
pub use self::server::{Gateway, pause_after_accept_error};

/// Answers questions for tenants, and records the calls.
#[async_trait]
pub trait InferenceBackend: Send + Sync + 'static {
    /// The settings of a tenant's profile that a question depends on.
    async fn profile_settings(
        &self,
        tenant: &TenantId,
        profile: &ProfileName,
    ) -> Result<ProfileSettings, AskError>;

    /// Fails if a tenant's profile does not offer this model.
    async fn require_model(
        &self,
        tenant: &TenantId,
        profile: &ProfileName,
        model: &str,
    ) -> Result<(), AskError>;

    /// The tokens of a question, if the provider of a tenant's profile counts them.
    async fn count_tokens(
        &self,
        tenant: &TenantId,
        profile: &ProfileName,
        question: &Question,
    ) -> Result<Option<u64>, AskError>;

    /// Asks, and sends the answer's pieces to `pieces` as they arrive. The caller drops the future
    /// to abandon the question. This method waits for journal capacity, so that [`InferenceBackend::record`]
    /// never has to.
    async fn ask(
        &self,
        request: &InferenceRequest,
        pieces: Option<&mpsc::Sender<AnswerPiece>>,
    ) -> InferenceOutcome;

    /// The used share of a tenant's monthly budget, once it is above the budget's `warn_at`.
    fn budget_used(&self, _tenant: &TenantId) -> Option<f64> {
        None
    }

    /// Records calls. Does not wait, so that the task cannot be dropped between an answer and its
    /// record.
    fn record(&self, records: Vec<CallRecord>);

    /// The names of a tenant's usable profiles.
    async fn profiles(&self, tenant: &TenantId) -> Result<Vec<ProfileName>, AskError>;
}

/// The settings of a profile that a question depends on.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProfileSettings {
    /// The provider. `None` if unknown: then the provider itself rejects what it cannot do.
    pub provider: Option<ProviderName>,
    /// What happens to what the provider's API cannot express.
    pub on_unsupported: OnUnsupported,
    /// The model.
    pub model: String,
    /// Maximum tokens of an answer, if the question sets none.
    pub max_tokens: Option<u32>,
    /// The temperature, if the question sets none.
    pub temperature: Option<f64>,
}
