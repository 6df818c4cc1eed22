//! Admission by the tenant's budget: the ledger journals the call, and reserves its tokens and cost.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use longshore::accounts::{BudgetDecision, BudgetState, CallAdmission, CallRecord, NewCall};
use longshore::{AlertSink, Context, Scope, ServiceAlert, TenantId};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{AdmissionError, AdmissionGuard, ProfileCall, YieldingWait, rate_limited};
use crate::inference::Inner;
use crate::inference::billing::OpenCall;
use crate::inference::call_bound::CallBound;
use crate::inference::profile_cache::ledger_error;
use crate::model_api::{AskError, Code, Question, Retryability};
use crate::pricing::Cost;

/// How long a call waits for the reservations of other calls.
const MAX_RESERVED_WAIT: Duration = Duration::from_secs(30);

/// When a call should be retried after it waited so long.
const RESERVED_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Shortest and longest time between two attempts to reserve, unless this process writes the end of
/// a call.
const RESERVE_POLL: Range<Duration> = Duration::from_millis(20)..Duration::from_millis(500);

/// The turns of a call that waits for the reservations of other calls.
struct ReservationWait<'a> {
    inner: &'a Inner,
    wait: YieldingWait<'a>,
    until: Instant,
    poll: Duration,
}

impl<'a> ReservationWait<'a> {
    fn new(inner: &'a Inner, wait: YieldingWait<'a>) -> Self {
        let until = wait.until.min(Instant::now() + MAX_RESERVED_WAIT);
        Self { inner, wait, until, poll: RESERVE_POLL.start }
    }

    /// Waits for the next turn. Fails with `error` if the wait is over.
    async fn next(&mut self, error: AskError) -> Result<(), AdmissionError> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(AdmissionError::Rejected(error));
        }
        let poll = self.poll.min(left);
        self.poll = RESERVE_POLL.end.min(self.poll * 2);
        let written = self.inner.journal.next_write();
        let released = async {
            // A pause, so that many waiting calls do not ask the ledger at every write.
            tokio::time::sleep(poll / 4).await;
            let _ = tokio::time::timeout(poll, written).await;
        };
        self.wait.wait(released).await
    }
}

impl ProfileCall<'_> {
    /// Rejects a call that the month's budget cannot pay, before it waits for anything. Reserves
    /// nothing: what waits must not hold money. Reads the budget only if it was nearly used up when
    /// the tenant's settings were read.
    pub(super) async fn require_budget(&self, bound: &CallBound<'_>) -> Result<(), AdmissionError> {
        let tenant = &self.request.tenant;
        if !self.inner.profile_cache.tenant(tenant).await?.is_near_budget {
            return Ok(());
        }
        let month = self.inner.ledger.budget(&Scope::Tenant(tenant.clone()), tenant).await;
        let month = month.map_err(|error| ledger_error(&error))?;
        // What is reserved may become free again.
        let spent = BudgetState { reserved_tokens: 0, reserved_picos: 0, ..month };
        match spent.admit(bound.tokens_in + bound.tokens_out, bound.cost_picos) {
            BudgetDecision::Exceeded => {
                self.inner.warnings.rejected(&spent);
                let reserved = bound.reserve(self.new_call(&self.request.question));
                Err(over_budget(&spent, &reserved).into())
            }
            BudgetDecision::Within | BudgetDecision::NearLimit(_) => Ok(()),
        }
    }

    /// Admits a call. If only the reservations of other calls leave no room for it, it waits for
    /// them, and meanwhile holds nothing.
    pub(in crate::inference) async fn admit_in_turn(
        &self,
        question: &Question,
        tokens: u64,
        bound: &CallBound<'_>,
        run: Option<&Context>,
    ) -> Result<AdmissionGuard<'_>, AdmissionError> {
        let mut turns = ReservationWait::new(self.inner, YieldingWait { run, until: question.until });
        loop {
            match self.admit(question, tokens, bound, run).await {
                Err(AdmissionError::Reserved(error)) => turns.next(error).await?,
                admitted => return admitted,
            }
        }
    }

    /// Reserves a call's tokens and cost, and waits for the reservations of other calls.
    pub(in crate::inference) async fn reserve_budget_in_turn(
        &self,
        question: &Question,
        bound: &CallBound<'_>,
        wait: YieldingWait<'_>,
    ) -> Result<OpenCall<'_>, AdmissionError> {
        let mut turns = ReservationWait::new(self.inner, wait);
        loop {
            match self.reserve_budget(question, bound).await {
                Err(AdmissionError::Reserved(error)) => turns.next(error).await?,
                reserved => return reserved,
            }
        }
    }

    /// Journals the call and reserves its tokens and cost. Without a budget and without a unit, the
    /// caller does not wait for the write.
    pub(in crate::inference) async fn reserve_budget(
        &self,
        question: &Question,
        bound: &CallBound<'_>,
    ) -> Result<OpenCall<'_>, AdmissionError> {
        let call = bound.reserve(self.new_call(question));
        let tenant = self.inner.profile_cache.tenant(&self.request.tenant).await?;
        if self.request.unit.is_none() && !tenant.has_budget {
            self.inner.warnings.below_warning(&self.request.tenant);
            self.inner.journal.append(CallRecord { call: call.clone(), end: None });
            return Ok(OpenCall::new(self.inner, call));
        }
        // Guarded before the ledger answers: if the caller leaves meanwhile, the call is ended, and
        // what the ledger may have reserved is free again.
        let open = OpenCall::new(self.inner, call.clone());
        match Box::pin(self.inner.admit_call(&call)).await {
            Ok(()) => Ok(open),
            Err(error) => {
                if !error.may_be_reserved() {
                    open.forget();
                }
                Err(error)
            }
        }
    }
}

impl AdmissionError {
    /// Whether the ledger may have admitted the call although it did not say so.
    fn may_be_reserved(&self) -> bool {
        matches!(self, Self::Rejected(error) if error.retry == Retryability::NotSent)
    }
}

impl Inner {
    /// Waits for the ledger to admit a call.
    pub(in crate::inference) async fn admit_call(&self, call: &NewCall) -> Result<(), AdmissionError> {
        let admitted = self.ledger.admit_calls(vec![call.clone()]).await;
        match admitted.map_err(|error| ledger_error(&error))?.pop() {
            Some(CallAdmission::Admitted) => {
                self.warnings.below_warning(&call.tenant);
                Ok(())
            }
            Some(CallAdmission::NearBudget(part)) => {
                self.warnings.near_budget(&call.tenant, part);
                Ok(())
            }
            Some(CallAdmission::Duplicate(other)) => Err(AdmissionError::Duplicate(other)),
            Some(CallAdmission::OverBudget(state)) => {
                self.warnings.rejected(&state);
                let (tenant, month) = (&state.tenant, &state.month);
                if state.is_only_reserved(call.reserve_tokens, call.reserve_picos) {
                    let message = format!(
                        "other calls in flight reserve the rest of the budget of tenant `{tenant}` for {month}"
                    );
                    return Err(AdmissionError::Reserved(AskError {
                        retry_after: Some(RESERVED_RETRY_AFTER),
                        ..rate_limited(&message)
                    }));
                }
                Err(over_budget(&state, call).into())
            }
            None => Err(AskError::new(Code::Internal, "the ledger did not answer").into()),
        }
    }
}

/// Why a call does not fit beside what ended calls have used: nothing is left, or less than it may use.
fn over_budget(state: &BudgetState, call: &NewCall) -> AskError {
    let BudgetState { tenant, month, spent_tokens, spent_picos, .. } = state;
    let of = format!("of the budget of tenant `{tenant}` for {month}");
    let tokens_left = state.budget.and_then(|budget| Some(budget.tokens?.saturating_sub(*spent_tokens)));
    let picos_left = state.budget.and_then(|budget| Some(budget.cost_picos?.saturating_sub(*spent_picos)));
    let message = match (tokens_left, picos_left) {
        _ if state.is_used_up() => format!("the budget of tenant `{tenant}` for {month} is used up"),
        (_, Some(left)) if call.reserve_picos > left => {
            let (most, left) = (Cost(call.reserve_picos), Cost(left));
            format!("this call may cost {most}, and {left} {of} is left: lower max_tokens")
        }
        (left, _) => {
            let (most, left) = (call.reserve_tokens, left.unwrap_or(0));
            format!("this call may use {most} tokens, and {left} {of} are left: lower max_tokens")
        }
    };
    AskError::new(Code::OverBudget, message)
}

/// Usage that has to be added before the next warning, in percent.
const STEP_PERCENT: f64 = 5.0;

/// Alerts that wait for delivery; further ones are only logged.
const MAX_PENDING_ALERTS: usize = 100;

/// Warnings of budgets that are nearly used up. A tenant's warning is repeated when usage crosses the
/// next step, not on every call.
#[derive(Default)]
pub(in crate::inference) struct BudgetWarnings {
    /// The used share at a tenant's last call, if it was above the budget's `warn_at`, and the highest step
    /// that was warned of.
    shares: Mutex<HashMap<TenantId, (f64, u32)>>,
    /// Receives alerts; without it they are logged.
    sink: OnceLock<Arc<dyn AlertSink>>,
    pending: Mutex<VecDeque<ServiceAlert>>,
    added: Notify,
}

impl BudgetWarnings {
    /// Sets the receiver of alerts. A second call is ignored.
    pub(in crate::inference) fn set_sink(&self, sink: Arc<dyn AlertSink>) {
        let _ = self.sink.set(sink);
    }

    /// The used share of a tenant's budget, if callers are to be warned of it.
    pub(in crate::inference) fn share(&self, tenant: &TenantId) -> Option<f64> {
        lock(&self.shares).get(tenant).map(|(share, _)| *share)
    }

    /// Delivers alerts, until dropped.
    pub(in crate::inference) async fn run(&self) {
        loop {
            self.added.notified().await;
            self.deliver().await;
        }
    }

    /// Delivers the alerts that wait.
    pub(in crate::inference) async fn deliver(&self) {
        let Some(sink) = self.sink.get() else { return };
        loop {
            let next = lock(&self.pending).pop_front();
            let Some(alert) = next else { return };
            sink.send_service_alert(&alert).await;
        }
    }

    /// Usage is below the budget's `warn_at`, or there is no budget.
    fn below_warning(&self, tenant: &TenantId) {
        lock(&self.shares).remove(tenant);
    }

    /// A call did not fit into the budget.
    fn rejected(&self, state: &BudgetState) {
        match state.warned_share() {
            Some(part) => self.near_budget(&state.tenant, part),
            None => self.below_warning(&state.tenant),
        }
    }

    /// Warns that this fraction of a tenant's monthly budget is used.
    fn near_budget(&self, tenant: &TenantId, part: f64) {
        if !self.crosses_step(tenant, part) {
            return;
        }
        let percent = (part * 100.0).floor();
        let message = format!("{percent} % of the month's budget of tenant `{tenant}` is used");
        let alert = ServiceAlert { service: "budget", message };
        let mut pending = lock(&self.pending);
        if self.sink.get().is_none() || pending.len() >= MAX_PENDING_ALERTS {
            return alert.log();
        }
        pending.push_back(alert);
        self.added.notify_one();
    }

    /// Whether a share is in a higher step than the tenant's calls before. A share that is two steps lower is
    /// of another month, or of a raised budget; one step lower, of a concurrent call.
    fn crosses_step(&self, tenant: &TenantId, part: f64) -> bool {
        // A fraction of the budget: small, and never negative.
        let step = (part * 100.0 / STEP_PERCENT).floor() as u32;
        let mut shares = lock(&self.shares);
        let highest = shares.get(tenant).map(|(_, highest)| *highest);
        let is_new = highest.is_none_or(|highest| step > highest || step + 1 < highest);
        let highest = highest.filter(|_| !is_new).unwrap_or(step);
        shares.insert(tenant.clone(), (part, highest));
        is_new
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_warned_of_again_when_it_has_become_worse_and_in_the_next_month() {
        let (warnings, acme) = (BudgetWarnings::default(), TenantId::new("acme").unwrap());
        let parts = [0.8, 0.81, 0.849, 0.85, 0.849, 0.85, 0.99, 1.0, 0.8, 0.801];
        let warned = parts.map(|part| warnings.crosses_step(&acme, part));
        assert_eq!(warned, [true, false, false, true, false, false, true, true, true, false]);
        assert!(warnings.crosses_step(&TenantId::default(), 0.8), "each by itself");
    }
}
