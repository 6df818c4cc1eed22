//! Tenants, what was asked of their things, and who asks.

use longshore::ledger::Role;
use longshore::store::Page;
use longshore::{Scope, TenantId, TokenId};
use serde::Serialize;

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

pub(super) async fn whoami(call: Call) -> Answer {
    #[derive(Serialize)]
    struct Caller<'a> {
        token: Option<TokenId>,
        label: &'a str,
        role: Role,
        /// Whose payloads they read; all without.
        tenant: Option<&'a TenantId>,
        all_tenants: bool,
    }
    let caller = &call.caller;
    json(&Caller {
        token: caller.token,
        label: &caller.by,
        role: caller.role,
        tenant: caller.own.as_ref(),
        all_tenants: caller.scope == Scope::All,
    })
}
