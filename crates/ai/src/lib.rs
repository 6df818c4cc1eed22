//! AI providers behind one seam.
//!
//! A [`Question`] goes to a [`Provider`], which answers with an [`Answer`] or an [`AskError`] whose
//! code says what the caller can do. A [`Profile`] names a provider and its settings, and
//! [`open`] makes the one from the other. Here are the two simulated providers, [`Echo`] and
//! [`Scripted`]: deterministic, without network, marked as simulated in every answer.
//! A [`ResponseSchema`] reads answers that must be JSON of a certain form.

mod ask;
mod chat;
mod cost;
mod desk;
mod echo;
pub mod gateway;
mod profile;
mod raw;
mod sample;
mod schema;
mod script;
mod scripted;
mod seen;
mod simulated;

pub use ask::{Again, Answer, AskError, Code, FinishReason, Headroom, Left, Provider, Question};
pub use chat::{Chat, Message, Part, Piece, Role, Tool, ToolCall, ToolChoice};
pub use cost::{Cost, Prices, estimate_tokens};
pub use desk::{Errand, Settled};
pub use echo::Echo;
pub use profile::{
    Auth, CacheFor, Limits, Profile, ProfileError, ProviderName, WhenFull, Wire, open,
};
pub use raw::Raw;
pub use schema::{ResponseSchema, SchemaError};
pub use script::{Script, ScriptError};
pub use scripted::Scripted;
