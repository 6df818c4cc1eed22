//! Usage: calls summed by group.

use longshore_core::{BatchId, ProfileName, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::calls::{Call, CallStatus};

/// Selects calls.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UsageFilter {
    /// Of this tenant.
    pub tenant: Option<TenantId>,
    /// Of this request.
    pub request_id: Option<String>,
    /// Of this batch.
    pub batch: Option<BatchId>,
    /// With this profile.
    pub profile: Option<ProfileName>,
    /// Opened at this time or later.
    pub since: Option<Timestamp>,
    /// Opened before this time.
    pub until: Option<Timestamp>,
}

impl UsageFilter {
    /// Whether a call is selected.
    pub fn matches(&self, call: &Call) -> bool {
        let Call { call, opened_at, .. } = call;
        self.tenant.as_ref().is_none_or(|tenant| *tenant == call.tenant)
            && self.request_id.as_ref().is_none_or(|id| *id == call.request_id)
            && self.batch.as_ref().is_none_or(|batch| call.batch.as_ref() == Some(batch))
            && self.profile.as_ref().is_none_or(|profile| *profile == call.profile)
            && self.since.is_none_or(|since| *opened_at >= since)
            && self.until.is_none_or(|until| *opened_at < until)
    }
}

/// How calls are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageBy {
    /// By the tenant that pays.
    Tenant,
    /// By the model that answered, or else was requested.
    Model,
    /// By day.
    Day,
    /// By batch; calls without a batch form a group with an empty name.
    Batch,
    /// By profile, as `tenant/profile`.
    Profile,
}

impl UsageBy {
    /// The name of a call's group.
    pub fn group(self, call: &Call) -> String {
        let answered = call.end.as_ref().map(|end| &end.model).filter(|model| !model.is_empty());
        let call_of = &call.call;
        match self {
            Self::Tenant => call_of.tenant.to_string(),
            Self::Model => answered.unwrap_or(&call_of.model).clone(),
            Self::Day => call.opened_at.to_string().chars().take(10).collect(),
            Self::Batch => call_of.batch.as_ref().map(ToString::to_string).unwrap_or_default(),
            Self::Profile => format!("{}/{}", call_of.tenant, call_of.profile),
        }
    }
}

/// The usage of a group of calls.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Usage {
    /// The group's name.
    pub name: String,
    /// Number of calls.
    pub calls: u64,
    /// Calls that are open.
    pub open: u64,
    /// Calls that ended with an error.
    pub errors: u64,
    /// Calls with an unknown outcome: see [`CallStatus::MaybeBilled`].
    pub maybe_billed: u64,
    /// Calls with estimated tokens.
    pub estimated: u64,
    /// Input tokens.
    pub tokens_in: u64,
    /// Output tokens.
    pub tokens_out: u64,
    /// Input tokens that were read from a cache.
    pub tokens_cached: u64,
    /// Cost, in picodollars (10⁻¹² USD).
    pub cost_picos: i64,
}

impl Usage {
    /// Adds a call. Sums saturate.
    pub fn add(&mut self, call: &Call) {
        self.calls += 1;
        self.open += u64::from(call.status == CallStatus::Open);
        self.errors += u64::from(call.status == CallStatus::Error);
        self.maybe_billed += u64::from(call.status == CallStatus::MaybeBilled);
        let Some(end) = &call.end else { return };
        self.estimated += u64::from(end.estimated);
        self.tokens_in = self.tokens_in.saturating_add(end.tokens_in);
        self.tokens_out = self.tokens_out.saturating_add(end.tokens_out);
        self.tokens_cached = self.tokens_cached.saturating_add(end.tokens_cached);
        self.cost_picos = self.cost_picos.saturating_add(end.cost_picos);
    }
}
