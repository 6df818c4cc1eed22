//! [`Upkeep`] on PostgreSQL.

use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use longshore_core::stall::Dead;
use longshore_core::store::{Promoted, Pruned, Reclaimed, Retention, Upkeep};
use longshore_core::{Result, SessionId};

use super::{PostgresStore, verb};
use crate::connect::Terms;
use crate::maintain::{News, Quiet};
use crate::{maintain, prune};

/// For how long no notice is believed to mean that nothing has changed: what a killed process had
/// no time to tell is found then. So an idle store is not asked every second.
const BELIEVE: Duration = Duration::from_secs(5);
/// The same where no notices come.
const JUST_NOW: Duration = Duration::from_millis(100);

#[async_trait]
impl Upkeep for PostgresStore {
    async fn reclaim(&self, dead: &[Dead]) -> Result<Reclaimed> {
        let mut all = Reclaimed::default();
        let mut away = None;
        // One transaction each: a mass of dead workers does not hold up the living.
        for dead in dead {
            match self.reclaim_one(*dead).await {
                Ok(one) => {
                    all.sessions += one.sessions;
                    all.rescued += one.rescued;
                    all.failed += one.failed;
                }
                // One that cannot be ended must not keep the others' units from running.
                Err(error) if error.is_retryable() => away = Some(error),
                Err(error) => tracing::error!(%error, session = %dead.session, "cannot reclaim"),
            }
        }
        match away {
            Some(error) if all.sessions == 0 => Err(error),
            _ => Ok(all),
        }
    }

    async fn promote(&self, limit: u32) -> Result<Promoted> {
        let news = self.news();
        if self.shared.feed.is_listening()
            && let Some(quiet) = self.shared.rounds.quiet(news, BELIEVE)
            && quiet.lasts(self.shared.options.clock.now())
        {
            return Ok(Promoted::default());
        }
        let (promoted, quiet) = self.promote_once(limit).await?;
        self.shared.rounds.saw(quiet, news);
        Ok(promoted)
    }

    async fn next_due(&self) -> Result<Option<Duration>> {
        // A promoter asks right after its round, which has just looked.
        let age = if self.shared.feed.is_listening() { BELIEVE } else { JUST_NOW };
        if let Some(quiet) = self.shared.rounds.quiet(self.news(), age) {
            return Ok(quiet.next_due.map(|due| due.since(self.shared.options.clock.now())));
        }
        verb!(self, Relaxed, tx => maintain::next_due(&mut tx))
    }

    async fn prune(&self, retention: Retention, limit: u32) -> Result<Pruned> {
        verb!(self, Durable, tx => prune::prune(&mut tx, retention, limit))
    }

    async fn lead(&self, role: &str, session: SessionId, ttl: Duration) -> Result<bool> {
        let terms = self.shared.options.terms;
        let (news, looks) = (self.news(), self.shared.feed.is_listening());
        let (leads, quiet) = verb!(self, Relaxed, tx => async {
            let leads = maintain::lead(&mut tx, role, session, ttl, terms).await?;
            // Who leads does the upkeep: while it is at it, it sees whether there is any.
            let quiet = if leads && looks { maintain::look(&mut tx).await? } else { None };
            Ok((leads, quiet))
        })?;
        if quiet.is_some() {
            self.shared.rounds.saw(quiet, news);
        }
        Ok(leads)
    }
}

impl PostgresStore {
    /// In how long the next schedule fires, as far as that is known without asking; none is due.
    pub(super) fn fires_in(&self) -> Option<Option<Duration>> {
        let known = self.shared.feed.is_listening() && self.shared.options.terms == Terms::Server;
        known.then(|| self.shared.rounds.fires_in(self.news(), BELIEVE)).flatten()
    }

    fn news(&self) -> News {
        let moves = self.shared.moves.load(Ordering::Relaxed);
        News { moves, notices: *self.shared.feed.changes().borrow() }
    }

    async fn promote_once(&self, limit: u32) -> Result<(Promoted, Option<Quiet>)> {
        verb!(self, Durable, tx => maintain::promote(&mut tx, limit, &self.shared.rounds))
    }

    async fn reclaim_one(&self, dead: Dead) -> Result<Reclaimed> {
        verb!(self, Durable, tx => maintain::reclaim(&mut tx, dead))
    }
}
