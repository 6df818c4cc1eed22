//! Batches: listed, shown, steered, and their rows.

use longshore::batch::BatchAction;
use longshore::store::Page;
use longshore::{BatchId, BatchStatus, TenantId, UnitState};
use longshore_batch::listing::ListedRow;

use super::call::{Ask, written};
use super::{ApiClient, ApiError, ShownBatch};
use crate::api::batches::Why;

impl ApiClient {
    /// Batches, newest first.
    pub async fn batches(
        &self,
        tenant: Option<&TenantId>,
        status: Option<BatchStatus>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<ShownBatch>, ApiError> {
        let ask = Ask::new("listBatches").with("status", status).with("tenant", tenant);
        self.list(ask, after, limit).await
    }

    /// A batch with its progress.
    pub async fn batch(&self, id: &BatchId) -> Result<ShownBatch, ApiError> {
        self.ask(Ask::new("showBatch").of(id).repeatable()).await
    }

    /// A batch's rows, newest first, with what became of them.
    pub async fn rows(
        &self,
        id: &BatchId,
        state: Option<UnitState>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<ListedRow>, ApiError> {
        let ask = Ask::new("listRows").of(id).with("state", state);
        self.list(ask, after, limit).await
    }

    /// Pauses, resumes, cancels or retries a batch.
    pub async fn steer(&self, id: &BatchId, action: BatchAction) -> Result<ShownBatch, ApiError> {
        let (route, reason) = match action {
            BatchAction::Pause { reason } => ("pauseBatch", Some(reason)),
            BatchAction::Resume => ("resumeBatch", None),
            BatchAction::Cancel => ("cancelBatch", None),
            BatchAction::RetryFailed => ("retryBatch", None),
            _ => {
                let reason = "a server cannot be asked to do that to a batch".to_owned();
                return Err(ApiError::Unfit { reason });
            }
        };
        let body = match &reason {
            Some(_) => written(&self.url, &Why { reason })?,
            None => Vec::new(),
        };
        let ask = Ask::new(route).of(id);
        self.ask(if body.is_empty() { ask } else { ask.json(&body) }).await
    }
}
