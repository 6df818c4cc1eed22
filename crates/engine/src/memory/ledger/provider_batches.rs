//! Requests that wait for a provider batch, by batch.

use std::collections::BTreeMap;

use async_trait::async_trait;
use longshore_accounts::{
    BatchAnswer, CloseReason, NewPendingRequest, PendingChange, PendingCounts, PendingFilter, PendingRequest,
    PendingRequests, ProviderBatch, ProviderBatchChange,
};
use longshore_core::{BatchId, Result, Timestamp, UnitId};

use crate::memory::MemoryStore;

/// One batch's queued requests and provider batches.
#[derive(Default)]
pub(super) struct RequestQueue {
    /// In order of arrival.
    requests: Vec<QueuedRequest>,
    provider_batches: BTreeMap<u64, ProviderBatch>,
    sealed: u64,
}

struct QueuedRequest {
    item: PendingRequest,
    provider_batch: Option<String>,
}

impl RequestQueue {
    fn request(&mut self, custom_id: &str) -> Option<&mut QueuedRequest> {
        self.requests.iter_mut().find(|request| request.item.new.custom_id == custom_id)
    }

    fn park(&mut self, new: NewPendingRequest, now: Timestamp) {
        if self.request(&new.custom_id).is_none() {
            let item = PendingRequest { new, parked_at: now, tries: 0, reply: None };
            self.requests.push(QueuedRequest { item, provider_batch: None });
        }
    }

    fn waits(request: &QueuedRequest) -> bool {
        request.provider_batch.is_none() && request.item.reply.is_none()
    }

    fn has_shipment(&self, mark: &str) -> bool {
        self.provider_batches.values().any(|provider_batch| provider_batch.name == mark)
    }

    fn seal(&mut self, mark: &str, ids: &[String], now: Timestamp) {
        if self.has_shipment(mark) {
            return;
        }
        let provider_batch = ProviderBatch { name: mark.to_owned(), sealed_at: now, provider_id: None };
        self.provider_batches.insert(self.sealed, provider_batch);
        self.sealed += 1;
        for id in ids {
            if let Some(request) = self.request(id).filter(|request| Self::waits(request)) {
                request.provider_batch = Some(mark.to_owned());
            }
        }
    }

    fn deliver(&mut self, delivery: BatchAnswer) -> Option<UnitId> {
        let request = self.request(&delivery.custom_id)?;
        request.item.reply.get_or_insert(delivery.reply);
        request.provider_batch = None;
        Some(request.item.new.unit)
    }

    fn close(&mut self, mark: &str, how: CloseReason) {
        self.provider_batches.retain(|_, provider_batch| provider_batch.name != mark);
        let inside = |request: &&mut QueuedRequest| request.provider_batch.as_deref() == Some(mark);
        for request in self.requests.iter_mut().filter(inside) {
            request.provider_batch = None;
            request.item.tries += u32::from(how == CloseReason::NoAnswer);
        }
    }
}

impl MemoryStore {
    fn with_queue<T>(&self, batch: &BatchId, change: impl FnOnce(&mut RequestQueue, Timestamp) -> T) -> T {
        self.write(|state, now| change(state.ledger.provider_batches.entry(batch.clone()).or_default(), now))
    }
}

#[async_trait]
impl PendingRequests for MemoryStore {
    async fn change_pending(&self, batch: &BatchId, change: PendingChange) -> Result<Vec<UnitId>> {
        Ok(self.with_queue(batch, |queue, now| {
            match change {
                PendingChange::Add(items) => {
                    items.into_iter().for_each(|item| queue.park(item, now));
                }
                PendingChange::Answer(deliveries) => {
                    return deliveries.into_iter().filter_map(|one| queue.deliver(one)).collect();
                }
                PendingChange::Remove(id) => {
                    queue.requests.retain(|request| request.item.new.custom_id != id);
                }
            }
            Vec::new()
        }))
    }

    async fn pending_requests(
        &self,
        batch: &BatchId,
        filter: &PendingFilter,
        limit: u32,
    ) -> Result<Vec<PendingRequest>> {
        let wanted = |request: &&QueuedRequest| match filter {
            PendingFilter::CustomId(id) => request.item.new.custom_id == *id,
            PendingFilter::Waiting => RequestQueue::waits(request),
            PendingFilter::ProviderBatch(mark) => request.provider_batch.as_ref() == Some(mark),
            PendingFilter::Answered => request.item.reply.is_some(),
        };
        Ok(self.with_queue(batch, |queue, _| {
            let found = queue.requests.iter().filter(wanted).take(limit as usize);
            found.map(|request| request.item.clone()).collect()
        }))
    }

    async fn provider_batches(&self, batch: &BatchId) -> Result<(Vec<ProviderBatch>, PendingCounts)> {
        Ok(self.with_queue(batch, |queue, _| {
            let mut counts = PendingCounts::default();
            for request in &queue.requests {
                match (&request.item.reply, &request.provider_batch) {
                    (Some(_), _) => counts.answered += 1,
                    (None, Some(_)) => counts.out += 1,
                    (None, None) => counts.waiting += 1,
                }
            }
            (queue.provider_batches.values().cloned().collect(), counts)
        }))
    }

    async fn change_provider_batch(
        &self,
        batch: &BatchId,
        mark: &str,
        change: ProviderBatchChange,
    ) -> Result<()> {
        self.with_queue(batch, |queue, now| match change {
            ProviderBatchChange::Create(ids) => queue.seal(mark, &ids, now),
            ProviderBatchChange::SetProviderId(ticket) => {
                let provider_batch =
                    queue.provider_batches.values_mut().find(|provider_batch| provider_batch.name == mark);
                if let Some(provider_batch) = provider_batch {
                    provider_batch.provider_id = Some(ticket);
                }
            }
            ProviderBatchChange::Close(how) => queue.close(mark, how),
        });
        Ok(())
    }
}
