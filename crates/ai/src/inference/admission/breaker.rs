//! Admission by the health of the upstream: its breaker, the key's credit, and the rate limits that
//! the provider reports.

use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::{AdmissionError, ProfileCall, YieldingWait};
use crate::inference::upstream_health::{Blocked, BlockedBy, InFlight, UpstreamHealth, UpstreamKey};
use crate::model_api::{AskError, Question};
use crate::resilience::{Turn, WaitingTenant};

/// How long a call waits for an open breaker, unless the profile sets `limits.max_wait`.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// How long a call with a fallback profile waits for anything but an answer of its own profile.
pub(in crate::inference) const MAX_WAIT_WITH_FALLBACK: Duration = Duration::from_secs(2);

impl ProfileCall<'_> {
    /// Waits until the upstream admits the call.
    ///
    /// While the breaker is open, a call with a fallback profile is rejected at once. Others wait at
    /// most `max_wait`, and are woken by the results of probes. A call of no unit does not wait for
    /// a probe that comes later than that. A call of a unit does: its unit is requeued then, and
    /// the wait bounds how fast a worker runs through a queue in vain.
    ///
    /// While the provider's rate limit is exhausted, one call has the turn and waits for the limit;
    /// the others wait for the turn, which is passed on fairly by tenant. A call with a fallback
    /// profile waits two seconds at most.
    pub(in crate::inference) async fn pass_breaker(
        &self,
        question: &Question,
        tokens: u64,
        wait: YieldingWait<'_>,
    ) -> Result<InFlight, AdmissionError> {
        let model = self.entry.profile.asked_model(question.model.as_deref()).to_owned();
        let key = UpstreamKey { model, ..self.entry.upstream.clone() };
        let upstream = self.inner.profile_cache.upstreams.find(key);
        let owner = self.inner.profile_cache.tenant(&self.request.tenant).await?;
        let started = Instant::now();
        let left = wait.until.saturating_duration_since(started);
        let breaker_until = started + self.max_breaker_wait().min(left);
        let quota_until =
            if self.has_fallback { started + MAX_WAIT_WITH_FALLBACK.min(left) } else { wait.until };
        let passing = async {
            let mut turn = None;
            loop {
                if turn.is_none() {
                    turn = Some(upstream.turn(&owner.waiting, tokens, quota_until).await?);
                }
                let mut changed = pin!(upstream.changed());
                changed.as_mut().enable();
                let now = Instant::now();
                let blocked = match upstream.admit(now, tokens, self.has_fallback) {
                    Ok(in_flight) => return Ok(in_flight),
                    Err(blocked) => blocked,
                };
                if blocked.by != BlockedBy::Quota {
                    turn = None;
                }
                let until = match blocked.by {
                    BlockedBy::Credit => now,
                    BlockedBy::Quota => quota_until,
                    BlockedBy::Breaker | BlockedBy::Probes => breaker_until,
                };
                let keeps_slot = blocked.by == BlockedBy::Breaker && self.request.unit.is_some();
                let too_late = blocked.at >= until && blocked.by != BlockedBy::Probes && !keeps_slot;
                if now >= until || too_late {
                    return Err(blocked.error(now));
                }
                tokio::select! {
                    () = sleep_until(blocked.at.min(until)) => {}
                    () = changed => {}
                }
            }
        };
        let passed: Result<InFlight, AskError> = wait.wait(pin!(passing)).await?;
        Ok(passed?)
    }

    /// How long the call waits while the breaker is open.
    pub(in crate::inference) fn max_breaker_wait(&self) -> Duration {
        if self.has_fallback {
            return Duration::ZERO;
        }
        self.entry.profile.limits.max_wait.map_or(MAX_WAIT, |wait| wait.0)
    }
}

impl UpstreamHealth {
    /// The turn to be admitted. Waits while another call waits for the provider's rate limit; not if
    /// the limit is exhausted until the deadline.
    async fn turn(&self, tenant: &WaitingTenant, tokens: u64, until: Instant) -> Result<Turn, AskError> {
        if let Some(turn) = self.turns.try_acquire() {
            return Ok(turn);
        }
        let now = Instant::now();
        let late = |at| Blocked { at, by: BlockedBy::Quota }.error(now);
        if let Some(at) = self.quota_wait(now, tokens).filter(|at| *at >= until) {
            return Err(late(at));
        }
        let turn = timeout_at(until, self.turns.acquire(tenant, tokens.max(1) as f64)).await;
        turn.map_err(|_| late(until))
    }
}
