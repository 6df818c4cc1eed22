//! A store that is accessed over HTTP.
//!
//! It implements the store traits, so that code that queries, enqueues and administers works over HTTP too.
//! Operations of workers and maintenance are not available (`unsupported.rs`). It does not retry: the caller
//! of a store does.

mod admin;
mod enqueue;
mod permits;
mod queries;
mod unsupported;

use std::time::Duration;

use longshore::{Error, Result, Scope, TenantId};
use tokio::sync::Mutex;

use super::{ApiClient, ApiError, Events, Identity};

pub use permits::RemotePermits;

/// A store that is accessed over HTTP.
pub struct RemoteStore {
    api: ApiClient,
    /// The open event stream, if a caller waits for changes.
    events: Mutex<Option<Events>>,
}

impl RemoteStore {
    /// The store of this server.
    pub fn new(api: ApiClient) -> Self {
        Self { api: api.with_patience(Duration::ZERO), events: Mutex::default() }
    }

    /// Asks the server for the token's identity, to detect an unreachable server, a wrong URL or an invalid
    /// token before anything else.
    pub async fn check(&self) -> std::result::Result<Identity, ApiError> {
        self.api.whoami().await
    }
}

/// The tenant of a scope.
fn tenant_of(scope: &Scope) -> Option<&TenantId> {
    match scope {
        Scope::All => None,
        Scope::Tenant(tenant) => Some(tenant),
    }
}

/// Resources of other tenants do not exist.
fn require_scope(scope: &Scope, tenant: &TenantId, what: &'static str, name: impl ToString) -> Result<()> {
    match scope.covers(tenant) {
        true => Ok(()),
        false => Err(Error::not_found(what, name)),
    }
}
