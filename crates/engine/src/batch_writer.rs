//! Filling a batch, chunk by chunk: each chunk and the initiator's cursor go in together, so that
//! a killed initiator takes up without gap or repeat.

use longshore_core::store::{Added, BatchChunk, Capacity, Opened, Refusal, Sent};
use longshore_core::{Batch, NewUnit};
use tracing::Instrument;

use crate::backoff::Backoff;
use crate::client::{Client, Room, SendError, WhenFull, is_full};
use crate::trace;

/// An open batch and where its initiator is.
#[derive(Debug)]
pub struct BatchWriter {
    client: Client,
    batch: Batch,
    resumed: bool,
    when_full: WhenFull,
}

impl BatchWriter {
    pub(crate) fn new(client: Client, opened: Opened) -> Self {
        let (batch, resumed) = match opened {
            Opened::Created(batch) => (batch, false),
            Opened::Existing(batch) => (batch, true),
        };
        Self { client, batch, resumed, when_full: WhenFull::Wait }
    }

    /// What `add` does when there is no room for a chunk: waits, unless told otherwise here.
    #[must_use]
    pub fn when_full(mut self, choice: WhenFull) -> Self {
        self.when_full = choice;
        self
    }

    /// The batch as it was when opened or sealed; its cursor is up to date.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Where the initiator is: what it passed to the last `add` that went in, in any life.
    pub fn cursor(&self) -> &str {
        &self.batch.cursor
    }

    /// Whether the batch was there already.
    pub fn resumed(&self) -> bool {
        self.resumed
    }

    /// Adds units and moves the cursor, both or neither. Waits for room (or as
    /// [`Self::when_full`] says) and for a store that is away; a chunk larger than its queue's, lane's or tenant's capacity is refused, and so is
    /// one of a suspended tenant. Use a fresh `next_cursor` for each chunk: it is how a repeat is
    /// recognised.
    pub async fn add(
        &mut self,
        units: Vec<NewUnit>,
        next_cursor: String,
    ) -> Result<Vec<Sent>, SendError> {
        let span = trace::sending(units.len());
        self.add_all(units, next_cursor).instrument(span).await
    }

    async fn add_all(
        &mut self,
        mut units: Vec<NewUnit>,
        next_cursor: String,
    ) -> Result<Vec<Sent>, SendError> {
        trace::mark(&mut units, self.client.trace());
        let expected = self.batch.cursor.clone();
        let chunk = BatchChunk { expected, next: next_cursor, units };
        let client = self.client.clone();
        let mut room = Room::new(&client, self.when_full);
        loop {
            let answers = self.add_chunk(&chunk).await?;
            if let Some(refusal) = suspended(&answers) {
                return Err(SendError::Refused(refusal));
            }
            let Some(full) = answers.iter().find(|answer| is_full(answer)) else {
                self.batch.cursor = chunk.next;
                return Ok(answers);
            };
            let queues = chunk.units.iter().map(|unit| unit.queue.clone()).collect();
            let waits = !self.never_fits(&chunk).await? && room.wait(full, &queues).await?;
            if let (Sent::Refused(refusal), false) = (full, waits) {
                return Err(SendError::Refused(refusal.clone()));
            }
        }
    }

    /// Whether a chunk is larger than a queue, lane or tenant it goes to: then no waiting helps.
    async fn never_fits(&self, chunk: &BatchChunk) -> Result<bool, SendError> {
        let (store, scope) = (self.client.store(), self.client.scope());
        let lanes = self.client.patiently(|| store.queues(scope)).await?;
        let tenants = self.client.patiently(|| store.tenants(scope)).await?;
        let own = tenants.iter().find(|tenant| tenant.id == self.batch.tenant);
        if own.is_some_and(|tenant| exceeds(chunk.units.iter(), tenant.capacity)) {
            return Ok(true);
        }
        Ok(lanes.iter().any(|lane| {
            let in_queue = |unit: &&NewUnit| unit.queue == lane.queue;
            let in_lane = |unit: &&NewUnit| unit.queue == lane.queue && unit.tenant == lane.tenant;
            exceeds(chunk.units.iter().filter(in_queue), lane.capacity)
                || exceeds(chunk.units.iter().filter(in_lane), lane.lane_capacity)
        }))
    }

    /// Says that all units are in.
    pub async fn seal(&mut self) -> Result<Batch, SendError> {
        let (store, scope) = (self.client.store(), self.client.scope());
        let id = self.batch.id.clone();
        self.batch = self.client.patiently(|| store.seal_batch(scope, &id)).await?;
        Ok(self.batch.clone())
    }

    async fn add_chunk(&self, chunk: &BatchChunk) -> Result<Vec<Sent>, SendError> {
        let (store, scope) = (self.client.store(), self.client.scope());
        let mut backoff = Backoff::store();
        loop {
            match store.add_to_batch(scope, &self.batch.id, chunk.clone()).await {
                Ok(Added::Committed(answers)) => return Ok(answers),
                // An earlier try of this very chunk went in, and only its answer was lost.
                Ok(Added::CursorMoved(at)) if at == chunk.next && backoff.tries() > 0 => {
                    return Ok(chunk.units.iter().map(|unit| Sent::Created(unit.id)).collect());
                }
                Ok(Added::CursorMoved(at)) => return Err(SendError::CursorMoved(at)),
                Err(error) if error.is_retryable() && self.client.is_patient(backoff.tries()) => {
                    tracing::debug!(%error, "the store is away, waiting to add to the batch");
                    backoff.wait().await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn suspended(answers: &[Sent]) -> Option<Refusal> {
    answers.iter().find_map(|answer| match answer {
        Sent::Refused(refusal @ Refusal::Suspended(_)) => Some(refusal.clone()),
        _ => None,
    })
}

fn exceeds<'u>(units: impl Iterator<Item = &'u NewUnit>, bound: Capacity) -> bool {
    let (count, bytes) =
        units.fold((0, 0), |(count, bytes), unit| (count + 1, bytes + unit.payload.len() as u64));
    bound.units.is_some_and(|most| count > most) || bound.bytes.is_some_and(|most| bytes > most)
}
