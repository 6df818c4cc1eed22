//! The client's side of the request queue: enqueues a request and waits for its unit's result.

use std::time::Duration;

use longshore::{
    Client, Clock, Dedup, Kind, NewUnit, OnLost, Payload, Policy, QueueName, RetryPolicy, SendError,
    Timestamp, Unit, UnitId, UnitState, WaitError,
};

use longshore::store::SendRejection;
use longshore::unit::{DedupWindow, OnDuplicate};
use tokio::time::Instant;

use super::{KIND, QUEUE};
use crate::contract::{Reply, Request};
use crate::model_api::{AskError, Code};

/// How much longer than its request's timeout a reply is waited for: a reply at the last moment
/// still has to be written.
const REPLY_GRACE: Duration = Duration::from_millis(500);
/// Pause before a reply is waited for again after the store was unavailable.
const STORE_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Enqueues requests and waits for their replies. Cheap to clone.
#[derive(Clone)]
pub struct RequestClient {
    client: Client,
    queue: QueueName,
    on_lost: OnLost,
}

impl RequestClient {
    /// A client that enqueues into `queue`, by default [`QUEUE`].
    pub fn new(client: Client, queue: Option<QueueName>) -> longshore::Result<Self> {
        let invalid = |error: longshore::name::NameError| longshore::Error::Invalid(error.to_string());
        let queue = queue.map_or_else(|| QueueName::new(QUEUE).map_err(invalid), Ok)?;
        Ok(Self { client, queue, on_lost: OnLost::Rerun })
    }

    /// What happens to a request if its worker dies while the call is in flight: it may have been
    /// billed.
    #[must_use]
    pub fn on_lost(mut self, on_lost: OnLost) -> Self {
        self.on_lost = on_lost;
        self
    }

    /// Enqueues a request. A repeat with the same request id returns the same unit.
    pub async fn submit(&self, request: &Request, now: Timestamp) -> Result<UnitId, SendError> {
        let unit = self.unit(request, now).map_err(longshore::Error::Invalid)?;
        self.client.send(unit).await
    }

    /// Enqueues a request and waits for its reply. At the deadline it returns an error. A
    /// reply that arrives later is discarded.
    pub async fn ask(&self, request: &Request, clock: &dyn Clock) -> Reply {
        let id = match self.submit(request, clock.now()).await {
            Ok(id) => id,
            Err(error) => return Reply::error(request.header(), &not_sent(&error), 0),
        };
        let limit = request.timeout + REPLY_GRACE;
        match self.wait(id, limit).await {
            Ok(unit) => match (unit.state, unit.result) {
                (UnitState::Done, Some(reply)) => Reply::parse(reply.as_bytes()).unwrap_or_else(|error| {
                    let why = format!("the reply cannot be read: {error}");
                    Reply::error(request.header(), &AskError::new(Code::Internal, why), 0)
                }),
                (state, _) => {
                    let why = unit.failure.map_or_else(|| state.to_string(), |why| why.to_string());
                    Reply::error(request.header(), &ended(state, &why, unit.attempt > 0), 0)
                }
            },
            Err(WaitError::TimedOut(_)) => {
                // A worker that starts it now finds that its deadline has passed.
                let unit = self.client.store().unit(self.client.scope(), id).await;
                let was_started = !unit.is_ok_and(|unit| unit.attempt == 0 && unit.lost == 0);
                Reply::error(request.header(), &timed_out("no reply before the deadline", was_started), 0)
            }
            Err(error) => {
                Reply::error(request.header(), &AskError::new(Code::Internal, error.to_string()), 0)
            }
        }
    }

    /// Waits for a unit's end. While the store is unavailable the request may be answered all the same, so the wait
    /// goes on.
    async fn wait(&self, id: UnitId, limit: Duration) -> Result<Unit, WaitError> {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.client.wait(id, Some(left)).await {
                Err(WaitError::Store(error)) if error.is_retryable() && !left.is_zero() => {
                    tokio::time::sleep(STORE_RETRY_DELAY.min(left)).await;
                }
                ended => return ended,
            }
        }
    }

    fn unit(&self, request: &Request, now: Timestamp) -> Result<NewUnit, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let kind = Kind::new(KIND).map_err(|error| text(&error))?;
        let payload = Payload::from(request.to_json().map_err(|error| text(&error))?);
        let dedup = Dedup {
            key: request.request_id.clone(),
            window: DedupWindow::WhileKept,
            on_duplicate: OnDuplicate::default(),
        };
        Ok(NewUnit {
            tenant: request.customer.clone(),
            queue: self.queue.clone(),
            priority: request.priority,
            // The worker reports a timeout in its reply, so the store's deadline is a little later.
            deadline: Some(now + request.timeout + REPLY_GRACE),
            dedup: Some(dedup),
            policy: self.policy(),
            awaited: true,
            ..NewUnit::new(kind, payload)
        })
    }

    /// The worker's policy applies, unless a request must never be asked twice.
    fn policy(&self) -> Option<Policy> {
        let retry = RetryPolicy::never();
        let strict = Policy { retry, on_lost: OnLost::Fail, ..Policy::default() };
        (self.on_lost == OnLost::Fail).then_some(strict)
    }
}

fn not_sent(error: &SendError) -> AskError {
    let message = format!("the request was rejected: {error}");
    let code = match error {
        SendError::Rejected(SendRejection::Suspended(_)) => return AskError::suspended(message),
        SendError::Rejected(_) => Code::RateLimited,
        SendError::Store(error) if error.is_retryable() => return AskError::not_sent(message),
        SendError::Store(longshore::Error::TooLarge { .. } | longshore::Error::Invalid(_)) => {
            Code::InvalidRequest
        }
        _ => Code::Internal,
    };
    AskError::new(code, message)
}

/// The error of a request after its deadline. If it was started, its question may have been sent.
fn timed_out(why: &str, was_started: bool) -> AskError {
    match was_started {
        true => AskError::new(Code::Timeout, format!("{why}; it may have been billed")),
        false => AskError::not_sent(format!("{why}; the question was not sent")),
    }
}

/// The error of a unit that ended without a reply.
fn ended(state: UnitState, why: &str, was_started: bool) -> AskError {
    let code = match state {
        UnitState::Failed if why.starts_with("deadline") => return timed_out(why, was_started),
        UnitState::Failed if why.starts_with("DUPLICATE_REQUEST") => Code::DuplicateRequest,
        _ => Code::Internal,
    };
    AskError::new(code, why)
}
