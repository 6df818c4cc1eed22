//! What is brought to the desk, and what is taken away from it.

use longshore::ledger::{Call, CallRecord};
use longshore::{BatchId, Context, ProfileName, SessionId, TenantId, UnitId};

use super::another_may_help;
use crate::ask::{Answer, AskError, Code, Question};

/// A question, and for whom it is asked.
#[derive(Debug, Clone)]
pub struct Errand {
    /// Who pays.
    pub tenant: TenantId,
    /// By which of its profiles; without one, by its default.
    pub profile: Option<ProfileName>,
    /// What is asked.
    pub question: Question,
    /// The unit that asks.
    pub unit: Option<UnitId>,
    /// The batch that the unit belongs to.
    pub batch: Option<BatchId>,
    /// The session that asks: if it dies, the call is "maybe billed".
    pub session: Option<SessionId>,
    /// The run that asks: while it waits for a limit it says so, and it gives its slot back should
    /// that be wanted ([`Settled::yields`]). Without one the question waits in place.
    pub run: Option<Context>,
}

impl Errand {
    /// A question of no unit.
    pub fn new(tenant: TenantId, profile: Option<ProfileName>, question: Question) -> Self {
        Self { tenant, profile, question, unit: None, batch: None, session: None, run: None }
    }
}

/// What an errand came to.
#[derive(Debug, Clone)]
pub struct Settled {
    /// The answer, or why there is none.
    pub result: Result<Answer, AskError>,
    /// How often a provider was asked, all profiles together.
    pub attempts: u32,
    /// What it cost, all calls together.
    pub cost_picos: i64,
    /// For the books: one record per profile that was asked.
    pub records: Vec<CallRecord>,
    /// The same request was asked before, by another unit.
    pub duplicate: Option<Box<Call>>,
    /// Nobody was asked, nothing is written: its slot was wanted while it waited for a limit, and it is
    /// to be asked another time.
    pub yields: bool,
    /// Some of the answer was handed on: it cannot be asked anew.
    pub(super) begun: bool,
}

impl Default for Settled {
    fn default() -> Self {
        Self {
            result: Err(AskError::new(Code::Internal, UNTOLD)),
            attempts: 0,
            cost_picos: 0,
            records: Vec::new(),
            duplicate: None,
            yields: false,
            begun: false,
        }
    }
}

const UNTOLD: &str = "nobody was asked";

impl Settled {
    /// What a question came to that is in nobody's books, or that somebody else writes there.
    pub fn elsewhere(result: Result<Answer, AskError>, cost_picos: i64) -> Self {
        Self { result, cost_picos, ..Self::default() }
    }

    /// Nothing has come of it yet.
    pub(super) fn is_untold(&self) -> bool {
        matches!(&self.result, Err(error) if error.message == UNTOLD)
    }

    /// Asking somebody else is of no use.
    pub(super) fn is_final(&self) -> bool {
        let hopeless = |error: &AskError| !another_may_help(error);
        let ended = self.begun || self.yields || self.duplicate.is_some();
        ended || self.result.as_ref().err().is_none_or(hopeless)
    }
}
