//! Billing: a call's record in the ledger, from its start to its cost, and its log events.
//!
//! A `call_start` event without `call_complete` is a call in flight, or its process died. Prompts,
//! answers and error messages are never logged: providers quote prompts in their errors.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use longshore::accounts::{CallEnd, CallRecord, CallStatus, NewCall};
use longshore::text::truncate_bytes;
use longshore::{CallId, ProfileName, TenantId};
use tokio::time::Instant;

use super::call::ProfileCall;
use super::call_bound::CallBound;
use super::profile_cache::ResolvedProfile;
use super::{Inference, InferenceRequest, Inner};
use crate::model_api::{Answer, AskError, BillingStatus, Question, Retryability, SentFlag};
use crate::pricing::PriceMode;
use crate::profile::MAX_MODEL_NAME;
use crate::resilience::TokenReservation;

impl Inner {
    /// A new call that reserves nothing.
    pub(super) fn new_call(
        &self,
        request: &InferenceRequest,
        profile: &ProfileName,
        provider: &str,
        model: &str,
    ) -> NewCall {
        NewCall {
            id: CallId::new(),
            request_id: request.question.request_id.clone(),
            tenant: request.tenant.clone(),
            profile: profile.clone(),
            provider: provider.to_owned(),
            model: truncate_bytes(model, MAX_MODEL_NAME),
            unit: request.unit,
            batch: request.batch.clone(),
            session: request.session.or_else(|| self.heartbeat.session()),
            worker: self.label.clone(),
            reserve_tokens: 0,
            reserve_picos: 0,
        }
    }

    /// The record of a call that was rejected before a provider was asked, unless the tenant has
    /// enough of them.
    pub(super) fn rejected_record(
        &self,
        call: NewCall,
        error: &AskError,
        latency_ms: u64,
    ) -> Option<CallRecord> {
        let is_recorded = self.rejections.admit(&call.tenant, Instant::now());
        is_recorded.then(|| recordable(CallRecord { call, end: Some(failed(error, 0, latency_ms)) }))
    }
}

/// Rejected calls of a tenant that one process records per minute. They cost nothing, and a client
/// can send any number of them.
const MAX_REJECTED: u32 = 60;

/// Counts the records of rejected calls, by tenant, in the minute since the time.
#[derive(Debug, Default)]
pub(super) struct RejectionRecords(Mutex<(Option<Instant>, HashMap<TenantId, u32>)>);

impl RejectionRecords {
    /// Whether a rejected call is recorded.
    fn admit(&self, tenant: &TenantId, now: Instant) -> bool {
        let (since, counts) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if since.is_none_or(|since| now.duration_since(since) >= Duration::from_secs(60)) {
            *since = Some(now);
            counts.clear();
        }
        let count = counts.entry(tenant.clone()).or_default();
        *count = count.saturating_add(1);
        if *count == MAX_REJECTED + 1 {
            tracing::warn!(%tenant, "{MAX_REJECTED} calls were rejected within a minute; more are not recorded");
        }
        *count <= MAX_REJECTED
    }
}

impl Inference {
    /// The record of a question that was rejected before its profile was resolved, unless the
    /// tenant has enough of them.
    pub(crate) fn rejected_record(
        &self,
        request: &InferenceRequest,
        profile: &ProfileName,
        error: &AskError,
    ) -> Option<CallRecord> {
        let call = self.inner.new_call(request, profile, "", "");
        self.inner.rejected_record(call, error, 0)
    }
}

impl ProfileCall<'_> {
    /// A call that reserves nothing. A model that the profile does not offer is not recorded: usage
    /// is summed by model, and a client can name any number of them.
    pub(super) fn new_call(&self, question: &Question) -> NewCall {
        let ResolvedProfile { name, profile, .. } = self.entry;
        let model = question.model.as_deref().unwrap_or(&profile.model);
        let model = profile.prices_of(model).map_or("", |_| model);
        self.inner.new_call(self.request, name, profile.provider.as_str(), model)
    }
}

impl CallBound<'_> {
    /// The end of a call, with its cost. Settles what it reserved: tokens that may have been billed
    /// stay reserved, and a rejected call costs nothing.
    ///
    /// Where the bound is a promise, a call of which the provider did not report the tokens
    /// counts with all that it reserved: thoughts and further answers may have been billed that are
    /// not in the part that arrived.
    pub(super) fn bill(
        &self,
        reservation: TokenReservation,
        result: &Result<Answer, AskError>,
        attempts: u32,
        started: Instant,
    ) -> CallEnd {
        let latency_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let answered = |answer: &Answer| {
            let cost = self.prices.cost(answer, self.at, PriceMode::Direct);
            succeeded(answer, attempts, latency_ms, cost.0)
        };
        let at_most = |end: CallEnd| {
            let Self { tokens_in, tokens_out, cost_picos, .. } = *self;
            CallEnd { tokens_in, tokens_out, cost_picos, estimated: true, ..end }
        };
        let error = match result {
            Ok(answer) => {
                reservation.settle(answer.tokens_in.saturating_add(answer.tokens_out));
                let unreported = answer.estimated || answer.tokens_in == 0;
                let end = answered(answer);
                return if self.metered && unreported { at_most(end) } else { end };
            }
            Err(error) => error,
        };
        let end = failed(error, attempts, latency_ms);
        let (status, estimated) = (CallStatus::MaybeBilled, true);
        match &error.billing {
            BillingStatus::Nothing if error.retry == Retryability::NotSent => {
                reservation.release();
                end
            }
            BillingStatus::Nothing => {
                reservation.settle(0);
                end
            }
            BillingStatus::Partial(answer) if !self.metered || !answer.estimated => {
                reservation.settle(answer.tokens_in.saturating_add(answer.tokens_out));
                CallEnd { status, code: end.code, estimated, ..answered(answer) }
            }
            BillingStatus::Partial(_) | BillingStatus::Unknown => CallEnd { status, ..at_most(end) },
        }
    }
}

/// What counts for a call that was dropped after it was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct LostUsage {
    tokens_in: u64,
    tokens_out: u64,
    cost_picos: i64,
}

impl CallBound<'_> {
    /// What counts if the call is dropped before an answer arrives. Where the bound is a promise, and
    /// for an answer that is not streamed and goes on without its caller, all that it reserved. A
    /// provider stops a stream when its connection is closed: then the question counts.
    pub(super) fn lost_usage(&self, streams: bool, estimate: impl FnOnce() -> u64) -> LostUsage {
        let Self { tokens_in, tokens_out, cost_picos, .. } = *self;
        if self.metered || !streams {
            return LostUsage { tokens_in, tokens_out, cost_picos };
        }
        let question = Answer { tokens_in: estimate(), ..Answer::default() };
        let cost_picos = self.prices.cost(&question, self.at, PriceMode::Direct).0;
        LostUsage { tokens_in: question.tokens_in, tokens_out: 0, cost_picos }
    }
}

/// An admitted call. Dropped without an end, it is recorded as "maybe billed" if its question was
/// sent, or else at zero.
pub(super) struct OpenCall<'d> {
    inner: &'d Inner,
    call: Option<NewCall>,
    /// The tokens and the cost that count if it is dropped; without it, all that it reserved.
    lost_usage: Option<LostUsage>,
    /// The question's flag, once its attempts have begun.
    sent: Option<SentFlag>,
}

impl<'d> OpenCall<'d> {
    pub(super) fn new(inner: &'d Inner, call: NewCall) -> Self {
        Self { inner, call: Some(call), lost_usage: None, sent: None }
    }

    /// Sets what counts if the call is dropped.
    pub(super) fn set_lost_usage(&mut self, usage: LostUsage) {
        self.lost_usage = Some(usage);
    }

    /// Begins the attempts to send a question.
    pub(super) fn begin(&mut self, question: &Question) {
        self.sent = Some(question.sent.share());
        self.call.iter().for_each(log_start);
    }

    /// Drops the call without a record: it was not admitted.
    pub(super) fn forget(mut self) {
        self.call = None;
    }

    /// Ends the call and returns its record.
    pub(super) fn finish(mut self, end: CallEnd) -> Option<CallRecord> {
        let call = self.call.take()?;
        log_end(&call, &end);
        Some(recordable(CallRecord { call, end: Some(end) }))
    }
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        let code = Some("ABANDONED".to_owned());
        let sent = self.sent.as_ref().is_some_and(SentFlag::is_set);
        let mut end = CallEnd { code, attempts: u32::from(sent), ..call.lost_end() };
        if sent {
            if let Some(LostUsage { tokens_in, tokens_out, cost_picos }) = self.lost_usage {
                end = CallEnd { tokens_in, tokens_out, cost_picos, ..end };
            }
        } else {
            (end.status, end.tokens_in, end.cost_picos) = (CallStatus::Error, 0, 0);
            end.estimated = false;
        }
        if self.sent.is_some() {
            log_end(&call, &end);
        }
        self.inner.journal.append(CallRecord { call, end: Some(end) });
    }
}

/// A record that every ledger accepts. Its numbers come from clients and providers: those above a
/// limit are recorded as the limit, and the write's other records are not rejected with them.
pub(super) fn recordable(record: CallRecord) -> CallRecord {
    let is_beyond_limits = record.end.as_ref().is_some_and(CallEnd::is_beyond_limits);
    let error = record.check().err();
    if error.is_none() && !is_beyond_limits {
        return record;
    }
    let NewCall { id, tenant, .. } = &record.call;
    let error = error.map_or_else(|| "its cost is not plausible".to_owned(), |error| error.to_string());
    tracing::error!(call = %id, %tenant, error, "a call exceeds a limit and is recorded with the limit");
    record.clamped()
}

/// The end of an answered call.
pub(super) fn succeeded(answer: &Answer, attempts: u32, latency_ms: u64, cost_picos: i64) -> CallEnd {
    CallEnd {
        tokens_in: answer.tokens_in,
        tokens_out: answer.tokens_out,
        tokens_cached: answer.tokens_cached,
        tokens_cache_write: answer.tokens_cache_write.saturating_add(answer.tokens_cache_write_long),
        tokens_cache_write_long: answer.tokens_cache_write_long,
        latency_ms,
        attempts,
        cost_picos,
        estimated: answer.estimated,
        tier: answer.tier.as_ref().map(|tier| truncate_bytes(tier, MAX_MODEL_NAME)),
        ..CallEnd::new(CallStatus::Success, truncate_bytes(&answer.model, MAX_MODEL_NAME))
    }
}

/// The end of a failed call.
pub(super) fn failed(error: &AskError, attempts: u32, latency_ms: u64) -> CallEnd {
    CallEnd {
        code: Some(error.code.as_str().to_owned()),
        latency_ms,
        attempts,
        ..CallEnd::new(CallStatus::Error, "")
    }
}

/// Logs that a call starts.
fn log_start(call: &NewCall) {
    tracing::info!(
        event = "call_start",
        call = %call.id,
        request_id = call.request_id,
        tenant = %call.tenant,
        profile = %call.profile,
        provider = call.provider,
        model = call.model,
        unit = call.unit.map(tracing::field::display),
        batch = call.batch.as_ref().map(tracing::field::display),
        worker = call.worker,
    );
}

/// Logs how a call ended.
fn log_end(call: &NewCall, end: &CallEnd) {
    tracing::info!(
        event = "call_complete",
        call = %call.id,
        request_id = call.request_id,
        tenant = %call.tenant,
        profile = %call.profile,
        provider = call.provider,
        model = if end.model.is_empty() { &call.model } else { &end.model },
        status = end.status.as_str(),
        error_code = end.code,
        tokens_in = end.tokens_in,
        tokens_out = end.tokens_out,
        tokens_cached = end.tokens_cached,
        latency_ms = end.latency_ms,
        attempts = end.attempts,
        cost_picos = end.cost_picos,
        estimated = end.estimated,
        worker = call.worker,
    );
}
