//! Everything else that is looked at and steered: queues, workers, schedules, pools, usage.

use longshore::ledger::{UsageBy, UsageFilter};
use longshore::session::{Order, Session};
use longshore::store::{Page, QueueInfo, Tenant};
use longshore::{PoolName, QueueName, Schedule, SessionId, TenantId, Timestamp};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::call::{Ask, odd, written};
use super::{ApiClient, ApiError, Identity, ShownPool, ShownUsage, ShownWorker};
use crate::api::pools::Size;
use crate::api::workers::Ordered;

impl ApiClient {
    /// Whose token it is, and how far it reaches.
    pub async fn whoami(&self) -> Result<Identity, ApiError> {
        self.ask(Ask::new("whoami").repeatable()).await
    }

    /// Queues, one entry per lane.
    pub async fn queues(&self, tenant: Option<&TenantId>) -> Result<Vec<QueueInfo>, ApiError> {
        let ask = Ask::new("listQueues").with("tenant", tenant);
        Ok(self.ask::<Page<QueueInfo>>(ask.repeatable()).await?.items)
    }

    /// Has claims pass a queue by, or not any more: the lane of `tenant`, or as much of the queue as the
    /// token reaches. Its lanes afterwards.
    pub async fn pause_queue(
        &self,
        queue: &QueueName,
        tenant: Option<&TenantId>,
        paused: bool,
    ) -> Result<Vec<QueueInfo>, ApiError> {
        let route = if paused { "pauseQueue" } else { "resumeQueue" };
        let ask = Ask::new(route).of(queue).with("tenant", tenant);
        Ok(self.ask::<Page<QueueInfo>>(ask).await?.items)
    }

    /// Workers.
    pub async fn workers(&self) -> Result<Vec<Session>, ApiError> {
        let page: Page<ShownWorker> = self.ask(Ask::new("listWorkers").repeatable()).await?;
        Ok(page.items.into_iter().map(Session::from).collect())
    }

    /// Has a worker go quiet, drain, stop or go on.
    pub async fn order(&self, worker: SessionId, order: Order) -> Result<(), ApiError> {
        let route = match order {
            Order::Work => "resumeWorker",
            Order::Quiet => "quietWorker",
            Order::Drain => "drainWorker",
            Order::Stop => "stopWorker",
        };
        self.ask::<Ordered>(Ask::new(route).of(worker)).await.map(|_| ())
    }

    /// What is sent at set times.
    pub async fn schedules(
        &self,
        tenant: Option<&TenantId>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Schedule>, ApiError> {
        let ask = Ask::new("listSchedules").with("tenant", tenant);
        let Page { items, next } = self.list::<Box<RawValue>>(ask, after, limit).await?;
        let items = items.iter().map(|text| schedule(text)).collect::<Result<_, _>>();
        let items = items.map_err(|error| odd(&self.url, format!("a schedule: {error}")))?;
        Ok(Page { items, next })
    }

    /// Tenants that have a record.
    pub async fn tenants(&self) -> Result<Vec<Tenant>, ApiError> {
        Ok(self.ask::<Page<Tenant>>(Ask::new("listTenants").repeatable()).await?.items)
    }

    /// Bounded pools: who holds, who waits.
    pub async fn pools(&self) -> Result<Vec<ShownPool>, ApiError> {
        Ok(self.ask::<Page<ShownPool>>(Ask::new("listPools").repeatable()).await?.items)
    }

    /// Sets how many permits a pool has that is known.
    pub async fn resize_pool(&self, pool: &PoolName, max: u32) -> Result<(), ApiError> {
        let body = written(&self.url, &Size { max })?;
        self.ask::<Size>(Ask::new("resizePool").of(pool).json(&body)).await.map(|_| ())
    }

    /// What AI calls came to. Those of one request are not told apart.
    pub async fn usage(
        &self,
        filter: &UsageFilter,
        by: UsageBy,
    ) -> Result<Vec<ShownUsage>, ApiError> {
        let UsageFilter { tenant, request_id: _, batch, profile, since, until } = filter;
        let by = match by {
            UsageBy::Tenant => "tenant",
            UsageBy::Model => "model",
            UsageBy::Batch => "batch",
            UsageBy::Profile => "profile",
            UsageBy::Day => "day",
        };
        // Without a beginning all are meant, as on a store.
        let since = since.unwrap_or(Timestamp::ZERO);
        let ask = Ask::new("listUsage").with("by", Some(by)).with("since", Some(since));
        let ask = ask.with("until", until.as_ref()).with("batch", batch.as_ref());
        let ask =
            ask.with("profile", profile.as_ref()).with("tenant", tenant.as_ref()).repeatable();
        Ok(self.ask::<Page<ShownUsage>>(ask).await?.items)
    }
}

/// A schedule with what its units will carry, which is read as it was written.
fn schedule(text: &RawValue) -> serde_json::Result<Schedule> {
    #[derive(Deserialize)]
    struct Beside {
        template: Carried,
    }
    #[derive(Deserialize)]
    struct Carried {
        payload: longshore::Payload,
    }
    let mut schedule: Schedule = serde_json::from_str(text.get())?;
    let Beside { template } = serde_json::from_str(text.get())?;
    schedule.plan.template.payload = template.payload;
    Ok(schedule)
}
