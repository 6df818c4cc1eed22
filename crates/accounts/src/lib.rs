//! Longshore's accounts: profiles, keys, calls with their cost, limits, budgets, requests that wait
//! for a provider's batch API, API tokens and the audit log. Vocabulary and store traits, beside
//! `longshore-core`. Does no I/O, reads no clock and spawns nothing.
//!
//! Independent of [`longshore_core::Store`], which suffices to move units. A store that implements
//! both commits the calls of a unit together with its finish
//! ([`longshore_core::store::FinishRequest::calls`]), and marks the open calls of a dead session as
//! [`CallStatus::MaybeBilled`] in the transaction that takes back its units.
//!
//! Calls are the accounts: they are pruned long after their month, and from its sums. A call that
//! stays open (its caller had no session, and died) keeps its reservation in the month in which it
//! was opened, and has no other effect.
//!
//! Contract for implementers: as for [`longshore_core::Store`]. Every operation is atomic, and
//! durable when it returns unless its documentation says otherwise; operations on many items answer
//! in the order of the items; a repeat after a lost answer does no harm. Decisions come from
//! [`token_bucket`] and [`budget`].

mod audit_log;
pub mod budget;
mod calls;
mod keys;
pub mod page_cursor;
mod profiles;
mod provider_batches;
pub mod rows;
mod shorthands;
pub mod token_bucket;
mod tokens;
mod usage;

pub use audit_log::{AuditEntry, AuditLog, NewAuditEntry};
pub use budget::{Budget, BudgetDecision, BudgetState};
pub use calls::{
    Call, CallAdmission, CallEnd, CallMode, CallRecord, CallStatus, Calls, CostCorrection, MAX_CALL_COST,
    NewCall,
};
pub use keys::{KeyChange, KeyRecord, KeyStatus, Keys, NewKey};
pub use profiles::{MAX_PROFILE, ProfileChange, ProfileRecord, Profiles, PutProfile};
pub use provider_batches::{
    BatchAnswer, CloseReason, NewPendingRequest, PendingChange, PendingCounts, PendingFilter, PendingRequest,
    PendingRequests, ProviderBatch, ProviderBatchChange,
};
pub use token_bucket::{BucketRequest, DrawResult};
pub use tokens::{
    BrowserSession, MAX_LABEL, MAX_SESSIONS, NewToken, Role, TokenChange, TokenHash, TokenRecord, Tokens,
};
pub use usage::{Usage, UsageBy, UsageFilter};

use async_trait::async_trait;
use longshore_core::store::{ReplyQueues, Tenants};
use longshore_core::{Result, Scope, TenantId};

/// Limits and budgets.
#[async_trait]
pub trait Limits: Send + Sync + 'static {
    /// Takes from, and returns to, token buckets that all processes share. Need not survive a power
    /// failure: an unknown bucket is full. Uses the store's clock, one for all processes.
    async fn draw(&self, draws: Vec<BucketRequest>) -> Result<Vec<DrawResult>>;

    /// Sets or removes a tenant's monthly budget. Spent and reserved amounts stay counted.
    /// Announced as [`longshore_core::store::Topic::Setting`] `budget`. Needs [`Scope::All`]: a
    /// tenant must not lift its own budget.
    async fn put_budget(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        budget: Option<Budget>,
    ) -> Result<BudgetState>;

    /// A tenant's budget and its usage this month. The month is counted even without a budget.
    async fn budget(&self, scope: &Scope, tenant: &TenantId) -> Result<BudgetState>;
}

/// All traits of this crate, reply queues, and the tenants that accounts belong to. Implemented by
/// every type that implements them.
pub trait Ledger:
    Profiles + Keys + Calls + Limits + ReplyQueues + PendingRequests + Tokens + AuditLog + Tenants
{
}

impl<T> Ledger for T where
    T: Profiles
        + Keys
        + Calls
        + Limits
        + ReplyQueues
        + PendingRequests
        + Tokens
        + AuditLog
        + Tenants
        + ?Sized
{
}
