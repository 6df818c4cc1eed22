//! Calls of a provider's batch API. A call is journalled before its question is parked, at the
//! batch price and without a session, because no session waits for it. The batch runner settles it
//! when the answer arrives.

use std::sync::Arc;

use longshore::accounts::{CallEnd, CallMode, CallRecord, Ledger, NewCall};
use longshore::{CallId, ProfileName, TenantId, UnitId};

use super::admission::AdmissionError;
use super::billing::{failed, recordable, succeeded};
use super::profile_cache::ResolvedProfile;
use super::{Inference, InferenceOutcome, InferenceRequest};
use crate::batches::{BatchProvider, BatchReply};
use crate::model_api::{AskError, Code, Question};
use crate::pricing::{PriceMode, Prices};
use crate::profile::{Profile, ProfileError};

/// A profile with a batch API.
pub struct BatchProfile {
    entry: Arc<ResolvedProfile>,
    provider: Arc<dyn BatchProvider>,
}

impl BatchProfile {
    /// The provider's batch API.
    pub fn provider(&self) -> Arc<dyn BatchProvider> {
        Arc::clone(&self.provider)
    }

    /// The prices of its tokens.
    pub fn prices(&self) -> &Prices {
        let Profile { prices, .. } = &self.entry.profile;
        self.entry.require_model(None).unwrap_or(prices)
    }

    /// The profile's system prompt, for questions that have none.
    pub fn system(&self) -> Option<&str> {
        self.entry.profile.system.as_deref()
    }

    /// The ledger record of a cancelled call: its question was not sent, or its answer is no longer
    /// needed.
    pub fn cancelled_record(call: NewCall) -> CallRecord {
        let end = CallEnd {
            code: Some("CANCELLED".to_owned()),
            mode: CallMode::Batch,
            ..failed(&AskError::new(Code::Internal, ""), 0, 0)
        };
        recordable(CallRecord { call, end: Some(end) })
    }

    async fn call(&self, inference: &Inference, request: &InferenceRequest) -> Result<NewCall, AskError> {
        let (question, profile, inner) = (&request.question, &self.entry.profile, &inference.inner);
        let bound = inner.bound(&self.entry, &request.tenant, question, PriceMode::Batch).await?;
        let model = question.model.as_deref().unwrap_or(&profile.model);
        let call = inner.new_call(request, &self.entry.name, profile.provider.as_str(), model);
        let id = call_id(request.unit, &question.request_id);
        Ok(bound.reserve(NewCall { id, session: None, ..call }))
    }
}

impl Inference {
    /// The ledger that this instance writes to.
    pub fn ledger(&self) -> &Arc<dyn Ledger> {
        &self.inner.ledger
    }

    /// Opens a tenant's profile for batch calls. `inline` is a profile given inline instead of by
    /// name.
    pub async fn batch_profile(
        &self,
        tenant: &TenantId,
        name: Option<&ProfileName>,
        inline: Option<&Profile>,
    ) -> Result<BatchProfile, AskError> {
        let entry = match inline {
            Some(profile) => self.inner.profile_cache.find_inline(tenant, profile).await?,
            None => self.inner.profile_cache.find(tenant, name).await?,
        };
        match &entry.batches {
            Some(provider) => Ok(BatchProfile { provider: Arc::clone(provider), entry }),
            None => {
                let Profile { name, provider, .. } = &entry.profile;
                let error = ProfileError::NoBatches(name.clone(), *provider);
                Err(AskError::new(Code::InvalidRequest, error.to_string()))
            }
        }
    }

    /// The error of a provider's batch without quotes of the question, unless they are allowed.
    pub fn without_quotes(&self, error: AskError, question: &Question) -> AskError {
        self.inner.without_quotes(error, question)
    }

    /// Journals a question before it is parked, and reserves its tokens and cost. A repeat of the
    /// same question is the same call. A rejected question is returned as an outcome that the
    /// caller has to record.
    pub async fn admit_batch_call(
        &self,
        request: &InferenceRequest,
        inline: Option<&Profile>,
    ) -> Result<NewCall, Box<InferenceOutcome>> {
        let name = inline.and_then(|profile| ProfileName::new(&profile.name).ok());
        let name = request.profile.clone().or(name);
        let refused = |error: AskError| {
            let record = name.as_ref().and_then(|name| self.rejected_record(request, name, &error));
            let records = record.into_iter().collect();
            Box::new(InferenceOutcome { result: Err(error), records, ..InferenceOutcome::default() })
        };
        let bulk = self.batch_profile(&request.tenant, request.profile.as_ref(), inline).await;
        let bulk = bulk.map_err(refused)?;
        let question = Question {
            system: request.question.system.clone().or_else(|| bulk.system().map(str::to_owned)),
            ..request.question.clone()
        };
        let call = bulk.call(self, &InferenceRequest { question, ..request.clone() }).await;
        let call = call.map_err(refused)?;
        match self.inner.admit_call(&call).await {
            Ok(()) => Ok(call),
            Err(AdmissionError::Rejected(error)) => Err(refused(error)),
            // Other questions of a provider's batch reserve for hours: there is nothing to wait for.
            Err(AdmissionError::Reserved(error)) => {
                Err(refused(AskError::new(Code::OverBudget, error.message)))
            }
            Err(AdmissionError::Duplicate(other)) => {
                Err(Box::new(InferenceOutcome { duplicate: Some(other), ..InferenceOutcome::default() }))
            }
            Err(AdmissionError::Yielded) => {
                Err(Box::new(InferenceOutcome { yields: true, ..InferenceOutcome::default() }))
            }
        }
    }
}

impl BatchReply {
    /// The ledger record of a call with this result.
    pub fn call_record(&self, call: NewCall) -> CallRecord {
        let end = match self {
            // Without the provider's count, the reservation is the only bound.
            Self::Answer { answer, cost } => {
                let cost = if answer.estimated { cost.0.max(call.reserve_picos) } else { cost.0 };
                succeeded(answer, 1, 0, cost)
            }
            Self::Error { code, maybe_billed: true, .. } => {
                CallEnd { code: Some(code.as_str().to_owned()), ..call.lost_end() }
            }
            Self::Error { code, message, .. } => failed(&AskError::new(*code, message.clone()), 1, 0),
        };
        recordable(CallRecord { call, end: Some(CallEnd { mode: CallMode::Batch, ..end }) })
    }
}

/// The id of a batch call. After a crash the same question is journalled again and has to be the
/// same call, so the id is derived from the unit and the request; with the unit's timestamp, so that
/// calls stay in order.
fn call_id(unit: Option<UnitId>, request_id: &str) -> CallId {
    let Some(unit) = unit else { return CallId::new() };
    let [a, b, c, d, e, f, ..] = *unit.as_bytes();
    let millis = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
    CallId::from_name(unit.as_bytes(), request_id.as_bytes()).at_millis(millis)
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
