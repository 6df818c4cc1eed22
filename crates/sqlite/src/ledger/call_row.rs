//! Rows of `longshore_call`. Columns instead of JSON, because they are written often.

use longshore_accounts::{Call, CallEnd, CallMode, CallRecord, CallStatus, NewCall};
use longshore_core::{
    BatchId, CallId, ProfileName, Result, SessionId, TenantId, Timestamp, UnitId,
};
use rusqlite::{Connection, Row, Statement, params};

use crate::error::{Translate, damaged};
use crate::prepared::PreparedSql;
use crate::tx::Tx;

/// The columns for [`read`].
pub(crate) const COLUMNS: &str = "id, request_id, tenant, profile, provider, model, unit, batch,
    session, worker, reserve_tokens, reserve_picos, opened_at, status, logged_at, code,
    answered_by, tokens_in, tokens_out, tokens_cached, tokens_cache_write, latency_ms, attempts,
    cost_picos, estimated, mode, tier, tokens_cache_write_long";

/// The stored code of a status.
pub(crate) fn code(status: CallStatus) -> u8 {
    match status {
        CallStatus::Open => 0,
        CallStatus::Success => 1,
        CallStatus::Error => 2,
        CallStatus::MaybeBilled => 3,
    }
}

fn status(code: u8) -> Result<CallStatus> {
    Ok(match code {
        0 => CallStatus::Open,
        1 => CallStatus::Success,
        2 => CallStatus::Error,
        3 => CallStatus::MaybeBilled,
        other => return Err(damaged(format!("a call of status {other}"))),
    })
}

fn mode_code(mode: CallMode) -> u8 {
    match mode {
        CallMode::Direct => 0,
        CallMode::Batch => 1,
    }
}

/// The columns of a new call, in the order of [`bind`].
pub(crate) const INSERT_COLUMNS: [&str; 28] = [
    "id",
    "profile",
    "provider",
    "model",
    "worker",
    "reserve_tokens",
    "reserve_picos",
    "status",
    "logged_at",
    "code",
    "answered_by",
    "tokens_in",
    "tokens_out",
    "tokens_cached",
    "tokens_cache_write",
    "latency_ms",
    "attempts",
    "cost_picos",
    "estimated",
    "mode",
    "tier",
    "tokens_cache_write_long",
    // The columns above may be updated later, the ones below not.
    "request_id",
    "tenant",
    "unit",
    "batch",
    "session",
    "opened_at",
];

/// Calls inserted by one statement. Cursors stay at the end of each index, so a row costs two
/// thirds of what it costs in its own statement.
pub(crate) const INSERT_BATCH: usize = 16;

/// Inserts a call, if it does not exist; whether it was inserted.
pub(crate) fn insert(tx: &mut Tx<'_>, call: &NewCall, end: Option<&CallEnd>) -> Result<bool> {
    let now = tx.now.as_micros();
    let statement = tx.prepared(PreparedSql::InsertCall)?;
    bind(statement, 0, call, end, now).or_translate()?;
    Ok(statement.raw_execute().or_translate()? > 0)
}

/// Inserts [`INSERT_BATCH`] calls, or none if one exists already; whether they were inserted.
pub(crate) fn insert_batch(tx: &mut Tx<'_>, records: &[&CallRecord]) -> Result<bool> {
    let now = tx.now.as_micros();
    let statement = tx.prepared(PreparedSql::InsertCalls)?;
    for (index, CallRecord { call, end }) in records.iter().enumerate() {
        bind(statement, index, call, end.as_ref(), now).or_translate()?;
    }
    match statement.raw_execute() {
        Err(error) if is_duplicate_key(&error) => Ok(false),
        written => written.map(|_| true).or_translate(),
    }
}

fn is_duplicate_key(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    code == Some(rusqlite::ffi::SQLITE_CONSTRAINT_PRIMARYKEY)
}

/// Binds a call to row `index` of a statement.
fn bind(
    statement: &mut Statement<'_>,
    index: usize,
    call: &NewCall,
    end: Option<&CallEnd>,
    now: i64,
) -> rusqlite::Result<()> {
    let values = params![
        call.id.as_bytes(),
        call.profile.as_str(),
        call.provider,
        call.model,
        call.worker,
        call.reserve_tokens,
        call.reserve_picos,
        code(end.map_or(CallStatus::Open, |end| end.status)),
        end.map(|_| now),
        end.and_then(|end| end.code.as_deref()),
        end.map(|end| end.model.as_str()),
        end.map(|end| end.tokens_in),
        end.map(|end| end.tokens_out),
        end.map(|end| end.tokens_cached),
        end.map(|end| end.tokens_cache_write),
        end.map(|end| end.latency_ms),
        end.map(|end| end.attempts),
        end.map(|end| end.cost_picos),
        end.map(|end| end.estimated),
        end.map(|end| mode_code(end.mode)),
        end.and_then(|end| end.tier.as_deref()),
        end.map(|end| end.tokens_cache_write_long),
        call.request_id,
        call.tenant.as_str(),
        call.unit.as_ref().map(UnitId::as_bytes),
        call.batch.as_ref().map(BatchId::as_str),
        call.session.as_ref().map(SessionId::as_bytes),
        now,
    ];
    let first = index * INSERT_COLUMNS.len() + 1;
    let mut parameters = (first..).zip(values);
    parameters.try_for_each(|(at, value)| statement.raw_bind_parameter(at, value))
}

/// Updates an open call.
pub(crate) fn update(tx: &mut Tx<'_>, call: &NewCall, end: Option<&CallEnd>) -> Result<()> {
    let now = tx.now.as_micros();
    tx.prepared(PreparedSql::UpdateCall)?
        .execute(params![
            call.id.as_bytes(),
            call.profile.as_str(),
            call.provider,
            call.model,
            call.worker,
            call.reserve_tokens,
            call.reserve_picos,
            code(end.map_or(CallStatus::Open, |end| end.status)),
            end.map(|_| now),
            end.and_then(|end| end.code.as_deref()),
            end.map(|end| end.model.as_str()),
            end.map(|end| end.tokens_in),
            end.map(|end| end.tokens_out),
            end.map(|end| end.tokens_cached),
            end.map(|end| end.tokens_cache_write),
            end.map(|end| end.latency_ms),
            end.map(|end| end.attempts),
            end.map(|end| end.cost_picos),
            end.map(|end| end.estimated),
            end.map(|end| mode_code(end.mode)),
            end.and_then(|end| end.tier.as_deref()),
            end.map(|end| end.tokens_cache_write_long),
        ])
        .or_translate()?;
    Ok(())
}

/// Reads [`COLUMNS`].
pub(crate) fn read(row: &Row<'_>) -> Result<Call> {
    let text = |at: usize| row.get::<_, String>(at).or_translate();
    let status = status(row.get(13).or_translate()?)?;
    let logged_at: Option<i64> = row.get(14).or_translate()?;
    let end = match status {
        CallStatus::Open => None,
        _ => Some(read_end(row, status).or_translate()?),
    };
    Ok(Call {
        call: NewCall {
            id: CallId::from_bytes(row.get(0).or_translate()?),
            request_id: text(1)?,
            tenant: TenantId::new(text(2)?).map_err(damaged)?,
            profile: ProfileName::new(text(3)?).map_err(damaged)?,
            provider: text(4)?,
            model: text(5)?,
            unit: row.get::<_, Option<_>>(6).or_translate()?.map(UnitId::from_bytes),
            batch: batch(row.get(7).or_translate()?)?,
            session: row.get::<_, Option<_>>(8).or_translate()?.map(SessionId::from_bytes),
            worker: text(9)?,
            reserve_tokens: row.get(10).or_translate()?,
            reserve_picos: row.get(11).or_translate()?,
        },
        status,
        end,
        opened_at: Timestamp::from_micros(row.get(12).or_translate()?),
        logged_at: logged_at.map(Timestamp::from_micros),
    })
}

fn batch(name: Option<String>) -> Result<Option<BatchId>> {
    name.map(BatchId::new).transpose().map_err(damaged)
}

fn read_end(row: &Row<'_>, status: CallStatus) -> rusqlite::Result<CallEnd> {
    Ok(CallEnd {
        status,
        code: row.get(15)?,
        model: row.get(16)?,
        tokens_in: row.get(17)?,
        tokens_out: row.get(18)?,
        tokens_cached: row.get(19)?,
        tokens_cache_write: row.get(20)?,
        latency_ms: row.get(21)?,
        attempts: row.get(22)?,
        cost_picos: row.get(23)?,
        estimated: row.get(24)?,
        mode: match row.get::<_, Option<u8>>(25)? {
            Some(1) => CallMode::Batch,
            _ => CallMode::Direct,
        },
        tier: row.get(26)?,
        tokens_cache_write_long: row.get::<_, Option<u64>>(27)?.unwrap_or_default(),
    })
}

/// Selects calls; `rest` follows the FROM clause.
pub(crate) fn select(
    db: &Connection,
    rest: &str,
    params: impl rusqlite::Params,
) -> Result<Vec<Call>> {
    let sql = format!("SELECT {COLUMNS} FROM longshore_call {rest}");
    let mut statement = db.prepare_cached(&sql).or_translate()?;
    let mut rows = statement.query(params).or_translate()?;
    let mut calls = Vec::new();
    while let Some(row) = rows.next().or_translate()? {
        calls.push(read(row)?);
    }
    Ok(calls)
}
