//! [`Parking`] on PostgreSQL.

use async_trait::async_trait;
use longshore_core::ledger::{
    Delivery, NewParked, Parked, ParkedCounts, Parking, Return, Shipment, Standing,
};
use longshore_core::{BatchId, Payload, Result, UnitId};

use super::{PostgresStore, operation};
use crate::ledger::provider_batches;

#[async_trait]
impl Parking for PostgresStore {
    async fn park(&self, batch: &BatchId, items: Vec<NewParked>) -> Result<()> {
        operation!(self, Durable, tx => provider_batches::park(&mut tx, batch, &items))
    }

    async fn waiting(&self, batch: &BatchId, limit: u32) -> Result<Vec<Parked>> {
        operation!(self, Read, tx => provider_batches::waiting(&mut tx, batch, limit))
    }

    async fn seal(&self, batch: &BatchId, mark: &str, ids: Vec<String>) -> Result<()> {
        operation!(self, Durable, tx => provider_batches::seal(&mut tx, batch, mark, &ids))
    }

    async fn shipments(&self, batch: &BatchId) -> Result<Vec<Shipment>> {
        operation!(self, Read, tx => provider_batches::shipments(&mut tx, batch))
    }

    async fn contents(&self, batch: &BatchId, mark: &str) -> Result<Vec<Parked>> {
        operation!(self, Read, tx => provider_batches::contents(&mut tx, batch, mark))
    }

    async fn ship(&self, batch: &BatchId, mark: &str, ticket: &str) -> Result<()> {
        operation!(self, Durable, tx => provider_batches::ship(&mut tx, batch, mark, ticket))
    }

    async fn deliver(&self, batch: &BatchId, deliveries: Vec<Delivery>) -> Result<Vec<UnitId>> {
        operation!(self, Durable, tx => provider_batches::deliver(&mut tx, batch, &deliveries))
    }

    async fn close_shipment(&self, batch: &BatchId, mark: &str, how: Return) -> Result<()> {
        operation!(self, Durable, tx => provider_batches::close(&mut tx, batch, mark, how))
    }

    async fn standing(&self, batch: &BatchId, custom_id: &str) -> Result<Standing> {
        operation!(self, Read, tx => provider_batches::standing(&mut tx, batch, custom_id))
    }

    async fn answered(&self, batch: &BatchId, limit: u32) -> Result<Vec<(Parked, Payload)>> {
        operation!(self, Read, tx => provider_batches::answered(&mut tx, batch, limit))
    }

    async fn parked(&self, batch: &BatchId) -> Result<ParkedCounts> {
        operation!(self, Read, tx => provider_batches::counts(&mut tx, batch))
    }

    async fn unpark(&self, batch: &BatchId, custom_id: &str) -> Result<()> {
        operation!(self, Durable, tx => provider_batches::unpark(&mut tx, batch, custom_id))
    }
}
