//! A call that is out: whoever drops it without an end leaves "maybe billed" in the books.

use longshore::ledger::{CallEnd, CallMode, CallRecord, CallStatus, NewCall};

use super::{Inner, events};

/// A journalled call.
pub(super) struct OpenCall<'d> {
    desk: &'d Inner,
    call: Option<NewCall>,
    /// Whether a provider was asked: if not, nothing can have been billed.
    asked: bool,
}

impl<'d> OpenCall<'d> {
    pub(super) fn new(desk: &'d Inner, call: NewCall) -> Self {
        Self { desk, call: Some(call), asked: false }
    }

    /// A provider is asked from now on.
    pub(super) fn begins(&mut self) {
        self.asked = true;
        self.call.iter().for_each(events::started);
    }

    /// The call with its end.
    pub(super) fn ended(mut self, end: CallEnd) -> Option<CallRecord> {
        let call = self.call.take()?;
        events::completed(&call, &end);
        Some(CallRecord { call, end: Some(end) })
    }
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        let status = if self.asked { CallStatus::MaybeBilled } else { CallStatus::Error };
        let kept = if self.asked { (call.reserve_tokens, call.reserve_picos) } else { (0, 0) };
        let end = CallEnd {
            status,
            code: Some("ABANDONED".to_owned()),
            model: call.model.clone(),
            tokens_in: kept.0,
            tokens_out: 0,
            tokens_cached: 0,
            tokens_cache_write: 0,
            tokens_cache_write_long: 0,
            latency_ms: 0,
            attempts: u32::from(self.asked),
            cost_picos: kept.1,
            estimated: true,
            mode: CallMode::Direct,
            tier: None,
        };
        if self.asked {
            events::completed(&call, &end);
        }
        self.desk.journal.note(CallRecord { call, end: Some(end) });
    }
}
