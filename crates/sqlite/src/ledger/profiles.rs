//! Profiles, by tenant and name.

use longshore_core::ledger::rows::{PROFILE_COLUMNS, read_profile};
use longshore_core::ledger::{ProfileRecord, PutProfile, cursor};
use longshore_core::store::Page;
use longshore_core::{Error, ProfileName, Result, Scope, TenantId};
use rusqlite::Connection;

use crate::error::Translate;
use crate::queries::tenant_filter;
use crate::row::Columns;
use crate::tenants;
use crate::tx::Tx;

/// Writes a profile, if its revision is as expected.
pub(crate) fn put(tx: &mut Tx<'_>, scope: &Scope, put: &PutProfile) -> Result<ProfileRecord> {
    if !scope.covers(&put.tenant) {
        return Err(Error::not_found("tenant", &put.tenant));
    }
    let written = put.clone().apply(find(tx.db, &put.tenant, &put.name)?, tx.now)?;
    tx.db
        .prepare_cached(
            "INSERT OR REPLACE INTO longshore_profile
             (tenant, name, body, suspended, revision, created_at, updated_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )
        .or_translate()?
        .execute((
            written.tenant.as_str(),
            written.name.as_str(),
            written.body.to_string(),
            written.suspended,
            written.revision,
            written.created_at.as_micros(),
            written.updated_at.as_micros(),
        ))
        .or_translate()?;
    tx.announce("setting", "profile", Some(written.tenant.as_str()));
    Ok(written)
}

/// Removes a profile.
pub(crate) fn remove(
    tx: &mut Tx<'_>,
    scope: &Scope,
    tenant: &TenantId,
    name: &ProfileName,
) -> Result<()> {
    show(tx.db, scope, tenant, name)?;
    tx.db
        .prepare_cached("DELETE FROM longshore_profile WHERE tenant = ?1 AND name = ?2")
        .or_translate()?
        .execute((tenant.as_str(), name.as_str()))
        .or_translate()?;
    tx.announce("setting", "profile", Some(tenant.as_str()));
    Ok(())
}

fn find(db: &Connection, tenant: &TenantId, name: &ProfileName) -> Result<Option<ProfileRecord>> {
    let sql =
        format!("SELECT {PROFILE_COLUMNS} FROM longshore_profile WHERE tenant = ?1 AND name = ?2");
    let mut statement = db.prepare_cached(&sql).or_translate()?;
    let mut rows = statement.query((tenant.as_str(), name.as_str())).or_translate()?;
    rows.next().or_translate()?.map(|row| read_profile(&Columns(row))).transpose()
}

/// One profile within the scope.
pub(crate) fn show(
    db: &Connection,
    scope: &Scope,
    tenant: &TenantId,
    name: &ProfileName,
) -> Result<ProfileRecord> {
    let found = if scope.covers(tenant) { find(db, tenant, name)? } else { None };
    found.ok_or_else(|| Error::not_found("profile", name))
}

/// Profiles by tenant and name.
pub(crate) fn list(
    db: &Connection,
    scope: &Scope,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<ProfileRecord>> {
    let after = after.map(cursor::profile).transpose()?;
    let (tenant, name) = after.as_ref().map_or(("", ""), |(t, n)| (t.as_str(), n.as_str()));
    let mut statement = db
        .prepare_cached(&format!(
            "SELECT {PROFILE_COLUMNS} FROM longshore_profile WHERE (tenant, name) > (?1, ?2) AND
             (?3 IS NULL OR tenant = ?3)
             ORDER BY tenant, name LIMIT ?4"
        ))
        .or_translate()?;
    let mut rows = statement
        .query((tenant, name, tenant_filter(scope), u64::from(limit) + 1))
        .or_translate()?;
    let mut items = Vec::new();
    while let Some(row) = rows.next().or_translate()? {
        items.push(read_profile(&Columns(row))?);
    }
    Ok(Page::first(items, limit, cursor::after_profile))
}

/// Whether a tenant within the scope is suspended.
pub(crate) fn is_suspended(db: &Connection, scope: &Scope, tenant: &TenantId) -> Result<bool> {
    if !scope.covers(tenant) {
        return Err(Error::not_found("tenant", tenant));
    }
    tenants::is_suspended(db, tenant)
}
