//! Rows of `longshore_call`. Columns instead of JSON, because they are written often.

use longshore_accounts::rows::{CALL_COLUMNS, call_mode_code, call_status_code, read_call};
use longshore_accounts::{Call, CallEnd, CallRecord, CallStatus, NewCall};
use longshore_core::{BatchId, Result, SessionId, UnitId};
use rusqlite::{Connection, Statement, params};

use crate::error::Translate;
use crate::prepared::PreparedSql;
use crate::row::Columns;
use crate::tx::Tx;

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
    "answering_model",
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
        call_status_code(end.map_or(CallStatus::Open, |end| end.status)),
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
        end.map(|end| call_mode_code(end.mode)),
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
            call_status_code(end.map_or(CallStatus::Open, |end| end.status)),
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
            end.map(|end| call_mode_code(end.mode)),
            end.and_then(|end| end.tier.as_deref()),
            end.map(|end| end.tokens_cache_write_long),
        ])
        .or_translate()?;
    Ok(())
}

/// Selects calls; `rest` follows the FROM clause.
pub(crate) fn select(db: &Connection, rest: &str, params: impl rusqlite::Params) -> Result<Vec<Call>> {
    let sql = format!("SELECT {CALL_COLUMNS} FROM longshore_call {rest}");
    let mut statement = db.prepare_cached(&sql).or_translate()?;
    let mut rows = statement.query(params).or_translate()?;
    let mut calls = Vec::new();
    while let Some(row) = rows.next().or_translate()? {
        calls.push(read_call(&Columns(row))?);
    }
    Ok(calls)
}
