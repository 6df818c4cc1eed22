//! The caller's side: a request goes into the queue, and its reply comes back by its unit's id.

use std::time::Duration;

use longshore::{
    Client, Clock, Dedup, Kind, NewUnit, OnLost, Payload, Policy, QueueName, RetryPolicy,
    SendError, Timestamp, UnitId, UnitState, WaitError,
};

use longshore::store::Refusal;
use longshore::unit::{DedupWindow, OnDuplicate};

use super::{KIND, QUEUE};
use crate::ask::{AskError, Code};
use crate::contract::{Reply, Request};

/// How much longer a reply is waited for than its request's time: what comes at the last moment
/// still has to be written.
const GRACE: Duration = Duration::from_millis(500);

/// Sends requests and waits for their replies. Cheap to clone.
#[derive(Clone)]
pub struct Caller {
    client: Client,
    queue: QueueName,
    on_lost: OnLost,
}

impl Caller {
    /// A caller that sends into `queue`, by default [`QUEUE`].
    pub fn new(client: Client, queue: Option<QueueName>) -> longshore::Result<Self> {
        let invalid =
            |error: longshore::name::NameError| longshore::Error::Invalid(error.to_string());
        let queue = queue.map_or_else(|| QueueName::new(QUEUE).map_err(invalid), Ok)?;
        Ok(Self { client, queue, on_lost: OnLost::Rerun })
    }

    /// What becomes of a request whose worker died while it was out: it may have been billed.
    #[must_use]
    pub fn on_lost(mut self, on_lost: OnLost) -> Self {
        self.on_lost = on_lost;
        self
    }

    /// Sends a request. One that was sent before is recognised by its request id.
    pub async fn submit(&self, request: &Request, now: Timestamp) -> Result<UnitId, SendError> {
        let unit = self.unit(request, now).map_err(longshore::Error::Invalid)?;
        self.client.send(unit).await
    }

    /// Sends a request and waits for its reply: by its deadline there is one, if only to say that
    /// time is up. A reply that comes later is nobody's: it has another id than any that is waited
    /// for.
    pub async fn ask(&self, request: &Request, clock: &dyn Clock) -> Reply {
        let id = match self.submit(request, clock.now()).await {
            Ok(id) => id,
            Err(error) => return Reply::error(request.heading(), &not_sent(&error), 0),
        };
        let limit = request.timeout + GRACE;
        match self.client.wait(id, Some(limit)).await {
            Ok(unit) => match (unit.state, unit.result) {
                (UnitState::Done, Some(reply)) => {
                    Reply::parse(reply.as_bytes()).unwrap_or_else(|error| {
                        let why = format!("the reply cannot be read: {error}");
                        Reply::error(request.heading(), &AskError::new(Code::Internal, why), 0)
                    })
                }
                (state, _) => {
                    let why = unit.failure.map_or_else(|| state.to_string(), |why| why.to_string());
                    Reply::error(request.heading(), &ended(state, &why, unit.attempt > 0), 0)
                }
            },
            Err(WaitError::TimedOut(_)) => {
                let why = "no reply in time; it may have been billed";
                Reply::error(request.heading(), &AskError::new(Code::Timeout, why), 0)
            }
            Err(error) => Reply::error(
                request.heading(),
                &AskError::new(Code::Internal, error.to_string()),
                0,
            ),
        }
    }

    fn unit(&self, request: &Request, now: Timestamp) -> Result<NewUnit, String> {
        let words = |error: &dyn std::fmt::Display| error.to_string();
        let kind = Kind::new(KIND).map_err(|error| words(&error))?;
        let payload = Payload::from(request.to_json().map_err(|error| words(&error))?);
        let dedup = Dedup {
            key: request.request_id.clone(),
            window: DedupWindow::WhileKept,
            on_duplicate: OnDuplicate::default(),
        };
        Ok(NewUnit {
            tenant: request.customer.clone(),
            queue: self.queue.clone(),
            priority: request.priority,
            // Who runs it says that time is up, and the reply says so: the store need not.
            deadline: Some(now + request.timeout + GRACE),
            dedup: Some(dedup),
            policy: self.policy(),
            awaited: true,
            ..NewUnit::new(kind, payload)
        })
    }

    /// Whoever runs requests knows how; only what must not be asked twice says so.
    fn policy(&self) -> Option<Policy> {
        let retry = RetryPolicy::never();
        let strict = Policy { retry, on_lost: OnLost::Fail, ..Policy::default() };
        (self.on_lost == OnLost::Fail).then_some(strict)
    }
}

fn not_sent(error: &SendError) -> AskError {
    let words = format!("the request was not taken: {error}");
    let code = match error {
        SendError::Refused(Refusal::Suspended(_)) => return AskError::suspended(words),
        SendError::Refused(_) => Code::RateLimited,
        SendError::Store(longshore::Error::TooLarge { .. } | longshore::Error::Invalid(_)) => {
            Code::InvalidRequest
        }
        _ => Code::Internal,
    };
    AskError::new(code, words)
}

/// A unit that ended without a reply. If time was up after somebody had begun, the question may be out.
fn ended(state: UnitState, why: &str, begun: bool) -> AskError {
    let code = match state {
        UnitState::Failed if why.starts_with("deadline") && begun => {
            return AskError::new(Code::Timeout, format!("{why}; it may have been billed"));
        }
        UnitState::Failed if why.starts_with("deadline") => Code::Timeout,
        UnitState::Failed if why.starts_with("INVALID_REQUEST") => Code::InvalidRequest,
        _ => Code::Internal,
    };
    AskError::new(code, why)
}
