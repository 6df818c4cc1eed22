//! Implements [`Parking`].

use async_trait::async_trait;
use longshore_core::ledger::{
    Delivery, NewParked, Parked, ParkedCounts, Parking, Return, Shipment, Standing,
};
use longshore_core::{BatchId, Payload, Result, UnitId};

use super::SqliteStore;
use crate::ledger::provider_batches;
use crate::tx::Tx;
use crate::writer::Durability::Durable;

#[async_trait]
impl Parking for SqliteStore {
    async fn park(&self, batch: &BatchId, items: Vec<NewParked>) -> Result<()> {
        let batch = batch.clone();
        self.writer.call(Durable, move |tx| provider_batches::park(tx, &batch, &items)).await
    }

    async fn waiting(&self, batch: &BatchId, limit: u32) -> Result<Vec<Parked>> {
        let batch = batch.clone();
        self.read(move |db| provider_batches::waiting(db, &batch, limit)).await
    }

    async fn seal(&self, batch: &BatchId, mark: &str, ids: Vec<String>) -> Result<()> {
        let (batch, mark) = (batch.clone(), mark.to_owned());
        self.writer.call(Durable, move |tx| provider_batches::seal(tx, &batch, &mark, &ids)).await
    }

    async fn shipments(&self, batch: &BatchId) -> Result<Vec<Shipment>> {
        let batch = batch.clone();
        self.read(move |db| provider_batches::shipments(db, &batch)).await
    }

    async fn contents(&self, batch: &BatchId, mark: &str) -> Result<Vec<Parked>> {
        let (batch, mark) = (batch.clone(), mark.to_owned());
        self.read(move |db| provider_batches::contents(db, &batch, &mark)).await
    }

    async fn ship(&self, batch: &BatchId, mark: &str, ticket: &str) -> Result<()> {
        let (batch, mark, ticket) = (batch.clone(), mark.to_owned(), ticket.to_owned());
        self.writer
            .call(Durable, move |tx| provider_batches::ship(tx, &batch, &mark, &ticket))
            .await
    }

    async fn deliver(&self, batch: &BatchId, deliveries: Vec<Delivery>) -> Result<Vec<UnitId>> {
        let batch = batch.clone();
        let op = move |tx: &mut Tx<'_>| provider_batches::deliver(tx, &batch, &deliveries);
        self.writer.call(Durable, op).await
    }

    async fn close_shipment(&self, batch: &BatchId, mark: &str, how: Return) -> Result<()> {
        let (batch, mark) = (batch.clone(), mark.to_owned());
        self.writer.call(Durable, move |tx| provider_batches::close(tx, &batch, &mark, how)).await
    }

    async fn standing(&self, batch: &BatchId, custom_id: &str) -> Result<Standing> {
        let (batch, id) = (batch.clone(), custom_id.to_owned());
        self.read(move |db| provider_batches::standing(db, &batch, &id)).await
    }

    async fn answered(&self, batch: &BatchId, limit: u32) -> Result<Vec<(Parked, Payload)>> {
        let batch = batch.clone();
        self.read(move |db| provider_batches::answered(db, &batch, limit)).await
    }

    async fn parked(&self, batch: &BatchId) -> Result<ParkedCounts> {
        let batch = batch.clone();
        self.read(move |db| provider_batches::counts(db, &batch)).await
    }

    async fn unpark(&self, batch: &BatchId, custom_id: &str) -> Result<()> {
        let (batch, id) = (batch.clone(), custom_id.to_owned());
        self.writer.call(Durable, move |tx| provider_batches::unpark(tx, &batch, &id)).await
    }
}
