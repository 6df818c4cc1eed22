//! API tokens by their hash, and the audit log.

use longshore_accounts::rows::{AUDIT_COLUMNS, TOKEN_COLUMNS, read_audit_entry, read_token};
use longshore_accounts::{
    AuditEntry, BrowserSession, MAX_SESSIONS, NewAuditEntry, NewToken, TokenChange, TokenHash, TokenRecord,
    page_cursor,
};
use longshore_core::store::Page;
use longshore_core::{Error, Result, Scope, TenantId, Timestamp, TokenId};
use tokio_postgres::Row;
use uuid::Uuid;

use super::page;
use crate::queries;
use crate::row::Columns;
use crate::tx::Tx;
use crate::typed_params::replace_nul;

fn uuid(id: TokenId) -> Uuid {
    Uuid::from_bytes(*id.as_bytes())
}

/// Changes a token or its browser sessions.
pub(crate) async fn change(tx: &mut Tx<'_>, scope: &Scope, change: &TokenChange) -> Result<TokenRecord> {
    match change {
        TokenChange::Add(token) => add(tx, scope, token).await,
        TokenChange::Revoke(id) => revoke(tx, scope, *id).await,
        TokenChange::BeginSession(session) => begin_session(tx, scope, session).await,
        TokenChange::EndSession(hash) => end_session(tx, scope, *hash).await,
    }
}

/// Adds a token.
async fn add(tx: &mut Tx<'_>, scope: &Scope, token: &NewToken) -> Result<TokenRecord> {
    token.check(scope)?;
    let made = TokenRecord::new(token, tx.now);
    tx.execute(
        "INSERT INTO longshore_api_token (id, hash, tenant, role, label, created_at, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO NOTHING",
        &[
            &uuid(token.id),
            &token.hash.0.as_slice(),
            &made.tenant.as_str(),
            &made.role.as_str(),
            &replace_nul(&made.label),
            &made.created_at.as_micros(),
            &made.expires_at.map(Timestamp::as_micros),
        ],
    )
    .await?;
    one(tx, scope, token.id).await
}

/// Revokes a token.
async fn revoke(tx: &mut Tx<'_>, scope: &Scope, id: TokenId) -> Result<TokenRecord> {
    let sql = "UPDATE longshore_api_token SET revoked_at = coalesce(revoked_at, $3)
        WHERE id = $1 AND ($2 IS NULL OR tenant = $2)";
    tx.execute(sql, &[&uuid(id), &queries::tenant(scope), &tx.now.as_micros()]).await?;
    one(tx, scope, id).await
}

async fn begin_session(tx: &mut Tx<'_>, scope: &Scope, session: &BrowserSession) -> Result<TokenRecord> {
    let record = one(tx, scope, session.token).await?;
    let (token, now) = (uuid(session.token), tx.now.as_micros());
    tx.execute("DELETE FROM longshore_browser_session WHERE expires_at <= $1", &[&now]).await?;
    tx.execute(
        "INSERT INTO longshore_browser_session (hash, token, expires_at) VALUES ($1, $2, $3)
         ON CONFLICT (hash) DO NOTHING",
        &[&session.hash.0.as_slice(), &token, &session.expires_at.as_micros()],
    )
    .await?;
    tx.execute(
        "DELETE FROM longshore_browser_session WHERE hash IN (
             SELECT hash FROM longshore_browser_session WHERE token = $1
             ORDER BY expires_at DESC, hash OFFSET $2)",
        &[&token, &(MAX_SESSIONS as i64)],
    )
    .await?;
    Ok(record)
}

async fn end_session(tx: &mut Tx<'_>, scope: &Scope, hash: TokenHash) -> Result<TokenRecord> {
    let found = list(tx, scope, Some(hash), 1).await?.pop();
    let record = found.ok_or_else(|| Error::not_found("browser session", "of this cookie"))?;
    let sql = "DELETE FROM longshore_browser_session WHERE hash = $1";
    tx.execute(sql, &[&hash.0.as_slice()]).await?;
    Ok(record)
}

async fn one(tx: &mut Tx<'_>, scope: &Scope, id: TokenId) -> Result<TokenRecord> {
    let sql = format!(
        "SELECT {TOKEN_COLUMNS} FROM longshore_api_token WHERE id = $1 AND ($2 IS NULL OR tenant =
         $2)"
    );
    let row = tx.query_opt(&sql, &[&uuid(id), &queries::tenant(scope)]).await?;
    row.as_ref().ok_or_else(|| Error::not_found("token", id)).and_then(|row| read_token(&Columns(row)))
}

/// Tokens, oldest first: all, or the one with this hash, or with a browser session of this hash.
pub(crate) async fn list(
    tx: &mut Tx<'_>,
    scope: &Scope,
    hash: Option<TokenHash>,
    limit: u32,
) -> Result<Vec<TokenRecord>> {
    let sql = format!(
        "SELECT {TOKEN_COLUMNS} FROM longshore_api_token
         WHERE ($1 IS NULL OR tenant = $1) AND ($2 IS NULL OR hash = $2)
         UNION ALL
         SELECT id, tenant, role, label, created_at, least(t.expires_at, s.expires_at), revoked_at
         FROM longshore_browser_session s JOIN longshore_api_token t ON t.id = s.token
         WHERE ($1 IS NULL OR tenant = $1) AND s.hash = $2
         ORDER BY id LIMIT $3"
    );
    let hash = hash.as_ref().map(|hash| hash.0.as_slice());
    let rows = tx.query(&sql, &[&queries::tenant(scope), &hash, &i64::from(limit)]).await?;
    rows.iter().map(|row| read_token(&Columns(row))).collect()
}

/// Appends an entry to the audit log.
pub(crate) async fn append_audit(tx: &mut Tx<'_>, entry: &NewAuditEntry) -> Result<()> {
    tx.execute(
        "INSERT INTO longshore_audit_entry (recorded_at, token, actor, tenant, action, target,
         detail)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        &[
            &tx.now.as_micros(),
            &entry.token.map(uuid),
            &replace_nul(&entry.by),
            &entry.tenant.as_ref().map(TenantId::as_str),
            &replace_nul(&entry.action),
            &replace_nul(&entry.target),
            &replace_nul(&entry.detail),
        ],
    )
    .await?;
    Ok(())
}

/// Entries of the audit log, newest first.
pub(crate) async fn list_audit(
    tx: &mut Tx<'_>,
    scope: &Scope,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<AuditEntry>> {
    let before = after.map(page_cursor::audit_entry).transpose()?.unwrap_or(i64::MAX);
    let own = queries::tenant(scope);
    // Two statements, so that each can use an index.
    let tenant_condition = if own.is_some() { "tenant = $3" } else { "$3 IS NULL" };
    let sql = format!(
        "SELECT {AUDIT_COLUMNS} FROM longshore_audit_entry
         WHERE seq < $1 AND {tenant_condition} ORDER BY seq DESC LIMIT $2"
    );
    let rows = tx.query(&sql, &[&before, &(i64::from(limit) + 1), &own]).await?;
    let read = |row: &Row| read_audit_entry(&Columns(row));
    page(&rows, limit, "an entry of the audit log", read, page_cursor::after_audit_entry)
}
