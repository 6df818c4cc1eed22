//! Batches: list, show, pause, resume, cancel, retry, and list rows.

use longshore::batch::BatchAction;
use longshore::store::Page;
use longshore::{BatchId, BatchStatus, TenantId, UnitState};
use longshore_batch::row_listing::ListedRow;

use super::request::{ApiRequest, to_json};
use super::{ApiClient, ApiError, BatchView};
use crate::api::batches::PauseRequest;

impl ApiClient {
    /// Batches, newest first.
    pub async fn batches(
        &self,
        tenant: Option<&TenantId>,
        status: Option<BatchStatus>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<BatchView>, ApiError> {
        let request = ApiRequest::new("listBatches").query("status", status).query("tenant", tenant);
        self.list(request, after, limit).await
    }

    /// A batch with its progress.
    pub async fn batch(&self, id: &BatchId) -> Result<BatchView, ApiError> {
        self.send(ApiRequest::new("showBatch").path_param(id).idempotent()).await
    }

    /// A batch's rows with their results, newest first.
    pub async fn rows(
        &self,
        id: &BatchId,
        state: Option<UnitState>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<ListedRow>, ApiError> {
        let request = ApiRequest::new("listRows").path_param(id).query("state", state);
        self.list(request, after, limit).await
    }

    /// Pauses, resumes, cancels or retries a batch.
    pub async fn steer(&self, id: &BatchId, action: BatchAction) -> Result<BatchView, ApiError> {
        let (route, reason) = match action {
            BatchAction::Pause { reason } => ("pauseBatch", Some(reason)),
            BatchAction::Resume => ("resumeBatch", None),
            BatchAction::Cancel => ("cancelBatch", None),
            BatchAction::RetryFailed => ("retryBatch", None),
            _ => {
                let reason = "this batch action is not available over HTTP".to_owned();
                return Err(ApiError::Unsupported { reason });
            }
        };
        let body = match &reason {
            Some(_) => to_json(&self.url, &PauseRequest { reason })?,
            None => Vec::new(),
        };
        let request = ApiRequest::new(route).path_param(id);
        self.send(if body.is_empty() { request } else { request.json(&body) }).await
    }
}
