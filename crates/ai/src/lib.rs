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
mod chat;
pub mod contract;
mod cost;
mod echo;
mod pilot;
mod http;
mod profile;
pub mod providers;
mod sample;
mod schema;
mod script;
mod scripted;
mod seen;
mod simulated;
mod vault;

pub use ask::{Again, Answer, AskError, Code, FinishReason, Headroom, Left, Provider, Question};
pub use chat::{Chat, Message, Part, Piece, Role, Tool, ToolCall, ToolChoice};
pub use cost::{Cost, Prices, estimate_tokens};
pub use echo::Echo;
pub use pilot::{Gauge, Out, Pilot};
pub use http::Http;
pub use profile::{
    Auth, CacheFor, Limits, Profile, ProfileError, ProviderName, WhenFull, Wire, open,
};
pub use schema::{ResponseSchema, SchemaError};
pub use script::{Script, ScriptError};
pub use scripted::Scripted;
pub use secrecy::{ExposeSecret, SecretString};
pub use vault::{
    KeyEntry, KeyLabel, KeyRef, MasterKey, MasterSource, Rewrapped, Vault, VaultError,
};
