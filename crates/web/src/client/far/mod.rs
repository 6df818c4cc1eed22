//! A store as seen through a server.
//!
//! It implements the seam, so that whoever looks at, sends to or steers a store does the same over HTTP.
//! What only workers and upkeep do is not offered (`absent.rs`): they need the store itself. It asks once:
//! whoever calls a store repeats what may be repeated, as long as its own patience lasts.

mod absent;
mod inspect;
mod intake;
mod operate;
mod permits;

use std::time::Duration;

use longshore::{Error, Result, Scope, TenantId};
use tokio::sync::Mutex;

use super::{ApiClient, ApiError, Events, Identity};

pub use permits::FarPermits;

/// A store behind a server.
pub struct FarStore {
    api: ApiClient,
    /// The open line to the server's events, if somebody waits for something.
    line: Mutex<Option<Events>>,
}

impl FarStore {
    /// The store behind this server.
    pub fn new(api: ApiClient) -> Self {
        Self { api: api.with_patience(Duration::ZERO), line: Mutex::default() }
    }

    /// Asks the server who we are: so that one that is away, is none of ours or does not let us in is
    /// noticed before anything else is done.
    pub async fn check(&self) -> std::result::Result<Identity, ApiError> {
        self.api.whoami().await
    }
}

/// The tenant that a scope is narrowed to.
fn only(scope: &Scope) -> Option<&TenantId> {
    match scope {
        Scope::All => None,
        Scope::Tenant(tenant) => Some(tenant),
    }
}

/// What is another tenant's does not exist.
fn within(scope: &Scope, tenant: &TenantId, what: &'static str, name: impl ToString) -> Result<()> {
    match scope.covers(tenant) {
        true => Ok(()),
        false => Err(Error::not_found(what, name)),
    }
}
