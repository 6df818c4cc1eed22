//! A call in flight. If it is dropped without an end, it is recorded as "maybe billed".

use longshore::ledger::{CallEnd, CallRecord, CallStatus, NewCall};

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
            code: Some("ABANDONED".to_owned()),
            tokens_in,
            attempts: u32::from(self.sent),
            cost_picos,
            estimated: true,
            ..CallEnd::new(status, call.model.clone())
        };
        if self.sent {
            events::log_end(&call, &end);
        }
        self.inner.journal.append(CallRecord { call, end: Some(end) });
    }
}
