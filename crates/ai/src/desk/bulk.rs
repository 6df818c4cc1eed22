//! Questions that go with a provider's batch: journalled before they are parked, at the batch's price and
//! for no session, because no session waits for them; settled by whoever hears of the answer.

use std::sync::Arc;

use longshore::ledger::{Admission, CallEnd, CallMode, CallRecord, Ledger, NewCall};
use longshore::{CallId, ProfileName, TenantId, UnitId};

use super::register::{Entry, away};
use super::{Desk, Errand, Settled, failed, succeeded};
use crate::ask::{AskError, Code, Question};
use crate::batches::{BatchProvider, BatchReply};
use crate::prices::Prices;
use crate::profile::{Profile, ProfileError};
use crate::rate::Mode;

/// A profile that is asked in batches.
pub struct Bulk {
    entry: Arc<Entry>,
    provider: Arc<dyn BatchProvider>,
}

impl Bulk {
    /// The batch side of its provider.
    pub fn provider(&self) -> Arc<dyn BatchProvider> {
        Arc::clone(&self.provider)
    }

    /// What its tokens cost.
    pub fn prices(&self) -> &Prices {
        &self.entry.profile.prices
    }

    /// What the model is told about its role, unless the question says it.
    pub fn system(&self) -> Option<&str> {
        self.entry.profile.system.as_deref()
    }

    /// What the books say of a call whose question was never sent, or not answered, because nobody wants it.
    pub fn forgo(call: NewCall) -> CallRecord {
        let end = CallEnd {
            code: Some("CANCELLED".to_owned()),
            mode: CallMode::Batch,
            ..failed(&AskError::new(Code::Internal, ""), 0, 0)
        };
        CallRecord { call, end: Some(end) }
    }

    fn call(&self, desk: &Desk, errand: &Errand) -> NewCall {
        let (question, profile) = (&errand.question, &self.entry.profile);
        let (asked, answer) =
            (self.entry.provider.estimate(question), u64::from(question.max_tokens));
        let now = desk.inner.clock.now();
        let model = question.model.as_deref().unwrap_or(&profile.model);
        let name = &self.entry.name;
        NewCall {
            id: call_id(errand.unit, &question.request_id),
            session: None,
            reserve_tokens: asked + answer,
            reserve_picos: profile.prices.at_most(asked, answer, now, Mode::Batch).0,
            ..desk.inner.new_call(errand, name, profile.provider.as_str(), model)
        }
    }
}

impl Desk {
    /// The ledger that it is on.
    pub fn ledger(&self) -> &Arc<dyn Ledger> {
        &self.inner.ledger
    }

    /// A tenant's profile as one that is asked in batches; `written` is one that is in no ledger.
    pub async fn bulk(
        &self,
        tenant: &TenantId,
        name: Option<&ProfileName>,
        written: Option<&Profile>,
    ) -> Result<Bulk, AskError> {
        let entry = match written {
            Some(profile) => self.inner.register.written(tenant, profile).await?,
            None => self.inner.register.find(tenant, name).await?,
        };
        match &entry.batches {
            Some(provider) => Ok(Bulk { provider: Arc::clone(provider), entry }),
            None => {
                let Profile { name, provider, .. } = &entry.profile;
                let error = ProfileError::NoBatches(name.clone(), *provider);
                Err(AskError::new(Code::InvalidRequest, error.to_string()))
            }
        }
    }

    /// Journals a question that is about to be parked, and reserves what it may use. A repeat is the same
    /// call. What was refused is settled: it is for whoever asked to write.
    pub async fn admit_bulk(
        &self,
        errand: &Errand,
        written: Option<&Profile>,
    ) -> Result<NewCall, Box<Settled>> {
        let name = written.and_then(|profile| ProfileName::new(&profile.name).ok());
        let name = errand.profile.clone().or(name);
        let refused = |error: AskError| {
            let record = name.as_ref().map(|name| self.unasked(errand, name, &error));
            let records = record.into_iter().collect();
            Box::new(Settled { result: Err(error), records, ..Settled::default() })
        };
        let bulk = self.bulk(&errand.tenant, errand.profile.as_ref(), written).await;
        let bulk = bulk.map_err(refused)?;
        let question = Question {
            system: errand.question.system.clone().or_else(|| bulk.system().map(str::to_owned)),
            ..errand.question.clone()
        };
        let call = bulk.call(self, &Errand { question, ..errand.clone() });
        let admitted = self.inner.ledger.admit_calls(vec![call.clone()]).await;
        match admitted.map_err(|error| refused(away(&error)))?.pop() {
            Some(Admission::OverBudget(month)) => Err(refused(used_up(&month))),
            Some(Admission::Duplicate(other)) => {
                Err(Box::new(Settled { duplicate: Some(other), ..Settled::default() }))
            }
            Some(Admission::NearBudget(part)) => {
                self.inner.warnings.near_budget(&errand.tenant, part);
                Ok(call)
            }
            Some(Admission::Admitted) => Ok(call),
            None => Err(refused(AskError::new(Code::Internal, "the ledger did not answer"))),
        }
    }
}

impl BatchReply {
    /// What the books say of a call that came to this.
    pub fn settle(&self, call: NewCall) -> CallRecord {
        let end = match self {
            Self::Answer { answer, cost } => succeeded(answer, 1, 0, cost.0),
            Self::Error { code, maybe_billed: true, .. } => {
                CallEnd { code: Some(code.as_str().to_owned()), ..call.maybe_billed() }
            }
            Self::Error { code, message, .. } => {
                failed(&AskError::new(*code, message.clone()), 1, 0)
            }
        };
        CallRecord { call, end: Some(CallEnd { mode: CallMode::Batch, ..end }) }
    }
}

pub(super) fn used_up(month: &longshore::ledger::BudgetState) -> AskError {
    let words = format!("the budget of tenant `{}` for {} is used up", month.tenant, month.month);
    AskError::new(Code::OverBudget, words)
}

/// The call of a question that is journalled again after a crash is the same call, so its id is made from
/// what stays the same: the unit's time, so that calls stay in order, and all of both, mixed (FNV-1a).
fn call_id(unit: Option<UnitId>, request_id: &str) -> CallId {
    let Some(unit) = unit else { return CallId::new() };
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let bytes = unit.as_bytes().iter().chain(request_id.as_bytes());
    let mix = |hash: u128, byte: &u8| (hash ^ u128::from(*byte)).wrapping_mul(PRIME);
    let mut id = bytes.fold(BASIS, mix).to_be_bytes();
    id[..6].copy_from_slice(&unit.as_bytes()[..6]);
    // The version and variant of ids that begin with a time.
    id[6] = (id[6] & 0x0f) | 0x70;
    id[8] = (id[8] & 0x3f) | 0x80;
    CallId::from_bytes(id)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_same_question_of_the_same_unit_is_the_same_call_and_no_other_is() {
        let units: Vec<UnitId> = (0..1000).map(|_| UnitId::new()).collect();
        let mut ids = HashSet::new();
        for unit in units {
            for n in 1..=3 {
                let request = format!("{unit}-{n}");
                let id = call_id(Some(unit), &request);
                assert_eq!(id, call_id(Some(unit), &request));
                assert_eq!(id.as_bytes()[..6], unit.as_bytes()[..6]);
                assert!(ids.insert(id));
            }
        }
    }
}
