//! [`Intake`] on PostgreSQL.

use std::sync::Arc;

use async_trait::async_trait;
use longshore_core::store::{Added, BatchChunk, Opened, Sent};
use longshore_core::{Batch, BatchId, Intake, NewBatch, NewUnit, Result, Scope};

use super::{PostgresStore, operation, operation_without_timeout};
use crate::batch;
use crate::send::{self, LimitPolicy};

#[async_trait]
impl Intake for PostgresStore {
    async fn send(&self, scope: &Scope, units: Vec<NewUnit>) -> Result<Vec<Sent>> {
        let units = Arc::new(units);
        let run = async {
            match send::try_fast_path(&self.inner, scope, &units).await? {
                Some(sent) => Ok(sent),
                None => {
                    let policy = LimitPolicy::Enforce;
                    let full = operation_without_timeout!(self, Durable, tx =>
                        send::send(&mut tx, scope, &units, 0, policy));
                    full.await
                }
            }
        };
        self.inner.with_timeout(run).await
    }

    async fn open_batch(&self, scope: &Scope, new: NewBatch) -> Result<Opened> {
        operation!(self, Durable, tx => batch::open(&mut tx, scope, &new))
    }

    async fn add_to_batch(&self, scope: &Scope, id: &BatchId, chunk: BatchChunk) -> Result<Added> {
        operation!(self, Durable, tx => batch::add(&mut tx, scope, id, &chunk))
    }

    async fn seal_batch(&self, scope: &Scope, id: &BatchId) -> Result<Batch> {
        let sealed: Result<i64> = operation!(self, Durable, tx => batch::seal(&mut tx, scope, id));
        let num = sealed?;
        // In a second transaction: sealing may have completed the batch, if its units had all
        // ended.
        operation!(self, Relaxed, tx => batch::show(&mut tx, num))
    }
}
