//! Implements [`Intake`].

use longshore_core::store::{Added, BatchChunk, Opened, Sent};
use longshore_core::{BatchId, Intake, NewBatch, NewUnit, Scope};

use super::operations;
use crate::send::Admission;
use crate::{batch, send};

operations! { Intake {
    Durable send[scope: Scope](units: Vec<NewUnit>) -> Vec<Sent>
        = send::send(&units, 0, Admission::Bounded);
    Durable open_batch[scope: Scope](new: NewBatch) -> Opened = batch::open(&new);
    Durable add_to_batch[scope: Scope, id: BatchId](chunk: BatchChunk) -> Added
        = batch::add(&chunk);
}}
