//! Log warnings for budgets that are nearly used up. A tenant's warning is repeated when usage
//! crosses the next step, not on every call.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use longshore::TenantId;

/// Usage that has to be added before the next warning, in percent.
const STEP_PERCENT: f64 = 5.0;

/// The last step that was warned about, by tenant.
#[derive(Debug, Default)]
pub(super) struct BudgetWarnings(Mutex<HashMap<TenantId, u32>>);

impl BudgetWarnings {
    /// Warns that this fraction of a tenant's monthly budget is used or reserved.
    pub(super) fn near_budget(&self, tenant: &TenantId, part: f64) {
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
