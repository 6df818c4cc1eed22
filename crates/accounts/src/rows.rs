//! Rows of calls, keys, profiles, tokens, the audit log and pending requests in the SQL stores.

use crate::{
    AuditEntry, Call, CallEnd, CallMode, CallStatus, KeyRecord, KeyStatus, NewAuditEntry, NewCall, NewKey,
    NewPendingRequest, PendingRequest, ProfileRecord, ProviderBatch, TokenRecord,
};
use longshore_core::Result;
use longshore_core::sql_row::{SqlRow, damaged};
use longshore_core::{BatchId, CallId, KeyName, Payload, ProfileName, SessionId, TenantId, TokenId, UnitId};

/// The columns of [`read_call`].
pub const CALL_COLUMNS: &str = "id, tenant, request_id, profile, provider, model, unit, batch, \
    session, worker, reserve_tokens, reserve_picos, opened_at, status, logged_at, code, \
    answering_model, tokens_in, tokens_out, tokens_cached, tokens_cache_write, latency_ms, \
    attempts, cost_picos, estimated, mode, tier, tokens_cache_write_long";

/// Reads [`CALL_COLUMNS`].
pub fn read_call(row: &impl SqlRow) -> Result<Call> {
    let status = decode_call_status(row.number(13)?)?;
    Ok(Call {
        call: NewCall {
            id: CallId::from_bytes(row.required_id(0)?),
            tenant: row.parsed(1, TenantId::new)?,
            request_id: row.string(2)?,
            profile: row.parsed(3, ProfileName::new)?,
            provider: row.string(4)?,
            model: row.string(5)?,
            unit: row.id(6)?.map(UnitId::from_bytes),
            batch: row.optional_parsed(7, BatchId::new)?,
            session: row.id(8)?.map(SessionId::from_bytes),
            worker: row.string(9)?,
            reserve_tokens: row.number(10)?,
            reserve_picos: row.number(11)?,
        },
        status,
        end: match status {
            CallStatus::Open => None,
            _ => Some(read_call_end(row, status)?),
        },
        opened_at: row.time(12)?,
        logged_at: row.optional_time(14)?,
    })
}

fn read_call_end(row: &impl SqlRow, status: CallStatus) -> Result<CallEnd> {
    Ok(CallEnd {
        status,
        code: row.optional_string(15)?,
        model: row.string(16)?,
        tokens_in: row.number(17)?,
        tokens_out: row.number(18)?,
        tokens_cached: row.number(19)?,
        tokens_cache_write: row.number(20)?,
        latency_ms: row.number(21)?,
        attempts: row.number(22)?,
        cost_picos: row.number(23)?,
        estimated: row.flag(24)?,
        mode: match row.int(25)? {
            Some(1) => CallMode::Batch,
            _ => CallMode::Direct,
        },
        tier: row.optional_string(26)?,
        tokens_cache_write_long: row.optional_number(27)?.unwrap_or_default(),
    })
}

/// The code under which a call's status is stored.
pub const fn call_status_code(status: CallStatus) -> u8 {
    match status {
        CallStatus::Open => 0,
        CallStatus::Success => 1,
        CallStatus::Error => 2,
        CallStatus::MaybeBilled => 3,
    }
}

fn decode_call_status(code: u8) -> Result<CallStatus> {
    let all = [CallStatus::Open, CallStatus::Success, CallStatus::Error, CallStatus::MaybeBilled];
    let found = all.into_iter().find(|status| call_status_code(*status) == code);
    found.ok_or_else(|| damaged(format!("the call status {code}")))
}

/// The code under which a call's mode is stored.
pub const fn call_mode_code(mode: CallMode) -> u8 {
    match mode {
        CallMode::Direct => 0,
        CallMode::Batch => 1,
    }
}

/// The columns of [`read_key`].
pub const KEY_COLUMNS: &str = "tenant, name, version, provider, ciphertext, wrapped_data_key, \
    master_key_id, status, created_at, retires_at";

/// Reads [`KEY_COLUMNS`].
pub fn read_key(row: &impl SqlRow) -> Result<KeyRecord> {
    let status = |text: &str| match text {
        "active" => Ok(KeyStatus::Active),
        "retiring" => Ok(KeyStatus::Retiring),
        "revoked" => Ok(KeyStatus::Revoked),
        other => Err(format!("the key status `{other}`")),
    };
    Ok(KeyRecord {
        key: NewKey {
            tenant: row.parsed(0, TenantId::new)?,
            name: row.parsed(1, KeyName::new)?,
            version: row.number(2)?,
            provider: row.string(3)?,
            sealed: row.byte_vec(4)?,
            wrapped: row.byte_vec(5)?,
            master: row.string(6)?,
        },
        status: row.parsed(7, status)?,
        created_at: row.time(8)?,
        retires_at: row.optional_time(9)?,
    })
}

/// The columns of [`read_profile`].
pub const PROFILE_COLUMNS: &str = "tenant, name, body, suspended, revision, created_at, updated_at";

/// Reads [`PROFILE_COLUMNS`].
pub fn read_profile(row: &impl SqlRow) -> Result<ProfileRecord> {
    Ok(ProfileRecord {
        tenant: row.parsed(0, TenantId::new)?,
        name: row.parsed(1, ProfileName::new)?,
        body: row.parsed(2, serde_json::from_str)?,
        suspended: row.flag(3)?,
        revision: row.number(4)?,
        created_at: row.time(5)?,
        updated_at: row.time(6)?,
    })
}

/// The columns of [`read_token`].
pub const TOKEN_COLUMNS: &str = "id, tenant, role, label, created_at, expires_at, revoked_at";

/// Reads [`TOKEN_COLUMNS`].
pub fn read_token(row: &impl SqlRow) -> Result<TokenRecord> {
    Ok(TokenRecord {
        id: TokenId::from_bytes(row.required_id(0)?),
        tenant: row.parsed(1, TenantId::new)?,
        role: row.parsed(2, str::parse)?,
        label: row.string(3)?,
        created_at: row.time(4)?,
        expires_at: row.optional_time(5)?,
        revoked_at: row.optional_time(6)?,
    })
}

/// The columns of [`read_audit_entry`].
pub const AUDIT_COLUMNS: &str = "seq, recorded_at, token, actor, tenant, action, target, detail";

/// Reads [`AUDIT_COLUMNS`].
pub fn read_audit_entry(row: &impl SqlRow) -> Result<AuditEntry> {
    Ok(AuditEntry {
        seq: row.number(0)?,
        at: row.time(1)?,
        entry: NewAuditEntry {
            token: row.id(2)?.map(TokenId::from_bytes),
            by: row.string(3)?,
            tenant: row.optional_parsed(4, TenantId::new)?,
            action: row.string(5)?,
            target: row.string(6)?,
            detail: row.string(7)?,
        },
    })
}

/// The columns of [`read_pending_request`].
pub const PENDING_REQUEST_COLUMNS: &str = "custom_id, unit, prompt, created_at, attempts, answer";

/// Reads [`PENDING_REQUEST_COLUMNS`].
pub fn read_pending_request(row: &impl SqlRow) -> Result<PendingRequest> {
    Ok(PendingRequest {
        new: NewPendingRequest {
            custom_id: row.string(0)?,
            unit: UnitId::from_bytes(row.required_id(1)?),
            prompt: row.string(2)?,
        },
        parked_at: row.time(3)?,
        tries: row.number(4)?,
        reply: row.bytes(5)?.map(Payload::from),
    })
}

/// The columns of [`read_provider_batch`].
pub const PROVIDER_BATCH_COLUMNS: &str = "name, created_at, provider_id";

/// Reads [`PROVIDER_BATCH_COLUMNS`].
pub fn read_provider_batch(row: &impl SqlRow) -> Result<ProviderBatch> {
    Ok(ProviderBatch { name: row.string(0)?, sealed_at: row.time(1)?, provider_id: row.optional_string(2)? })
}
