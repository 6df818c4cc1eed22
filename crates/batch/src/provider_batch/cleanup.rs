//! Settles questions of rows that ended without their answer: cancelled, failed or too late.
//! Removes the questions from the parked set and records the outcome of their calls in the ledger.

use std::sync::Arc;
use std::time::Duration;

use longshore::accounts::{
    BatchAnswer, CallRecord, CallStatus, CloseReason, Ledger, NewCall, PendingChange, PendingFilter,
    PendingRequest, ProviderBatchChange, UsageBy, UsageFilter,
};
use longshore::{Batch, BatchId, Error, Payload, Result, Scope, Store, Timestamp, UnitId};
use longshore_ai::batches::BatchReply;
use longshore_ai::{BatchProfile, Code};

use super::poll::PAGE;

/// A batch's parked questions, the ledger and the rows.
pub(super) struct Cleanup<'a> {
    pub(super) ledger: &'a Arc<dyn Ledger>,
    pub(super) store: &'a Arc<dyn Store>,
    pub(super) scope: &'a Scope,
    pub(super) id: &'a BatchId,
}

impl Cleanup<'_> {
    /// Once the batch is over, settles waiting and answered questions of rows that have ended.
    /// Returns whether some rows are still being stopped.
    pub(super) async fn settle(&self, batch: &Batch) -> Result<bool> {
        if !batch.status.is_final() {
            return Ok(false);
        }
        let mut pending = false;
        let waiting = self.ledger.pending_requests(self.id, &PendingFilter::Waiting, PAGE as u32).await?;
        for parked in waiting {
            pending |= !self.settle_one(&parked, BatchProfile::cancelled_record).await?;
        }
        let answered = self.ledger.pending_requests(self.id, &PendingFilter::Answered, PAGE as u32).await?;
        for parked in answered {
            let Some(reply) = &parked.reply else { continue };
            let reply: BatchReply = reply.parse().map_err(|error| Error::Invalid(error.to_string()))?;
            pending |= !self.settle_one(&parked, |call| reply.call_record(call)).await?;
        }
        Ok(pending)
    }

    /// Settles the call, then removes the question: both steps can be repeated.
    async fn settle_one(
        &self,
        parked: &PendingRequest,
        settle: impl FnOnce(NewCall) -> CallRecord,
    ) -> Result<bool> {
        if !self.has_ended(parked.new.unit).await? {
            return Ok(false);
        }
        let id = &parked.new.custom_id;
        if let Some(call) = self.call(id, parked.new.unit).await? {
            self.ledger.record_calls(vec![settle(call)]).await?;
        }
        self.ledger.change_pending(self.id, PendingChange::Remove(id.clone())).await?;
        Ok(true)
    }

    /// Closes provider_batches older than `age` that no row waits for: whether their questions were
    /// answered stays unknown.
    pub(super) async fn abandon_shipments(&self, age: Duration, now: Timestamp) -> Result<()> {
        let delivery = BatchReply::Error {
            code: Code::ProviderError,
            message: "the provider did not report the outcome of the question".to_owned(),
            maybe_billed: true,
        };
        let reply = Payload::json(&delivery).map_err(|error| Error::Invalid(error.to_string()))?;
        for provider_batch in self.ledger.provider_batches(self.id).await?.0 {
            if now.since(provider_batch.sealed_at) < age {
                continue;
            }
            let inside = PendingFilter::ProviderBatch(provider_batch.name.clone());
            let contents = self.ledger.pending_requests(self.id, &inside, u32::MAX).await?;
            let delivery = |parked: PendingRequest| BatchAnswer {
                custom_id: parked.new.custom_id,
                reply: reply.clone(),
            };
            let deliver = PendingChange::Answer(contents.into_iter().map(delivery).collect());
            self.ledger.change_pending(self.id, deliver).await?;
            let close = ProviderBatchChange::Close(CloseReason::NotProcessed);
            self.ledger.change_provider_batch(self.id, &provider_batch.name, close).await?;
        }
        Ok(())
    }

    /// Closes open calls of rows that died after journalling the call and before parking the
    /// question, and ended before they ran again: nothing was sent.
    pub(super) async fn close_open_calls(&self) -> Result<()> {
        let filter = UsageFilter { batch: Some(self.id.clone()), ..UsageFilter::default() };
        let usage = self.ledger.usage(self.scope, &filter, UsageBy::Batch).await?;
        if usage.iter().all(|usage| usage.open == 0) {
            return Ok(());
        }
        let mut after = None::<String>;
        loop {
            let page = self.ledger.calls(self.scope, &filter, after.as_deref(), PAGE as u32).await?;
            let open = page
                .items
                .into_iter()
                .filter(|call| call.status == CallStatus::Open && call.call.session.is_none());
            let records: Vec<CallRecord> =
                open.map(|call| BatchProfile::cancelled_record(call.call)).collect();
            if !records.is_empty() {
                self.ledger.record_calls(records).await?;
            }
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    async fn has_ended(&self, unit: UnitId) -> Result<bool> {
        match self.store.unit(self.scope, unit).await {
            Ok(unit) => Ok(unit.state.is_final()),
            Err(Error::NotFound { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    async fn call(&self, request_id: &str, unit: UnitId) -> Result<Option<NewCall>> {
        let request_id = Some(request_id.to_owned());
        let filter = UsageFilter { request_id, ..UsageFilter::default() };
        let calls = self.ledger.calls(self.scope, &filter, None, 100).await?.items;
        let mut calls = calls.into_iter().map(|call| call.call);
        Ok(calls.find(|call| call.unit == Some(unit) && call.session.is_none()))
    }
}
