//! The provider-batch runner: a unit that submits a batch's parked questions to the provider's
//! batch API and delivers the answers. It is sent beside the rows, is in none of the batch's
//! counts, and sleeps between polls.
//!
//! Each batch has one runner. The rows that park a question enqueue it; it ends when the batch is
//! over and no question is parked. Any worker can run it, and another takes over if that worker
//! dies. `poll` has one run of it, `cleanup` settles calls of rows that ended without their answer.

mod cleanup;
mod fencing;
mod poll;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longshore::unit::{DedupWindow, OnDuplicate};
use longshore::{
    BatchId, Client, Clock, Context, Dedup, Error, Handler, HandlerResult, Kind, NewUnit, Payload, Policy,
    QueueName, RetryPolicy, SendError, SystemClock, TenantId, Verdict,
};
use longshore_ai::Inference;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use self::poll::PollRun;
use crate::definition::{PROVIDER_BATCH_KIND, QUEUE};

/// How long a worker assumes that the runner it enqueued exists. A lost runner is enqueued again by
/// the rows that poll.
const ENQUEUE_DEBOUNCE: Duration = Duration::from_millis(200);

/// Delay before a retry when the store does not answer.
const STORE_RETRY_DELAY: Duration = Duration::from_secs(10);

/// Runs provider batches: the handler of [`crate::definition::PROVIDER_BATCH_KIND`].
pub struct ProviderBatchHandler {
    inference: Inference,
    clock: Arc<dyn Clock>,
}

/// The payload of its unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProviderBatchInput {
    /// The batch with the questions.
    pub batch: BatchId,
}

impl ProviderBatchHandler {
    /// A handler that takes profiles and the ledger from `inference`.
    pub fn new(inference: Inference) -> Self {
        Self { inference, clock: Arc::new(SystemClock) }
    }

    /// The clock for deadlines and waits.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Retries without limit, whatever fails and however often workers die: the questions it
    /// carries were paid for.
    pub fn policy() -> Policy {
        let retry = RetryPolicy { max_attempts: u32::MAX, ..RetryPolicy::default() };
        Policy { retry, max_lost: u32::MAX, ..Policy::default() }
    }
}

impl Handler for ProviderBatchHandler {
    type Input = ProviderBatchInput;
    type Output = ();

    async fn run(&self, context: Context, input: ProviderBatchInput) -> HandlerResult<()> {
        let stop = context.cancelled();
        let run = PollRun::new(&self.inference, &self.clock, &context, &input.batch);
        tokio::select! {
            biased;
            result = run.run() => result,
            () = stop.cancelled() => Err(Verdict::retry("interrupted", "the run was cancelled")),
        }
    }
}

/// Snoozes while the store does not answer, or an operator has to repair it.
fn store_error(error: Error) -> Verdict {
    if error.is_final() { Verdict::retry("store", error) } else { Verdict::Snooze(STORE_RETRY_DELAY) }
}

/// Enqueues a batch's runner when it may be missing.
#[derive(Debug, Default)]
pub(crate) struct RunnerStarter {
    last: Mutex<Option<Instant>>,
}

impl RunnerStarter {
    /// Enqueues the runner unless this worker did so recently: many rows that park together enqueue
    /// it once.
    pub(crate) async fn ensure_running(&self, context: &Context, batch: &BatchId) -> Result<(), SendError> {
        let now = Instant::now();
        if self.last().is_some_and(|last| now.duration_since(last) < ENQUEUE_DEBOUNCE) {
            return Ok(());
        }
        enqueue_runner(context.client(), &context.unit().tenant, batch).await?;
        *self.last() = Some(now);
        Ok(())
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Enqueues a batch's runner unless it is live. The initiator does this before it sends rows, so
/// that rows that fill the queue do not keep the runner out.
pub(crate) async fn enqueue_runner(
    client: &Client,
    tenant: &TenantId,
    batch: &BatchId,
) -> Result<(), SendError> {
    let unit = unit(tenant, batch).map_err(Error::Invalid)?;
    client.send(unit).await.map(drop)
}

fn unit(tenant: &TenantId, batch: &BatchId) -> Result<NewUnit, String> {
    let message = |error: longshore::name::NameError| error.to_string();
    let payload = Payload::json(&ProviderBatchInput { batch: batch.clone() });
    let kind = Kind::new(PROVIDER_BATCH_KIND).map_err(message)?;
    Ok(NewUnit {
        tenant: tenant.clone(),
        queue: QueueName::new(QUEUE).map_err(message)?,
        dedup: Some(Dedup {
            key: dedup_key(batch),
            window: DedupWindow::WhileLive,
            on_duplicate: OnDuplicate::Existing,
        }),
        policy: Some(ProviderBatchHandler::policy()),
        ..NewUnit::new(kind, payload.map_err(|error| error.to_string())?)
    })
}

/// The keys of rows end with JSON, so this key cannot clash with one.
fn dedup_key(batch: &BatchId) -> String {
    format!("{PROVIDER_BATCH_KIND}:{batch}")
}
