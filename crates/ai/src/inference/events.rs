//! Log events of every call: its start and its end. A `call_start` without `call_complete` is a
//! call in flight, or its process died.
//!
//! Prompts, answers and error messages are never logged: providers quote prompts in their errors.

use longshore::accounts::{CallEnd, NewCall};

/// Logs that a call starts.
pub(super) fn log_start(call: &NewCall) {
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
pub(super) fn log_end(call: &NewCall, end: &CallEnd) {
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
