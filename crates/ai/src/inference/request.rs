//! The input and the outcome of an inference call.

use longshore::accounts::{Call, CallRecord};
use longshore::{BatchId, Context, ProfileName, SessionId, TenantId, UnitId};

use super::fallback_may_help;
use crate::model_api::{Answer, AskError, Code, Question};

/// A question, with the tenant, profile and unit that it is asked for.
#[derive(Debug, Clone)]
pub struct Errand {
    /// The tenant that pays.
    pub tenant: TenantId,
    /// The tenant's profile; `None` is its default.
    pub profile: Option<ProfileName>,
    /// The question.
    pub question: Question,
    /// The unit that asks.
    pub unit: Option<UnitId>,
    /// The batch that the unit belongs to.
    pub batch: Option<BatchId>,
    /// The session that asks. If it dies, the call becomes "maybe billed".
    pub session: Option<SessionId>,
    /// The unit's run. While the question waits for a limit, the run reports that it waits, and the
    /// unit gives its slot back if another unit needs it ([`Settled::yields`]). Without a run the
    /// question keeps waiting.
    pub run: Option<Context>,
}

impl Errand {
    /// A question of no unit.
    pub fn new(tenant: TenantId, profile: Option<ProfileName>, question: Question) -> Self {
        Self { tenant, profile, question, unit: None, batch: None, session: None, run: None }
    }
}

/// The outcome of an inference call.
#[derive(Debug, Clone)]
pub struct Settled {
    /// The answer, or the error.
    pub result: Result<Answer, AskError>,
    /// How often a provider was asked, over all profiles.
    pub attempts: u32,
    /// The cost of all calls.
    pub cost_picos: i64,
    /// Ledger records, one per profile that was asked.
    pub records: Vec<CallRecord>,
    /// Another unit asked the same request before.
    pub duplicate: Option<Box<Call>>,
    /// No provider was asked and nothing was recorded: the worker needed the slot while the
    /// question waited for a limit. The unit has to be requeued.
    pub yields: bool,
    /// Part of the answer was streamed to the caller: no other profile may be asked.
    pub(super) streamed: bool,
}

impl Default for Settled {
    fn default() -> Self {
        Self {
            result: Err(AskError::new(Code::Internal, "no provider was asked")),
            attempts: 0,
            cost_picos: 0,
            records: Vec::new(),
            duplicate: None,
            yields: false,
            streamed: false,
        }
    }
}

impl Settled {
    /// The outcome of a question that is not recorded, or that another process records.
    pub fn elsewhere(result: Result<Answer, AskError>, cost_picos: i64) -> Self {
        Self { result, cost_picos, ..Self::default() }
    }

    /// Whether no profile has been tried yet.
    pub(super) fn is_pending(&self) -> bool {
        self.records.is_empty() && self.duplicate.is_none()
    }

    /// Whether asking another profile cannot help.
    pub(super) fn is_final(&self) -> bool {
        let hopeless = |error: &AskError| !fallback_may_help(error);
        let ended = self.streamed || self.yields || self.duplicate.is_some();
        ended || self.result.as_ref().err().is_none_or(hopeless)
    }
}
