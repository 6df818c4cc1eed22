//! Fills a batch in chunks. Each chunk and the initiator's cursor are stored in one transaction, so
//! that a restarted initiator resumes without gap or duplicate.

use longshore_core::store::{
    AddChunkResult, BatchChunk, Capacity, OpenBatchResult, SendRejection, SendResult,
};
use longshore_core::{Batch, NewUnit};
use tracing::Instrument;

use crate::backoff::Backoff;
use crate::client::{CapacityWait, Client, SendError, WhenFull, is_full};
use crate::trace;

/// An open batch and its initiator's cursor.
#[derive(Debug)]
pub struct BatchWriter {
    client: Client,
    batch: Batch,
    resumed: bool,
    when_full: WhenFull,
}

impl BatchWriter {
    pub(crate) fn new(client: Client, opened: OpenBatchResult) -> Self {
        let (batch, resumed) = match opened {
            OpenBatchResult::Created(batch) => (batch, false),
            OpenBatchResult::Existing(batch) => (batch, true),
        };
        Self { client, batch, resumed, when_full: WhenFull::Wait }
    }

    /// Sets what `add` does when a chunk does not fit. Default: wait.
    #[must_use]
    pub fn when_full(mut self, choice: WhenFull) -> Self {
        self.when_full = choice;
        self
    }

    /// The batch as it was when opened or sealed, with the current cursor.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// The initiator's cursor: the `next_cursor` of the last `add` that was stored, by any process.
    pub fn cursor(&self) -> &str {
        &self.batch.cursor
    }

    /// Whether the batch existed already.
    pub fn is_resumed(&self) -> bool {
        self.resumed
    }

    /// Adds units and moves the cursor, in one transaction. Waits for capacity (or as
    /// [`Self::when_full`] says) and for an unavailable store. A chunk that exceeds the capacity of
    /// its queue, lane or tenant is rejected, and so is a chunk of a suspended tenant. Use a fresh
    /// `next_cursor` for each chunk: the store recognises a repeated chunk by it.
    pub async fn add(
        &mut self,
        units: Vec<NewUnit>,
        next_cursor: String,
    ) -> Result<Vec<SendResult>, SendError> {
        let span = trace::send_span(units.len());
        self.add_all(units, next_cursor).instrument(span).await
    }

    async fn add_all(
        &mut self,
        mut units: Vec<NewUnit>,
        next_cursor: String,
    ) -> Result<Vec<SendResult>, SendError> {
        self.client.mark_units(&mut units);
        let expected = self.batch.cursor.clone();
        let chunk = BatchChunk { expected, next: next_cursor, units };
        let client = self.client.clone();
        let mut capacity_wait = CapacityWait::new(&client, self.when_full);
        loop {
            let answers = self.add_chunk(&chunk).await?;
            if let Some(rejection) = suspended(&answers) {
                return Err(SendError::Rejected(rejection));
            }
            let Some(full) = answers.iter().find(|answer| is_full(answer)) else {
                self.batch.cursor = chunk.next;
                return Ok(answers);
            };
            let queues = chunk.units.iter().map(|unit| unit.queue.clone()).collect();
            let waits =
                !self.exceeds_capacity(&chunk.units).await? && capacity_wait.wait(full, &queues).await?;
            if let (SendResult::Rejected(rejection), false) = (full, waits) {
                return Err(SendError::Rejected(rejection.clone()));
            }
        }
    }

    /// Whether units exceed the capacity of their queue, lane or tenant together, so that waiting cannot help: fewer may
    /// fit.
    pub async fn exceeds_capacity(&self, units: &[NewUnit]) -> Result<bool, SendError> {
        let (store, scope) = (self.client.store(), self.client.scope());
        let lanes = self.client.retry_unavailable(|| store.queues(scope)).await?;
        let tenants = self.client.retry_unavailable(|| store.tenants(scope)).await?;
        let own = tenants.iter().find(|tenant| tenant.id == self.batch.tenant);
        if own.is_some_and(|tenant| exceeds(units.iter(), tenant.capacity)) {
            return Ok(true);
        }
        Ok(lanes.iter().any(|lane| {
            let in_queue = |unit: &&NewUnit| unit.queue == lane.queue;
            let in_lane = |unit: &&NewUnit| unit.queue == lane.queue && unit.tenant == lane.tenant;
            exceeds(units.iter().filter(in_queue), lane.capacity)
                || exceeds(units.iter().filter(in_lane), lane.lane_capacity)
        }))
    }

    /// Seals the batch: no more units will be added.
    pub async fn seal(&mut self) -> Result<Batch, SendError> {
        let (store, scope) = (self.client.store(), self.client.scope());
        let id = self.batch.id.clone();
        self.batch = self.client.retry_unavailable(|| store.seal_batch(scope, &id)).await?;
        Ok(self.batch.clone())
    }

    async fn add_chunk(&self, chunk: &BatchChunk) -> Result<Vec<SendResult>, SendError> {
        let (store, scope) = (self.client.store(), self.client.scope());
        let mut backoff = Backoff::store();
        loop {
            match store.add_to_batch(scope, &self.batch.id, chunk.clone()).await {
                Ok(AddChunkResult::Committed(answers)) => return Ok(answers),
                // An earlier attempt was stored, and only its response was lost.
                Ok(AddChunkResult::CursorMoved(at)) if at == chunk.next && backoff.tries() > 0 => {
                    return Ok(chunk.units.iter().map(|unit| SendResult::Created(unit.id)).collect());
                }
                Ok(AddChunkResult::CursorMoved(at)) => return Err(SendError::CursorMoved(at)),
                Err(error) if error.is_retryable() && self.client.may_retry(backoff.tries()) => {
                    tracing::debug!(%error, "the store is unavailable; retrying the chunk");
                    backoff.wait().await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn suspended(answers: &[SendResult]) -> Option<SendRejection> {
    answers.iter().find_map(|answer| match answer {
        SendResult::Rejected(rejection @ SendRejection::Suspended(_)) => Some(rejection.clone()),
        _ => None,
    })
}

fn exceeds<'u>(units: impl Iterator<Item = &'u NewUnit>, bound: Capacity) -> bool {
    let (count, bytes) = units.fold((0, 0), |(count, bytes), unit| (count + 1, bytes + unit.stored_bytes()));
    bound.units.is_some_and(|most| count > most) || bound.bytes.is_some_and(|most| bytes > most)
}
