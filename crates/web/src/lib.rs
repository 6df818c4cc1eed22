//! Longshore over HTTP: one router with the API, health, metrics and the dashboard.
//!
//! [`Web`] takes a store from all its sides and makes a router, or serves it over a listener of its
//! own with the limits that a stranger's connection needs. What the API can do stands in one table
//! ([`table`]): routes, who may use them and the OpenAPI document come from it, so that they cannot
//! differ. Who comes in is the door's business (`door.rs`); a caller's scope goes with every call to
//! the store, so a tenant never sees another's things, whatever a handler forgets.

mod api;
mod audit;
mod call;
pub mod client;
mod door;
mod feed;
mod gateway;
mod history;
mod house;
mod listen;
mod metrics;
mod openapi;
mod pages;
mod problem;
mod schema;
mod scripts;
mod seats;
mod session;
pub mod table;
mod token;
mod traces;
mod trend;
mod whole;

pub use door::Lock;
pub use house::{Limits, Web};
pub use listen::{Tls, TlsError};
pub use scripts::{ScriptNode, ScriptPool, ScriptPoolStatus, ScriptPools};
pub use token::{FreshToken, hash};
pub use trend::Trend;
