//! Queues, workers, schedules, tenants, pools and usage.

use longshore::accounts::{UsageBy, UsageFilter};
use longshore::store::{Page, QueueInfo, Tenant};
use longshore::worker_session::{Session, WorkerCommand};
use longshore::{PoolName, QueueName, Schedule, SessionId, TenantId, Timestamp};
use reqwest::header::DATE;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::config::RESPONSE_TIMEOUT;
use super::request::{ApiRequest, not_longshore, to_json};
use super::{ApiClient, ApiError, Identity, PoolView, UsageView, WorkerView};
use crate::api::pools::PoolSize;
use crate::api::workers::WorkerCommandResponse;

impl ApiClient {
    /// The token's identity and scope.
    pub async fn whoami(&self) -> Result<Identity, ApiError> {
        self.send(ApiRequest::new("whoami").idempotent()).await
    }

    /// The server's time, to the second.
    pub async fn server_time(&self) -> Result<Timestamp, ApiError> {
        let request = self.build(&ApiRequest::new("whoami"))?.timeout(RESPONSE_TIMEOUT);
        let response = self.send_checked(request).await?;
        let date = response.headers().get(DATE).and_then(|date| date.to_str().ok());
        let time =
            date.and_then(longshore_ai::http_date).map(|time| Timestamp::from_micros(time.as_microsecond()));
        time.ok_or_else(|| not_longshore(&self.url, "its responses have no date".to_owned()))
    }

    /// Queues, one entry per lane.
    pub async fn queues(&self, tenant: Option<&TenantId>) -> Result<Vec<QueueInfo>, ApiError> {
        let request = ApiRequest::new("listQueues").query("tenant", tenant);
        Ok(self.list(request, None, u32::MAX).await?.items)
    }

    /// Pauses or resumes a queue: the lane of `tenant`, or as much of the queue as the token may. Returns its
    /// lanes.
    pub async fn pause_queue(
        &self,
        queue: &QueueName,
        tenant: Option<&TenantId>,
        paused: bool,
    ) -> Result<Vec<QueueInfo>, ApiError> {
        let route = if paused { "pauseQueue" } else { "resumeQueue" };
        let request = ApiRequest::new(route).path_param(queue).query("tenant", tenant);
        Ok(self.send::<Page<QueueInfo>>(request).await?.items)
    }

    /// Workers.
    pub async fn workers(&self) -> Result<Vec<Session>, ApiError> {
        let page: Page<WorkerView> = self.list(ApiRequest::new("listWorkers"), None, u32::MAX).await?;
        Ok(page.items.into_iter().map(Session::from).collect())
    }

    /// Sends a worker a command: quiet, drain, stop or work.
    pub async fn order(&self, worker: SessionId, order: WorkerCommand) -> Result<(), ApiError> {
        let route = match order {
            WorkerCommand::Work => "resumeWorker",
            WorkerCommand::Quiet => "quietWorker",
            WorkerCommand::Drain => "drainWorker",
            WorkerCommand::Stop => "stopWorker",
        };
        self.send::<WorkerCommandResponse>(ApiRequest::new(route).path_param(worker)).await.map(|_| ())
    }

    /// Cron schedules.
    pub async fn schedules(
        &self,
        tenant: Option<&TenantId>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Schedule>, ApiError> {
        let request = ApiRequest::new("listSchedules").query("tenant", tenant);
        let Page { items, next } = self.list::<Box<RawValue>>(request, after, limit).await?;
        let items = items.iter().map(|text| schedule(text)).collect::<Result<_, _>>();
        let items = items.map_err(|error| not_longshore(&self.url, format!("a schedule: {error}")))?;
        Ok(Page { items, next })
    }

    /// Tenants that have a record.
    pub async fn tenants(&self) -> Result<Vec<Tenant>, ApiError> {
        Ok(self.list(ApiRequest::new("listTenants"), None, u32::MAX).await?.items)
    }

    /// Bounded pools with holders and waiters.
    pub async fn pools(&self) -> Result<Vec<PoolView>, ApiError> {
        Ok(self.list(ApiRequest::new("listPools"), None, u32::MAX).await?.items)
    }

    /// Sets the number of permits of an existing pool.
    pub async fn resize_pool(&self, pool: &PoolName, max: u32) -> Result<(), ApiError> {
        let body = to_json(&self.url, &PoolSize { max })?;
        self.send::<PoolSize>(ApiRequest::new("resizePool").path_param(pool).json(&body)).await.map(|_| ())
    }

    /// Sums of AI calls. A filter by request id is not supported.
    pub async fn usage(&self, filter: &UsageFilter, by: UsageBy) -> Result<Vec<UsageView>, ApiError> {
        let UsageFilter { tenant, request_id: _, batch, profile, since, until } = filter;
        let by = match by {
            UsageBy::Tenant => "tenant",
            UsageBy::Model => "model",
            UsageBy::Batch => "batch",
            UsageBy::Profile => "profile",
            UsageBy::Day => "day",
        };
        // Without a start all calls are meant, as on a store.
        let since = since.unwrap_or(Timestamp::ZERO);
        let request = ApiRequest::new("listUsage").query("by", Some(by)).query("since", Some(since));
        let request = request.query("until", until.as_ref()).query("batch", batch.as_ref());
        let request = request.query("profile", profile.as_ref()).query("tenant", tenant.as_ref());
        Ok(self.list(request, None, u32::MAX).await?.items)
    }
}

/// Parses a schedule; the payload keeps its exact text.
fn schedule(text: &RawValue) -> serde_json::Result<Schedule> {
    #[derive(Deserialize)]
    struct TemplateField {
        template: PayloadField,
    }
    #[derive(Deserialize)]
    struct PayloadField {
        payload: longshore::Payload,
    }
    let mut schedule: Schedule = serde_json::from_str(text.get())?;
    let TemplateField { template } = serde_json::from_str(text.get())?;
    schedule.plan.template.payload = template.payload;
    Ok(schedule)
}
