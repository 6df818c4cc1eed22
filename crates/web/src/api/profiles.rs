//! Profiles: who is asked, which model, how much. Never a key, nor what may hold one.

use longshore::ledger::ProfileRecord;
use longshore::store::Page;
use longshore::{ProfileName, Result, Scope, TenantId, Timestamp};
use longshore_ai::TENANT_SHEET;
use serde::Serialize;
use serde_json::Value;

use crate::call::{Call, json};
use crate::house::House;
use crate::table::Answer;

/// A profile as others may know it: named one by one, so that nothing new is shown unasked.
#[derive(Debug, Serialize)]
pub(crate) struct Shown {
    pub(crate) tenant: TenantId,
    pub(crate) name: ProfileName,
    pub(crate) suspended: bool,
    pub(crate) provider: String,
    pub(crate) model: String,
    extends: Option<String>,
    pub(crate) limits: Value,
    prices: Value,
    fallback: Value,
    pool: Option<String>,
    max_tokens: Option<u64>,
    revision: u64,
    updated_at: Timestamp,
}

impl From<ProfileRecord> for Shown {
    fn from(record: ProfileRecord) -> Self {
        let ProfileRecord { tenant, name, body, suspended, revision, updated_at, .. } = record;
        let text = |part: &str| body[part].as_str().map(str::to_owned);
        Self {
            tenant,
            name,
            suspended,
            provider: text("provider").unwrap_or_default(),
            model: text("model").unwrap_or_default(),
            extends: text("extends"),
            limits: body["limits"].clone(),
            prices: body["prices"].clone(),
            fallback: body["fallback"].clone(),
            pool: text("pool"),
            max_tokens: body["max_tokens"].as_u64(),
            revision,
            updated_at,
        }
    }
}

/// Profiles that a scope covers. What is said of a tenant as a whole is kept like a profile, and is
/// none.
pub(crate) async fn page(
    house: &House,
    scope: &Scope,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<Shown>> {
    let page = house.ledger.profiles(scope, after, limit).await?;
    let own = page.items.into_iter().filter(|record| record.name.as_str() != TENANT_SHEET);
    Ok(Page { items: own.map(Shown::from).collect(), next: page.next })
}

pub(super) async fn list(call: Call) -> Answer {
    let (scope, limit) = (call.scope()?, call.limit()?);
    json(&page(&call.house, &scope, call.after(), limit).await?)
}
