//! API tokens by their hashes, and the audit log.

use longshore_accounts::rows::{AUDIT_COLUMNS, TOKEN_COLUMNS, read_audit_entry, read_token};
use longshore_accounts::{
    AuditEntry, BrowserSession, MAX_SESSIONS, NewAuditEntry, NewToken, TokenChange, TokenHash, TokenRecord,
    page_cursor,
};
use longshore_core::store::Page;
use longshore_core::{Error, Result, Scope, TenantId, Timestamp, TokenId};
use rusqlite::{Connection, ToSql};

use crate::error::Translate;
use crate::queries::tenant_filter;
use crate::row::Columns;
use crate::tx::Tx;

/// Changes a token or its browser sessions.
pub(crate) fn change(tx: &mut Tx<'_>, scope: &Scope, change: &TokenChange) -> Result<TokenRecord> {
    match change {
        TokenChange::Add(token) => add(tx, scope, token),
        TokenChange::Revoke(id) => revoke(tx, scope, *id),
        TokenChange::BeginSession(session) => begin_session(tx, scope, session),
        TokenChange::EndSession(hash) => end_session(tx, scope, *hash),
    }
}

/// Adds a token.
fn add(tx: &mut Tx<'_>, scope: &Scope, token: &NewToken) -> Result<TokenRecord> {
    token.check(scope)?;
    let record = TokenRecord::new(token, tx.now);
    tx.db
        .prepare_cached(
            "INSERT INTO longshore_api_token (id, hash, tenant, role, label, created_at, expires_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (id) DO NOTHING",
        )
        .or_translate()?
        .execute((
            token.id.as_bytes(),
            token.hash.0,
            record.tenant.as_str(),
            record.role.as_str(),
            &record.label,
            record.created_at.as_micros(),
            record.expires_at.map(Timestamp::as_micros),
        ))
        .or_translate()?;
    find(tx.db, scope, token.id)
}

/// Revokes a token.
fn revoke(tx: &mut Tx<'_>, scope: &Scope, id: TokenId) -> Result<TokenRecord> {
    tx.db
        .prepare_cached(
            "UPDATE longshore_api_token SET revoked_at = coalesce(revoked_at, ?3)
             WHERE id = ?1 AND (?2 IS NULL OR tenant = ?2)",
        )
        .or_translate()?
        .execute((id.as_bytes(), tenant_filter(scope), tx.now.as_micros()))
        .or_translate()?;
    find(tx.db, scope, id)
}

fn begin_session(tx: &mut Tx<'_>, scope: &Scope, session: &BrowserSession) -> Result<TokenRecord> {
    let record = find(tx.db, scope, session.token)?;
    let execute = |sql: &str, params: &[&dyn ToSql]| tx.db.prepare_cached(sql)?.execute(params);
    let (token, now) = (session.token.as_bytes(), tx.now.as_micros());
    execute("DELETE FROM longshore_browser_session WHERE expires_at <= ?1", &[&now]).or_translate()?;
    execute(
        "INSERT INTO longshore_browser_session (hash, token, expires_at) VALUES (?1, ?2, ?3)
         ON CONFLICT (hash) DO NOTHING",
        &[&session.hash.0, token, &session.expires_at.as_micros()],
    )
    .or_translate()?;
    execute(
        "DELETE FROM longshore_browser_session WHERE hash IN (
             SELECT hash FROM longshore_browser_session WHERE token = ?1
             ORDER BY expires_at DESC, hash LIMIT -1 OFFSET ?2)",
        &[token, &MAX_SESSIONS],
    )
    .or_translate()?;
    Ok(record)
}

fn end_session(tx: &mut Tx<'_>, scope: &Scope, hash: TokenHash) -> Result<TokenRecord> {
    let found = list(tx.db, scope, Some(hash), 1)?.pop();
    let record = found.ok_or_else(|| Error::not_found("browser session", "of this cookie"))?;
    let mut statement =
        tx.db.prepare_cached("DELETE FROM longshore_browser_session WHERE hash = ?1").or_translate()?;
    statement.execute([hash.0]).or_translate()?;
    Ok(record)
}

fn find(db: &Connection, scope: &Scope, id: TokenId) -> Result<TokenRecord> {
    let sql = format!(
        "SELECT {TOKEN_COLUMNS} FROM longshore_api_token WHERE id = ?1 AND (?2 IS
                       NULL OR tenant = ?2)"
    );
    let mut statement = db.prepare_cached(&sql).or_translate()?;
    let mut rows = statement.query((id.as_bytes(), tenant_filter(scope))).or_translate()?;
    let row = rows.next().or_translate()?;
    row.ok_or_else(|| Error::not_found("token", id)).and_then(|row| read_token(&Columns(row)))
}

/// Tokens, oldest first: all, or the one with this hash, or with a browser session of this hash.
pub(crate) fn list(
    db: &Connection,
    scope: &Scope,
    hash: Option<TokenHash>,
    limit: u32,
) -> Result<Vec<TokenRecord>> {
    // Two statements, so that each can use an index.
    let source = match hash {
        None => "longshore_api_token",
        Some(_) => {
            "(SELECT * FROM longshore_api_token WHERE hash = ?2 UNION ALL
              SELECT t.id, t.hash, tenant, role, label, created_at,
                  min(coalesce(t.expires_at, s.expires_at), s.expires_at), revoked_at
              FROM longshore_browser_session s JOIN longshore_api_token t ON t.id = s.token
              WHERE s.hash = ?2)"
        }
    };
    let sql = format!(
        "SELECT {TOKEN_COLUMNS} FROM {source} WHERE (?1 IS NULL OR tenant = ?1) ORDER BY id LIMIT ?3"
    );
    let mut statement = db.prepare_cached(&sql).or_translate()?;
    let params = (tenant_filter(scope), hash.map(|hash| hash.0), limit);
    let mut rows = statement.query(params).or_translate()?;
    let mut tokens = Vec::new();
    while let Some(row) = rows.next().or_translate()? {
        tokens.push(read_token(&Columns(row))?);
    }
    Ok(tokens)
}

/// Appends an entry to the audit log.
pub(crate) fn append_audit_entry(tx: &mut Tx<'_>, entry: &NewAuditEntry) -> Result<()> {
    tx.db
        .prepare_cached(
            "INSERT INTO longshore_audit_entry (recorded_at, token, actor, tenant, action, target,
             detail)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )
        .or_translate()?
        .execute((
            tx.now.as_micros(),
            entry.token.as_ref().map(TokenId::as_bytes),
            &entry.by,
            entry.tenant.as_ref().map(TenantId::as_str),
            &entry.action,
            &entry.target,
            &entry.detail,
        ))
        .or_translate()?;
    Ok(())
}

/// Entries of the audit log, newest first.
pub(crate) fn audit_entries(
    db: &Connection,
    scope: &Scope,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<AuditEntry>> {
    let before = after.map(page_cursor::audit_entry).transpose()?.unwrap_or(i64::MAX);
    // Two statements, so that each can use an index.
    let tenant_condition = if tenant_filter(scope).is_some() { "tenant = ?3" } else { "?3 IS NULL" };
    let sql = format!(
        "SELECT {AUDIT_COLUMNS} FROM longshore_audit_entry
         WHERE seq < ?1 AND {tenant_condition} ORDER BY seq DESC LIMIT ?2"
    );
    let mut statement = db.prepare_cached(&sql).or_translate()?;
    let mut rows = statement.query((before, u64::from(limit) + 1, tenant_filter(scope))).or_translate()?;
    let mut items = Vec::new();
    while let Some(row) = rows.next().or_translate()? {
        items.push(read_audit_entry(&Columns(row))?);
    }
    Ok(Page::first(items, limit, page_cursor::after_audit_entry))
}
