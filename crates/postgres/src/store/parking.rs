//! Parked questions: each verb as one transaction.

use async_trait::async_trait;
use longshore_core::ledger::{
    Delivery, NewParked, Parked, ParkedCounts, Parking, Return, Shipment, Standing,
};
use longshore_core::{BatchId, Payload, Result, UnitId};

use super::{PostgresStore, verb};
use crate::ledger::parking;

#[async_trait]
impl Parking for PostgresStore {
    async fn park(&self, batch: &BatchId, items: Vec<NewParked>) -> Result<()> {
        verb!(self, Durable, tx => parking::park(&mut tx, batch, &items))
    }

    async fn waiting(&self, batch: &BatchId, limit: u32) -> Result<Vec<Parked>> {
        verb!(self, Read, tx => parking::waiting(&mut tx, batch, limit))
    }

    async fn seal(&self, batch: &BatchId, mark: &str, ids: Vec<String>) -> Result<()> {
        verb!(self, Durable, tx => parking::seal(&mut tx, batch, mark, &ids))
    }

    async fn shipments(&self, batch: &BatchId) -> Result<Vec<Shipment>> {
        verb!(self, Read, tx => parking::shipments(&mut tx, batch))
    }

    async fn contents(&self, batch: &BatchId, mark: &str) -> Result<Vec<Parked>> {
        verb!(self, Read, tx => parking::contents(&mut tx, batch, mark))
    }

    async fn ship(&self, batch: &BatchId, mark: &str, ticket: &str) -> Result<()> {
        verb!(self, Durable, tx => parking::ship(&mut tx, batch, mark, ticket))
    }

    async fn deliver(&self, batch: &BatchId, deliveries: Vec<Delivery>) -> Result<Vec<UnitId>> {
        verb!(self, Durable, tx => parking::deliver(&mut tx, batch, &deliveries))
    }

    async fn close_shipment(&self, batch: &BatchId, mark: &str, how: Return) -> Result<()> {
        verb!(self, Durable, tx => parking::close(&mut tx, batch, mark, how))
    }

    async fn standing(&self, batch: &BatchId, custom_id: &str) -> Result<Standing> {
        verb!(self, Read, tx => parking::standing(&mut tx, batch, custom_id))
    }

    async fn answered(&self, batch: &BatchId, limit: u32) -> Result<Vec<(Parked, Payload)>> {
        verb!(self, Read, tx => parking::answered(&mut tx, batch, limit))
    }

    async fn parked(&self, batch: &BatchId) -> Result<ParkedCounts> {
        verb!(self, Read, tx => parking::counts(&mut tx, batch))
    }

    async fn unpark(&self, batch: &BatchId, custom_id: &str) -> Result<()> {
        verb!(self, Durable, tx => parking::unpark(&mut tx, batch, custom_id))
    }
}
