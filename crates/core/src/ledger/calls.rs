//! Calls that may cost something: journalled before, settled after, one row each.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::usage::{Usage, UsageBy, UsageFilter};
use crate::name::{BatchId, CallId, ProfileName, Scope, SessionId, TenantId, UnitId};
use crate::store::Page;
use crate::time::Timestamp;
use crate::{Error, Result};

/// A call that is about to be made: the intent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewCall {
    /// Its identity, made by the caller.
    pub id: CallId,
    /// What the caller recognises the question by: the same when it is asked again after a crash.
    pub request_id: String,
    /// Who pays.
    pub tenant: TenantId,
    /// By which profile.
    pub profile: ProfileName,
    /// Who is asked.
    pub provider: String,
    /// Which model is asked.
    pub model: String,
    /// The unit that asks, if it is one.
    pub unit: Option<UnitId>,
    /// The batch it belongs to.
    pub batch: Option<BatchId>,
    /// The session that asks: with it, the call becomes [`CallStatus::MaybeBilled`].
    pub session: Option<SessionId>,
    /// Who asks, for people.
    pub worker: String,
    /// The tokens it may use, as estimated.
    pub reserve_tokens: u64,
    /// What it may cost, as estimated.
    pub reserve_picos: i64,
}

/// More than any call uses, and little enough that sums of many calls are exact.
const MOST_TOKENS: u64 = 1 << 40;

impl NewCall {
    /// Refuses numbers that no store should have to add up.
    pub fn check(&self) -> Result<()> {
        check_tokens(self.reserve_tokens)?;
        check_cost(self.reserve_picos)
    }

    /// What it came to when whoever made it died: as much as it might have.
    pub fn maybe_billed(&self) -> CallEnd {
        CallEnd {
            status: CallStatus::MaybeBilled,
            code: None,
            model: self.model.clone(),
            tokens_in: self.reserve_tokens,
            tokens_out: 0,
            tokens_cached: 0,
            tokens_cache_write: 0,
            tokens_cache_write_long: 0,
            latency_ms: 0,
            attempts: 0,
            cost_picos: self.reserve_picos,
            estimated: true,
            mode: CallMode::Direct,
            tier: None,
        }
    }
}

fn check_tokens(tokens: u64) -> Result<()> {
    if tokens <= MOST_TOKENS {
        return Ok(());
    }
    Err(Error::Invalid(format!("a call uses at most {MOST_TOKENS} tokens, not {tokens}")))
}

fn check_cost(picos: i64) -> Result<()> {
    if picos >= 0 {
        return Ok(());
    }
    Err(Error::Invalid(format!("a call cannot cost {picos} picos: less than nothing")))
}

/// How a call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallStatus {
    /// It is under way.
    Open,
    /// It was answered.
    Success,
    /// It came to an error.
    Error,
    /// It was sent, and what became of it is not known: whoever made it died, its time ran out, the
    /// connection broke, or the answer was cut. It counts with what came of the answer, or else with
    /// what was reserved.
    MaybeBilled,
}

impl CallStatus {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Success => "success",
            Self::Error => "error",
            Self::MaybeBilled => "maybe_billed",
        }
    }

    /// Whether another call for the same thing would be one too many: it is being answered, or was.
    pub fn answers(self) -> bool {
        matches!(self, Self::Open | Self::Success)
    }
}

/// How a call was made, which decides its price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallMode {
    /// By itself.
    #[default]
    Direct,
    /// With many others, through a provider's batch API.
    Batch,
}

impl CallMode {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Batch => "batch",
        }
    }
}

/// What a call came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallEnd {
    /// Success, error, or maybe billed.
    pub status: CallStatus,
    /// What went wrong, in the words of the contract.
    pub code: Option<String>,
    /// The model that answered, as the provider names it.
    pub model: String,
    /// Tokens of the question, cached ones included.
    pub tokens_in: u64,
    /// Tokens of the answer.
    pub tokens_out: u64,
    /// Those of the question that were read from a cache.
    pub tokens_cached: u64,
    /// Those of the question that were written to a cache.
    pub tokens_cache_write: u64,
    /// Those of them that the cache keeps for an hour.
    #[serde(default)]
    pub tokens_cache_write_long: u64,
    /// How long it took, waiting and all tries included.
    pub latency_ms: u64,
    /// How often the provider was asked.
    pub attempts: u32,
    /// What it cost, in millionths of a millionth of a dollar.
    pub cost_picos: i64,
    /// The tokens are our own estimate.
    pub estimated: bool,
    /// How it was made.
    #[serde(default)]
    pub mode: CallMode,
    /// The tier in which the provider served it, if it names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
}

impl CallEnd {
    /// What a budget counts: tokens in and out together.
    pub fn tokens(&self) -> u64 {
        self.tokens_in.saturating_add(self.tokens_out)
    }

    /// Refuses an end that is none, and numbers that no store should have to add up.
    pub fn check(&self) -> Result<()> {
        if self.status == CallStatus::Open {
            return Err(Error::Invalid("a call cannot end as open".to_owned()));
        }
        let asked = [self.tokens_in, self.tokens_cached, self.tokens_cache_write];
        for tokens in asked.into_iter().chain([self.tokens_cache_write_long, self.tokens_out]) {
            check_tokens(tokens)?;
        }
        if i64::try_from(self.latency_ms).is_err() {
            return Err(Error::Invalid(format!("a call does not take {} ms", self.latency_ms)));
        }
        check_cost(self.cost_picos)
    }
}

/// A call, and its end if it has one. Written as one row, whether the intent was journalled before
/// or not: what is written later wins, except that an end stays, and that who asks for what (tenant,
/// request, unit, batch and session) is as it was first written.
#[derive(Debug, Clone, PartialEq)]
pub struct CallRecord {
    /// The call.
    pub call: NewCall,
    /// What it came to.
    pub end: Option<CallEnd>,
}

impl CallRecord {
    /// Refuses what no store should have to handle.
    pub fn check(&self) -> Result<()> {
        self.call.check()?;
        self.end.as_ref().map_or(Ok(()), CallEnd::check)
    }
}

/// A call as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The call.
    #[serde(flatten)]
    pub call: NewCall,
    /// How it stands.
    pub status: CallStatus,
    /// What it came to; nothing while it is open. After [`CallStatus::MaybeBilled`] it holds an
    /// estimate.
    pub end: Option<CallEnd>,
    /// When it was journalled.
    pub opened_at: Timestamp,
    /// When it ended.
    pub logged_at: Option<Timestamp>,
}

impl Call {
    /// A call as it is kept, opened at `opened_at` and, if it has an end, ended `now`.
    pub fn new(record: CallRecord, opened_at: Timestamp, now: Timestamp) -> Self {
        let CallRecord { call, end } = record;
        let status = end.as_ref().map_or(CallStatus::Open, |end| end.status);
        let logged_at = end.is_some().then_some(now);
        Self { call, status, end, opened_at, logged_at }
    }

    /// Whether `new` would be one too many: see [`Calls::admit_calls`].
    pub fn is_duplicated_by(&self, new: &NewCall) -> bool {
        let same = self.call.tenant == new.tenant && self.call.request_id == new.request_id;
        same && self.status.answers() && self.call.unit != new.unit
    }
}

/// The ledger's word on a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Admission {
    /// Journalled and reserved.
    Admitted,
    /// The same, and this part of the tenant's budget is used with it.
    NearBudget(f64),
    /// It does not fit into the tenant's budget. Nothing was journalled.
    OverBudget(super::BudgetState),
    /// The same request of the same tenant is being answered, or was, by another unit. Nothing was
    /// journalled.
    Duplicate(Box<Call>),
}

/// A corrected price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recost {
    /// Of which call.
    pub id: CallId,
    /// What it costs now.
    pub cost_picos: i64,
}

impl Recost {
    /// Refuses a price below nothing.
    pub fn check(&self) -> Result<()> {
        check_cost(self.cost_picos)
    }

    /// Why a call that has not ended has no price.
    pub fn is_open(&self) -> Error {
        Error::Invalid(format!("call {} is under way: it has no price yet", self.id))
    }
}

/// Calls and what they came to.
#[async_trait]
pub trait Calls: Send + Sync + 'static {
    /// Journals calls before they are made, and reserves what they may use. Survives the death of
    /// the process, but need not survive a power failure. Decided in the order of the list, each
    /// seeing those before it.
    ///
    /// A call is a duplicate of one with the same tenant and request id that is open or was
    /// answered, unless both are of the same unit (it was retried, or falls back to another
    /// profile), or neither is of a unit. One with an id that is known already is a repeat:
    /// admitted, and counted once. [`Error::SessionGone`] if a session that asks has ended: its
    /// calls would never be settled.
    async fn admit_calls(&self, calls: Vec<NewCall>) -> Result<Vec<Admission>>;

    /// Writes calls that are no unit's, or whose unit goes on. Those of a unit that ends travel with
    /// its end, those of one that keeps what it reached with that. What a call may use and cost is
    /// counted in the month in which it was opened. One without an end whose session has ended is
    /// written as [`CallStatus::MaybeBilled`].
    async fn record_calls(&self, records: Vec<CallRecord>) -> Result<()>;

    /// Calls, the newest first.
    async fn calls(
        &self,
        scope: &Scope,
        filter: &UsageFilter,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Call>>;

    /// What calls came to, summed up, by name of the group. The day of a call is that on which it
    /// was journalled, in UTC.
    async fn usage(&self, scope: &Scope, filter: &UsageFilter, by: UsageBy) -> Result<Vec<Usage>>;

    /// Corrects what calls cost, and with it the months they were paid in, all or nothing.
    /// [`Error::NotFound`] for one that is not there, [`Error::Invalid`] for one that is open.
    async fn recost(&self, scope: &Scope, recosts: Vec<Recost>) -> Result<()>;
}
