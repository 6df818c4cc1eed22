//! Sends a batch over HTTP: opens it, adds chunks, seals it.

use longshore::store::{AddChunkResult, BatchChunk, OpenBatchResult, SendResult};
use longshore::{Batch, BatchId, NewBatch, Scope, TenantId};

use super::request::{ApiRequest, to_json};
use super::units::explicit_tenant;
use super::{ApiClient, ApiError, BatchView, ChunkResult};
use crate::api::batch_ingest::{BatchRequest, OpenBatchResponse};
use crate::api::submit::Status;

impl ApiClient {
    /// Opens a batch, or returns the existing one with that name. [`NewBatch::definition`], which only
    /// workers can read, cannot be sent.
    pub async fn open_batch(&self, batch: NewBatch) -> Result<OpenBatchResult, ApiError> {
        self.open_batch_as(batch, &Scope::All).await
    }

    pub(super) async fn open_batch_as(
        &self,
        batch: NewBatch,
        scope: &Scope,
    ) -> Result<OpenBatchResult, ApiError> {
        if batch.definition.is_some() {
            let reason = "a batch with a definition is started at its store, not over HTTP".to_owned();
            return Err(ApiError::Unsupported { reason });
        }
        let implicit = *scope == Scope::All && batch.tenant == TenantId::default();
        let tenant = (!implicit).then(|| batch.tenant.clone());
        let body = to_json(&self.url, &BatchRequest::new(batch, tenant))?;
        let OpenBatchResponse { status, batch: BatchView { batch, .. } } =
            self.send(ApiRequest::new("openBatch").json(&body).idempotent()).await?;
        Ok(match status {
            Status::Created => OpenBatchResult::Created(batch),
            Status::Existing => OpenBatchResult::Existing(batch),
        })
    }

    /// Adds a chunk and moves the cursor, atomically. Not retried: after a lost response the batch's cursor
    /// shows whether the chunk was committed.
    pub async fn add_to_batch(&self, id: &BatchId, chunk: &BatchChunk) -> Result<AddChunkResult, ApiError> {
        self.add_to_batch_as(id, chunk, &Scope::All).await
    }

    pub(super) async fn add_to_batch_as(
        &self,
        id: &BatchId,
        chunk: &BatchChunk,
        scope: &Scope,
    ) -> Result<AddChunkResult, ApiError> {
        let mut lines = Vec::new();
        for unit in &chunk.units {
            lines.extend(to_json(&self.url, &self.unit_request(unit, explicit_tenant(unit, scope))?)?);
            lines.push(b'\n');
        }
        let cursor = Some(&chunk.expected).filter(|cursor| !cursor.is_empty());
        let request = ApiRequest::new("addToBatch").path_param(id).query("cursor", cursor);
        match self.send::<ChunkResult>(request.query("next", Some(&chunk.next)).lines(&lines)).await {
            Ok(result) => Ok(AddChunkResult::Committed(result.results(chunk))),
            Err(error) => rejected_chunk(error, chunk),
        }
    }

    /// Seals a batch: all its units were added.
    pub async fn seal_batch(&self, id: &BatchId) -> Result<Batch, ApiError> {
        let sealed: BatchView = self.send(ApiRequest::new("sealBatch").path_param(id).idempotent()).await?;
        Ok(sealed.batch)
    }
}

impl ChunkResult {
    /// One result per unit: each was a line.
    fn results(self, chunk: &BatchChunk) -> Vec<SendResult> {
        let mut results: Vec<SendResult> =
            chunk.units.iter().map(|unit| SendResult::Created(unit.id)).collect();
        let existing = self.recognised.into_iter().map(|one| (one.line, SendResult::Existing(one.unit)));
        let refused = self.refused.into_iter().map(|one| (one.line, SendResult::Rejected(one.refusal)));
        for (line, result) in existing.chain(refused) {
            let at = usize::try_from(line).ok().and_then(|line| line.checked_sub(1));
            if let Some(slot) = at.and_then(|at| results.get_mut(at)) {
                *slot = result;
            }
        }
        results
    }
}

/// Converts a rejected chunk to the store's result.
fn rejected_chunk(error: ApiError, chunk: &BatchChunk) -> Result<AddChunkResult, ApiError> {
    let ApiError::Problem { problem, .. } = &error else { return Err(error) };
    if let Some(refusal) = &problem.refusal {
        let refused = |_| SendResult::Rejected(refusal.clone());
        return Ok(AddChunkResult::Committed(chunk.units.iter().map(refused).collect()));
    }
    let cursor = problem.so_far.as_ref().and_then(|so_far| so_far["cursor"].as_str());
    match cursor {
        Some(cursor) => Ok(AddChunkResult::CursorMoved(cursor.to_owned())),
        None => Err(error),
    }
}
