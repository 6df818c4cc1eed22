//! Anthropic's message batches: submitted in one body, recognised by the ids in their results.

use std::time::Duration;

use async_trait::async_trait;
use longshore::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::client::BatchClient;
use super::split::{BatchLimits, ItemSize, Models};
use super::{
    BatchItem, BatchMark, BatchProvider, BatchResult, BatchState, BatchTicket, FindResult, not_processed,
};
use crate::model_api::AskError;
use crate::providers::anthropic::Anthropic;
use crate::providers::error_mapping;
use crate::providers::http_provider::HttpProvider;

const PATH: &str = "/messages/batches";

const LIMITS: BatchLimits = BatchLimits { items: 100_000, bytes: 256_000_000, models: Models::Any };

/// Largest difference between the provider's clock and ours.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(600);

/// Anthropic's batch API.
pub(super) struct Batches {
    client: BatchClient<Anthropic>,
}

#[derive(Deserialize)]
struct Batch {
    id: String,
    processing_status: String,
    #[serde(default)]
    request_counts: Counts,
    created_at: Option<Timestamp>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Counts {
    processing: u64,
    succeeded: u64,
    errored: u64,
    canceled: u64,
    expired: u64,
}

#[derive(Deserialize)]
struct Page {
    data: Vec<Batch>,
    #[serde(default)]
    has_more: bool,
    last_id: Option<String>,
}

#[derive(Deserialize)]
struct ResultLine {
    custom_id: String,
    result: ResultOutcome,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ResultOutcome {
    Succeeded { message: Value },
    Errored { error: Value },
    Canceled,
    Expired,
}

impl Counts {
    fn total(&self) -> u64 {
        self.processing + self.done()
    }

    fn done(&self) -> u64 {
        self.succeeded + self.errored + self.canceled + self.expired
    }
}

impl Batches {
    pub(super) fn new(provider: HttpProvider<Anthropic>) -> Self {
        Self { client: BatchClient { provider } }
    }

    fn request(&self, item: &BatchItem) -> Value {
        json!({ "custom_id": item.custom_id, "params": self.client.body(item) })
    }

    fn result(&self, line: &str) -> Result<BatchResult, AskError> {
        let ResultLine { custom_id, result } = self.client.read(line)?;
        let result = match result {
            ResultOutcome::Succeeded { message } => self.client.answer(message.to_string().as_bytes()),
            ResultOutcome::Errored { error } => {
                Err(error_mapping::from_batch_result(&error, &self.client.provider.redactor))
            }
            ResultOutcome::Canceled => Err(not_processed("was cancelled")),
            ResultOutcome::Expired => Err(not_processed("expired")),
        };
        Ok(BatchResult { custom_id, result })
    }

    /// Whether a batch is the one with this mark. The API stores no mark, so a batch is recognised
    /// by its number of requests and, once it has ended, by the ids of its results.
    async fn matches(&self, batch: &Batch, mark: &BatchMark) -> Result<FindResult, AskError> {
        if batch.request_counts.total() != mark.ids.len() as u64 {
            return Ok(FindResult::NotSubmitted);
        }
        if batch.processing_status != "ended" {
            return Ok(FindResult::Unknown);
        }
        let ticket = BatchTicket(batch.id.clone());
        let mut lines = self.client.lines(&format!("{PATH}/{}/results", ticket.path()?)).await?;
        let Some(line) = lines.next().await? else { return Ok(FindResult::NotSubmitted) };
        let ResultLine { custom_id, .. } = self.client.read(&line)?;
        Ok(if mark.ids.contains(&custom_id) {
            FindResult::Submitted(ticket)
        } else {
            FindResult::NotSubmitted
        })
    }
}

#[async_trait]
impl BatchProvider for Batches {
    fn limits(&self) -> BatchLimits {
        LIMITS
    }

    fn size(&self, item: &BatchItem) -> ItemSize {
        let model = self.client.provider.model(&item.question).to_owned();
        ItemSize { bytes: self.request(item).to_string().len() + 1, model }
    }

    async fn submit(&self, items: &[BatchItem], _mark: &str) -> Result<BatchTicket, AskError> {
        let requests: Vec<Value> = items.iter().map(|item| self.request(item)).collect();
        let body = json!({ "requests": requests }).to_string();
        let batch: Batch = self.client.post(PATH, body.into_bytes()).await?;
        Ok(BatchTicket(batch.id))
    }

    async fn find(&self, mark: &BatchMark) -> Result<FindResult, AskError> {
        let mut path = format!("{PATH}?limit=100");
        let mut found = FindResult::NotSubmitted;
        loop {
            let page: Page = self.client.get(&path).await?;
            for batch in &page.data {
                if batch.created_at.is_some_and(|at| at < mark.since - MAX_CLOCK_SKEW) {
                    return Ok(found);
                }
                match self.matches(batch, mark).await? {
                    FindResult::Submitted(ticket) => return Ok(FindResult::Submitted(ticket)),
                    FindResult::Unknown => found = FindResult::Unknown,
                    FindResult::NotSubmitted => {}
                }
            }
            match page.last_id.filter(|_| page.has_more) {
                Some(last) => {
                    path = format!("{PATH}?limit=100&after_id={}", super::client::path_segment(&last)?);
                }
                None => return Ok(found),
            }
        }
    }

    async fn poll(&self, ticket: &BatchTicket) -> Result<BatchState, AskError> {
        let batch: Batch = self.client.get(&format!("{PATH}/{}", ticket.path()?)).await?;
        let counts = batch.request_counts;
        Ok(match batch.processing_status.as_str() {
            "ended" => BatchState::Ended,
            _ => BatchState::Running { done: counts.done(), total: counts.total() },
        })
    }

    async fn results(&self, ticket: &BatchTicket, into: &mpsc::Sender<BatchResult>) -> Result<(), AskError> {
        let mut lines = self.client.lines(&format!("{PATH}/{}/results", ticket.path()?)).await?;
        while let Some(line) = lines.next().await? {
            if into.send(self.result(&line)?).await.is_err() {
                break;
            }
        }
        Ok(())
    }

    async fn cancel(&self, ticket: &BatchTicket) -> Result<(), AskError> {
        let path = format!("{PATH}/{}/cancel", ticket.path()?);
        self.client.post::<Value>(&path, Vec::new()).await.map(drop)
    }
}
