//! Profiles: documents with an owner and a revision.

use longshore_accounts::rows::{PROFILE_COLUMNS, read_profile};
use longshore_accounts::{ProfileChange, ProfileRecord, PutProfile, page_cursor};
use longshore_core::store::Page;
use longshore_core::{Error, ProfileName, Result, Scope, TenantId};

use super::{check_scope, page};
use crate::error::{conflict, damaged};
use crate::queries;
use crate::row::{Columns, to_json};
use crate::tx::Tx;

/// Writes or removes a profile.
pub(crate) async fn change(tx: &mut Tx<'_>, scope: &Scope, change: &ProfileChange) -> Result<ProfileRecord> {
    match change {
        ProfileChange::Put(profile) => put(tx, scope, profile.clone()).await,
        ProfileChange::Remove(tenant, name) => remove(tx, scope, tenant, name).await,
    }
}

/// Writes a profile, if its revision is the expected one.
async fn put(tx: &mut Tx<'_>, scope: &Scope, put: PutProfile) -> Result<ProfileRecord> {
    check_scope(scope, &put.tenant)?;
    let sql =
        format!("SELECT {PROFILE_COLUMNS} FROM longshore_profile WHERE tenant = $1 AND name = $2 FOR UPDATE");
    let found = tx.query_opt(&sql, &[&put.tenant.as_str(), &put.name.as_str()]).await?;
    let found = found.as_ref().map(|row| read_profile(&Columns(row))).transpose()?;
    let profile = put.apply(found, tx.now)?;
    write(tx, &profile).await?;
    tx.announce("setting", "profile", Some(profile.tenant.as_str()));
    Ok(profile)
}

async fn write(tx: &mut Tx<'_>, profile: &ProfileRecord) -> Result<()> {
    // If the insert of a first revision conflicts, another transaction has just created the
    // profile.
    let sql = match profile.revision {
        1 => {
            "INSERT INTO longshore_profile
             (tenant, name, body, suspended, revision, created_at, updated_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING"
        }
        _ => {
            "UPDATE longshore_profile SET body = $3, suspended = $4, revision = $5,
             created_at = $6, updated_at = $7 WHERE tenant = $1 AND name = $2"
        }
    };
    let ProfileRecord { tenant, name, body, suspended, revision, created_at, updated_at } = profile;
    let written = tx
        .execute(
            sql,
            &[
                &tenant.as_str(),
                &name.as_str(),
                &to_json(body)?,
                suspended,
                &i64::try_from(*revision).map_err(damaged)?,
                &created_at.as_micros(),
                &updated_at.as_micros(),
            ],
        )
        .await?;
    if written == 0 { Err(conflict()) } else { Ok(()) }
}

/// Removes a profile.
async fn remove(
    tx: &mut Tx<'_>,
    scope: &Scope,
    tenant: &TenantId,
    name: &ProfileName,
) -> Result<ProfileRecord> {
    let sql =
        format!("DELETE FROM longshore_profile WHERE tenant = $1 AND name = $2 RETURNING {PROFILE_COLUMNS}");
    let removed = match scope.covers(tenant) {
        true => tx.query_opt(&sql, &[&tenant.as_str(), &name.as_str()]).await?,
        false => None,
    };
    let removed = removed.ok_or_else(|| Error::not_found("profile", name))?;
    tx.announce("setting", "profile", Some(tenant.as_str()));
    read_profile(&Columns(&removed))
}

/// Profiles by tenant and name: all, or the ones with this name.
pub(crate) async fn list(
    tx: &mut Tx<'_>,
    scope: &Scope,
    only: Option<&ProfileName>,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<ProfileRecord>> {
    let after = after.map(page_cursor::profile).transpose()?;
    let (tenant, name) = after.as_ref().map_or(("", ""), |(tenant, name)| (tenant.as_str(), name.as_str()));
    let sql = format!(
        "SELECT {PROFILE_COLUMNS} FROM longshore_profile WHERE (tenant, name) > ($1, $2)
         AND ($3 IS NULL OR tenant = $3) AND ($4 IS NULL OR name = $4)
         ORDER BY tenant, name LIMIT $5"
    );
    let (own, only, most) = (queries::tenant(scope), only.map(ProfileName::as_str), i64::from(limit) + 1);
    let rows = tx.query(&sql, &[&tenant, &name, &own, &only, &most]).await?;
    page(&rows, limit, "a profile", |row| read_profile(&Columns(row)), page_cursor::after_profile)
}
