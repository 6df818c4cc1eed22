//! Rows of `longshore_call`: how they become [`Call`]s, and how calls become arrays of a statement.

use longshore_accounts::{Call, CallEnd, CallMode, CallRecord, CallStatus, NewCall};
use longshore_core::{BatchId, ProfileName, Result, TenantId, Timestamp};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::error::damaged;
use crate::row::{count, value};
use crate::typed_params::{
    SqlParam, call_id, call_uuid, replace_nul, session_id, session_uuid, unit_id, uuid as unit_uuid,
};

/// The columns that [`read`] reads, in its order.
pub(super) const COLUMNS: &str = "c.id, c.tenant, c.request_id, c.profile, c.provider, c.model, \
    c.unit, c.batch, c.session, c.worker, c.reserve_tokens, c.reserve_picos, c.opened_at, \
    c.status, c.logged_at, c.code, c.answered_by, c.tokens_in, c.tokens_out, c.tokens_cached, \
    c.tokens_cache_write, c.latency_ms, c.attempts, c.cost_picos, c.estimated, \
    c.mode, c.tier, c.tokens_cache_write_long";

/// Reads a call from [`COLUMNS`].
pub(super) fn read(row: &Row) -> Result<Call> {
    let batch: Option<&str> = value(row, 7)?;
    let call = NewCall {
        id: call_id(value(row, 0)?),
        tenant: TenantId::new(value::<&str>(row, 1)?).map_err(damaged)?,
        request_id: value(row, 2)?,
        profile: ProfileName::new(value::<&str>(row, 3)?).map_err(damaged)?,
        provider: value(row, 4)?,
        model: value(row, 5)?,
        unit: value::<Option<Uuid>>(row, 6)?.map(unit_id),
        batch: batch.map(BatchId::new).transpose().map_err(damaged)?,
        session: value::<Option<Uuid>>(row, 8)?.map(session_id),
        worker: value(row, 9)?,
        reserve_tokens: count(row, 10)?,
        reserve_picos: value(row, 11)?,
    };
    let status = status(value(row, 13)?)?;
    let end = match status {
        CallStatus::Open => None,
        _ => Some(read_end(row, status)?),
    };
    let logged_at = value::<Option<i64>>(row, 14)?.map(Timestamp::from_micros);
    let opened_at = Timestamp::from_micros(value(row, 12)?);
    Ok(Call { call, status, end, opened_at, logged_at })
}

fn read_end(row: &Row, status: CallStatus) -> Result<CallEnd> {
    Ok(CallEnd {
        status,
        code: value(row, 15)?,
        model: value(row, 16)?,
        tokens_in: count(row, 17)?,
        tokens_out: count(row, 18)?,
        tokens_cached: count(row, 19)?,
        tokens_cache_write: count(row, 20)?,
        latency_ms: count(row, 21)?,
        attempts: count(row, 22)?,
        cost_picos: value(row, 23)?,
        estimated: value(row, 24)?,
        mode: match value::<Option<i16>>(row, 25)? {
            Some(1) => CallMode::Batch,
            _ => CallMode::Direct,
        },
        tier: value(row, 26)?,
        tokens_cache_write_long: match value::<Option<i64>>(row, 27)? {
            Some(_) => count(row, 27)?,
            None => 0,
        },
    })
}

/// The code under which a status is stored.
pub(super) fn code(status: CallStatus) -> i16 {
    match status {
        CallStatus::Open => 0,
        CallStatus::Success => 1,
        CallStatus::Error => 2,
        CallStatus::MaybeBilled => 3,
    }
}

fn status(code: i16) -> Result<CallStatus> {
    match code {
        0 => Ok(CallStatus::Open),
        1 => Ok(CallStatus::Success),
        2 => Ok(CallStatus::Error),
        3 => Ok(CallStatus::MaybeBilled),
        other => Err(damaged(format!("the call status {other}"))),
    }
}

/// Converts a number for a `bigint` column. Numbers are checked on entry; larger ones saturate.
fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Owned parameters, for a statement that is pipelined with the commit.
pub(super) type OwnedParams = Vec<Box<dyn SqlParam + Send>>;

/// Borrows the parameters, for a statement that is awaited.
pub(super) fn borrow_params(params: &OwnedParams) -> Vec<&dyn SqlParam> {
    params.iter().map(|param| -> &dyn SqlParam { param.as_ref() }).collect()
}

macro_rules! params {
    ($($param:ident)*) => { vec![$(Box::new($param)),*] };
}

/// Calls to be made, one array per column.
#[derive(Default)]
pub(super) struct CallIntentColumns {
    ids: Vec<Uuid>,
    tenants: Vec<String>,
    requests: Vec<String>,
    profiles: Vec<String>,
    providers: Vec<String>,
    models: Vec<String>,
    units: Vec<Option<Uuid>>,
    batches: Vec<Option<String>>,
    sessions: Vec<Option<Uuid>>,
    workers: Vec<String>,
    tokens: Vec<i64>,
    picos: Vec<i64>,
}

impl CallIntentColumns {
    /// Collects the columns of calls.
    pub(super) fn of<'c>(calls: impl Iterator<Item = &'c NewCall>) -> Self {
        let mut intents = Self::default();
        for call in calls {
            intents.push(call);
        }
        intents
    }

    fn push(&mut self, call: &NewCall) {
        self.ids.push(call_uuid(call.id));
        self.tenants.push(call.tenant.as_str().to_owned());
        self.requests.push(replace_nul(&call.request_id));
        self.profiles.push(call.profile.as_str().to_owned());
        self.providers.push(replace_nul(&call.provider));
        self.models.push(replace_nul(&call.model));
        self.units.push(call.unit.map(unit_uuid));
        self.batches.push(call.batch.as_ref().map(ToString::to_string));
        self.sessions.push(call.session.map(session_uuid));
        self.workers.push(replace_nul(&call.worker));
        self.tokens.push(number(call.reserve_tokens));
        self.picos.push(call.reserve_picos);
    }

    /// The first twelve parameters of `longshore_admit` and `longshore_record`.
    pub(super) fn params(self) -> OwnedParams {
        let Self { ids, tenants, requests, profiles, providers, models, units, .. } = self;
        let Self { batches, sessions, workers, tokens, picos, .. } = self;
        params![
            ids tenants requests profiles providers models units batches sessions workers tokens
            picos
        ]
    }
}

/// Ends of calls, one array per column. An open call has only its status.
#[derive(Default)]
pub(super) struct CallEndColumns {
    statuses: Vec<i16>,
    codes: Vec<Option<String>>,
    models: Vec<Option<String>>,
    tokens_in: Vec<Option<i64>>,
    tokens_out: Vec<Option<i64>>,
    cached: Vec<Option<i64>>,
    cache_writes: Vec<Option<i64>>,
    latencies: Vec<Option<i64>>,
    attempts: Vec<Option<i64>>,
    costs: Vec<Option<i64>>,
    estimates: Vec<Option<bool>>,
    modes: Vec<Option<i16>>,
    tiers: Vec<Option<String>>,
    longs: Vec<Option<i64>>,
}

impl CallEndColumns {
    /// Collects the columns of records.
    pub(super) fn of<'c>(records: impl Iterator<Item = &'c CallRecord>) -> Self {
        let mut ends = Self::default();
        for record in records {
            ends.push(record.end.as_ref());
        }
        ends
    }

    fn push(&mut self, end: Option<&CallEnd>) {
        let amount = |of: fn(&CallEnd) -> u64| end.map(|end| number(of(end)));
        self.statuses.push(code(end.map_or(CallStatus::Open, |end| end.status)));
        self.codes.push(end.and_then(|end| end.code.as_deref()).map(replace_nul));
        self.models.push(end.map(|end| replace_nul(&end.model)));
        self.tokens_in.push(amount(|end| end.tokens_in));
        self.tokens_out.push(amount(|end| end.tokens_out));
        self.cached.push(amount(|end| end.tokens_cached));
        self.cache_writes.push(amount(|end| end.tokens_cache_write));
        self.latencies.push(amount(|end| end.latency_ms));
        self.attempts.push(end.map(|end| i64::from(end.attempts)));
        self.costs.push(end.map(|end| end.cost_picos));
        self.estimates.push(end.map(|end| end.estimated));
        self.modes.push(end.map(|end| i16::from(end.mode == CallMode::Batch)));
        self.tiers.push(end.and_then(|end| end.tier.as_deref()).map(replace_nul));
        self.longs.push(amount(|end| end.tokens_cache_write_long));
    }

    /// The parameters of `longshore_record` that follow those of the intents.
    pub(super) fn params(self) -> OwnedParams {
        let Self { statuses, codes, models, tokens_in, tokens_out, cached, .. } = self;
        let Self { cache_writes, latencies, attempts, costs, estimates, .. } = self;
        let Self { modes, tiers, longs, .. } = self;
        params![
            statuses codes models tokens_in tokens_out cached cache_writes latencies attempts costs
            estimates modes tiers longs
        ]
    }
}
