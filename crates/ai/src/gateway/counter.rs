//! Where the gateway asks: the desk, or what a test puts in its place.

use async_trait::async_trait;
use longshore::ledger::CallRecord;
use longshore::{ProfileName, TenantId};
use tokio::sync::mpsc;

use crate::ask::AskError;
use crate::chat::Piece;
use crate::desk::{Errand, Settled};
use crate::profile::ProviderName;

/// Asks for tenants, and keeps their books.
#[async_trait]
pub trait Counter: Send + Sync + 'static {
    /// What one of a tenant's profiles says, as far as a question depends on it.
    async fn terms(&self, tenant: &TenantId, profile: &ProfileName) -> Result<Terms, AskError>;

    /// Asks, and hands on the answer's pieces as they come if somebody listens. Whoever drops the
    /// call does not want its answer any more. Room in the books is waited for here, so that
    /// [`Counter::note`] need not wait.
    async fn ask(&self, errand: &Errand, pieces: Option<&mpsc::Sender<Piece>>) -> Settled;

    /// Writes what calls came to in the books. Does not wait: between an answer and its note nobody
    /// may get lost.
    fn note(&self, records: Vec<CallRecord>);

    /// The names of a tenant's profiles that may be used.
    async fn profiles(&self, tenant: &TenantId) -> Result<Vec<ProfileName>, AskError>;
}

/// What a profile says, as far as a question depends on it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Terms {
    /// Who answers. `None` if that is not known: then the provider itself has to refuse what it
    /// cannot do.
    pub provider: Option<ProviderName>,
    /// Which model is asked.
    pub model: String,
    /// Most tokens of an answer, where the question does not say.
    pub max_tokens: Option<u32>,
    /// The temperature, where the question does not say.
    pub temperature: Option<f64>,
}
