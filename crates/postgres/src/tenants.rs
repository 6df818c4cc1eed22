//! Tenants: their records, and the totals of their lanes.

use longshore_core::sql_row::{read_tenant, to_json};
use longshore_core::store::{Tenant, TenantChange, require_admin_scope};
use longshore_core::{Error, Result, Scope, TenantId};

use crate::advisory_lock::{self, AdvisoryLock};
use crate::error::damaged;
use crate::queries::{self, SUMS};
use crate::row::{Columns, count};
use crate::tx::Tx;

/// Changes a tenant's record, and creates it if there is none.
pub(crate) async fn put(
    tx: &mut Tx<'_>,
    scope: &Scope,
    id: &TenantId,
    change: &TenantChange,
) -> Result<Tenant> {
    require_admin_scope(scope, id)?;
    change.check()?;
    lock_limits(tx, id).await?;
    let found = one(tx, id).await?;
    let mut tenant = found.unwrap_or_else(|| Tenant::new(id.clone(), tx.now));
    tenant.apply(change);
    write(tx, &tenant).await?;
    // Read again: a tenant without a record may have units.
    one(tx, id).await?.ok_or_else(|| damaged("no record of a tenant that was just written"))
}

/// Locks a tenant's limits, so that transactions that count under them commit before the record
/// changes, and changes run one after the other. Also announces the change.
async fn lock_limits(tx: &mut Tx<'_>, id: &TenantId) -> Result<()> {
    let name = id.as_str();
    advisory_lock::acquire(tx, &[AdvisoryLock::TenantCapacity(name), AdvisoryLock::TenantCap(name)]).await?;
    tx.announce("setting", "tenant", Some(name));
    tx.after.wake_workers = true;
    Ok(())
}

async fn write(tx: &mut Tx<'_>, tenant: &Tenant) -> Result<()> {
    let number = |number: u32| i32::try_from(number).map_err(|_| too_large(number));
    let bound = |bound: Option<u64>| bound.map(|bound| i64::try_from(bound).unwrap_or(i64::MAX));
    tx.execute(
        "INSERT INTO longshore_tenant
         (name, weight, cap, max_units, max_bytes, suspended, created_at, allowed_kinds)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (name) DO UPDATE SET
         weight = $2, cap = $3, max_units = $4, max_bytes = $5, suspended = $6, allowed_kinds = $8",
        &[
            &tenant.id.as_str(),
            &number(tenant.weight)?,
            &tenant.cap.map(number).transpose()?,
            &bound(tenant.capacity.units),
            &bound(tenant.capacity.bytes),
            &tenant.suspended,
            &tenant.created_at.as_micros(),
            &Some(to_json(&tenant.allowed_kinds)?).filter(|_| !tenant.allowed_kinds.is_empty()),
        ],
    )
    .await?;
    Ok(())
}

/// The error for a number that its column cannot hold.
pub(crate) fn too_large(number: u32) -> Error {
    Error::Invalid(format!("{number} is too large: {} at most", i32::MAX))
}

/// The accounts of a removed tenant: its tokens stop working, and its profiles, keys and budget are deleted.
const REMOVE_ACCOUNTS: [&str; 4] = [
    "UPDATE longshore_api_token SET revoked_at = coalesce(revoked_at, $2) WHERE tenant = $1",
    "DELETE FROM longshore_profile WHERE tenant = $1 AND $2 IS NOT NULL",
    "DELETE FROM longshore_provider_key WHERE tenant = $1 AND $2 IS NOT NULL",
    "DELETE FROM longshore_budget WHERE tenant = $1 AND $2 IS NOT NULL",
];

/// Removes a tenant's record, the settings of its lanes, and its accounts.
pub(crate) async fn remove(tx: &mut Tx<'_>, scope: &Scope, id: &TenantId) -> Result<()> {
    require_admin_scope(scope, id)?;
    lock_limits(tx, id).await?;
    let tenant = one(tx, id).await?.ok_or_else(|| Error::not_found("tenant", id))?;
    let sql = "SELECT count(*) FROM longshore_schedule WHERE tenant = $1";
    let schedules = tx.query_one(sql, &[&id.as_str()]).await?;
    tenant.check_removable(count(&schedules, 0)?)?;
    tx.execute("DELETE FROM longshore_tenant WHERE name = $1", &[&id.as_str()]).await?;
    tx.execute(
        "UPDATE longshore_lane SET paused = false, weight = 1, cap = NULL, max_units = NULL,
         max_bytes = NULL WHERE tenant = $1",
        &[&id.as_str()],
    )
    .await?;
    if *id != TenantId::default() {
        let now = tx.now.as_micros();
        for sql in REMOVE_ACCOUNTS {
            tx.execute(sql, &[&id.as_str(), &now]).await?;
        }
    }
    Ok(())
}

/// The tenants that have a record.
pub(crate) async fn list(tx: &mut Tx<'_>, scope: &Scope) -> Result<Vec<Tenant>> {
    let sql = format!(
        "SELECT t.name, t.weight, t.cap, t.max_units, t.max_bytes, t.suspended, t.created_at,
         {SUMS}, t.allowed_kinds FROM longshore_tenant t LEFT JOIN longshore_lane l ON l.tenant = t.name
         LEFT JOIN longshore_stream_count c ON c.lane = l.num
         WHERE $1 IS NULL OR t.name = $1 GROUP BY t.name ORDER BY t.name COLLATE \"C\""
    );
    let rows = tx.query(&sql, &[&queries::tenant(scope)]).await?;
    rows.iter().map(|row| read_tenant(&Columns(row))).collect()
}

async fn one(tx: &mut Tx<'_>, id: &TenantId) -> Result<Option<Tenant>> {
    Ok(list(tx, &Scope::Tenant(id.clone())).await?.pop())
}

/// Whether a tenant's sends are rejected.
pub(crate) async fn is_suspended(tx: &mut Tx<'_>, id: &TenantId) -> Result<bool> {
    let sql = "SELECT 1 FROM longshore_tenant WHERE name = $1 AND suspended";
    Ok(tx.query_opt(sql, &[&id.as_str()]).await?.is_some())
}
