//! Sealed keys with all their versions.

use longshore_accounts::rows::{KEY_COLUMNS, read_key};
use longshore_accounts::{KeyChange, KeyRecord, NewKey, page_cursor};
use longshore_core::store::Page;
use longshore_core::{Error, KeyName, Result, Scope, TenantId, Timestamp};

use super::{check_scope, page};
use crate::error::conflict;
use crate::queries;
use crate::row::{Columns, count, value};
use crate::tx::Tx;
use crate::typed_params::replace_nul;

/// Adds, revokes or rewraps a key.
pub(crate) async fn change(tx: &mut Tx<'_>, scope: &Scope, change: &KeyChange) -> Result<bool> {
    match change {
        KeyChange::Add { key, retires_at } => add(tx, scope, key, *retires_at).await?,
        KeyChange::Revoke { tenant, name, version } => {
            revoke(tx, scope, tenant, name, *version).await?;
        }
        KeyChange::Rewrap { from, key } => return rewrap(tx, scope, from, key).await,
    }
    Ok(true)
}

/// Adds a new version, and retires the active one.
async fn add(tx: &mut Tx<'_>, scope: &Scope, key: &NewKey, retires_at: Option<Timestamp>) -> Result<()> {
    check_scope(scope, &key.tenant)?;
    let (tenant, name) = (key.tenant.as_str(), key.name.as_str());
    let sql = "SELECT version FROM longshore_provider_key WHERE tenant = $1 AND name = $2
        ORDER BY version DESC LIMIT 1 FOR UPDATE";
    let newest = tx.query_opt(sql, &[&tenant, &name]).await?;
    let next = newest.map_or(Ok(1), |row| count::<u32>(&row, 0).map(|newest| newest + 1))?;
    if key.version != next {
        return Err(key.version_conflict(next));
    }
    tx.execute(
        "UPDATE longshore_provider_key SET status = 'retiring', retires_at = $3
         WHERE tenant = $1 AND name = $2 AND status = 'active'",
        &[&tenant, &name, &retires_at.unwrap_or(tx.now).as_micros()],
    )
    .await?;
    insert(tx, key).await?;
    announce(tx, &key.tenant);
    Ok(())
}

async fn insert(tx: &mut Tx<'_>, key: &NewKey) -> Result<()> {
    let written = tx
        .execute(
            "INSERT INTO longshore_provider_key (tenant, name, version, provider, ciphertext,
             wrapped_data_key, master_key_id,
             status, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, 'active', $8)
             ON CONFLICT DO NOTHING",
            &[
                &key.tenant.as_str(),
                &key.name.as_str(),
                &i64::from(key.version),
                &replace_nul(&key.provider),
                &key.sealed,
                &key.wrapped,
                &replace_nul(&key.master),
                &tx.now.as_micros(),
            ],
        )
        .await?;
    // Another transaction inserted the same version: retry and find it.
    if written == 0 { Err(conflict()) } else { Ok(()) }
}

fn announce(tx: &mut Tx<'_>, tenant: &TenantId) {
    tx.announce("setting", "key", Some(tenant.as_str()));
}

/// Revokes one version, or all.
async fn revoke(
    tx: &mut Tx<'_>,
    scope: &Scope,
    tenant: &TenantId,
    name: &KeyName,
    version: Option<u32>,
) -> Result<()> {
    let sql = "UPDATE longshore_provider_key SET status = 'revoked', retires_at = NULL
        WHERE tenant = $1 AND name = $2 AND ($3 IS NULL OR version = $3)";
    let version = version.map(i64::from);
    let found =
        scope.covers(tenant) && tx.execute(sql, &[&tenant.as_str(), &name.as_str(), &version]).await? > 0;
    if !found {
        return Err(Error::not_found("key", name));
    }
    announce(tx, tenant);
    Ok(())
}

/// Keys by tenant, name and version: all, or the ones with this name.
pub(crate) async fn list(
    tx: &mut Tx<'_>,
    scope: &Scope,
    only: Option<&KeyName>,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<KeyRecord>> {
    let after = after.map(page_cursor::key).transpose()?;
    let (tenant, name, version) = after
        .as_ref()
        .map_or(("", "", 0), |(tenant, name, version)| (tenant.as_str(), name.as_str(), i64::from(*version)));
    let sql = format!(
        "SELECT {KEY_COLUMNS} FROM longshore_provider_key WHERE (tenant, name, version) > ($1, $2, $3)
         AND ($4 IS NULL OR tenant = $4) AND ($5 IS NULL OR name = $5)
         ORDER BY tenant, name, version LIMIT $6"
    );
    let (own, only, most) = (queries::tenant(scope), only.map(KeyName::as_str), i64::from(limit) + 1);
    let rows = tx.query(&sql, &[&tenant, &name, &version, &own, &only, &most]).await?;
    page(&rows, limit, "a key", |row| read_key(&Columns(row)), page_cursor::after_key)
}

/// Replaces a data key that was wrapped by master key `from`. Returns false if it was wrapped by
/// another.
async fn rewrap(tx: &mut Tx<'_>, scope: &Scope, from: &str, key: &NewKey) -> Result<bool> {
    let (tenant, name, version) = (key.tenant.as_str(), key.name.as_str(), i64::from(key.version));
    let sql = "SELECT master_key_id FROM longshore_provider_key WHERE tenant = $1 AND name = $2
               AND version = $3
        FOR UPDATE";
    let found = match scope.covers(&key.tenant) {
        true => tx.query_opt(sql, &[&tenant, &name, &version]).await?,
        false => None,
    };
    let found = found.ok_or_else(|| Error::not_found("key", &key.name))?;
    if value::<&str>(&found, 0)? != from {
        return Ok(false);
    }
    tx.execute(
        "UPDATE longshore_provider_key SET wrapped_data_key = $4, master_key_id = $5
         WHERE tenant = $1 AND name = $2 AND version = $3",
        &[&tenant, &name, &version, &key.wrapped, &replace_nul(&key.master)],
    )
    .await?;
    announce(tx, &key.tenant);
    Ok(true)
}
