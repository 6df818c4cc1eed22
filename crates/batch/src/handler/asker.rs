//! Whom rows ask: a simulated provider directly, the desk, or `longshore ai worker` through its queue.
//!
//! What a question came to is told in the desk's words, whoever was asked. Only the desk has records
//! for the row to write: of what is simulated there are no books, and whoever answers from the queue
//! writes its own.

use std::sync::Arc;
use std::time::Duration;

use longshore::{Clock, Context, OnLost, ProfileName};
use longshore_ai::worker::{Caller, QueuedProvider};
use longshore_ai::{AskError, Code, Desk, Errand, Mode, Prices, Provider, Question, Settled};

use super::job::{JobError, Outfit};
use crate::conductor::Summons;
use crate::definition::{Ai, ByProfile, Definition, ProviderBatch, Through};
use crate::mail::Office;

/// How long whoever was asked may take to say that the time is over.
const TELLING: Duration = Duration::from_millis(500);

/// Whom the rows of a batch ask.
pub(crate) enum Asker {
    /// A provider without limits, keys or books.
    Direct { provider: Arc<dyn Provider>, prices: Prices },
    /// The desk of this worker.
    Desk { desk: Desk, profile: ByProfile },
    /// A provider's batches, by way of the desk's books.
    Bulk(Bulk),
    /// Nobody: rows are written to.
    Mail(Arc<dyn Office>),
    /// Whoever takes requests from the queue.
    Queue { profile: ProfileName, on_lost: OnLost },
}

/// How the rows of a batch ask together.
pub(crate) struct Bulk {
    pub(super) desk: Desk,
    pub(super) profile: ByProfile,
    pub(super) pace: ProviderBatch,
    pub(super) conductor: Summons,
}

impl Outfit {
    /// Whom a definition wants asked.
    pub(super) fn asker(
        &self,
        what: &Definition,
        unusable: impl Fn(String) -> JobError,
    ) -> Result<Asker, JobError> {
        if what.mail.is_some() {
            return self.office.clone().map(Asker::Mail).ok_or(JobError::NoOffice);
        }
        let ai = &what.ai;
        if let Some(pace) = ai.provider_batch {
            return self.in_bulk(ai, pace, unusable);
        }
        match (&ai.profile, ai.through) {
            (ByProfile::Named(name), Through::Queue) => {
                Ok(Asker::Queue { profile: name.clone(), on_lost: what.on_lost })
            }
            (ByProfile::Written(profile), through) => {
                let broken = |error| unusable(format!("profile `{}`: {error}", profile.name));
                let prices = profile.prices.clone();
                if let Some(provider) = self.providers.get(&profile.name) {
                    return Ok(Asker::Direct { provider: Arc::clone(provider), prices });
                }
                if profile.provider.is_simulated() {
                    let provider = longshore_ai::open(profile).map_err(broken)?;
                    return Ok(Asker::Direct { provider, prices });
                }
                match through {
                    Through::Desk => self.at_the_desk(&ai.profile),
                    Through::Queue => Err(unusable(ONLY_NAMED.to_owned())),
                }
            }
            (ByProfile::Named(_), Through::Desk) => self.at_the_desk(&ai.profile),
        }
    }

    fn in_bulk(
        &self,
        ai: &Ai,
        pace: ProviderBatch,
        unusable: impl Fn(String) -> JobError,
    ) -> Result<Asker, JobError> {
        ai.check_provider_batch().map_err(unusable)?;
        let profile = ai.profile.clone();
        let desk = self.desk.clone().ok_or_else(|| JobError::NoDesk(profile.shown()))?;
        Ok(Asker::Bulk(Bulk { desk, profile, pace, conductor: Summons::default() }))
    }

    fn at_the_desk(&self, profile: &ByProfile) -> Result<Asker, JobError> {
        let desk = self.desk.clone().ok_or_else(|| JobError::NoDesk(profile.shown()))?;
        Ok(Asker::Desk { desk, profile: profile.clone() })
    }
}

const ONLY_NAMED: &str = "only a profile of the ledger can be asked through the queue";

impl Asker {
    /// Asks for a row.
    pub(super) async fn ask(
        &self,
        context: &Context,
        question: Question,
        clock: &Arc<dyn Clock>,
    ) -> Settled {
        match self {
            Self::Direct { provider, prices } => {
                let result = provider.ask(&question).await;
                let cost = |answer| prices.cost(answer, clock.now(), Mode::Direct).0;
                let cost = result.as_ref().map_or(0, cost);
                Settled::elsewhere(result, cost)
            }
            Self::Desk { desk, profile: ByProfile::Named(name) } => {
                desk.ask(&errand(context, Some(name.clone()), question), None).await
            }
            Self::Desk { desk, profile: ByProfile::Written(profile) } => {
                desk.ask_by(profile, &errand(context, None, question)).await
            }
            Self::Bulk(_) | Self::Mail(_) => {
                let error = AskError::new(Code::Internal, "the row asks with others, or nobody");
                Settled::elsewhere(Err(error), 0)
            }
            Self::Queue { profile, on_lost } => {
                let (unit, clock) = (context.unit(), Arc::clone(clock));
                let caller = match Caller::new(context.client().clone(), None) {
                    Ok(caller) => caller.on_lost(*on_lost),
                    Err(error) => {
                        let error = AskError::new(Code::Internal, error.to_string());
                        return Settled::elsewhere(Err(error), 0);
                    }
                };
                QueuedProvider::new(caller, unit.tenant.clone(), profile.clone(), clock)
                    .for_batch(unit.batch.clone())
                    .settle(&question)
                    .await
            }
        }
    }

    /// How rows ask together, if they do.
    pub(super) fn bulk(&self) -> Option<&Bulk> {
        match self {
            Self::Bulk(bulk) => Some(bulk),
            _ => None,
        }
    }

    /// How much longer than the question's time it is waited for: those who write books say
    /// themselves that time is up, and then it is there in writing.
    pub(super) fn telling(&self) -> Duration {
        match self {
            Self::Direct { .. } | Self::Bulk(_) | Self::Mail(_) => Duration::ZERO,
            Self::Desk { .. } | Self::Queue { .. } => TELLING,
        }
    }

    /// Whether a timeout that is heard `left` before the time is over may be an earlier run's: a
    /// request that is sent again is recognised, and its reply is the one that it had.
    pub(super) fn may_be_stale(&self, left: Duration) -> bool {
        matches!(self, Self::Queue { .. }) && left > 2 * TELLING
    }
}

fn errand(context: &Context, profile: Option<ProfileName>, question: Question) -> Errand {
    let unit = context.unit();
    Errand {
        unit: Some(unit.id),
        batch: unit.batch.clone(),
        session: Some(context.session()),
        ..Errand::new(unit.tenant.clone(), profile, question)
    }
}
