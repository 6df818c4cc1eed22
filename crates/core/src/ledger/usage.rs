//! What calls came to, summed up.

use serde::{Deserialize, Serialize};

use crate::name::{BatchId, ProfileName, TenantId};
use crate::time::Timestamp;

/// Which calls.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UsageFilter {
    /// Of this tenant.
    pub tenant: Option<TenantId>,
    /// Of this request.
    pub request_id: Option<String>,
    /// Of this batch.
    pub batch: Option<BatchId>,
    /// By this profile.
    pub profile: Option<ProfileName>,
    /// Journalled at this time or later.
    pub since: Option<Timestamp>,
    /// Journalled before this time.
    pub until: Option<Timestamp>,
}

/// How calls are put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageBy {
    /// By who pays.
    Tenant,
    /// By the model that answered, or was asked.
    Model,
    /// By day.
    Day,
    /// By batch; calls of none are put together under the empty name.
    Batch,
    /// By profile, as `tenant/profile`.
    Profile,
}

/// What some calls came to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// The group's name.
    pub name: String,
    /// How many calls.
    pub calls: u64,
    /// How many of them are under way.
    pub open: u64,
    /// How many came to an error.
    pub errors: u64,
    /// How many ended with whoever made them.
    pub maybe_billed: u64,
    /// How many have tokens that are our own estimate.
    pub estimated: u64,
    /// Tokens of questions.
    pub tokens_in: u64,
    /// Tokens of answers.
    pub tokens_out: u64,
    /// Tokens of questions that were read from a cache.
    pub tokens_cached: u64,
    /// What they cost.
    pub cost_picos: i64,
}
