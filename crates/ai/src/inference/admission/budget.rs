//! Admission by the tenant's budget: the ledger journals the call, and reserves its tokens and cost.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use longshore::accounts::{BudgetDecision, BudgetState, CallAdmission, CallRecord, NewCall};
use longshore::{Scope, TenantId};

use super::{AdmissionError, ProfileCall};
use crate::inference::Inner;
use crate::inference::billing::OpenCall;
use crate::inference::call_bound::CallBound;
use crate::inference::profile_cache::ledger_error;
use crate::model_api::{AskError, Code, Question, Retryability};

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
            BudgetDecision::Exceeded => Err(over_budget(&spent).into()),
            BudgetDecision::Within | BudgetDecision::NearLimit(_) => Ok(()),
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
            Some(CallAdmission::Admitted) => Ok(()),
            Some(CallAdmission::NearBudget(part)) => {
                self.warnings.near_budget(&call.tenant, part);
                Ok(())
            }
            Some(CallAdmission::Duplicate(other)) => Err(AdmissionError::Duplicate(other)),
            Some(CallAdmission::OverBudget(month)) => Err(over_budget(&month).into()),
            None => Err(AskError::new(Code::Internal, "the ledger did not answer").into()),
        }
    }
}

fn over_budget(month: &BudgetState) -> AskError {
    let BudgetState { tenant, month, .. } = month;
    AskError::new(Code::OverBudget, format!("the budget of tenant `{tenant}` for {month} is used up"))
}

/// Usage that has to be added before the next warning, in percent.
const STEP_PERCENT: f64 = 5.0;

/// Log warnings for budgets that are nearly used up. A tenant's warning is repeated when usage
/// crosses the next step, not on every call: the last step that was warned about, by tenant.
#[derive(Debug, Default)]
pub(in crate::inference) struct BudgetWarnings(Mutex<HashMap<TenantId, u32>>);

impl BudgetWarnings {
    /// Warns that this fraction of a tenant's monthly budget is used or reserved.
    fn near_budget(&self, tenant: &TenantId, part: f64) {
        if self.crosses_step(tenant, part) {
            let percent = (part * 100.0).floor();
            tracing::warn!(%tenant, "{percent} % of the month's budget is used or reserved");
        }
    }

    fn crosses_step(&self, tenant: &TenantId, part: f64) -> bool {
        // A fraction of the budget: small, and never negative.
        let step = (part * 100.0 / STEP_PERCENT).floor() as u32;
        let mut last_steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last_steps.insert(tenant.clone(), step) != Some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_warned_of_again_when_it_has_become_worse_and_in_the_next_month() {
        let (warnings, acme) = (BudgetWarnings::default(), TenantId::new("acme").unwrap());
        let parts = [0.8, 0.81, 0.849, 0.85, 0.99, 1.0, 0.8, 0.801];
        let warned = parts.map(|part| warnings.crosses_step(&acme, part));
        assert_eq!(warned, [true, false, false, true, true, true, true, false]);
        assert!(warnings.crosses_step(&TenantId::default(), 0.8), "each by itself");
    }
}
