//! Reply queues of AI requests.

use std::time::Duration;

use longshore::{QueueName, TenantId, UnitId};

use super::request::{ApiRequest, to_json};
use super::{ApiClient, ApiError, ReplyQueueView, ReplyView};
use crate::api::reply_queues::{AcknowledgeRequest, AcknowledgeResponse, OpenReplyQueueRequest, ReplyList};

impl ApiClient {
    /// Opens a reply queue, by default with a new name and the server's TTL.
    pub async fn open_reply_queue(
        &self,
        queue: Option<QueueName>,
        ttl: Option<Duration>,
    ) -> Result<ReplyQueueView, ApiError> {
        let ttl_seconds = ttl.map(|ttl| u32::try_from(ttl.as_secs()).unwrap_or(u32::MAX));
        let body = to_json(&self.url, &OpenReplyQueueRequest { queue, ttl_seconds })?;
        self.send(ApiRequest::new("openReplyQueue").json(&body)).await
    }

    /// A tenant's open reply queues; by default those of the token's tenant.
    pub async fn reply_queues(&self, tenant: Option<&TenantId>) -> Result<Vec<ReplyQueueView>, ApiError> {
        let request = ApiRequest::new("listReplyQueues").query("tenant", tenant);
        Ok(self.list(request, None, u32::MAX).await?.items)
    }

    /// Reads up to `limit` replies, oldest first; waits up to `wait` for the first one. They are returned
    /// again until they are acknowledged.
    pub async fn read_replies(
        &self,
        queue: &QueueName,
        limit: u32,
        wait: Duration,
    ) -> Result<Vec<ReplyView>, ApiError> {
        let request = ApiRequest::new("readReplies").path_param(queue).query("limit", Some(limit));
        let request = request.query("wait", Some(wait.as_secs())).extra_timeout(wait).idempotent();
        Ok(self.send::<ReplyList>(request).await?.items)
    }

    /// Acknowledges replies. Returns how many were waiting for it.
    pub async fn acknowledge_replies(&self, queue: &QueueName, ids: Vec<UnitId>) -> Result<u32, ApiError> {
        let body = to_json(&self.url, &AcknowledgeRequest { ids })?;
        let request = ApiRequest::new("acknowledgeReplies").path_param(queue).json(&body).idempotent();
        Ok(self.send::<AcknowledgeResponse>(request).await?.acknowledged)
    }

    /// Closes a reply queue.
    pub async fn close_reply_queue(&self, queue: &QueueName) -> Result<ReplyQueueView, ApiError> {
        self.send(ApiRequest::new("closeReplyQueue").path_param(queue)).await
    }
}
