//! Rows of `longshore_call` as parameters of a statement: one array per column.

use longshore_accounts::rows::{call_mode_code, call_status_code};
use longshore_accounts::{CallEnd, CallRecord, CallStatus, NewCall};
use uuid::Uuid;

use crate::typed_params::{SqlParam, call_uuid, replace_nul, session_uuid, uuid as unit_uuid};

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

    /// The first twelve parameters of `longshore_admit_calls` and `longshore_record_calls`.
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
        let status = end.map_or(CallStatus::Open, |end| end.status);
        self.statuses.push(i16::from(call_status_code(status)));
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
        self.modes.push(end.map(|end| i16::from(call_mode_code(end.mode))));
        self.tiers.push(end.and_then(|end| end.tier.as_deref()).map(replace_nul));
        self.longs.push(amount(|end| end.tokens_cache_write_long));
    }

    /// The parameters of `longshore_record_calls` that follow those of the intents.
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
