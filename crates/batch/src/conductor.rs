//! Whoever takes a batch's parked questions to their provider and brings the answers back: a unit beside the
//! rows, in none of the batch's counts, that sleeps between two looks.
//!
//! There is one per batch, called by the rows that park and gone when the batch is over and
//! nothing of it is parked any more. Any worker runs it; should that die, another goes on. What it does in one
//! run is in `visit`, what is settled for rows that ended without their answer in `leftovers`.

mod fenced;
mod leftovers;
mod visit;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longshore::unit::{DedupWindow, OnDuplicate};
use longshore::{
    BatchId, Client, Clock, Context, Dedup, Error, Handler, HandlerResult, Kind, NewUnit, Payload,
    Policy, QueueName, RetryPolicy, SendError, SystemClock, TenantId, Verdict,
};
use longshore_ai::Desk;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use self::visit::Visit;
use crate::definition::{BULK_KIND, QUEUE};

/// How long a worker believes that a conductor it has called is there. One that is lost is called again by
/// rows that look.
const BELIEVED: Duration = Duration::from_millis(200);

/// How long it waits for a store that is away.
const AWAY: Duration = Duration::from_secs(10);

/// Takes batches' questions to providers: the handler of [`crate::definition::BULK_KIND`].
pub struct BulkHandler {
    desk: Desk,
    clock: Arc<dyn Clock>,
}

/// What its unit carries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BulkInput {
    /// Which batch's questions.
    pub batch: BatchId,
}

impl BulkHandler {
    /// A handler that finds profiles and books at `desk`.
    pub fn new(desk: Desk) -> Self {
        Self { desk, clock: Arc::new(SystemClock) }
    }

    /// Where the time is read that deadlines and waits are compared with.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// However often its workers die and whatever it meets, it is tried again: what it carries was paid for.
    pub fn policy() -> Policy {
        let retry = RetryPolicy { max_attempts: u32::MAX, ..RetryPolicy::default() };
        Policy { retry, max_lost: u32::MAX, ..Policy::default() }
    }
}

impl Handler for BulkHandler {
    type Input = BulkInput;
    type Output = ();

    async fn run(&self, context: Context, input: BulkInput) -> HandlerResult<()> {
        let stop = context.cancelled();
        let visit = Visit::new(&self.desk, &self.clock, &context, &input.batch);
        tokio::select! {
            biased;
            ended = visit.run() => ended,
            () = stop.cancelled() => Err(Verdict::retry("interrupted", "the run was told to end")),
        }
    }
}

/// The store did not answer.
fn away(error: Error) -> Verdict {
    if error.is_retryable() { Verdict::Snooze(AWAY) } else { Verdict::retry("store", error) }
}

/// Calls a batch's conductor.
#[derive(Debug, Default)]
pub(crate) struct Summons {
    last: Mutex<Option<Instant>>,
}

impl Summons {
    /// Sees to it that there is one. Many rows that park together call once.
    pub(crate) async fn call(&self, context: &Context, batch: &BatchId) -> Result<(), SendError> {
        let now = Instant::now();
        if self.last().is_some_and(|last| now.duration_since(last) < BELIEVED) {
            return Ok(());
        }
        summon(context.client(), &context.unit().tenant, batch).await?;
        *self.last() = Some(now);
        Ok(())
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a batch's conductor, unless it is there. Whoever fills a batch does so before its rows, so that rows that
/// fill their queue do not keep it out.
pub(crate) async fn summon(
    client: &Client,
    tenant: &TenantId,
    batch: &BatchId,
) -> Result<(), SendError> {
    let unit = unit(tenant, batch).map_err(Error::Invalid)?;
    client.send(unit).await.map(drop)
}

fn unit(tenant: &TenantId, batch: &BatchId) -> Result<NewUnit, String> {
    let words = |error: longshore::name::NameError| error.to_string();
    let payload = Payload::json(&BulkInput { batch: batch.clone() });
    let kind = Kind::new(BULK_KIND).map_err(words)?;
    Ok(NewUnit {
        tenant: tenant.clone(),
        queue: QueueName::new(QUEUE).map_err(words)?,
        dedup: Some(Dedup {
            key: dedup_key(batch),
            window: DedupWindow::WhileLive,
            on_duplicate: OnDuplicate::Existing,
        }),
        policy: Some(BulkHandler::policy()),
        ..NewUnit::new(kind, payload.map_err(|error| error.to_string())?)
    })
}

/// A claim's keys end with JSON, so this is none of a row's.
fn dedup_key(batch: &BatchId) -> String {
    format!("{BULK_KIND}:{batch}")
}
