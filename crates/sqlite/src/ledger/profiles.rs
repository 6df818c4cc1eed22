//! Profiles, by tenant and name.

use longshore_accounts::rows::{PROFILE_COLUMNS, read_profile};
use longshore_accounts::{ProfileChange, ProfileRecord, PutProfile, page_cursor};
use longshore_core::store::Page;
use longshore_core::{Error, ProfileName, Result, Scope, TenantId};
use rusqlite::Connection;

use crate::error::Translate;
use crate::queries::tenant_filter;
use crate::row::Columns;
use crate::tx::Tx;

/// Writes or removes a profile.
pub(crate) fn change(tx: &mut Tx<'_>, scope: &Scope, change: &ProfileChange) -> Result<ProfileRecord> {
    match change {
        ProfileChange::Put(profile) => put(tx, scope, profile),
        ProfileChange::Remove(tenant, name) => remove(tx, scope, tenant, name),
    }
}

/// Writes a profile, if its revision is as expected.
fn put(tx: &mut Tx<'_>, scope: &Scope, put: &PutProfile) -> Result<ProfileRecord> {
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
fn remove(tx: &mut Tx<'_>, scope: &Scope, tenant: &TenantId, name: &ProfileName) -> Result<ProfileRecord> {
    let found = if scope.covers(tenant) { find(tx.db, tenant, name)? } else { None };
    let found = found.ok_or_else(|| Error::not_found("profile", name))?;
    tx.db
        .prepare_cached("DELETE FROM longshore_profile WHERE tenant = ?1 AND name = ?2")
        .or_translate()?
        .execute((tenant.as_str(), name.as_str()))
        .or_translate()?;
    tx.announce("setting", "profile", Some(tenant.as_str()));
    Ok(found)
}

fn find(db: &Connection, tenant: &TenantId, name: &ProfileName) -> Result<Option<ProfileRecord>> {
    let sql = format!("SELECT {PROFILE_COLUMNS} FROM longshore_profile WHERE tenant = ?1 AND name = ?2");
    let mut statement = db.prepare_cached(&sql).or_translate()?;
    let mut rows = statement.query((tenant.as_str(), name.as_str())).or_translate()?;
    rows.next().or_translate()?.map(|row| read_profile(&Columns(row))).transpose()
}

/// Profiles by tenant and name: all, or the ones with this name.
pub(crate) fn list(
    db: &Connection,
    scope: &Scope,
    only: Option<&ProfileName>,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<ProfileRecord>> {
    if let (Scope::Tenant(tenant), Some(name)) = (scope, only) {
        let items = find(db, tenant, name)?.into_iter().collect();
        return Ok(Page { items, next: None });
    }
    let after = after.map(page_cursor::profile).transpose()?;
    let (tenant, name) = after.as_ref().map_or(("", ""), |(t, n)| (t.as_str(), n.as_str()));
    let mut statement = db
        .prepare_cached(&format!(
            "SELECT {PROFILE_COLUMNS} FROM longshore_profile
             WHERE (tenant, name) > (?1, ?2) AND (?3 IS NULL OR tenant = ?3)
             AND (?4 IS NULL OR name = ?4) ORDER BY tenant, name LIMIT ?5"
        ))
        .or_translate()?;
    let (own, only) = (tenant_filter(scope), only.map(ProfileName::as_str));
    let mut rows = statement.query((tenant, name, own, only, u64::from(limit) + 1)).or_translate()?;
    let mut items = Vec::new();
    while let Some(row) = rows.next().or_translate()? {
        items.push(read_profile(&Columns(row))?);
    }
    Ok(Page::first(items, limit, page_cursor::after_profile))
}
