//! Requests that wait for a provider batch, by batch.

use std::collections::BTreeMap;

use async_trait::async_trait;
use longshore_core::ledger::{
    Delivery, NewParked, Parked, ParkedCounts, Parking, Return, Shipment, Standing,
};
use longshore_core::{BatchId, Payload, Result, Timestamp, UnitId};

use crate::memory::MemoryStore;

/// One batch's queued requests and provider batches.
#[derive(Default)]
pub(super) struct RequestQueue {
    /// In order of arrival.
    requests: Vec<QueuedRequest>,
    shipments: BTreeMap<u64, Shipment>,
    sealed: u64,
}

struct QueuedRequest {
    item: Parked,
    shipment: Option<String>,
    reply: Option<Payload>,
}

impl RequestQueue {
    fn request(&mut self, custom_id: &str) -> Option<&mut QueuedRequest> {
        self.requests.iter_mut().find(|request| request.item.new.custom_id == custom_id)
    }

    fn park(&mut self, new: NewParked, now: Timestamp) {
        if self.request(&new.custom_id).is_none() {
            let item = Parked { new, parked_at: now, tries: 0 };
            self.requests.push(QueuedRequest { item, shipment: None, reply: None });
        }
    }

    fn waits(request: &QueuedRequest) -> bool {
        request.shipment.is_none() && request.reply.is_none()
    }

    fn has_shipment(&self, mark: &str) -> bool {
        self.shipments.values().any(|shipment| shipment.mark == mark)
    }

    fn seal(&mut self, mark: &str, ids: &[String], now: Timestamp) {
        if self.has_shipment(mark) {
            return;
        }
        let shipment = Shipment { mark: mark.to_owned(), sealed_at: now, ticket: None };
        self.shipments.insert(self.sealed, shipment);
        self.sealed += 1;
        for id in ids {
            if let Some(request) = self.request(id).filter(|request| Self::waits(request)) {
                request.shipment = Some(mark.to_owned());
            }
        }
    }

    fn deliver(&mut self, delivery: Delivery) -> Option<UnitId> {
        let request = self.request(&delivery.custom_id)?;
        request.reply.get_or_insert(delivery.reply);
        request.shipment = None;
        Some(request.item.new.unit)
    }

    fn close(&mut self, mark: &str, how: Return) {
        self.shipments.retain(|_, shipment| shipment.mark != mark);
        let inside = |request: &&mut QueuedRequest| request.shipment.as_deref() == Some(mark);
        for request in self.requests.iter_mut().filter(inside) {
            request.shipment = None;
            request.item.tries += u32::from(how == Return::Tried);
        }
    }
}

impl MemoryStore {
    fn with_queue<T>(
        &self,
        batch: &BatchId,
        change: impl FnOnce(&mut RequestQueue, Timestamp) -> T,
    ) -> T {
        self.write(|state, now| {
            change(state.ledger.provider_batches.entry(batch.clone()).or_default(), now)
        })
    }
}

#[async_trait]
impl Parking for MemoryStore {
    async fn park(&self, batch: &BatchId, items: Vec<NewParked>) -> Result<()> {
        self.with_queue(batch, |queue, now| {
            items.into_iter().for_each(|item| queue.park(item, now));
        });
        Ok(())
    }

    async fn waiting(&self, batch: &BatchId, limit: u32) -> Result<Vec<Parked>> {
        Ok(self.with_queue(batch, |queue, _| {
            let waiting = queue.requests.iter().filter(|request| RequestQueue::waits(request));
            waiting.take(limit as usize).map(|request| request.item.clone()).collect()
        }))
    }

    async fn seal(&self, batch: &BatchId, mark: &str, ids: Vec<String>) -> Result<()> {
        self.with_queue(batch, |queue, now| queue.seal(mark, &ids, now));
        Ok(())
    }

    async fn shipments(&self, batch: &BatchId) -> Result<Vec<Shipment>> {
        Ok(self.with_queue(batch, |queue, _| queue.shipments.values().cloned().collect()))
    }

    async fn contents(&self, batch: &BatchId, mark: &str) -> Result<Vec<Parked>> {
        Ok(self.with_queue(batch, |queue, _| {
            let inside =
                queue.requests.iter().filter(|request| request.shipment.as_deref() == Some(mark));
            inside.map(|request| request.item.clone()).collect()
        }))
    }

    async fn ship(&self, batch: &BatchId, mark: &str, ticket: &str) -> Result<()> {
        self.with_queue(batch, |queue, _| {
            let shipment = queue.shipments.values_mut().find(|shipment| shipment.mark == mark);
            if let Some(shipment) = shipment {
                shipment.ticket = Some(ticket.to_owned());
            }
        });
        Ok(())
    }

    async fn deliver(&self, batch: &BatchId, deliveries: Vec<Delivery>) -> Result<Vec<UnitId>> {
        Ok(self.with_queue(batch, |queue, _| {
            deliveries.into_iter().filter_map(|delivery| queue.deliver(delivery)).collect()
        }))
    }

    async fn close_shipment(&self, batch: &BatchId, mark: &str, how: Return) -> Result<()> {
        self.with_queue(batch, |queue, _| queue.close(mark, how));
        Ok(())
    }

    async fn standing(&self, batch: &BatchId, custom_id: &str) -> Result<Standing> {
        Ok(self.with_queue(batch, |queue, _| match queue.request(custom_id) {
            None => Standing::Unknown,
            Some(QueuedRequest { reply: Some(reply), .. }) => Standing::Answered(reply.clone()),
            Some(_) => Standing::Parked,
        }))
    }

    async fn answered(&self, batch: &BatchId, limit: u32) -> Result<Vec<(Parked, Payload)>> {
        Ok(self.with_queue(batch, |queue, _| {
            let answer =
                |request: &QueuedRequest| Some((request.item.clone(), request.reply.clone()?));
            queue.requests.iter().filter_map(answer).take(limit as usize).collect()
        }))
    }

    async fn parked(&self, batch: &BatchId) -> Result<ParkedCounts> {
        Ok(self.with_queue(batch, |queue, _| {
            let mut counts = ParkedCounts::default();
            for request in &queue.requests {
                match (&request.reply, &request.shipment) {
                    (Some(_), _) => counts.answered += 1,
                    (None, Some(_)) => counts.out += 1,
                    (None, None) => counts.waiting += 1,
                }
            }
            counts
        }))
    }

    async fn unpark(&self, batch: &BatchId, custom_id: &str) -> Result<()> {
        self.with_queue(batch, |queue, _| {
            queue.requests.retain(|request| request.item.new.custom_id != custom_id);
        });
        Ok(())
    }
}
