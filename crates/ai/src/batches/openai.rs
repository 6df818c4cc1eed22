//! OpenAI's batches: an uploaded file of questions, a batch of it, and one or two files of results.

use std::time::Duration;

use async_trait::async_trait;
use hyper::HeaderMap;
use longshore::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::client::{BatchClient, path_segment};
use super::multipart::MultipartForm;
use super::split::{BatchLimits, ItemSize, Models};
use super::{
    BatchItem, BatchMark, BatchProvider, BatchResult, BatchState, BatchTicket, FindResult, not_processed,
};
use crate::model_api::{Answer, AskError};
use crate::providers::error_mapping;
use crate::providers::http_provider::HttpProvider;
use crate::providers::openai::Openai;

const LIMITS: BatchLimits = BatchLimits { items: 50_000, bytes: 200_000_000, models: Models::One };

/// The metadata key of our mark.
const MARK_KEY: &str = "longshore";

/// Largest difference between the provider's clock and ours.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(600);

/// OpenAI's batch API.
pub(super) struct Batches {
    client: BatchClient<Openai>,
}

#[derive(Deserialize)]
struct File {
    id: String,
}

#[derive(Deserialize)]
struct Batch {
    id: String,
    status: String,
    output_file_id: Option<String>,
    error_file_id: Option<String>,
    #[serde(default)]
    request_counts: Option<Counts>,
    metadata: Option<Value>,
    /// Seconds since 1970.
    created_at: Option<i64>,
    errors: Option<Errors>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Counts {
    total: u64,
    completed: u64,
    failed: u64,
}

#[derive(Deserialize, Default)]
struct Errors {
    #[serde(default)]
    data: Vec<Value>,
}

#[derive(Deserialize)]
struct Page {
    data: Vec<Batch>,
    #[serde(default)]
    has_more: bool,
}

#[derive(Deserialize)]
struct ResultLine {
    custom_id: String,
    response: Option<Response>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Response {
    status_code: u16,
    body: Value,
}

impl Batch {
    fn has(&self, mark: &BatchMark) -> bool {
        self.metadata.as_ref().is_some_and(|metadata| metadata[MARK_KEY] == mark.name.as_str())
    }

    fn is_older_than(&self, mark: &BatchMark) -> bool {
        let at = self.created_at.map(|seconds| Timestamp::from_micros(seconds.saturating_mul(1_000_000)));
        at.is_some_and(|at| at < mark.since - MAX_CLOCK_SKEW)
    }
}

impl Batches {
    pub(super) fn new(provider: HttpProvider<Openai>) -> Self {
        Self { client: BatchClient { provider } }
    }

    fn line(&self, item: &BatchItem) -> String {
        let line = json!({ "custom_id": item.custom_id, "method": "POST",
            "url": "/v1/chat/completions", "body": self.client.body(item) });
        format!("{line}\n")
    }

    fn result(&self, line: &str) -> Result<BatchResult, AskError> {
        let ResultLine { custom_id, response, error } = self.client.read(line)?;
        Ok(BatchResult { custom_id, result: self.outcome(response, error) })
    }

    fn outcome(&self, response: Option<Response>, error: Option<Value>) -> Result<Answer, AskError> {
        let redactor = &self.client.provider.redactor;
        match (response, error.unwrap_or_default()) {
            (Some(Response { status_code: 200, body }), _) => self.client.answer(body.to_string().as_bytes()),
            (Some(Response { status_code, body }), _) => {
                let body = body.to_string();
                Err(error_mapping::from_response(status_code, &HeaderMap::new(), body.as_bytes(), redactor))
            }
            (None, error) => Err(match error["code"].as_str() {
                Some("batch_expired") => not_processed("expired"),
                Some("batch_cancelled") => not_processed("was cancelled"),
                _ => error_mapping::from_batch_result(&error, redactor),
            }),
        }
    }

    async fn batch(&self, ticket: &BatchTicket) -> Result<Batch, AskError> {
        self.client.get(&format!("/batches/{}", ticket.path()?)).await
    }
}

#[async_trait]
impl BatchProvider for Batches {
    fn limits(&self) -> BatchLimits {
        LIMITS
    }

    fn size(&self, item: &BatchItem) -> ItemSize {
        let model = self.client.provider.model(&item.question).to_owned();
        ItemSize { bytes: self.line(item).len(), model }
    }

    /// An uploaded file that is not used costs nothing, so only the creation of the batch counts.
    async fn submit(&self, items: &[BatchItem], mark: &str) -> Result<BatchTicket, AskError> {
        let lines: String = items.iter().map(|item| self.line(item)).collect();
        let form = MultipartForm::new(&[("purpose", "batch")], "questions.jsonl", lines.as_bytes());
        let file: File = self.client.upload("/files", form).await?;
        let body = json!({ "input_file_id": file.id, "endpoint": "/v1/chat/completions",
            "completion_window": "24h", "metadata": { MARK_KEY: mark } });
        let batch: Batch = self.client.post("/batches", body.to_string().into_bytes()).await?;
        Ok(BatchTicket(batch.id))
    }

    async fn find(&self, mark: &BatchMark) -> Result<FindResult, AskError> {
        let mut path = "/batches?limit=100".to_owned();
        loop {
            let page: Page = self.client.get(&path).await?;
            if let Some(batch) = page.data.iter().find(|batch| batch.has(mark)) {
                return Ok(FindResult::Submitted(BatchTicket(batch.id.clone())));
            }
            match page.data.last().filter(|last| page.has_more && !last.is_older_than(mark)) {
                Some(last) => {
                    path = format!("/batches?limit=100&after={}", path_segment(&last.id)?);
                }
                None => return Ok(FindResult::NotSubmitted),
            }
        }
    }

    async fn poll(&self, ticket: &BatchTicket) -> Result<BatchState, AskError> {
        let batch = self.batch(ticket).await?;
        let counts = batch.request_counts.unwrap_or_default();
        Ok(match batch.status.as_str() {
            // In these states, the answers so far are in the files.
            "completed" | "expired" | "cancelled" => BatchState::Ended,
            "failed" => {
                let error = batch.errors.unwrap_or_default().data.into_iter().next();
                let redactor = &self.client.provider.redactor;
                BatchState::Failed(error_mapping::failed_batch(&error.unwrap_or_default(), redactor))
            }
            _ => BatchState::Running { done: counts.completed + counts.failed, total: counts.total },
        })
    }

    async fn results(&self, ticket: &BatchTicket, into: &mpsc::Sender<BatchResult>) -> Result<(), AskError> {
        let batch = self.batch(ticket).await?;
        for file in batch.output_file_id.iter().chain(&batch.error_file_id) {
            let mut lines = self.client.lines(&format!("/files/{}/content", path_segment(file)?)).await?;
            while let Some(line) = lines.next().await? {
                if into.send(self.result(&line)?).await.is_err() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    async fn cancel(&self, ticket: &BatchTicket) -> Result<(), AskError> {
        let path = format!("/batches/{}/cancel", ticket.path()?);
        self.client.post::<Value>(&path, Vec::new()).await.map(drop)
    }
}
