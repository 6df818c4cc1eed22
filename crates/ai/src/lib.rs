//! AI providers behind one seam.
//!
//! A [`Question`] goes to a [`Provider`], which answers with an [`Answer`] or an [`AskError`] whose
//! code says what the caller can do. A [`Profile`] names a provider and its settings, and
//! [`providers::open`] makes the one from the other. The real ones are asked through one [`Http`]; two
//! are simulated, [`Echo`] and [`Scripted`]: deterministic, without network ([`open`] makes only these),
//! marked as simulated in every answer.
//! A [`ResponseSchema`] reads answers that must be JSON of a certain form.
//!
//! Callers in any language speak the [`contract`]; keys are kept in the [`Vault`].

mod ask;
pub mod batches;
mod breaker;
mod chat;
mod chunk;
pub mod contract;
mod cost;
mod desk;
mod echo;
mod gate;
pub mod gateway;
mod http;
mod limiter;
mod object;
mod pilot;
mod price;
mod prices;
mod profile;
mod prompts;
pub mod providers;
mod rate;
mod raw;
mod sample;
mod schema;
mod script;
mod scripted;
mod seen;
mod simulated;
mod tries;
mod vault;
pub mod worker;

pub use ask::{
    Again, Answer, AskError, Bill, Code, FinishReason, Headroom, Left, Provider, Question,
};
pub use breaker::{Allow, Breaker, BreakerPolicy, MoneyBreaker};
pub use chat::{Chat, Message, Part, Piece, Role, Tool, ToolCall, ToolChoice};
pub use chunk::{Measure, Need};
pub use cost::{Cost, estimate_tokens};
pub use desk::{Bulk, Desk, Errand, Settled, Sheet, SheetError, TENANT_SHEET, TenantSheet};
pub use echo::Echo;
pub use gate::Gate;
pub use http::Http;
pub use limiter::{Full, Limiter, Taken};
pub use object::Object;
pub use pilot::{Gauge, Out, Pilot};
pub use price::{Price, PriceError};
pub use prices::{DatedRate, Prices, PricesError, parse_time};
pub use profile::{
    Auth, CacheFor, Limits, Profile, ProfileError, ProviderName, WhenFull, Wire, open,
};
pub use prompts::{NoPrompts, PromptFiles, Prompts};
pub use rate::{Mode, Rate, Share, Tier};
pub use raw::Raw;
pub use schema::{ResponseSchema, SchemaError};
pub use script::{Script, ScriptError};
pub use scripted::Scripted;
pub use secrecy::{ExposeSecret, SecretString};
pub use tries::{Next, Tries};
pub use vault::{
    KeyEntry, KeyLabel, KeyRef, MasterKey, MasterSource, Rewrapped, Vault, VaultError,
    read_secret_file,
};
