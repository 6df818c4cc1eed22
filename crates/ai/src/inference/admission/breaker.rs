//! Admission by the health of an upstream (endpoint, key and model): its breakers, and the rate
//! limits that the provider reports. Shared by all profiles that use the upstream, as observed by
//! this process.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::{AdmissionError, ProfileCall, YieldingWait};
use crate::model_api::{Answer, AskError, Code, Retryability};
use crate::resilience::{Allow, Breaker, CreditBreaker, ProviderQuota, TenantTurns, Turn, WaitingTenant};

impl ProfileCall<'_> {
    /// While the upstream is open, a unit's call waits without acquiring what other calls could
    /// use.
    pub(super) async fn wait_while_open(
        &self,
        wait: YieldingWait<'_>,
        tokens: u64,
    ) -> Result<(), AdmissionError> {
        while let Some(at) = self.entry.upstream.open_until(Instant::now(), tokens)
            && wait.run.is_some()
            && at < wait.until
        {
            wait.wait(sleep_until(at)).await?;
        }
        Ok(())
    }

    /// Waits until the upstream admits the call.
    pub(super) async fn pass_breaker(
        &self,
        wait: YieldingWait<'_>,
        tokens: u64,
    ) -> Result<InFlight<'_>, AdmissionError> {
        let owner = self.inner.profile_cache.tenant(&self.request.tenant).await?;
        Ok(wait.wait(pin!(self.entry.upstream.send(&owner.waiting, tokens, wait.until))).await??)
    }
}

/// All upstreams. They outlive the cached profiles: reading a profile again does not make its
/// provider healthy.
#[derive(Default)]
pub(in crate::inference) struct Upstreams {
    endpoints: Mutex<HashMap<String, Arc<Mutex<Breaker>>>>,
    keys: Mutex<HashMap<String, Arc<Mutex<CreditBreaker>>>>,
    models: Mutex<HashMap<String, Arc<Mutex<ProviderQuota>>>>,
    /// The order of the tenants that wait for a key's and model's quota.
    turns: Mutex<HashMap<String, Arc<TenantTurns>>>,
}

/// What identifies an upstream.
pub(in crate::inference) struct UpstreamKey {
    /// The server. Its failures affect all profiles that use it.
    pub(in crate::inference) endpoint: String,
    /// The key and its owner. Its credit is shared by all profiles that use it.
    pub(in crate::inference) key: String,
    /// The model. Providers report limits per key and model.
    pub(in crate::inference) model: String,
}

impl Upstreams {
    /// The upstream with this key.
    pub(in crate::inference) fn find(&self, name: &UpstreamKey) -> UpstreamHealth {
        let UpstreamKey { endpoint, key, model } = name;
        let key = format!("{endpoint} {key}");
        let model = format!("{key} {model}");
        UpstreamHealth {
            turns: Arc::clone(lock(&self.turns).entry(model.clone()).or_default()),
            quota: shared(&self.models, model),
            credit: shared(&self.keys, key),
            breaker: shared(&self.endpoints, endpoint.clone()),
        }
    }
}

fn shared<T: Default>(all: &Mutex<HashMap<String, Arc<Mutex<T>>>>, name: String) -> Arc<Mutex<T>> {
    Arc::clone(lock(all).entry(name).or_default())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An endpoint's breaker, a key's breaker and a model's quota.
pub(in crate::inference) struct UpstreamHealth {
    breaker: Arc<Mutex<Breaker>>,
    credit: Arc<Mutex<CreditBreaker>>,
    quota: Arc<Mutex<ProviderQuota>>,
    turns: Arc<TenantTurns>,
}

/// A question in flight. Dropped without a result, it was abandoned.
pub(in crate::inference) struct InFlight<'l> {
    upstream: &'l UpstreamHealth,
    tokens: u64,
    recorded: bool,
}

impl UpstreamHealth {
    /// Waits until a question with so many tokens may be sent; fails if that is after its deadline.
    /// Questions that wait are sent fairly by tenant: one at a time has the turn.
    pub(in crate::inference) async fn send(
        &self,
        tenant: &WaitingTenant,
        tokens: u64,
        until: Instant,
    ) -> Result<InFlight<'_>, AskError> {
        let _turn = match self.turns.try_acquire() {
            Some(turn) => turn,
            None => self.wait_for_turn(tenant, tokens, until).await?,
        };
        loop {
            let now = Instant::now();
            match self.admit(now, tokens) {
                Ok(()) => return Ok(InFlight { upstream: self, tokens, recorded: false }),
                Err(wait) if wait.at < until && !wait.credit => sleep_until(wait.at).await,
                Err(wait) => return Err(wait.error(now)),
            }
        }
    }

    /// Waits while other questions wait to be sent; not if the upstream is closed until the deadline.
    async fn wait_for_turn(
        &self,
        tenant: &WaitingTenant,
        tokens: u64,
        until: Instant,
    ) -> Result<Turn, AskError> {
        let now = Instant::now();
        let late = |at| BlockedUntil { at, credit: false, why: NO_QUOTA }.error(now);
        if let Some(at) = self.open_until(now, tokens).filter(|at| *at >= until) {
            return Err(late(at));
        }
        let turn = timeout_at(until, self.turns.acquire(tenant, tokens.max(1) as f64)).await;
        turn.map_err(|_| late(until))
    }

    /// Until when a question with so many tokens cannot be sent, as far as is known now. Exhausted
    /// credit is not waited for.
    fn open_until(&self, now: Instant, tokens: u64) -> Option<Instant> {
        let quota = match lock(&self.quota).allow(now, tokens) {
            Allow::WaitUntil(at) => Some(at),
            Allow::Yes | Allow::Probe => None,
        };
        quota.max(lock(&self.breaker).open_until()).filter(|until| now < *until)
    }

    /// Admits a question, or returns when to try again. Checks without side effects come first,
    /// because a breaker that admits a probe admits only one.
    fn admit(&self, now: Instant, tokens: u64) -> Result<(), BlockedUntil> {
        let wait = |allow, credit, why| match allow {
            Allow::WaitUntil(at) => Err(BlockedUntil { at, credit, why }),
            Allow::Yes | Allow::Probe => Ok(()),
        };
        let (mut quota, mut credit) = (lock(&self.quota), lock(&self.credit));
        wait(quota.allow(now, tokens), false, NO_QUOTA)?;
        if let Some(at) = credit.open_until().filter(|until| now < *until) {
            return Err(BlockedUntil { at, credit: true, why: NO_CREDIT });
        }
        wait(lock(&self.breaker).allow(now), false, "the provider failed repeatedly (circuit breaker open)")?;
        wait(credit.allow(now), true, NO_CREDIT)?;
        quota.record_sent(now, tokens);
        Ok(())
    }
}

const NO_QUOTA: &str = "the provider's rate limit is exhausted";
const NO_CREDIT: &str = "the key's credit is exhausted";

/// Nothing is sent before this time.
struct BlockedUntil {
    at: Instant,
    credit: bool,
    why: &'static str,
}

impl BlockedUntil {
    fn error(&self, now: Instant) -> AskError {
        let retry_after: Option<Duration> = Some(self.at.saturating_duration_since(now));
        let (code, again) = match self.credit {
            true => (Code::OverBudget, Retryability::AfterTopUp),
            false => (Code::ProviderError, Retryability::Later),
        };
        AskError { retry_after, retry: again, ..AskError::new(code, self.why) }
    }
}

impl InFlight<'_> {
    /// Records that it was not sent after all.
    pub(in crate::inference) fn cancel(self) {
        let now = Instant::now();
        lock(&self.upstream.breaker).cancel_probe(now);
        lock(&self.upstream.credit).cancel_probe(now);
    }

    /// Records the result.
    pub(in crate::inference) fn record(mut self, result: &Result<Answer, AskError>) {
        self.recorded = true;
        let now = Instant::now();
        let headroom = match result {
            Ok(answer) => Some(&answer.headroom),
            Err(error) => error.headroom.as_deref(),
        };
        lock(&self.upstream.quota).record_end(now, self.tokens, headroom);
        lock(&self.upstream.breaker).record(result.as_ref(), now);
        lock(&self.upstream.credit).record(result.as_ref(), now);
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if !self.recorded {
            lock(&self.upstream.quota).record_end(Instant::now(), self.tokens, None);
        }
    }
}
