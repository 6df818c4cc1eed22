//! Longshore over HTTP: one router with the API, health checks, metrics and the dashboard.
//!
//! [`Web`] builds the router from a store, or serves it on a listener with limits on untrusted connections.
//! The API is defined by one table ([`endpoints`]): routes, required roles and the OpenAPI document are
//! derived from it, so that they cannot differ. `auth.rs` authenticates requests. The caller's scope is
//! passed with every call to the store, so a handler cannot show a tenant another tenant's data by mistake.

mod api;
mod app_state;
mod audit;
mod auth;
mod browser_session;
mod caller_limits;
mod change_broadcast;
pub mod client;
mod connection_limiter;
mod dispatch_port;
pub mod endpoints;
mod gateway;
mod guarded_body;
mod known_fields;
mod lenient_int;
mod login_throttle;
mod metrics;
mod openapi;
mod pages;
mod problem;
mod proxy_headers;
mod request_context;
mod schema;
mod server;
mod timeseries;
mod tls;
mod token;
mod trace_context;
mod trend;
mod write_timeout;

pub use app_state::{ConnectionLimits, Web};
pub use auth::AuthMode;
pub use dispatch_port::{ScriptNode, ScriptPool, ScriptPoolStatus, ScriptPools};
pub use proxy_headers::{ProxyConfig, PublicUrl, PublicUrlError};
pub use server::WebListener;
pub use tls::{ServerCertificate, TlsConfigError};
pub use token::{FreshToken, hash};
pub use trend::Trend;
