//! OpenAI's batches: a file of questions, a batch made of it, and one or two files of results.

use std::time::Duration;

use async_trait::async_trait;
use hyper::HeaderMap;
use longshore::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::caller::{Caller, plain};
use super::form::Form;
use super::split::{BatchLimits, ItemSize, Models};
use super::{
    BatchItem, BatchMark, BatchProvider, BatchResult, BatchState, BatchTicket, Found, undone,
};
use crate::ask::{Answer, AskError};
use crate::providers::failure;
use crate::providers::openai::Openai;
use crate::providers::remote::Remote;

const LIMITS: BatchLimits = BatchLimits { items: 50_000, bytes: 200_000_000, models: Models::One };

/// What the mark is called among a batch's metadata.
const MARK: &str = "longshore";

/// How far the provider's clock may be from ours.
const SKEW: Duration = Duration::from_secs(600);

/// OpenAI's batches.
pub(super) struct Batches {
    caller: Caller<Openai>,
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
struct Line {
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
        self.metadata.as_ref().is_some_and(|metadata| metadata[MARK] == mark.name.as_str())
    }

    fn is_older_than(&self, mark: &BatchMark) -> bool {
        let at = self
            .created_at
            .map(|seconds| Timestamp::from_micros(seconds.saturating_mul(1_000_000)));
        at.is_some_and(|at| at < mark.since - SKEW)
    }
}

impl Batches {
    pub(super) fn new(remote: Remote<Openai>) -> Self {
        Self { caller: Caller { remote } }
    }

    fn line(&self, item: &BatchItem) -> String {
        let line = json!({ "custom_id": item.custom_id, "method": "POST",
            "url": "/v1/chat/completions", "body": self.caller.body(item) });
        format!("{line}\n")
    }

    fn result(&self, line: &str) -> Result<BatchResult, AskError> {
        let Line { custom_id, response, error } = self.caller.read(line)?;
        Ok(BatchResult { custom_id, result: self.outcome(response, error) })
    }

    fn outcome(
        &self,
        response: Option<Response>,
        error: Option<Value>,
    ) -> Result<Answer, AskError> {
        let veil = &self.caller.remote.veil;
        match (response, error.unwrap_or_default()) {
            (Some(Response { status_code: 200, body }), _) => {
                self.caller.answer(body.to_string().as_bytes())
            }
            (Some(Response { status_code, body }), _) => {
                let body = body.to_string();
                Err(failure::refused(status_code, &HeaderMap::new(), body.as_bytes(), veil))
            }
            (None, error) => Err(match error["code"].as_str() {
                Some("batch_expired") => undone("expired"),
                Some("batch_cancelled") => undone("was cancelled"),
                _ => failure::listed(&error, veil),
            }),
        }
    }

    async fn batch(&self, ticket: &BatchTicket) -> Result<Batch, AskError> {
        self.caller.look(&format!("/batches/{}", ticket.path()?)).await
    }
}

#[async_trait]
impl BatchProvider for Batches {
    fn limits(&self) -> BatchLimits {
        LIMITS
    }

    fn size(&self, item: &BatchItem) -> ItemSize {
        let model = self.caller.remote.model(&item.question).to_owned();
        ItemSize { bytes: self.line(item).len(), model }
    }

    /// A file that was uploaded and not used costs nothing, so the batch alone decides.
    async fn submit(&self, items: &[BatchItem], mark: &str) -> Result<BatchTicket, AskError> {
        let lines: String = items.iter().map(|item| self.line(item)).collect();
        let form = Form::new(&[("purpose", "batch")], "questions.jsonl", lines.as_bytes());
        let file: File = self.caller.upload("/files", form).await?;
        let body = json!({ "input_file_id": file.id, "endpoint": "/v1/chat/completions",
            "completion_window": "24h", "metadata": { MARK: mark } });
        let batch: Batch = self.caller.post("/batches", body.to_string().into_bytes()).await?;
        Ok(BatchTicket(batch.id))
    }

    async fn find(&self, mark: &BatchMark) -> Result<Found, AskError> {
        let mut path = "/batches?limit=100".to_owned();
        loop {
            let page: Page = self.caller.look(&path).await?;
            if let Some(batch) = page.data.iter().find(|batch| batch.has(mark)) {
                return Ok(Found::Here(BatchTicket(batch.id.clone())));
            }
            match page.data.last().filter(|last| page.has_more && !last.is_older_than(mark)) {
                Some(last) => path = format!("/batches?limit=100&after={}", plain(&last.id)?),
                None => return Ok(Found::Nowhere),
            }
        }
    }

    async fn poll(&self, ticket: &BatchTicket) -> Result<BatchState, AskError> {
        let batch = self.batch(ticket).await?;
        let counts = batch.request_counts.unwrap_or_default();
        Ok(match batch.status.as_str() {
            // Of these, what was answered is in the files.
            "completed" | "expired" | "cancelled" => BatchState::Ended,
            "failed" => {
                let error = batch.errors.unwrap_or_default().data.into_iter().next();
                let veil = &self.caller.remote.veil;
                BatchState::Failed(failure::failed_batch(&error.unwrap_or_default(), veil))
            }
            _ => BatchState::Going { done: counts.completed + counts.failed, total: counts.total },
        })
    }

    async fn results(
        &self,
        ticket: &BatchTicket,
        into: &mpsc::Sender<BatchResult>,
    ) -> Result<(), AskError> {
        let batch = self.batch(ticket).await?;
        for file in batch.output_file_id.iter().chain(&batch.error_file_id) {
            let mut lines = self.caller.lines(&format!("/files/{}/content", plain(file)?)).await?;
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
        self.caller.post::<Value>(&path, Vec::new()).await.map(drop)
    }
}
