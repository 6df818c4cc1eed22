//! [`Enqueue`] on PostgreSQL.

use std::sync::Arc;

use longshore_core::store::{AddChunkResult, BatchChunk, OpenBatchResult, SendResult};
use longshore_core::{BatchId, Enqueue, NewBatch, NewUnit, Result, Scope};

use super::{operation_without_timeout, operations};
use crate::batch;
use crate::send::{self, LimitPolicy};

operations! { Enqueue {
    Durable open_batch[scope: Scope](new: NewBatch) -> OpenBatchResult = batch::open(&new);
    Durable add_to_batch[scope: Scope, id: BatchId](chunk: BatchChunk) -> AddChunkResult
        = batch::add(&chunk);
    {
        async fn send(&self, scope: &Scope, units: Vec<NewUnit>) -> Result<Vec<SendResult>> {
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
    }
}}
