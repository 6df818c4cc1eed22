//! Many questions at once, answered within a day for half the price: the batch APIs of providers.
//!
//! Owns the seam ([`BatchProvider`]) and its two wires. Nothing here remembers anything: what was sent, and
//! under which ticket, is kept by whoever sends: the [`Conductor`].

mod anthropic;
mod caller;
mod conductor;
mod form;
mod openai;
mod split;
mod step;

use std::sync::Arc;

use async_trait::async_trait;
use longshore::Timestamp;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::ask::{Again, Answer, AskError, Code, Question};
use crate::http::Http;
use crate::profile::{Profile, ProfileError, ProviderName};
use crate::providers;
pub use conductor::{Ask, BatchReply, Conductor, Gathering, Memory, Turn};
pub use split::{BatchLimits, ItemSize, Models, split};
pub use step::{After, Note, Pace, Step};

/// One question of a batch.
#[derive(Debug, Clone)]
pub struct BatchItem {
    /// What its result is recognised by: at most 64 letters, digits, `-` and `_`, unique in the batch.
    pub custom_id: String,
    /// What is asked. Its `until` means nothing here.
    pub question: Question,
}

/// What a provider calls a batch.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BatchTicket(pub String);

/// What a batch is found by, should its ticket be lost.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchMark {
    /// Its name among ours: sent with it, where the provider keeps such a thing.
    pub name: String,
    /// It was not submitted before this.
    pub since: Timestamp,
    /// The ids in it.
    pub ids: Vec<String>,
}

/// Whether a batch was submitted whose submission nobody heard of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// It was: here it is.
    Here(BatchTicket),
    /// It was not.
    Nowhere,
    /// There is one that it may be; only its results will tell.
    NotYetKnown,
}

/// How far a batch is.
#[derive(Debug, Clone, PartialEq)]
pub enum BatchState {
    /// The provider is working on it.
    Going {
        /// Questions that are done, as far as the provider tells.
        done: u64,
        /// All of them.
        total: u64,
    },
    /// It has ended, and its results are there; not necessarily one for each question.
    Ended,
    /// It came to nothing, and cost nothing.
    Failed(AskError),
}

/// What became of one question.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchResult {
    /// Of which.
    pub custom_id: String,
    /// The answer; or why there is none, and whether to ask again ([`Again::Later`]: nothing was billed).
    pub result: Result<Answer, AskError>,
}

/// Something that answers many questions at once. No verb is repeated here: whoever calls knows what a
/// repeat would mean.
#[async_trait]
pub trait BatchProvider: Send + Sync + 'static {
    /// The most that fits into one batch.
    fn limits(&self) -> BatchLimits;

    /// What a question takes of it.
    fn size(&self, item: &BatchItem) -> ItemSize;

    /// Hands questions over. After an error that [`was_refused`] does not recognise, they may be there all
    /// the same: see [`Self::find`].
    async fn submit(&self, items: &[BatchItem], mark: &str) -> Result<BatchTicket, AskError>;

    /// Looks for a batch whose submission nobody heard of.
    async fn find(&self, mark: &BatchMark) -> Result<Found, AskError>;

    /// How far a batch is.
    async fn poll(&self, ticket: &BatchTicket) -> Result<BatchState, AskError>;

    /// Hands on the results of a batch that has ended, in any order. Stops when nobody listens any more.
    async fn results(
        &self,
        ticket: &BatchTicket,
        into: &mpsc::Sender<BatchResult>,
    ) -> Result<(), AskError>;

    /// Asks to end a batch early. What was answered until then is billed, and among its results.
    async fn cancel(&self, ticket: &BatchTicket) -> Result<(), AskError>;
}

/// Whether a provider answers many questions at once.
pub fn has(provider: ProviderName) -> bool {
    matches!(provider, ProviderName::Anthropic | ProviderName::Openai)
}

/// Makes the batch side of a profile's provider.
pub fn open(
    profile: &Profile,
    key: Option<SecretString>,
    http: &Http,
) -> Result<Arc<dyn BatchProvider>, ProfileError> {
    let none = || ProfileError::NoBatches(profile.name.clone(), profile.provider);
    Ok(match profile.provider {
        ProviderName::Anthropic => {
            let wire = providers::anthropic::Anthropic::new(profile);
            Arc::new(anthropic::Batches::new(providers::wired(wire, profile, key, http)?))
        }
        ProviderName::Openai => {
            let wire = providers::openai::Openai::new(profile);
            Arc::new(openai::Batches::new(providers::wired(wire, profile, key, http)?))
        }
        _ => return Err(none()),
    })
}

/// Whether an error says that nothing was submitted. A server that failed may have failed afterwards.
pub fn was_refused(error: &AskError) -> bool {
    let refused = error.provider_status.is_some_and(|status| (400..500).contains(&status));
    (refused && error.provider_status != Some(408)) || error.again == Again::NotSent
}

/// A question that the provider did not come to. Nothing was billed.
fn undone(why: &str) -> AskError {
    let message = format!("the batch {why} before it came to this question");
    AskError { again: Again::Later, ..AskError::new(Code::ProviderError, message) }
}
