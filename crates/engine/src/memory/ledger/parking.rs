//! Parked questions, by batch.

use std::collections::BTreeMap;

use async_trait::async_trait;
use longshore_core::ledger::{
    Delivery, NewParked, Parked, ParkedCounts, Parking, Return, Shipment, Standing,
};
use longshore_core::{BatchId, Payload, Result, Timestamp, UnitId};

use crate::memory::MemoryStore;

/// One batch's questions and shipments.
#[derive(Default)]
pub(super) struct Lot {
    /// In the order in which they were parked.
    spaces: Vec<Space>,
    shipments: BTreeMap<u64, Shipment>,
    sealed: u64,
}

struct Space {
    item: Parked,
    shipment: Option<String>,
    reply: Option<Payload>,
}

impl Lot {
    fn space(&mut self, custom_id: &str) -> Option<&mut Space> {
        self.spaces.iter_mut().find(|space| space.item.new.custom_id == custom_id)
    }

    fn park(&mut self, new: NewParked, now: Timestamp) {
        if self.space(&new.custom_id).is_none() {
            let item = Parked { new, parked_at: now, tries: 0 };
            self.spaces.push(Space { item, shipment: None, reply: None });
        }
    }

    fn waits(space: &Space) -> bool {
        space.shipment.is_none() && space.reply.is_none()
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
            if let Some(space) = self.space(id).filter(|space| Self::waits(space)) {
                space.shipment = Some(mark.to_owned());
            }
        }
    }

    fn deliver(&mut self, delivery: Delivery) -> Option<UnitId> {
        let space = self.space(&delivery.custom_id)?;
        space.reply.get_or_insert(delivery.reply);
        space.shipment = None;
        Some(space.item.new.unit)
    }

    fn close(&mut self, mark: &str, how: Return) {
        self.shipments.retain(|_, shipment| shipment.mark != mark);
        let inside = |space: &&mut Space| space.shipment.as_deref() == Some(mark);
        for space in self.spaces.iter_mut().filter(inside) {
            space.shipment = None;
            space.item.tries += u32::from(how == Return::Tried);
        }
    }
}

impl MemoryStore {
    fn lot<T>(&self, batch: &BatchId, change: impl FnOnce(&mut Lot, Timestamp) -> T) -> T {
        self.write(|state, now| change(state.books.lots.entry(batch.clone()).or_default(), now))
    }
}

#[async_trait]
impl Parking for MemoryStore {
    async fn park(&self, batch: &BatchId, items: Vec<NewParked>) -> Result<()> {
        self.lot(batch, |lot, now| items.into_iter().for_each(|item| lot.park(item, now)));
        Ok(())
    }

    async fn waiting(&self, batch: &BatchId, limit: u32) -> Result<Vec<Parked>> {
        Ok(self.lot(batch, |lot, _| {
            let waiting = lot.spaces.iter().filter(|space| Lot::waits(space));
            waiting.take(limit as usize).map(|space| space.item.clone()).collect()
        }))
    }

    async fn seal(&self, batch: &BatchId, mark: &str, ids: Vec<String>) -> Result<()> {
        self.lot(batch, |lot, now| lot.seal(mark, &ids, now));
        Ok(())
    }

    async fn shipments(&self, batch: &BatchId) -> Result<Vec<Shipment>> {
        Ok(self.lot(batch, |lot, _| lot.shipments.values().cloned().collect()))
    }

    async fn contents(&self, batch: &BatchId, mark: &str) -> Result<Vec<Parked>> {
        Ok(self.lot(batch, |lot, _| {
            let inside = lot.spaces.iter().filter(|space| space.shipment.as_deref() == Some(mark));
            inside.map(|space| space.item.clone()).collect()
        }))
    }

    async fn ship(&self, batch: &BatchId, mark: &str, ticket: &str) -> Result<()> {
        self.lot(batch, |lot, _| {
            let shipment = lot.shipments.values_mut().find(|shipment| shipment.mark == mark);
            if let Some(shipment) = shipment {
                shipment.ticket = Some(ticket.to_owned());
            }
        });
        Ok(())
    }

    async fn deliver(&self, batch: &BatchId, deliveries: Vec<Delivery>) -> Result<Vec<UnitId>> {
        Ok(self.lot(batch, |lot, _| {
            deliveries.into_iter().filter_map(|delivery| lot.deliver(delivery)).collect()
        }))
    }

    async fn close_shipment(&self, batch: &BatchId, mark: &str, how: Return) -> Result<()> {
        self.lot(batch, |lot, _| lot.close(mark, how));
        Ok(())
    }

    async fn standing(&self, batch: &BatchId, custom_id: &str) -> Result<Standing> {
        Ok(self.lot(batch, |lot, _| match lot.space(custom_id) {
            None => Standing::Unknown,
            Some(Space { reply: Some(reply), .. }) => Standing::Answered(reply.clone()),
            Some(_) => Standing::Parked,
        }))
    }

    async fn answered(&self, batch: &BatchId, limit: u32) -> Result<Vec<(Parked, Payload)>> {
        Ok(self.lot(batch, |lot, _| {
            let told = |space: &Space| Some((space.item.clone(), space.reply.clone()?));
            lot.spaces.iter().filter_map(told).take(limit as usize).collect()
        }))
    }

    async fn parked(&self, batch: &BatchId) -> Result<ParkedCounts> {
        Ok(self.lot(batch, |lot, _| {
            let mut counts = ParkedCounts::default();
            for space in &lot.spaces {
                match (&space.reply, &space.shipment) {
                    (Some(_), _) => counts.answered += 1,
                    (None, Some(_)) => counts.out += 1,
                    (None, None) => counts.waiting += 1,
                }
            }
            counts
        }))
    }

    async fn unpark(&self, batch: &BatchId, custom_id: &str) -> Result<()> {
        self.lot(batch, |lot, _| lot.spaces.retain(|space| space.item.new.custom_id != custom_id));
        Ok(())
    }
}
