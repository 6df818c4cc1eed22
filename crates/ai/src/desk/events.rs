//! What is logged of every call: that it begins, and what it came to. A `call_start` without its
//! `call_complete` is a call that is out, or whose process died.
//!
//! Prompts and answers are never among it, nor are the words of an error: providers quote them.

use longshore::ledger::{CallEnd, NewCall};

/// A call is about to be made.
pub(super) fn started(call: &NewCall) {
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

/// A call has come to its end.
pub(super) fn completed(call: &NewCall, end: &CallEnd) {
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
