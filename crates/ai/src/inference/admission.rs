//! Admission: what a call acquires before it is sent. The order is the body of
//! [`ProfileCall::admit`]; each step is in a file of its own.
//!
//! A call that waits for a breaker holds nothing; a call that waits for a limit holds no money. If a
//! step fails, or the caller drops the call, the steps before it are undone, the last one first.

pub(super) mod breaker;
pub(super) mod budget;
mod limits;
mod permit;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use longshore::accounts::Call;
use longshore::{Context, Permit};
use scopeguard::{ScopeGuard, guard};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::billing::OpenCall;
use super::call::ProfileCall;
use super::call_bound::CallBound;
use super::upstream_health::InFlight;
use crate::model_api::{AskError, Code, Question, Retryability};
use crate::resilience::{BucketCharge, TokenReservation};

/// What an admitted call holds.
pub(super) struct AdmissionGuard<'c> {
    pub(super) _concurrency: Option<OwnedSemaphorePermit>,
    pub(super) reservation: TokenReservation,
    pub(super) charges: Arc<[BucketCharge]>,
    pub(super) permit: Option<Permit>,
    pub(super) in_flight: InFlight,
    pub(super) call: OpenCall<'c>,
}

/// Why a call was not admitted.
pub(super) enum AdmissionError {
    /// Another unit needs the worker's slot while this call waits.
    Yielded,
    /// Another unit asked the same request before.
    Duplicate(Box<Call>),
    /// The provider is unavailable, a limit does not admit it in time, or its budget is used up.
    Rejected(AskError),
    /// Its budget is not used up, but the rest of it is reserved by other calls in flight.
    Reserved(AskError),
}

impl From<AskError> for AdmissionError {
    fn from(error: AskError) -> Self {
        Self::Rejected(error)
    }
}

impl ProfileCall<'_> {
    /// Waits until the call is admitted or the question's deadline passes. `run` is the unit that
    /// gives its slot back if it waits and another unit needs the slot.
    pub(super) async fn admit(
        &self,
        question: &Question,
        tokens: u64,
        bound: &CallBound<'_>,
        run: Option<&Context>,
    ) -> Result<AdmissionGuard<'_>, AdmissionError> {
        let wait = YieldingWait { run, until: question.until };
        // Authentication comes before: the profile is one of the tenant's own, and both are active.
        self.require_budget(bound).await?;
        loop {
            let mut in_flight = self.pass_breaker(question, tokens, wait).await?;
            let limits = async {
                let concurrency = self.concurrency_slot(wait).await?;
                let charges = self.charges(tokens).await?;
                let reservation = self.reserve_tokens(wait, &charges).await?;
                let reservation = guard(reservation, TokenReservation::release);
                let permit = self.pool_permit(wait).await?;
                Ok::<_, AdmissionError>((concurrency, charges, reservation, permit))
            };
            let (concurrency, charges, reservation, permit) = in_flight.wait_for(limits).await?;
            if !in_flight.confirm() {
                // The breaker opened while the call waited for a limit.
                continue;
            }
            // The call is sent next: only now it is journalled, and its cost reserved.
            let call = self.reserve_budget(question, bound).await?;
            let reservation = ScopeGuard::into_inner(reservation);
            let _concurrency = concurrency;
            return Ok(AdmissionGuard { _concurrency, reservation, charges, permit, in_flight, call });
        }
    }
}

/// With less time left than this a unit keeps its slot: requeued, it could report its timeout too
/// late.
const MIN_TIME_TO_YIELD: Duration = Duration::from_secs(5);

/// A wait that gives the worker's slot back if it is needed.
///
/// While a unit waits, it reports so to its worker, so that the worker can claim others. If the
/// slot is needed, the unit is requeued, unless a call was already recorded or sent. Questions of
/// no unit keep waiting.
#[derive(Clone, Copy)]
pub(super) struct YieldingWait<'a> {
    pub(super) run: Option<&'a Context>,
    /// The question's deadline.
    pub(super) until: Instant,
}

impl YieldingWait<'_> {
    /// Waits for `what`. Large futures come pinned: moved in here they would need their space
    /// twice.
    async fn wait<T>(self, what: impl Future<Output = T>) -> Result<T, AdmissionError> {
        let mut what = pin!(what);
        let Some(run) = self.run else { return Ok(what.await) };
        // Without a wait, nothing is reported.
        tokio::select! {
            biased;
            value = &mut what => return Ok(value),
            () = std::future::ready(()) => {}
        }
        let waiting = run.begin_wait();
        let slot_needed = async {
            waiting.slot_needed().await;
            if self.until.saturating_duration_since(Instant::now()) < MIN_TIME_TO_YIELD {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            value = &mut what => Ok(value),
            () = slot_needed => Err(AdmissionError::Yielded),
        }
    }
}

/// The error of a question that a limit rejects. It was not sent.
fn rate_limited(why: &str) -> AskError {
    AskError { retry: Retryability::Later, ..AskError::new(Code::RateLimited, why) }
}
