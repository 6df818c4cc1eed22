//! Leave to ask: waited for in a given order, so that whoever waits holds as little as possible.

use std::pin::pin;
use std::sync::Arc;

use longshore::{AcquireError, Context, Permit, PoolName};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::call::CallToMake;
use super::line::Out;
use super::patience::{Waited, wait};
use super::register::Owner;
use crate::ask::{AskError, Code};
use crate::chunk::Need;
use crate::limiter::{Full, Taken};
use crate::profile::WhenFull;

/// Leave to ask: room among those who ask, tokens from the buckets, and an open line.
pub(super) struct Leave<'l> {
    pub(super) _room: Option<OwnedSemaphorePermit>,
    /// Of the pool that the profile names.
    pub(super) permit: Option<Permit>,
    pub(super) taken: Taken,
    pub(super) needs: Arc<[Need]>,
    pub(super) out: Out<'l>,
}

/// Why there is no leave.
pub(super) enum NoLeave {
    /// Somebody else needs the slot while the question waits.
    Yields,
    /// It cannot be had in time.
    Refused(AskError),
}

impl From<AskError> for NoLeave {
    fn from(error: AskError) -> Self {
        Self::Refused(error)
    }
}

impl CallToMake<'_> {
    /// Waits for room, as long as the question's time lasts.
    pub(super) async fn leave(
        &self,
        run: Option<&Context>,
        tokens: u64,
        until: Instant,
    ) -> Result<Leave<'_>, NoLeave> {
        let limits = &self.entry.profile.limits;
        let line = &self.entry.line;
        // What is closed now takes no tokens from those who could go on.
        while let Some(at) = line.closed_until(Instant::now(), tokens)
            && run.is_some()
            && at < until
        {
            over(wait(run, until, sleep_until(at)).await)?;
        }
        let room = match &self.entry.room {
            None => None,
            Some(room) if limits.when_full == WhenFull::Refuse => {
                let room = Arc::clone(room).try_acquire_owned();
                Some(room.map_err(|_| full("as many questions are out as the profile allows"))?)
            }
            Some(room) => {
                let room = pin!(timeout_at(until, Arc::clone(room).acquire_owned()));
                let room = over(wait(run, until, room).await)?;
                // Nobody closes it.
                room.map_err(|_| full("no room for the question in its time"))?.ok()
            }
        };
        let owner = self.desk.register.owner(&self.errand.tenant).await?;
        let needs = self.needs(&owner, tokens);
        let taking = pin!(self.desk.limiter.take(Arc::clone(&needs), until, limits.when_full));
        let taken = over(wait(run, until, taking).await)?.map_err(refusal)?;
        let sent = async {
            let permit = match &self.entry.profile.pool {
                None => None,
                // In a box, as all that is seldom.
                Some(name) => Some(Box::pin(self.permit(name, until)).await?),
            };
            Ok((permit, line.send(tokens, until).await?))
        };
        match over(wait(run, until, pin!(sent)).await) {
            Ok(Ok((permit, out))) => Ok(Leave { _room: room, permit, taken, needs, out }),
            Ok(Err(error)) => {
                taken.give_back();
                Err(NoLeave::Refused(error))
            }
            Err(yields) => {
                taken.give_back();
                Err(yields)
            }
        }
    }

    /// A permit of the pool that the profile names: waited for as long as the pool says, within the
    /// question's time.
    async fn permit(&self, name: &PoolName, until: Instant) -> Result<Permit, AskError> {
        let Some(pool) = self.desk.pools.get().and_then(|pools| pools.find(name)) else {
            let profile = &self.entry.name;
            let why = format!(
                "profile `{profile}` names pool `{name}`, which is not in the configuration"
            );
            return Err(AskError::new(Code::ProfileDisabled, why));
        };
        let priority = self.errand.run.as_ref().map(|run| run.unit().priority);
        let left = until.saturating_duration_since(Instant::now());
        let request = pool.request().priority(priority.unwrap_or_default()).at_most(left);
        request.acquire().await.map_err(|error| match &error {
            AcquireError::TooHeavy { .. } => full(&error.to_string()),
            error if error.is_retryable() => full(&error.to_string()),
            error => AskError::new(Code::Internal, error.to_string()),
        })
    }

    /// What the question takes, from which buckets.
    fn needs(&self, owner: &Owner, tokens: u64) -> Arc<[Need]> {
        let needs = owner.needs.iter().chain(&self.entry.needs);
        needs.map(|need| need.with_tokens(tokens)).collect()
    }
}

fn over<T>(waited: Waited<T>) -> Result<T, NoLeave> {
    match waited {
        Waited::Over(over) => Ok(over),
        Waited::Unwanted => Err(NoLeave::Yields),
    }
}

fn refusal(error: Full) -> AskError {
    match &error {
        Full::Limit { wait, .. } => {
            AskError { retry_after: Some(*wait), ..full(&error.to_string()) }
        }
        Full::TooLate => full(&error.to_string()),
        _ => AskError::new(Code::Internal, error.to_string()),
    }
}

fn full(why: &str) -> AskError {
    AskError::new(Code::RateLimited, why)
}
