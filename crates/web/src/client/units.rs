//! Units: submit, show, wait, list, cancel, retry.

use std::time::Duration;

use longshore::store::{Page, SendRejection, SendResult, UnitActionResult, UnitFilter};
use longshore::{NewUnit, Scope, TenantId, Unit, UnitId};

use super::request::{ApiRequest, to_json};
use super::{ApiClient, ApiError, BulkSubmitReport, UnitView};
use crate::api::submit::{Status, SubmitResponse, UnitRequest};

/// Maximum number of units per request: as many as the server commits together.
const CHUNK_UNITS: usize = 500;
/// Maximum size of a request, unless a single unit is larger.
const CHUNK_BYTES: usize = 4 * 1024 * 1024;

impl ApiClient {
    /// Enqueues a unit, and waits up to `room` if its queue is full. A unit of the default tenant is enqueued
    /// as the token's tenant. Retried while the server is unavailable: the unit is deduplicated by its id.
    pub async fn submit(&self, unit: &NewUnit, room: Option<Duration>) -> Result<SendResult, ApiError> {
        self.submit_as(unit, explicit_tenant(unit, &Scope::All), room).await
    }

    pub(super) async fn submit_as(
        &self,
        unit: &NewUnit,
        tenant: Option<TenantId>,
        room: Option<Duration>,
    ) -> Result<SendResult, ApiError> {
        let body = to_json(&self.url, &self.unit_request(unit, tenant)?)?;
        let request = ApiRequest::new("submitUnit").query("room", room.map(|room| room.as_secs()));
        let request = request.json(&body).idempotent().extra_timeout(room.unwrap_or_default());
        match self.send::<SubmitResponse>(request).await {
            Ok(SubmitResponse { unit, status: Status::Created }) => Ok(SendResult::Created(unit)),
            Ok(SubmitResponse { unit, status: Status::Existing }) => Ok(SendResult::Existing(unit)),
            Err(error) => refusal(error).map(SendResult::Rejected),
        }
    }

    /// Enqueues units in chunks, each after the previous one is committed: the server sets the pace. Returns
    /// one result per unit, in order. After a unit that found no room, the rest is not tried and gets the
    /// same result.
    pub async fn submit_many(&self, units: &[NewUnit]) -> Result<Vec<SendResult>, ApiError> {
        self.submit_many_as(units, &Scope::All).await
    }

    pub(super) async fn submit_many_as(
        &self,
        units: &[NewUnit],
        scope: &Scope,
    ) -> Result<Vec<SendResult>, ApiError> {
        let mut results: Vec<SendResult> = Vec::with_capacity(units.len());
        while results.len() < units.len() {
            let left = &units[results.len()..];
            let stopped = self.submit_chunk(left, scope, &mut results).await?;
            if let Some(refusal) = stopped.filter(SendRejection::rejects_chunk) {
                results.resize(units.len(), SendResult::Rejected(refusal));
            }
        }
        Ok(results)
    }

    /// Sends the first chunk of `units`, and appends their results. Returns the refusal that stopped the
    /// server, if any.
    async fn submit_chunk(
        &self,
        units: &[NewUnit],
        scope: &Scope,
        results: &mut Vec<SendResult>,
    ) -> Result<Option<SendRejection>, ApiError> {
        let mut lines = Vec::new();
        let mut count = 0;
        for unit in units.iter().take(CHUNK_UNITS) {
            let line = to_json(&self.url, &self.unit_request(unit, explicit_tenant(unit, scope))?)?;
            if count > 0 && lines.len() + line.len() > CHUNK_BYTES {
                break;
            }
            lines.extend_from_slice(&line);
            lines.push(b'\n');
            count += 1;
        }
        let request = ApiRequest::new("submitUnits").lines(&lines).idempotent();
        let (report, refusal) = match self.send::<BulkSubmitReport>(request).await {
            Ok(report) => (report, None),
            Err(error) => partial_result(error).map(|(report, refusal)| (report, Some(refusal)))?,
        };
        let read = usize::try_from(report.lines).unwrap_or(count).min(count);
        for (line, unit) in (1..).zip(&units[..read]) {
            results.push(self.line_result(unit, line, &report, refusal.as_ref(), scope).await?);
        }
        Ok(refusal)
    }

    /// The result of one line. The report has only the first refusal's reason: a unit that was refused for
    /// another reason is submitted alone.
    async fn line_result(
        &self,
        unit: &NewUnit,
        line: u64,
        report: &BulkSubmitReport,
        refusal: Option<&SendRejection>,
        scope: &Scope,
    ) -> Result<SendResult, ApiError> {
        if let Some(found) = report.recognised.iter().find(|known| known.line == line) {
            return Ok(SendResult::Existing(found.unit));
        }
        match refusal.filter(|_| report.refused.contains(&line)) {
            None => Ok(SendResult::Created(unit.id)),
            Some(full) if full.rejects_chunk() => Ok(SendResult::Rejected(full.clone())),
            Some(_) => self.submit_as(unit, explicit_tenant(unit, scope), None).await,
        }
    }

    pub(super) fn unit_request(
        &self,
        unit: &NewUnit,
        tenant: Option<TenantId>,
    ) -> Result<UnitRequest, ApiError> {
        UnitRequest::new(unit, tenant).map_err(|error| ApiError::Unsupported { reason: error.to_string() })
    }

    /// A unit with its payload. With `wait`, when it has ended or the time is over.
    pub async fn unit(&self, id: UnitId, wait: Option<Duration>) -> Result<UnitView, ApiError> {
        let request =
            ApiRequest::new("showUnit").path_param(id).query("wait", wait.map(|wait| wait.as_secs()));
        self.send(request.idempotent().extra_timeout(wait.unwrap_or_default())).await
    }

    /// Units without payloads, newest first.
    pub async fn units(
        &self,
        tenant: Option<&TenantId>,
        filter: &UnitFilter,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Unit>, ApiError> {
        let request = ApiRequest::new("listUnits").query("state", filter.state);
        let request = request.query("queue", filter.queue.as_ref()).query("kind", filter.kind.as_ref());
        let request = request.query("batch", filter.batch.as_ref()).query("tenant", tenant);
        let page: Page<UnitView> = self.list(request, after, limit).await?;
        let items = page.items.into_iter().map(|view| view.unit).collect();
        Ok(Page { items, next: page.next })
    }

    /// Cancels a unit; if it runs, asks it to stop.
    pub async fn cancel_unit(&self, id: UnitId) -> Result<UnitActionResult, ApiError> {
        self.send(ApiRequest::new("cancelUnit").path_param(id)).await
    }

    /// Retries a unit with a fresh attempt count.
    pub async fn retry_unit(&self, id: UnitId) -> Result<UnitActionResult, ApiError> {
        self.send(ApiRequest::new("retryUnit").path_param(id)).await
    }
}

/// The tenant to send: none for the default tenant without a scope, so that the server uses the token's.
pub(super) fn explicit_tenant(unit: &NewUnit, scope: &Scope) -> Option<TenantId> {
    let implicit = *scope == Scope::All && unit.tenant == TenantId::default();
    (!implicit).then(|| unit.tenant.clone())
}

/// The refusal in a problem, if there is one.
fn refusal(error: ApiError) -> Result<SendRejection, ApiError> {
    match error {
        ApiError::Problem { problem, retry_after } => match problem.refusal.clone() {
            Some(refusal) => Ok(refusal),
            None => Err(ApiError::Problem { problem, retry_after }),
        },
        other => Err(other),
    }
}

/// The partial result and the refusal of a stopped stream, if there are any.
fn partial_result(error: ApiError) -> Result<(BulkSubmitReport, SendRejection), ApiError> {
    let details = match &error {
        ApiError::Problem { problem, .. } => problem.so_far.clone().zip(problem.refusal.clone()),
        _ => None,
    };
    let read = details.and_then(|(so_far, refusal)| Some((serde_json::from_value(so_far).ok()?, refusal)));
    read.ok_or(error)
}
