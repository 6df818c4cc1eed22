//! AI providers behind one seam.
//!
//! A [`Question`] goes to a [`Provider`], which answers with an [`Answer`] or an [`AskError`] whose
//! code says what the caller can do. A [`Profile`] names a provider and its settings, and
//! [`open`] makes the one from the other. Here are the two simulated providers, [`Echo`] and
//! [`Scripted`]: deterministic, without network, marked as simulated in every answer.
//! A [`ResponseSchema`] reads answers that must be JSON of a certain form.
//!
//! Callers in any language speak the [`contract`]; keys are kept in the [`Vault`].

mod ask;
mod breaker;
mod chat;
mod chunk;
pub mod contract;
mod cost;
mod echo;
mod gate;
mod limiter;
mod price;
mod prices;
mod profile;
mod rate;
mod sample;
mod schema;
mod script;
mod scripted;
mod seen;
mod simulated;
mod tries;
mod vault;

pub use ask::{Again, Answer, AskError, Code, FinishReason, Headroom, Left, Provider, Question};
pub use breaker::{Allow, Breaker, BreakerPolicy, MoneyBreaker};
pub use chat::{Chat, Message, Part, Piece, Role, Tool, ToolCall, ToolChoice};
pub use chunk::{Measure, Need};
pub use cost::{Cost, estimate_tokens};
pub use echo::Echo;
pub use gate::Gate;
pub use limiter::{Full, Limiter, Taken};
pub use price::{Price, PriceError};
pub use prices::{DatedRate, Prices, PricesError, parse_time};
pub use profile::{
    Auth, CacheFor, Limits, Profile, ProfileError, ProviderName, WhenFull, Wire, open,
};
pub use rate::{Mode, Rate, Share, Tier};
pub use schema::{ResponseSchema, SchemaError};
pub use script::{Script, ScriptError};
pub use scripted::Scripted;
pub use secrecy::{ExposeSecret, SecretString};
pub use tries::{Next, Tries};
pub use vault::{
    KeyEntry, KeyLabel, KeyRef, MasterKey, MasterSource, Rewrapped, Vault, VaultError,
};
