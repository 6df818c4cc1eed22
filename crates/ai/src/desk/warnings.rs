//! Warnings of budgets that are nearly used: not with every call, but whenever it has become worse.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use longshore::TenantId;

/// How much worse it must be, in parts of a hundred.
const STEP: f64 = 5.0;

/// What was warned of.
#[derive(Debug, Default)]
pub(super) struct Warnings(Mutex<HashMap<TenantId, u32>>);

impl Warnings {
    /// Warns that this part of a tenant's month is used or reserved.
    pub(super) fn near_budget(&self, tenant: &TenantId, part: f64) {
        if self.is_news(tenant, part) {
            let percent = (part * 100.0).floor();
            tracing::warn!(%tenant, "{percent} % of the month's budget is used or reserved");
        }
    }

    fn is_news(&self, tenant: &TenantId, part: f64) -> bool {
        // A part of what there is: small, and never below nothing.
        let step = (part * 100.0 / STEP).floor() as u32;
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.insert(tenant.clone(), step) != Some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_warned_of_again_when_it_has_become_worse_and_in_the_next_month() {
        let (warnings, acme) = (Warnings::default(), TenantId::new("acme").unwrap());
        let parts = [0.8, 0.81, 0.849, 0.85, 0.99, 1.0, 0.8, 0.801];
        let told = parts.map(|part| warnings.is_news(&acme, part));
        assert_eq!(told, [true, false, false, true, true, true, true, false]);
        assert!(warnings.is_news(&TenantId::default(), 0.8), "each by itself");
    }
}
