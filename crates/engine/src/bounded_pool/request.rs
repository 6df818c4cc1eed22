//! Asking for a permit and waiting for it.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::poll;
use longshore_core::permits::{Answer, Ask, Leaving, Otherwise};
use longshore_core::{Error, PermitId, Priority};
use tokio::time::{Instant, timeout};

use super::alerts::PoolAlertKind;
use super::desk::Desk;
use super::error::AcquireError;
use super::guard::Permit;
use super::outage::TRIES;
use crate::Backoff;

/// Between two asks of one who waits, however near something ends.
const SHORTEST: Duration = Duration::from_millis(5);
/// How long leaving the line may keep a caller whose time is over.
const FAREWELL: Duration = Duration::from_secs(1);

/// A permit with a weight, a class or a limit of its own.
#[must_use = "nothing is asked before it is acquired"]
pub struct Request<'p> {
    desk: &'p Arc<Desk>,
    weight: u32,
    priority: Priority,
    wait: Option<Duration>,
    owner: Option<Arc<str>>,
}

impl<'p> Request<'p> {
    pub(super) fn new(desk: &'p Arc<Desk>) -> Self {
        let wait = desk.settings.wait;
        Self { desk, weight: 1, priority: super::NORMAL, wait, owner: None }
    }

    /// How much of the pool it takes.
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// Its class in the line.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// How long to wait for it; zero for ever.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = (!limit.is_zero()).then_some(limit);
        self
    }

    /// How long to wait for it where the pool allows longer.
    pub fn at_most(mut self, limit: Duration) -> Self {
        self.wait = Some(self.wait.map_or(limit, |own| own.min(limit)));
        self
    }

    /// Who holds it, for people to read.
    pub fn owner(mut self, owner: &str) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// Waits for it: first come, first served within a class. Dropped, it leaves the line, and gives back
    /// what was granted meanwhile.
    pub async fn acquire(self) -> Result<Permit, AcquireError> {
        let ask = self.ask(Otherwise::Wait(self.desk.settings.place()));
        if let Some(permit) = self.desk.at_once(&ask) {
            return Ok(permit);
        }
        // Whoever waits needs more room than whoever does not.
        Box::pin(self.wait_for(ask)).await
    }

    async fn wait_for(self, ask: Ask) -> Result<Permit, AcquireError> {
        let mut claim = Claim::new(self.desk, ask.id);
        let mut trouble = None;
        let answer = {
            let mut attempt = pin!(obtain(self.desk, &ask, &mut trouble));
            // Most of the time there is one, and no timer is needed.
            match (poll!(attempt.as_mut()), self.wait) {
                (Poll::Ready(answer), _) => Some(answer),
                (Poll::Pending, None) => Some(attempt.await),
                (Poll::Pending, Some(limit)) => timeout(limit, attempt).await.ok(),
            }
        };
        match answer {
            Some(answer) => answer.inspect(|permit| claim.answered(permit.fence().is_some())),
            None => Err(claim.time_out(self.wait.unwrap_or_default(), trouble).await),
        }
    }

    /// A permit if one is free and nobody waits for it.
    pub async fn try_acquire(self) -> Result<Option<Permit>, AcquireError> {
        let ask = self.ask(Otherwise::GoAway);
        let mut claim = Claim::new(self.desk, ask.id);
        let mut backoff = Backoff::store();
        loop {
            if self.desk.is_open(backoff.tries()) {
                return Ok(self.desk.own_permit_now(ask.weight).await);
            }
            match self.desk.ask(&ask).await {
                Ok(granted) => {
                    claim.answered(true);
                    return Ok(granted.ok());
                }
                Err(Trouble::For(error)) => {
                    self.desk.lost_back_end(&error);
                    backoff.wait().await;
                    if backoff.tries() >= TRIES && !self.desk.is_open(TRIES) {
                        return Err(Trouble::For(error).into_error(self.desk, ask.weight));
                    }
                }
                Err(trouble) => return Err(trouble.into_error(self.desk, ask.weight)),
            }
        }
    }

    fn ask(&self, otherwise: Otherwise) -> Ask {
        self.desk.attend();
        let settings = &self.desk.settings;
        Ask {
            id: PermitId::new(),
            max: settings.max,
            weight: self.weight,
            priority: self.priority,
            owner: Arc::clone(self.owner.as_ref().unwrap_or(&settings.owner)),
            ttl: settings.ttl,
            otherwise,
        }
    }
}

/// Asks until there is an answer that is one.
async fn obtain(
    desk: &Arc<Desk>,
    ask: &Ask,
    trouble: &mut Option<Error>,
) -> Result<Permit, AcquireError> {
    let mut backoff = Backoff::store();
    loop {
        if desk.is_open(backoff.tries())
            && let Some(permit) = desk.own_permit(ask.weight).await
        {
            return Ok(permit);
        }
        match desk.ask(ask).await {
            Ok(Ok(permit)) => return Ok(permit),
            Ok(Err(look_again)) => {
                (*trouble, backoff) = (None, Backoff::store());
                let pause = look_again.min(desk.settings.place() / 3).max(SHORTEST);
                // Time over is as good as a hint: either way it asks again.
                let _ = timeout(pause, desk.permits.turn(&desk.name, ask.id)).await;
            }
            Err(Trouble::For(error)) => {
                desk.lost_back_end(&error);
                *trouble = Some(error);
                backoff.wait().await;
            }
            Err(other) => return Err(other.into_error(desk, ask.weight)),
        }
    }
}

/// What an ask came to that is no answer.
enum Trouble {
    /// The back end is away, for now.
    For(Error),
    /// It will not do.
    Never(Error),
    TooHeavy(u32),
}

impl Trouble {
    fn into_error(self, desk: &Desk, weight: u32) -> AcquireError {
        let pool = desk.name.clone();
        match self {
            Self::For(source) | Self::Never(source) => AcquireError::Unavailable { pool, source },
            Self::TooHeavy(max) => AcquireError::TooHeavy { pool, weight, max },
        }
    }
}

impl Desk {
    /// A permit, if the back end gives one without being waited for. If not, it may stand in line.
    fn at_once(self: &Arc<Self>, ask: &Ask) -> Option<Permit> {
        if ask.weight == 0 {
            return None;
        }
        let sent = Instant::now();
        match self.permits.ask_at_once(&self.name, ask) {
            Some(Answer::Granted(grant)) => Some(Permit::of_pool(self, ask.id, grant, sent)),
            _ => None,
        }
    }

    /// Asks once: a permit, or how soon to look again.
    async fn ask(self: &Arc<Self>, ask: &Ask) -> Result<Result<Permit, Duration>, Trouble> {
        let sent = Instant::now();
        let answer = self.permits.ask(&self.name, ask).await;
        if answer.is_ok() {
            self.outage.over();
        }
        match answer {
            Ok(Answer::Granted(grant)) => Ok(Ok(Permit::of_pool(self, ask.id, grant, sent))),
            Ok(Answer::Waiting { look_again, .. }) => {
                self.alert(PoolAlertKind::AtCapacity, "");
                Ok(Err(look_again))
            }
            Ok(Answer::Full) => {
                self.alert(PoolAlertKind::AtCapacity, "");
                Ok(Err(Duration::ZERO))
            }
            Ok(Answer::TooHeavy { max }) => Err(Trouble::TooHeavy(max)),
            Err(error) if error.is_retryable() => Err(Trouble::For(error)),
            Err(error) => Err(Trouble::Never(error)),
        }
    }
}

/// An ask that may be in line, or granted without our knowledge, until it is answered.
struct Claim<'p> {
    desk: &'p Arc<Desk>,
    id: PermitId,
    open: bool,
}

impl<'p> Claim<'p> {
    fn new(desk: &'p Arc<Desk>, id: PermitId) -> Self {
        Self { desk, id, open: true }
    }

    /// Nothing of it is left at the back end but what a guard knows of. Not so if the back end did not
    /// answer: it may have heard all the same.
    fn answered(&mut self, by_back_end: bool) {
        self.open = !by_back_end;
    }

    /// Leaves the line because it took too long; what to say of it.
    async fn time_out(&mut self, limit: Duration, trouble: Option<Error>) -> AcquireError {
        let pool = self.desk.name.clone();
        if let Some(source) = trouble {
            return AcquireError::Unavailable { pool, source };
        }
        let leave = self.desk.permits.leave(&pool, self.id, Leaving::TimedOut);
        self.open = !matches!(timeout(FAREWELL, leave).await, Ok(Ok(())));
        self.desk.alert(PoolAlertKind::TimedOut, "");
        AcquireError::TimedOut { pool, limit }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if self.open {
            self.desk.give_back(self.id);
        }
    }
}
