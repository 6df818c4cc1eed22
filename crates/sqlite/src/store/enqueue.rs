//! Implements [`Enqueue`].

use longshore_core::store::{AddChunkResult, BatchChunk, OpenBatchResult, SendResult};
use longshore_core::{BatchId, Enqueue, NewBatch, NewUnit, Scope};

use super::operations;
use crate::send::Admission;
use crate::{batch, send};

operations! { Enqueue {
    Durable send[scope: Scope](units: Vec<NewUnit>) -> Vec<SendResult>
        = send::send(&units, 0, Admission::Bounded);
    Durable open_batch[scope: Scope](new: NewBatch) -> OpenBatchResult = batch::open(&new);
    Durable add_to_batch[scope: Scope, id: BatchId](chunk: BatchChunk) -> AddChunkResult
        = batch::add(&chunk);
}}
