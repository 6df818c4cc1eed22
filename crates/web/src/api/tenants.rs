//! Tenants, what was asked of their things, and who asks.

use longshore::ledger::Role;
use longshore::store::Page;
use longshore::{Scope, TenantId, TokenId};
use serde::{Deserialize, Serialize};

use crate::call::{Call, json};
use crate::table::Answer;

pub(super) async fn list(call: Call) -> Answer {
    let items = call.house.store.tenants(&call.caller.scope).await?;
    json(&Page { items, next: None })
}

pub(super) async fn deeds(call: Call) -> Answer {
    let (scope, limit) = (call.scope()?, call.limit()?);
    json(&call.house.ledger.deeds(&scope, call.after(), limit).await?)
}

/// Whose token it is, and how far it reaches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The token; none where the door is open.
    pub token: Option<TokenId>,
    /// Who has it, for people.
    pub label: String,
    /// What it may do.
    pub role: Role,
    /// Whose payloads it reads; all without.
    pub tenant: Option<TenantId>,
    /// Whether it sees every tenant's things.
    pub all_tenants: bool,
}

pub(super) async fn whoami(call: Call) -> Answer {
    let caller = &call.caller;
    json(&Identity {
        token: caller.token,
        label: caller.by.clone(),
        role: caller.role,
        tenant: caller.own.clone(),
        all_tenants: caller.scope == Scope::All,
    })
}
