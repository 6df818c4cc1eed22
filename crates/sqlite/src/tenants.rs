//! Tenants: their records, and the counters of their lanes.

use longshore_core::sql_row::{read_tenant, to_json};
use longshore_core::store::{Tenant, TenantChange, require_admin_scope};
use longshore_core::{Error, Result, Scope, TenantId};
use rusqlite::{Connection, OptionalExtension};

use crate::error::{Translate, damaged};
use crate::queries;
use crate::row::Columns;
use crate::tx::Tx;

/// Changes a tenant's record, or creates it.
pub(crate) fn put(tx: &mut Tx<'_>, scope: &Scope, id: &TenantId, change: &TenantChange) -> Result<Tenant> {
    require_admin_scope(scope, id)?;
    change.check()?;
    let found = find(tx.db, id)?;
    let mut tenant = found.unwrap_or_else(|| Tenant::new(id.clone(), tx.now));
    tenant.apply(change);
    write(tx.db, &tenant)?;
    announce_change(tx, id);
    find(tx.db, id)?.ok_or_else(|| damaged("a tenant that was just written"))
}

fn write(db: &Connection, tenant: &Tenant) -> Result<()> {
    db.prepare_cached(
        "INSERT INTO longshore_tenant
         (name, weight, cap, max_units, max_bytes, suspended, created_at, allowed_kinds)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (name) DO UPDATE SET
         weight = ?2, cap = ?3, max_units = ?4, max_bytes = ?5, suspended = ?6, allowed_kinds = ?8",
    )
    .or_translate()?
    .execute((
        tenant.id.as_str(),
        tenant.weight,
        tenant.cap,
        tenant.capacity.units,
        tenant.capacity.bytes,
        tenant.suspended,
        tenant.created_at.as_micros(),
        Some(to_json(&tenant.allowed_kinds)?).filter(|_| !tenant.allowed_kinds.is_empty()),
    ))
    .or_translate()?;
    Ok(())
}

/// The accounts of a removed tenant: its tokens stop working, and its profiles, keys and budget are deleted.
const REMOVE_ACCOUNTS: [&str; 4] = [
    "UPDATE longshore_api_token SET revoked_at = coalesce(revoked_at, ?2) WHERE tenant = ?1",
    "DELETE FROM longshore_profile WHERE tenant = ?1 AND ?2 IS NOT NULL",
    "DELETE FROM longshore_provider_key WHERE tenant = ?1 AND ?2 IS NOT NULL",
    "DELETE FROM longshore_budget WHERE tenant = ?1 AND ?2 IS NOT NULL",
];

/// Removes a tenant's record, the settings of its lanes, and its accounts.
pub(crate) fn remove(tx: &mut Tx<'_>, scope: &Scope, id: &TenantId) -> Result<()> {
    require_admin_scope(scope, id)?;
    let tenant = find(tx.db, id)?.ok_or_else(|| Error::not_found("tenant", id))?;
    let sql = "SELECT count(*) FROM longshore_schedule WHERE tenant = ?1";
    let schedules = tx.db.query_row(sql, [id.as_str()], |row| row.get(0)).or_translate()?;
    tenant.check_removable(schedules)?;
    tx.db.execute("DELETE FROM longshore_tenant WHERE name = ?1", [id.as_str()]).or_translate()?;
    tx.db
        .execute(
            "UPDATE longshore_lane SET paused = 0, weight = 1, cap = NULL, max_units = NULL,
             max_bytes = NULL WHERE tenant = ?1",
            [id.as_str()],
        )
        .or_translate()?;
    if *id != TenantId::default() {
        for sql in REMOVE_ACCOUNTS {
            tx.db.execute(sql, (id.as_str(), tx.now.as_micros())).or_translate()?;
        }
    }
    announce_change(tx, id);
    Ok(())
}

fn announce_change(tx: &mut Tx<'_>, id: &TenantId) {
    tx.announce("setting", "tenant", Some(id.as_str()));
    tx.wake_workers = true;
}

/// A tenant's record, and the sums over its lanes' streams.
const SELECT: &str = "SELECT t.name, t.weight, t.cap, t.max_units, t.max_bytes, t.suspended,
    t.created_at, coalesce(sum(s.blocked), 0), coalesce(sum(s.scheduled), 0),
    coalesce(sum(s.ready), 0), coalesce(sum(s.leased), 0), coalesce(sum(s.done), 0),
    coalesce(sum(s.failed), 0), coalesce(sum(s.cancelled), 0), coalesce(sum(s.bytes), 0), t.allowed_kinds
    FROM longshore_tenant t LEFT JOIN longshore_lane l ON l.tenant = t.name
    LEFT JOIN longshore_stream s ON s.lane = l.num
    WHERE ?1 IS NULL OR t.name = ?1 GROUP BY t.name ORDER BY t.name";

/// The tenants that have a record.
pub(crate) fn list(db: &Connection, scope: &Scope) -> Result<Vec<Tenant>> {
    let mut statement = db.prepare_cached(SELECT).or_translate()?;
    let mut rows = statement.query([queries::tenant_filter(scope)]).or_translate()?;
    let mut tenants = Vec::new();
    while let Some(row) = rows.next().or_translate()? {
        tenants.push(read_tenant(&Columns(row))?);
    }
    Ok(tenants)
}

fn find(db: &Connection, id: &TenantId) -> Result<Option<Tenant>> {
    Ok(list(db, &Scope::Tenant(id.clone()))?.pop())
}

/// Whether a tenant is suspended.
pub(crate) fn is_suspended(db: &Connection, id: &TenantId) -> Result<bool> {
    let found: Option<bool> = db
        .prepare_cached("SELECT suspended FROM longshore_tenant WHERE name = ?1")
        .or_translate()?
        .query_row([id.as_str()], |row| row.get(0))
        .optional()
        .or_translate()?;
    Ok(found.unwrap_or(false))
}

/// How many units of a tenant are leased, over all queues.
pub(crate) fn leased(db: &Connection, id: &TenantId) -> Result<u64> {
    db.prepare_cached(
        "SELECT coalesce(sum(s.leased), 0) FROM longshore_lane l
         INDEXED BY longshore_lane_tenant JOIN longshore_stream s
         INDEXED BY longshore_stream_live ON s.lane = l.num
         AND s.blocked + s.scheduled + s.ready + s.leased > 0 WHERE l.tenant = ?1",
    )
    .or_translate()?
    .query_row([id.as_str()], |row| row.get(0))
    .or_translate()
}
