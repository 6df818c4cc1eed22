//! Token buckets and monthly budgets.

use async_trait::async_trait;
use longshore_accounts::{BucketRequest, Budget, BudgetState, DrawResult, Limits, token_bucket};
use longshore_core::store::require_admin_scope;
use longshore_core::{Error, Result, Scope, TenantId, Timestamp};

use super::LedgerState;
use crate::memory::MemoryStore;

#[async_trait]
impl Limits for MemoryStore {
    async fn draw(&self, draws: Vec<BucketRequest>) -> Result<Vec<DrawResult>> {
        draws.iter().try_for_each(BucketRequest::check)?;
        Ok(self.write(|state, now| {
            let buckets = &mut state.ledger.buckets;
            let mut take = |draw: BucketRequest| {
                let (drawn, level) = token_bucket::draw(buckets.get(&draw.bucket).copied(), now, &draw);
                buckets.insert(draw.bucket, level);
                drawn
            };
            draws.into_iter().map(&mut take).collect()
        }))
    }

    async fn put_budget(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        budget: Option<Budget>,
    ) -> Result<BudgetState> {
        require_admin_scope(scope, tenant)?;
        budget.as_ref().map_or(Ok(()), Budget::check)?;
        Ok(self.write(|state, now| {
            match budget {
                Some(budget) => _ = state.ledger.budgets.insert(tenant.clone(), budget),
                None => _ = state.ledger.budgets.remove(tenant),
            }
            state.dirty.settings.insert(("budget", tenant.clone()));
            state.ledger.month(tenant, now)
        }))
    }

    async fn budget(&self, scope: &Scope, tenant: &TenantId) -> Result<BudgetState> {
        if !scope.covers(tenant) {
            return Err(Error::not_found("tenant", tenant));
        }
        Ok(self.read(|state, now| state.ledger.month(tenant, now)))
    }
}

impl LedgerState {
    /// A tenant's current month, with its budget.
    pub(super) fn month(&self, tenant: &TenantId, now: Timestamp) -> BudgetState {
        let month = BudgetState::month_of(now);
        let budget = self.budgets.get(tenant).copied();
        let found = self.months.get(&(tenant.clone(), month.clone())).cloned();
        let fresh = || BudgetState::new(tenant.clone(), month, None);
        BudgetState { budget, ..found.unwrap_or_else(fresh) }
    }
}
