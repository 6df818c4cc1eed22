//! Calls to providers: one row each, written before the call and settled after it.

use async_trait::async_trait;
use longshore_core::call::check_cost;
use longshore_core::store::Page;
use longshore_core::{CallId, Error, Result, Scope, Timestamp};
use serde::{Deserialize, Serialize};

use crate::usage::{Usage, UsageBy, UsageFilter};

pub use longshore_core::call::{CallEnd, CallMode, CallRecord, CallStatus, MAX_CALL_COST, NewCall};

/// A call as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The call.
    #[serde(flatten)]
    pub call: NewCall,
    /// Its status.
    pub status: CallStatus,
    /// How it ended; `None` while it is open. After [`CallStatus::MaybeBilled`] it holds an
    /// estimate.
    pub end: Option<CallEnd>,
    /// When its intent was written.
    pub opened_at: Timestamp,
    /// When it ended.
    pub logged_at: Option<Timestamp>,
}

impl Call {
    /// A call as stored, opened at `opened_at` and, if it has an end, ended at `now`.
    pub fn new(record: CallRecord, opened_at: Timestamp, now: Timestamp) -> Self {
        let CallRecord { call, end } = record;
        let status = end.as_ref().map_or(CallStatus::Open, |end| end.status);
        let logged_at = end.is_some().then_some(now);
        Self { call, status, end, opened_at, logged_at }
    }

    /// Whether `new` would be a duplicate of it: see [`Calls::admit_calls`].
    pub fn is_duplicated_by(&self, new: &NewCall) -> bool {
        let same = self.call.tenant == new.tenant && self.call.request_id == new.request_id;
        same && self.status.blocks_duplicates() && self.call.unit != new.unit
    }
}

/// Whether a call may be made.
#[derive(Debug, Clone, PartialEq)]
pub enum CallAdmission {
    /// The intent is written, and its usage reserved.
    Admitted,
    /// Admitted; ended calls have used this share of the tenant's budget.
    NearBudget(f64),
    /// It does not fit into the tenant's budget. Nothing was written.
    OverBudget(super::BudgetState),
    /// A call of another unit for the same request and tenant is open or was answered. Nothing was
    /// written.
    Duplicate(Box<Call>),
}

/// A corrected cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CostCorrection {
    /// The call.
    pub id: CallId,
    /// Its new cost.
    pub cost_picos: i64,
}

impl CostCorrection {
    /// Rejects a negative cost.
    pub fn check(&self) -> Result<()> {
        check_cost(self.cost_picos)
    }

    /// The error for a call that has not ended.
    pub fn open_call_error(&self) -> Error {
        Error::Invalid(format!("call {} is still open: its cost can be corrected once it has ended", self.id))
    }
}

/// Calls, and their cost.
#[async_trait]
pub trait Calls: Send + Sync + 'static {
    /// Writes the intents of calls, and reserves what they may use. Survives the death of the
    /// process, but need not survive a power failure. Decided in the order of the list, each call
    /// seeing the ones before it.
    ///
    /// A call is a duplicate of a call with the same tenant and request id that is open or was
    /// answered, unless both belong to the same unit (it was retried, or falls back to another
    /// profile), or neither belongs to a unit. A known id is a repeat: admitted, and counted once.
    /// [`Error::SessionGone`] if the session of a call has ended: its calls would never be settled.
    async fn admit_calls(&self, calls: Vec<NewCall>) -> Result<Vec<CallAdmission>>;

    /// Writes calls without a unit, or of a unit that continues. Calls of a unit that ends are
    /// written with its finish, and calls of a unit that checkpoints with its checkpoint. Usage and
    /// cost count in the month in which the call was opened. A call without an end is written, if
    /// its session has ended, as [`CallStatus::MaybeBilled`].
    async fn record_calls(&self, records: Vec<CallRecord>) -> Result<()>;

    /// Calls, newest first.
    async fn calls(
        &self,
        scope: &Scope,
        filter: &UsageFilter,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Call>>;

    /// Usage summed by group, ordered by the group's name. The day of a call is the UTC day of its
    /// intent.
    async fn usage(&self, scope: &Scope, filter: &UsageFilter, by: UsageBy) -> Result<Vec<Usage>>;

    /// Corrects the cost of calls, and the months they were opened in; all or nothing.
    /// [`Error::NotFound`] for an unknown call, [`Error::Invalid`] for an open one.
    async fn correct_costs(&self, scope: &Scope, recosts: Vec<CostCorrection>) -> Result<()>;
}
