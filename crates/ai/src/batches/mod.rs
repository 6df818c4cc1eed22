//! Batch APIs of providers: many questions at once, answered within a day at half the price.
//!
//! Owns the trait [`BatchProvider`] and its two implementations. Stateless: the [`BatchRunner`]
//! stores what was submitted and the provider's batch id.

mod anthropic;
mod client;
mod multipart;
mod openai;
mod runner;
mod split;
mod state_machine;

use std::sync::Arc;

use async_trait::async_trait;
use longshore::Timestamp;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::http::Http;
use crate::model_api::{Answer, AskError, Code, Question, Retryability};
use crate::profile::{Profile, ProfileError, ProviderName};
use crate::providers;
pub use runner::{BatchReply, BatchRunReport, BatchRunner, IntakeState, QuestionBuilder, RunnerState};
pub use split::{BatchLimits, ItemSize, Models, split};
pub use state_machine::{BatchPacing, BatchProgress, BatchStep, ProviderBatchUpdate};

/// One question of a batch.
#[derive(Debug, Clone)]
pub struct BatchItem {
    /// Identifies its result: at most 64 letters, digits, `-` and `_`, unique in the batch.
    pub custom_id: String,
    /// The question. Its `until` is ignored.
    pub question: Question,
}

/// A provider's id of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BatchTicket(pub String);

/// What a batch is recognised by if its id was lost.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchMark {
    /// Our name of the batch: sent as metadata, if the provider stores it.
    pub name: String,
    /// It was not submitted before this time.
    pub since: Timestamp,
    /// The ids of its questions.
    pub ids: Vec<String>,
}

/// Whether a batch was submitted although the response was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FindResult {
    /// It was submitted, under this id.
    Submitted(BatchTicket),
    /// It was not submitted.
    NotSubmitted,
    /// There is a candidate; only its results will tell.
    Unknown,
}

/// The progress of a batch.
#[derive(Debug, Clone, PartialEq)]
pub enum BatchState {
    /// The provider is processing it.
    Running {
        /// Questions that are done, as far as the provider reports.
        done: u64,
        /// All questions.
        total: u64,
    },
    /// It has ended and has results, not necessarily one for each question.
    Ended,
    /// It failed as a whole and was not billed.
    Failed(AskError),
}

/// The result of one question.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchResult {
    /// The question's id.
    pub custom_id: String,
    /// The answer; or why there is none, and whether to ask again ([`Retryability::Later`]: nothing was
    /// billed).
    pub result: Result<Answer, AskError>,
}

/// A provider with a batch API. The implementation retries nothing: the caller knows what a repeat
/// would mean.
#[async_trait]
pub trait BatchProvider: Send + Sync + 'static {
    /// The limits of one batch.
    fn limits(&self) -> BatchLimits;

    /// The size of a question within a batch.
    fn size(&self, item: &BatchItem) -> ItemSize;

    /// Submits questions. After an error that [`was_refused`] does not recognise, the batch may
    /// exist all the same: see [`Self::find`].
    async fn submit(&self, items: &[BatchItem], mark: &str) -> Result<BatchTicket, AskError>;

    /// Looks for a batch after a submission that was not confirmed.
    async fn find(&self, mark: &BatchMark) -> Result<FindResult, AskError>;

    /// The progress of a batch.
    async fn poll(&self, ticket: &BatchTicket) -> Result<BatchState, AskError>;

    /// Sends the results of an ended batch into `into`, in any order. Stops when the receiver is
    /// dropped.
    async fn results(&self, ticket: &BatchTicket, into: &mpsc::Sender<BatchResult>) -> Result<(), AskError>;

    /// Asks the provider to cancel a batch. Questions answered until then are billed, and among its
    /// results.
    async fn cancel(&self, ticket: &BatchTicket) -> Result<(), AskError>;
}

/// Whether a provider has a batch API.
pub fn has(provider: ProviderName) -> bool {
    matches!(provider, ProviderName::Anthropic | ProviderName::Openai)
}

/// Opens the batch API of a profile's provider.
pub fn open(
    profile: &Profile,
    key: Option<SecretString>,
    http: &Http,
) -> Result<Arc<dyn BatchProvider>, ProfileError> {
    let none = || ProfileError::NoBatches(profile.name.clone(), profile.provider);
    Ok(match profile.provider {
        ProviderName::Anthropic => {
            let adapter = providers::anthropic::Anthropic { wire: profile.wire.clone() };
            Arc::new(anthropic::Batches::new(providers::http_provider(adapter, profile, key, http)?))
        }
        ProviderName::Openai => {
            let adapter = providers::openai::Openai { wire: profile.wire.clone() };
            Arc::new(openai::Batches::new(providers::http_provider(adapter, profile, key, http)?))
        }
        _ => return Err(none()),
    })
}

/// Whether an error means that nothing was submitted. A server error may have happened after the
/// submission.
pub fn was_refused(error: &AskError) -> bool {
    let refused = error.provider_status.is_some_and(|status| (400..500).contains(&status));
    (refused && error.provider_status != Some(408)) || error.retry == Retryability::NotSent
}

/// The error of a question that the provider did not process. Nothing was billed.
fn not_processed(why: &str) -> AskError {
    let message = format!("the batch {why} before it processed this question");
    AskError { retry: Retryability::Later, ..AskError::new(Code::ProviderError, message) }
}
