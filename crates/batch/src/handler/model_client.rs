//! Sends a row's question: to a simulated provider, through the worker's own `Inference`, or through the
//! queue to `longshore ai worker`.
//!
//! All routes return the same outcome type. Only the worker's own `Inference` returns call records for
//! the row to write: simulated calls are not in the ledger, and the worker that answers from the
//! queue writes its own.

use std::sync::Arc;
use std::time::Duration;

use longshore::{Clock, Context, OnLost, ProfileName};
use longshore_ai::worker::{QueuedProvider, RequestClient};
use longshore_ai::{
    AskError, Code, Inference, InferenceOutcome, InferenceRequest, PriceMode, Prices, Provider, Question,
};

use super::compiled_batch::{BatchLoadError, Dependencies};
use crate::definition::{Ai, AskRoute, ProfileRef, ProviderBatchOptions};
use crate::provider_batch::RunnerStarter;

/// How long the called worker may take to report a timeout.
const TIMEOUT_GRACE: Duration = Duration::from_millis(500);

/// How the rows of a batch send their questions.
pub(crate) enum ModelClient {
    /// A provider without limits, keys or ledger.
    Direct { provider: Arc<dyn Provider>, prices: Prices },
    /// This worker makes the call.
    Local { inference: Inference, profile: ProfileRef },
    /// The provider's batch API; the calls are in the ledger.
    Deferred(DeferredClient),
    /// Another worker makes the call, through the queue.
    Queue { profile: ProfileName, on_lost: OnLost },
}

/// The provider batch that the rows of a batch share.
pub(crate) struct DeferredClient {
    pub(super) inference: Inference,
    pub(super) profile: ProfileRef,
    pub(super) pace: ProviderBatchOptions,
    pub(super) runner: RunnerStarter,
}

impl Dependencies {
    /// The client that `[ai]` asks for.
    pub(super) fn model_client(
        &self,
        ai: &Ai,
        on_lost: OnLost,
        unusable: impl Fn(String) -> BatchLoadError,
    ) -> Result<ModelClient, BatchLoadError> {
        if let Some(pace) = ai.provider_batch {
            return self.deferred_client(ai, pace, unusable);
        }
        match (&ai.profile, ai.through) {
            (ProfileRef::Named(name), AskRoute::Queue) => {
                Ok(ModelClient::Queue { profile: name.clone(), on_lost })
            }
            (ProfileRef::Inline(profile), through) => {
                let profile_error = |error| unusable(format!("profile `{}`: {error}", profile.name));
                let prices = profile.prices.clone();
                if let Some(provider) = self.providers.get(&profile.name) {
                    return Ok(ModelClient::Direct { provider: Arc::clone(provider), prices });
                }
                if profile.provider.is_simulated() {
                    let provider = longshore_ai::open_simulated(profile).map_err(profile_error)?;
                    return Ok(ModelClient::Direct { provider, prices });
                }
                match through {
                    AskRoute::Local => self.local_client(&ai.profile),
                    AskRoute::Queue => Err(unusable(TENANT_PROFILES_ONLY.to_owned())),
                }
            }
            (ProfileRef::Named(_), AskRoute::Local) => self.local_client(&ai.profile),
        }
    }

    fn deferred_client(
        &self,
        ai: &Ai,
        pace: ProviderBatchOptions,
        unusable: impl Fn(String) -> BatchLoadError,
    ) -> Result<ModelClient, BatchLoadError> {
        ai.check_provider_batch().map_err(unusable)?;
        let profile = ai.profile.clone();
        let inference =
            self.inference.clone().ok_or_else(|| BatchLoadError::NoInference(profile.display_name()))?;
        Ok(ModelClient::Deferred(DeferredClient {
            inference,
            profile,
            pace,
            runner: RunnerStarter::default(),
        }))
    }

    fn local_client(&self, profile: &ProfileRef) -> Result<ModelClient, BatchLoadError> {
        let inference =
            self.inference.clone().ok_or_else(|| BatchLoadError::NoInference(profile.display_name()))?;
        Ok(ModelClient::Local { inference, profile: profile.clone() })
    }
}

const TENANT_PROFILES_ONLY: &str = "only a profile of the ledger can be asked through the queue";

impl ModelClient {
    /// Sends a row's question and waits for its outcome.
    pub(super) async fn ask(
        &self,
        context: &Context,
        question: Question,
        clock: &Arc<dyn Clock>,
    ) -> InferenceOutcome {
        match self {
            Self::Direct { provider, prices } => {
                let result = provider.ask(&question).await;
                let cost = |answer| prices.cost(answer, clock.now(), PriceMode::Direct).0;
                let cost = result.as_ref().map_or(0, cost);
                InferenceOutcome::unrecorded(result, cost)
            }
            Self::Local { inference, profile: ProfileRef::Named(name) } => {
                inference.ask(&inference_request(context, Some(name.clone()), question), None).await
            }
            Self::Local { inference, profile: ProfileRef::Inline(profile) } => {
                inference.ask_inline(profile, &inference_request(context, None, question)).await
            }
            Self::Deferred(_) => {
                let error = AskError::new(Code::Internal, "the batch makes no direct calls");
                InferenceOutcome::unrecorded(Err(error), 0)
            }
            Self::Queue { profile, on_lost } => {
                let (unit, clock) = (context.unit(), Arc::clone(clock));
                let caller = match RequestClient::new(context.client().clone(), None) {
                    Ok(caller) => caller.on_lost(*on_lost),
                    Err(error) => {
                        let error = AskError::new(Code::Internal, error.to_string());
                        return InferenceOutcome::unrecorded(Err(error), 0);
                    }
                };
                QueuedProvider::new(caller, unit.tenant.clone(), profile.clone(), clock)
                    .for_batch(unit.batch.clone())
                    .outcome(&question)
                    .await
            }
        }
    }

    /// The provider batch, if the rows use one.
    pub(super) fn deferred(&self) -> Option<&DeferredClient> {
        match self {
            Self::Deferred(deferred) => Some(deferred),
            _ => None,
        }
    }

    /// How much longer than the question's timeout the row waits: a worker that writes the ledger
    /// reports the timeout itself, so that it is recorded.
    pub(super) fn timeout_grace(&self) -> Duration {
        match self {
            Self::Direct { .. } | Self::Deferred(_) => Duration::ZERO,
            Self::Local { .. } | Self::Queue { .. } => TIMEOUT_GRACE,
        }
    }

    /// Whether the question's flag says whether it was sent.
    pub(super) fn reports_sending(&self) -> bool {
        matches!(self, Self::Local { .. })
    }

    /// Whether a timeout reported `left` before the deadline may be an earlier run's. A repeated
    /// request through the queue is deduplicated and returns the reply of the first.
    pub(super) fn may_be_stale(&self, left: Duration) -> bool {
        matches!(self, Self::Queue { .. }) && left > 2 * TIMEOUT_GRACE
    }
}

fn inference_request(
    context: &Context,
    profile: Option<ProfileName>,
    question: Question,
) -> InferenceRequest {
    let unit = context.unit();
    InferenceRequest {
        unit: Some(unit.id),
        batch: unit.batch.clone(),
        session: Some(context.session()),
        run: Some(context.clone()),
        ..InferenceRequest::new(unit.tenant.clone(), profile, question)
    }
}
