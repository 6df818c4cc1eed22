//! Implements [`Intake`].

use async_trait::async_trait;
use longshore_core::store::{Added, BatchChunk, Opened, Sent};
use longshore_core::{Batch, BatchId, Intake, NewBatch, NewUnit, Result, Scope};

use super::SqliteStore;
use crate::send::Admission;
use crate::tx::Tx;
use crate::writer::Durability::Durable;
use crate::{batch, send};

#[async_trait]
impl Intake for SqliteStore {
    async fn send(&self, scope: &Scope, units: Vec<NewUnit>) -> Result<Vec<Sent>> {
        let scope = scope.clone();
        let op = move |tx: &mut Tx<'_>| send::send(tx, &scope, &units, 0, Admission::Bounded);
        self.writer.call(Durable, op).await
    }

    async fn open_batch(&self, scope: &Scope, new: NewBatch) -> Result<Opened> {
        let scope = scope.clone();
        self.writer.call(Durable, move |tx| batch::open(tx, &scope, &new)).await
    }

    async fn add_to_batch(&self, scope: &Scope, id: &BatchId, chunk: BatchChunk) -> Result<Added> {
        let (scope, id) = (scope.clone(), id.clone());
        self.writer.call(Durable, move |tx| batch::add(tx, &scope, &id, &chunk)).await
    }

    async fn seal_batch(&self, scope: &Scope, id: &BatchId) -> Result<Batch> {
        let (scope, id) = (scope.clone(), id.clone());
        self.writer.call(Durable, move |tx| batch::seal(tx, &scope, &id)).await
    }
}
