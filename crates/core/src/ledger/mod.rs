//! The seam to what is owned, allowed and owed: profiles, keys, calls with their cost, limits,
//! budgets, where replies go, questions that wait to be asked in bulk, API tokens and the audit log.
//!
//! It stands beside [`crate::Store`]: whoever only moves units needs none of it. A store that has it
//! commits what a call came to together with the end of the unit that made it
//! ([`crate::store::Finish::calls`]), and marks the open calls of a session that died as
//! [`CallStatus::MaybeBilled`] in the transaction that takes its units back.
//!
//! Calls are the books: no pruning removes them. One that is left open (whoever made it had no
//! session, and died) holds its part of the month in which it was opened and nothing else.
//!
//! Contract for implementers: as for [`crate::Store`]. Every verb is atomic, and durable when it
//! returns unless it says otherwise; what it answers for many is in the order of what was asked; a
//! repeat after a lost answer does no further harm. Decisions come from [`bucket`] and [`budget`].

mod audit;
pub mod bucket;
pub mod budget;
mod calls;
pub mod cursor;
mod keys;
mod parking;
mod profiles;
mod replies;
mod tokens;
mod usage;

pub use audit::{Audit, Deed, NewDeed};
pub use bucket::{Draw, Drawn};
pub use budget::{Budget, BudgetState};
pub use calls::{
    Admission, Call, CallEnd, CallMode, CallRecord, CallStatus, Calls, NewCall, Recost,
};
pub use keys::{KeyRecord, KeyStatus, Keys, NewKey};
pub use parking::{Delivery, NewParked, Parked, ParkedCounts, Parking, Return, Shipment, Standing};
pub use profiles::{ProfileRecord, Profiles, PutProfile};
pub use replies::Replies;
pub use tokens::{MAX_LABEL, NewToken, Role, TokenHash, TokenRecord, Tokens};
pub use usage::{Usage, UsageBy, UsageFilter, total_cost};

use async_trait::async_trait;

use crate::Result;
use crate::name::{Scope, TenantId};

/// Limits and budgets.
#[async_trait]
pub trait Limits: Send + Sync + 'static {
    /// Takes from, and gives back to, buckets that all processes share. Need not survive a power
    /// failure: a bucket that is forgotten is full. By the store's own clock, one for all processes.
    async fn draw(&self, draws: Vec<Draw>) -> Result<Vec<Drawn>>;

    /// Sets or lifts a tenant's monthly budget. What was spent and reserved stays counted. Announced
    /// as [`crate::store::Topic::Setting`] `budget`. Needs [`Scope::All`]: nobody lifts their own.
    async fn put_budget(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        budget: Option<Budget>,
    ) -> Result<BudgetState>;

    /// A tenant's budget and what this month has taken of it. Without a budget, the month is counted
    /// all the same.
    async fn budget(&self, scope: &Scope, tenant: &TenantId) -> Result<BudgetState>;
}

/// Everything of the seam. Implemented by whatever implements its parts.
pub trait Ledger: Profiles + Keys + Calls + Limits + Replies + Parking + Tokens + Audit {}

impl<T> Ledger for T where
    T: Profiles + Keys + Calls + Limits + Replies + Parking + Tokens + Audit + ?Sized
{
}
