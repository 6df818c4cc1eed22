//! Encrypted keys, by tenant, name and version.

use longshore_accounts::rows::{KEY_COLUMNS, read_key};
use longshore_accounts::{KeyChange, KeyRecord, NewKey, page_cursor};
use longshore_core::store::Page;
use longshore_core::{Error, KeyName, Result, Scope, TenantId, Timestamp};
use rusqlite::{Connection, OptionalExtension};

use crate::error::Translate;
use crate::queries::tenant_filter;
use crate::row::Columns;
use crate::tx::Tx;

/// Adds, revokes or rewraps a key.
pub(crate) fn change(tx: &mut Tx<'_>, scope: &Scope, change: &KeyChange) -> Result<bool> {
    match change {
        KeyChange::Add { key, retires_at } => add(tx, scope, key, *retires_at).map(|()| true),
        KeyChange::Revoke { tenant, name, version } => {
            revoke(tx, scope, tenant, name, *version).map(|()| true)
        }
        KeyChange::Rewrap { from, key } => rewrap(tx, scope, from, key),
    }
}

/// Adds a new version; the active one retires.
fn add(tx: &mut Tx<'_>, scope: &Scope, key: &NewKey, retires_at: Option<Timestamp>) -> Result<()> {
    if !scope.covers(&key.tenant) {
        return Err(Error::not_found("tenant", &key.tenant));
    }
    let place = (key.tenant.as_str(), key.name.as_str());
    let next: u32 = tx
        .db
        .prepare_cached(
            "SELECT coalesce(max(version), 0) + 1 FROM longshore_provider_key
             WHERE tenant = ?1 AND name = ?2",
        )
        .or_translate()?
        .query_row(place, |row| row.get(0))
        .or_translate()?;
    if key.version != next {
        return Err(key.version_conflict(next));
    }
    tx.db
        .prepare_cached(
            "UPDATE longshore_provider_key SET status = 'retiring', retires_at = ?3
             WHERE tenant = ?1 AND name = ?2 AND status = 'active'",
        )
        .or_translate()?
        .execute((place.0, place.1, retires_at.unwrap_or(tx.now).as_micros()))
        .or_translate()?;
    tx.db
        .prepare_cached(
            "INSERT INTO longshore_provider_key
             (tenant, name, version, provider, ciphertext, wrapped_data_key, master_key_id,
             status, created_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'active', ?8)",
        )
        .or_translate()?
        .execute((
            place.0,
            place.1,
            key.version,
            &key.provider,
            &key.sealed,
            &key.wrapped,
            &key.master,
            tx.now.as_micros(),
        ))
        .or_translate()?;
    tx.announce("setting", "key", Some(place.0));
    Ok(())
}

/// Revokes one version, or all.
fn revoke(
    tx: &mut Tx<'_>,
    scope: &Scope,
    tenant: &TenantId,
    name: &KeyName,
    version: Option<u32>,
) -> Result<()> {
    let revoked = match scope.covers(tenant) {
        false => 0,
        true => tx
            .db
            .prepare_cached(
                "UPDATE longshore_provider_key SET status = 'revoked', retires_at = NULL
                 WHERE tenant = ?1 AND name = ?2 AND (?3 IS NULL OR version = ?3)",
            )
            .or_translate()?
            .execute((tenant.as_str(), name.as_str(), version))
            .or_translate()?,
    };
    if revoked == 0 {
        return Err(Error::not_found("key", name));
    }
    tx.announce("setting", "key", Some(tenant.as_str()));
    Ok(())
}

/// Replaces a data key that `from` had encrypted.
fn rewrap(tx: &mut Tx<'_>, scope: &Scope, from: &str, key: &NewKey) -> Result<bool> {
    let place = (key.tenant.as_str(), key.name.as_str(), key.version);
    let master: Option<String> = tx
        .db
        .prepare_cached(
            "SELECT master_key_id FROM longshore_provider_key WHERE tenant = ?1 AND name = ?2 AND
             version = ?3",
        )
        .or_translate()?
        .query_row(place, |row| row.get(0))
        .optional()
        .or_translate()?;
    let master = master.filter(|_| scope.covers(&key.tenant));
    if master.ok_or_else(|| Error::not_found("key", &key.name))? != from {
        return Ok(false);
    }
    tx.db
        .prepare_cached(
            "UPDATE longshore_provider_key SET wrapped_data_key = ?4, master_key_id = ?5
             WHERE tenant = ?1 AND name = ?2 AND version = ?3",
        )
        .or_translate()?
        .execute((place.0, place.1, place.2, &key.wrapped, &key.master))
        .or_translate()?;
    tx.announce("setting", "key", Some(place.0));
    Ok(true)
}

/// Keys by tenant, name and version: all, or the ones with this name.
pub(crate) fn list(
    db: &Connection,
    scope: &Scope,
    only: Option<&KeyName>,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<KeyRecord>> {
    let after = after.map(page_cursor::key).transpose()?;
    let (tenant, name, version) =
        after.as_ref().map_or(("", "", 0), |(t, n, v)| (t.as_str(), n.as_str(), *v));
    let (own, only) = (tenant_filter(scope), only.map(KeyName::as_str));
    // Two statements, so that one key is found by the index.
    let condition = match own.and(only) {
        Some(_) => "tenant = ?4 AND name = ?5",
        None => "(?4 IS NULL OR tenant = ?4) AND (?5 IS NULL OR name = ?5)",
    };
    let mut statement = db
        .prepare_cached(&format!(
            "SELECT {KEY_COLUMNS} FROM longshore_provider_key
             WHERE (tenant, name, version) > (?1, ?2, ?3) AND {condition}
             ORDER BY tenant, name, version LIMIT ?6"
        ))
        .or_translate()?;
    let mut rows =
        statement.query((tenant, name, version, own, only, u64::from(limit) + 1)).or_translate()?;
    let mut items = Vec::new();
    while let Some(row) = rows.next().or_translate()? {
        items.push(read_key(&Columns(row))?);
    }
    Ok(Page::first(items, limit, page_cursor::after_key))
}
