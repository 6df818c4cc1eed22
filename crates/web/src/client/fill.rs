//! Sending a batch over a server: opened, filled chunk by chunk, sealed.

use longshore::store::{Added, BatchChunk, Opened, Sent};
use longshore::{Batch, BatchId, NewBatch, Scope, TenantId};

use super::call::{Ask, written};
use super::units::whose;
use super::{ApiClient, ApiError, Filled, ShownBatch};
use crate::api::fill::{Opening, Typed};
use crate::api::submit::Status;

impl ApiClient {
    /// Opens a batch, or finds the one of that name. What only its workers understand
    /// ([`NewBatch::definition`]) does not go over a server.
    pub async fn open_batch(&self, batch: NewBatch) -> Result<Opened, ApiError> {
        self.open_batch_as(batch, &Scope::All).await
    }

    pub(super) async fn open_batch_as(
        &self,
        batch: NewBatch,
        scope: &Scope,
    ) -> Result<Opened, ApiError> {
        if batch.definition.is_some() {
            let reason = "a batch of rows is started at its store, not over a server".to_owned();
            return Err(ApiError::Unfit { reason });
        }
        let unsaid = *scope == Scope::All && batch.tenant == TenantId::default();
        let tenant = (!unsaid).then(|| batch.tenant.clone());
        let body = written(&self.url, &Typed::of(batch, tenant))?;
        let Opening { status, batch: ShownBatch { batch, .. } } =
            self.ask(Ask::new("openBatch").json(&body).repeatable()).await?;
        Ok(match status {
            Status::Created => Opened::Created(batch),
            Status::Existing => Opened::Existing(batch),
        })
    }

    /// Adds a chunk and moves the cursor, both or neither. Asked once: whether an answer that was lost had
    /// gone well is seen by where the batch is.
    pub async fn add_to_batch(&self, id: &BatchId, chunk: &BatchChunk) -> Result<Added, ApiError> {
        self.add_to_batch_as(id, chunk, &Scope::All).await
    }

    pub(super) async fn add_to_batch_as(
        &self,
        id: &BatchId,
        chunk: &BatchChunk,
        scope: &Scope,
    ) -> Result<Added, ApiError> {
        let mut lines = Vec::new();
        for unit in &chunk.units {
            lines.extend(written(&self.url, &self.typed(unit, whose(unit, scope))?)?);
            lines.push(b'\n');
        }
        let cursor = Some(&chunk.expected).filter(|cursor| !cursor.is_empty());
        let ask = Ask::new("addToBatch").of(id).with("cursor", cursor);
        match self.ask::<Filled>(ask.with("next", Some(&chunk.next)).lines(&lines)).await {
            Ok(filled) => Ok(Added::Committed(filled.answers(chunk))),
            Err(error) => stayed_out(error, chunk),
        }
    }

    /// Says that all units are in.
    pub async fn seal_batch(&self, id: &BatchId) -> Result<Batch, ApiError> {
        let sealed: ShownBatch = self.ask(Ask::new("sealBatch").of(id).repeatable()).await?;
        Ok(sealed.batch)
    }
}

impl Filled {
    /// One answer per unit: each was a line.
    fn answers(self, chunk: &BatchChunk) -> Vec<Sent> {
        let mut answers: Vec<Sent> =
            chunk.units.iter().map(|unit| Sent::Created(unit.id)).collect();
        let existing = self.recognised.into_iter().map(|one| (one.line, Sent::Existing(one.unit)));
        let refused = self.refused.into_iter().map(|one| (one.line, Sent::Refused(one.refusal)));
        for (line, answer) in existing.chain(refused) {
            let at = usize::try_from(line).ok().and_then(|line| line.checked_sub(1));
            if let Some(place) = at.and_then(|at| answers.get_mut(at)) {
                *place = answer;
            }
        }
        answers
    }
}

/// What a store would have said of a chunk that stayed out; or what went wrong.
fn stayed_out(error: ApiError, chunk: &BatchChunk) -> Result<Added, ApiError> {
    let ApiError::Problem { problem, .. } = &error else { return Err(error) };
    if let Some(refusal) = &problem.refusal {
        let refused = |_| Sent::Refused(refusal.clone());
        return Ok(Added::Committed(chunk.units.iter().map(refused).collect()));
    }
    let cursor = problem.so_far.as_ref().and_then(|so_far| so_far["cursor"].as_str());
    match cursor {
        Some(cursor) => Ok(Added::CursorMoved(cursor.to_owned())),
        None => Err(error),
    }
}
