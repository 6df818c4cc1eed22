//! Sending over a server.

use async_trait::async_trait;
use longshore::store::{Added, BatchChunk, Intake, Opened, Sent};
use longshore::{Batch, BatchId, NewBatch, NewUnit, Result, Scope};

use super::FarStore;
use super::absent::absent;
use crate::client::units::whose;

#[async_trait]
impl Intake for FarStore {
    async fn send(&self, scope: &Scope, units: Vec<NewUnit>) -> Result<Vec<Sent>> {
        let sent = match units.as_slice() {
            [one] => self.api.submit_as(one, whose(one, scope), None).await.map(|sent| vec![sent]),
            many => self.api.submit_many_as(many, scope).await,
        };
        let tenant = units.first().map(|unit| unit.tenant.to_string()).unwrap_or_default();
        // The only thing that a send can fail to find.
        sent.map_err(|error| error.into_store("tenant", tenant))
    }

    async fn open_batch(&self, _: &Scope, _: NewBatch) -> Result<Opened> {
        absent("a batch cannot be sent over a server")
    }

    async fn add_to_batch(&self, _: &Scope, _: &BatchId, _: BatchChunk) -> Result<Added> {
        absent("a batch cannot be sent over a server")
    }

    async fn seal_batch(&self, _: &Scope, _: &BatchId) -> Result<Batch> {
        absent("a batch cannot be sent over a server")
    }
}
