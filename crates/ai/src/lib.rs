//! Calls AI models through providers: questions, answers, errors, prices, limits, keys.
//!
//! A [`Question`] goes to a [`Provider`], which returns an [`Answer`] or an [`AskError`] with a
//! code that says what the caller can do. A [`Profile`] names a provider and its settings;
//! [`providers::open`] opens the provider. Real providers share one [`Http`] client. Two are
//! simulated, [`Echo`] and [`Scripted`]: deterministic, without network, and marked as simulated in
//! every answer; [`open_simulated`] opens only these. A [`ResponseSchema`] parses answers that must be JSON.
//!
//! [`Inference`] makes calls for tenants, within their limits and budgets, and records them. The
//! [`gateway`] serves the APIs of OpenAI and Anthropic, the [`worker`] answers requests from a queue
//! in the format of the [`contract`], and [`batches`] uses the providers' batch APIs. The [`Vault`]
//! stores keys.

pub mod batches;
mod chat;
pub mod contract;
mod embedding;
pub mod gateway;
mod http;
mod inference;
mod model_api;
mod passthrough;
mod pricing;
mod profile;
mod prompt_quotes;
mod prompts;
pub mod providers;
mod raw_json;
mod resilience;
mod schema;
mod simulated;
pub mod sse;
mod vault;
pub mod worker;

pub use chat::{AnswerPiece, Chat, ChatRole, Effort, Feature, Message, Part, Tool, ToolCall, ToolChoice};
pub use embedding::EmbeddingInput;
pub use http::{Http, HttpOptions, HttpOptionsError, http_date, retry_after, tls_error, trust_certificates};
pub use inference::{
    BatchProfile, Deferral, HealthCheck, Inference, InferenceOutcome, InferenceRequest, ProfileDocument,
    ProfileDocumentError, TENANT_SETTINGS, TenantSettings,
};
pub use model_api::{
    Answer, AskError, BillingStatus, Code, FinishReason, Headroom, Provider, ProviderErrorId, Question,
    RemainingLimit, Retryability, SentFlag,
};
pub use passthrough::{OnUnsupported, PassthroughRequest};
pub use pricing::{
    Cost, DatedRate, MAX_TABLE_AGE, PRICE_TABLE, Price, PriceError, PriceMode, PriceShare, PriceTable,
    PriceTableError, Prices, PricesError, Rate, Tier, estimate_tokens,
};
pub use profile::{
    ANY_MODEL, ApiOptions, Auth, CacheFor, Profile, ProfileError, ProfileLimits, ProviderName, RetrySettings,
    WhenPoolFull, open_simulated,
};
pub use prompts::{NoPrompts, PromptFiles, Prompts};
pub use raw_json::RawObject;
pub use resilience::{
    AdaptiveConcurrency, BucketCharge, CallRetryPolicy, Gauge, GaugeGuard, LimitError, Limiter, Measure,
    RetryDecision, TokenReservation, WaitingTenant,
};
pub use schema::{ResponseSchema, SchemaError, check_types};
pub use secrecy::{ExposeSecret, SecretString};
pub use simulated::{Echo, ScriptError, Scripted, SimulatorScript};
pub use vault::{
    KeyEntry, KeyLabel, KeyRef, MasterKey, MasterSource, RewrapReport, Vault, VaultError, read_secret_file,
};
