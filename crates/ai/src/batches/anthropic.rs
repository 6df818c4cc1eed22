//! Anthropic's message batches: sent in one body, found again by what is in their results.

use std::time::Duration;

use async_trait::async_trait;
use longshore::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::caller::Caller;
use super::split::{BatchLimits, ItemSize, Models};
use super::{
    BatchItem, BatchMark, BatchProvider, BatchResult, BatchState, BatchTicket, Found, undone,
};
use crate::ask::AskError;
use crate::providers::anthropic::Anthropic;
use crate::providers::failure;
use crate::providers::remote::Remote;

const PATH: &str = "/messages/batches";

const LIMITS: BatchLimits = BatchLimits { items: 100_000, bytes: 256_000_000, models: Models::Any };

/// How far the provider's clock may be from ours.
const SKEW: Duration = Duration::from_secs(600);

/// Anthropic's batches.
pub(super) struct Batches {
    caller: Caller<Anthropic>,
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
struct Line {
    custom_id: String,
    result: Outcome,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Outcome {
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
    pub(super) fn new(remote: Remote<Anthropic>) -> Self {
        Self { caller: Caller { remote } }
    }

    fn request(&self, item: &BatchItem) -> Value {
        json!({ "custom_id": item.custom_id, "params": self.caller.body(item) })
    }

    fn result(&self, line: &str) -> Result<BatchResult, AskError> {
        let Line { custom_id, result } = self.caller.read(line)?;
        let result = match result {
            Outcome::Succeeded { message } => self.caller.answer(message.to_string().as_bytes()),
            Outcome::Errored { error } => Err(failure::listed(&error, &self.caller.remote.veil)),
            Outcome::Canceled => Err(undone("was cancelled")),
            Outcome::Expired => Err(undone("expired")),
        };
        Ok(BatchResult { custom_id, result })
    }

    /// Whether a batch is the one with this mark. There is nothing on it to recognise it by but how many
    /// are in it and, once it has ended, the ids of its results.
    async fn is(&self, batch: &Batch, mark: &BatchMark) -> Result<Found, AskError> {
        if batch.request_counts.total() != mark.ids.len() as u64 {
            return Ok(Found::Nowhere);
        }
        if batch.processing_status != "ended" {
            return Ok(Found::NotYetKnown);
        }
        let ticket = BatchTicket(batch.id.clone());
        let mut lines = self.caller.lines(&format!("{PATH}/{}/results", ticket.path()?)).await?;
        let Some(line) = lines.next().await? else { return Ok(Found::Nowhere) };
        let Line { custom_id, .. } = self.caller.read(&line)?;
        Ok(if mark.ids.contains(&custom_id) { Found::Here(ticket) } else { Found::Nowhere })
    }
}

#[async_trait]
impl BatchProvider for Batches {
    fn limits(&self) -> BatchLimits {
        LIMITS
    }

    fn size(&self, item: &BatchItem) -> ItemSize {
        let model = self.caller.remote.model(&item.question).to_owned();
        ItemSize { bytes: self.request(item).to_string().len() + 1, model }
    }

    async fn submit(&self, items: &[BatchItem], _mark: &str) -> Result<BatchTicket, AskError> {
        let requests: Vec<Value> = items.iter().map(|item| self.request(item)).collect();
        let body = json!({ "requests": requests }).to_string();
        let batch: Batch = self.caller.post(PATH, body.into_bytes()).await?;
        Ok(BatchTicket(batch.id))
    }

    async fn find(&self, mark: &BatchMark) -> Result<Found, AskError> {
        let mut path = format!("{PATH}?limit=100");
        let mut perhaps = Found::Nowhere;
        loop {
            let page: Page = self.caller.look(&path).await?;
            for batch in &page.data {
                if batch.created_at.is_some_and(|at| at < mark.since - SKEW) {
                    return Ok(perhaps);
                }
                match self.is(batch, mark).await? {
                    Found::Here(ticket) => return Ok(Found::Here(ticket)),
                    Found::NotYetKnown => perhaps = Found::NotYetKnown,
                    Found::Nowhere => {}
                }
            }
            match page.last_id.filter(|_| page.has_more) {
                Some(last) => {
                    path = format!("{PATH}?limit=100&after_id={}", super::caller::plain(&last)?);
                }
                None => return Ok(perhaps),
            }
        }
    }

    async fn poll(&self, ticket: &BatchTicket) -> Result<BatchState, AskError> {
        let batch: Batch = self.caller.look(&format!("{PATH}/{}", ticket.path()?)).await?;
        let counts = batch.request_counts;
        Ok(match batch.processing_status.as_str() {
            "ended" => BatchState::Ended,
            _ => BatchState::Going { done: counts.done(), total: counts.total() },
        })
    }

    async fn results(
        &self,
        ticket: &BatchTicket,
        into: &mpsc::Sender<BatchResult>,
    ) -> Result<(), AskError> {
        let mut lines = self.caller.lines(&format!("{PATH}/{}/results", ticket.path()?)).await?;
        while let Some(line) = lines.next().await? {
            if into.send(self.result(&line)?).await.is_err() {
                break;
            }
        }
        Ok(())
    }

    async fn cancel(&self, ticket: &BatchTicket) -> Result<(), AskError> {
        let path = format!("{PATH}/{}/cancel", ticket.path()?);
        self.caller.post::<Value>(&path, Vec::new()).await.map(drop)
    }
}
