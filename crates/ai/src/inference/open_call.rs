//! A call in flight. If it is dropped without an end, it is recorded as "maybe billed".

use longshore::accounts::{CallEnd, CallMode, CallRecord, CallStatus, NewCall};

use super::{Inner, events};

/// A journalled call.
pub(super) struct OpenCall<'d> {
    inner: &'d Inner,
    call: Option<NewCall>,
    /// Whether the question was sent to a provider. If not, nothing can have been billed.
    sent: bool,
}

impl<'d> OpenCall<'d> {
    pub(super) fn new(inner: &'d Inner, call: NewCall) -> Self {
        Self { inner, call: Some(call), sent: false }
    }

    /// Marks the question as sent.
    pub(super) fn mark_sent(&mut self) {
        self.sent = true;
        self.call.iter().for_each(events::log_start);
    }

    /// Ends the call and returns its record.
    pub(super) fn finish(mut self, end: CallEnd) -> Option<CallRecord> {
        let call = self.call.take()?;
        events::log_end(&call, &end);
        Some(CallRecord { call, end: Some(end) })
    }
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        let status = if self.sent { CallStatus::MaybeBilled } else { CallStatus::Error };
        let (tokens_in, cost_picos) =
            if self.sent { (call.reserve_tokens, call.reserve_picos) } else { (0, 0) };
        let end = CallEnd {
            status,
            code: Some("ABANDONED".to_owned()),
            model: call.model.clone(),
            tokens_in,
            tokens_out: 0,
            tokens_cached: 0,
            tokens_cache_write: 0,
            tokens_cache_write_long: 0,
            latency_ms: 0,
            attempts: u32::from(self.sent),
            cost_picos,
            estimated: true,
            mode: CallMode::Direct,
            tier: None,
        };
        if self.sent {
            events::log_end(&call, &end);
        }
        self.inner.journal.append(CallRecord { call, end: Some(end) });
    }
}
