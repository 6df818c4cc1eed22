//! A call to a provider, as a run records it: stored with the run's checkpoint or finish. Accounts
//! of calls are in `longshore-accounts`.

use serde::{Deserialize, Serialize};

use crate::name::{BatchId, CallId, ProfileName, SessionId, TenantId, UnitId};
use crate::text::truncate_bytes;
use crate::unit::check_text;
use crate::{Error, Result};

/// A call that is about to be made: the intent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewCall {
    /// Its id, made by the caller.
    pub id: CallId,
    /// The caller's id of the request: the same if it is sent again after a crash.
    pub request_id: String,
    /// The tenant that pays.
    pub tenant: TenantId,
    /// The profile.
    pub profile: ProfileName,
    /// The provider.
    pub provider: String,
    /// The requested model.
    pub model: String,
    /// The unit that makes the call, if any.
    pub unit: Option<UnitId>,
    /// The batch of that unit.
    pub batch: Option<BatchId>,
    /// The session that makes the call. If it dies, the call becomes [`CallStatus::MaybeBilled`].
    pub session: Option<SessionId>,
    /// The worker, for people.
    pub worker: String,
    /// The estimated tokens, reserved until it ends.
    pub reserve_tokens: u64,
    /// The estimated cost, reserved until it ends.
    pub reserve_picos: i64,
}

/// Longest text of a call, in bytes: calls are kept long, and many.
const MAX_CALL_TEXT: usize = 1024;

/// Above the usage of any call, and small enough that sums of many calls are exact.
const MAX_TOKENS: u64 = 1 << 40;

/// Above the cost of any call, in picodollars: $10,000.
pub const MAX_CALL_COST: i64 = 10_000_000_000_000_000;

impl NewCall {
    /// A call of no unit, with a new id and without a reservation.
    pub fn new(tenant: TenantId, profile: ProfileName, provider: &str, model: &str) -> Self {
        let id = CallId::new();
        Self {
            id,
            request_id: id.to_string(),
            tenant,
            profile,
            provider: provider.to_owned(),
            model: model.to_owned(),
            unit: None,
            batch: None,
            session: None,
            worker: String::new(),
            reserve_tokens: 0,
            reserve_picos: 0,
        }
    }

    /// Rejects numbers that stores could not add up, and long texts.
    pub fn check(&self) -> Result<()> {
        check_text("request id of the call", &self.request_id, MAX_CALL_TEXT)?;
        check_text("provider of the call", &self.provider, MAX_CALL_TEXT)?;
        check_text("model of the call", &self.model, MAX_CALL_TEXT)?;
        check_text("worker of the call", &self.worker, MAX_CALL_TEXT)?;
        check_tokens(self.reserve_tokens)?;
        check_cost(self.reserve_picos)
    }

    /// The end of a call that was open when its session died: all that it reserved.
    pub fn lost_end(&self) -> CallEnd {
        CallEnd {
            tokens_in: self.reserve_tokens,
            cost_picos: self.reserve_picos,
            estimated: true,
            ..CallEnd::new(CallStatus::MaybeBilled, self.model.clone())
        }
    }
}

fn check_tokens(tokens: u64) -> Result<()> {
    if tokens <= MAX_TOKENS {
        return Ok(());
    }
    Err(Error::Invalid(format!("a call may use at most {MAX_TOKENS} tokens, not {tokens}")))
}

/// Rejects a negative cost.
pub fn check_cost(picos: i64) -> Result<()> {
    if picos >= 0 {
        return Ok(());
    }
    Err(Error::Invalid(format!("a call cannot have a negative cost of {picos} picos")))
}

/// The status of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallStatus {
    /// In progress.
    Open,
    /// Answered.
    Success,
    /// Ended with an error.
    Error,
    /// It was sent, but its outcome is unknown: the session died, it timed out, the connection
    /// broke, or the answer was truncated. It counts with the part of the answer that arrived, or
    /// else with what was reserved.
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

    /// Whether a further call for the same request would be a duplicate: this one is open or was
    /// answered.
    pub fn blocks_duplicates(self) -> bool {
        matches!(self, Self::Open | Self::Success)
    }
}

/// How a call was made, which decides its price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallMode {
    /// As a request of its own.
    #[default]
    Direct,
    /// Through a provider's batch API.
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

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallEnd {
    /// Success, error, or maybe billed.
    pub status: CallStatus,
    /// The error code of the contract.
    pub code: Option<String>,
    /// The model that answered, as the provider names it.
    pub model: String,
    /// Input tokens, cached ones included.
    pub tokens_in: u64,
    /// Output tokens.
    pub tokens_out: u64,
    /// Input tokens that were read from a cache.
    pub tokens_cached: u64,
    /// Input tokens that were written to a cache.
    pub tokens_cache_write: u64,
    /// Of these, tokens that the cache keeps for an hour.
    #[serde(default)]
    pub tokens_cache_write_long: u64,
    /// Total time, waiting and all attempts included.
    pub latency_ms: u64,
    /// How often the provider was called.
    pub attempts: u32,
    /// The cost, in picodollars (10⁻¹² USD).
    pub cost_picos: i64,
    /// Whether the tokens are an estimate of ours.
    pub estimated: bool,
    /// How it was made.
    #[serde(default)]
    pub mode: CallMode,
    /// The provider's service tier, if reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
}

impl CallEnd {
    /// An end without tokens and cost.
    pub fn new(status: CallStatus, model: impl Into<String>) -> Self {
        Self {
            status,
            code: None,
            model: model.into(),
            tokens_in: 0,
            tokens_out: 0,
            tokens_cached: 0,
            tokens_cache_write: 0,
            tokens_cache_write_long: 0,
            latency_ms: 0,
            attempts: 0,
            cost_picos: 0,
            estimated: false,
            mode: CallMode::Direct,
            tier: None,
        }
    }

    /// Tokens that a budget counts: input and output together.
    pub fn tokens(&self) -> u64 {
        self.tokens_in.saturating_add(self.tokens_out)
    }

    fn token_counts(&self) -> [u64; 5] {
        let Self { tokens_in, tokens_out, tokens_cached, tokens_cache_write, .. } = *self;
        [tokens_in, tokens_out, tokens_cached, tokens_cache_write, self.tokens_cache_write_long]
    }

    /// Whether its tokens or its cost are not those of any call.
    pub fn is_beyond_limits(&self) -> bool {
        let is_plausible = (0..=MAX_CALL_COST).contains(&self.cost_picos);
        !is_plausible || self.token_counts().into_iter().any(|tokens| tokens > MAX_TOKENS)
    }

    /// Rejects the status `Open`, numbers that stores could not add up, and long texts.
    pub fn check(&self) -> Result<()> {
        if self.status == CallStatus::Open {
            return Err(Error::Invalid("a call cannot end with status open".to_owned()));
        }
        check_text("error code of the call", self.code.as_deref().unwrap_or_default(), MAX_CALL_TEXT)?;
        check_text("answering model", &self.model, MAX_CALL_TEXT)?;
        check_text("service tier", self.tier.as_deref().unwrap_or_default(), MAX_CALL_TEXT)?;
        self.token_counts().into_iter().try_for_each(check_tokens)?;
        if i64::try_from(self.latency_ms).is_err() {
            return Err(Error::Invalid(format!(
                "a call's latency of {} ms is out of range",
                self.latency_ms
            )));
        }
        check_cost(self.cost_picos)
    }
}

/// A call, and its end if it has one. Written as one row, whether the intent was written before or
/// not. A later write wins, except that an end stays, and that tenant, request, unit, batch and
/// session stay as first written.
#[derive(Debug, Clone, PartialEq)]
pub struct CallRecord {
    /// The call.
    pub call: NewCall,
    /// How it ended.
    pub end: Option<CallEnd>,
}

impl CallRecord {
    /// The record with numbers and texts that stores accept, and a plausible cost: what exceeds a limit
    /// becomes the limit, and is marked as estimated. The numbers of a record come from clients and
    /// providers, and a store would reject the other records of the same write with it.
    #[must_use]
    pub fn clamped(self) -> Self {
        // The truncated text ends with an ellipsis.
        let longest = MAX_CALL_TEXT - '…'.len_utf8();
        let text =
            |text: String| if text.len() > MAX_CALL_TEXT { truncate_bytes(&text, longest) } else { text };
        let Self { call, end } = self;
        let call = NewCall {
            request_id: text(call.request_id),
            provider: text(call.provider),
            model: text(call.model),
            worker: text(call.worker),
            reserve_tokens: call.reserve_tokens.min(MAX_TOKENS),
            reserve_picos: call.reserve_picos.max(0),
            ..call
        };
        let end = end.filter(|end| end.status != CallStatus::Open).map(|end| CallEnd {
            estimated: end.estimated || end.is_beyond_limits(),
            code: end.code.map(text),
            model: text(end.model),
            tier: end.tier.map(text),
            tokens_in: end.tokens_in.min(MAX_TOKENS),
            tokens_out: end.tokens_out.min(MAX_TOKENS),
            tokens_cached: end.tokens_cached.min(MAX_TOKENS),
            tokens_cache_write: end.tokens_cache_write.min(MAX_TOKENS),
            tokens_cache_write_long: end.tokens_cache_write_long.min(MAX_TOKENS),
            latency_ms: end.latency_ms.min(i64::MAX.unsigned_abs()),
            cost_picos: end.cost_picos.clamp(0, MAX_CALL_COST),
            ..end
        });
        Self { call, end }
    }

    /// Rejects numbers and texts that stores could not handle.
    pub fn check(&self) -> Result<()> {
        self.call.check()?;
        self.end.as_ref().map_or(Ok(()), CallEnd::check)
    }
}
