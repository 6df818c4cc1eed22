//! Health of upstreams, as observed by this process: breaker, credit, and the rate limits that the
//! provider reports. An upstream is an endpoint, a credential and a model, so that one tenant's bad
//! model or key holds up no other. Profiles that have all three in common share it.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::{Instant, timeout};

use crate::model_api::{Answer, AskError, Code, Question, Retryability};
use crate::resilience::{
    Allow, Breaker, BreakerWait, CreditBreaker, CreditPass, PROBE_INTERVAL, Pass, ProviderQuota, TenantTurns,
};

/// Idle upstreams are dropped each time that so many were added.
const EVICTION_INTERVAL: usize = 256;

/// An upstream that was not used for this long is dropped, whatever its health.
const STATE_TTL: Duration = Duration::from_secs(3600);

/// How long a probe that waits for something else keeps its place.
const PROBE_GRACE: Duration = Duration::from_millis(100);

/// All upstreams. They outlive the cached profiles: reading a profile again does not make its
/// provider healthy.
#[derive(Default)]
pub(super) struct Upstreams(Mutex<UpstreamMap>);

#[derive(Default)]
struct UpstreamMap {
    upstreams: HashMap<UpstreamKey, Arc<UpstreamHealth>>,
    /// By endpoint and credential.
    credit: HashMap<(String, String), Weak<Mutex<CreditBreaker>>>,
}

/// What identifies an upstream.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct UpstreamKey {
    pub(super) endpoint: String,
    /// The key's owner, its reference and a hash of it. Its credit is shared by all models.
    pub(super) credential: String,
    pub(super) model: String,
}

impl Upstreams {
    /// The upstream with this key.
    pub(super) fn find(&self, key: UpstreamKey) -> Arc<UpstreamHealth> {
        let map = &mut *lock(&self.0);
        if let Some(upstream) = map.upstreams.get(&key) {
            return Arc::clone(upstream);
        }
        if map.upstreams.len() % EVICTION_INTERVAL == EVICTION_INTERVAL - 1 {
            map.evict_idle(Instant::now());
        }
        let credit = map.credit.entry((key.endpoint.clone(), key.credential.clone())).or_default();
        let breaker = credit.upgrade().unwrap_or_default();
        *credit = Arc::downgrade(&breaker);
        let upstream = Arc::new(UpstreamHealth::new(breaker));
        map.upstreams.insert(key, Arc::clone(&upstream));
        upstream
    }
}

impl UpstreamMap {
    fn evict_idle(&mut self, now: Instant) {
        self.upstreams.retain(|_, upstream| Arc::strong_count(upstream) > 1 || !upstream.is_idle(now));
        self.credit.retain(|_, breaker| breaker.strong_count() > 0);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The health of one upstream.
pub(super) struct UpstreamHealth {
    state: Mutex<UpstreamState>,
    credit: Arc<Mutex<CreditBreaker>>,
    /// Signals that the breaker may admit a question.
    changed: Notify,
    /// The order of the tenants that wait for the quota.
    pub(super) turns: Arc<TenantTurns>,
}

struct UpstreamState {
    breaker: Breaker,
    quota: ProviderQuota,
    used: Instant,
}

impl UpstreamHealth {
    fn new(credit: Arc<Mutex<CreditBreaker>>) -> Self {
        let (breaker, quota) = Default::default();
        let state = Mutex::new(UpstreamState { breaker, quota, used: Instant::now() });
        Self { state, credit, changed: Notify::new(), turns: Arc::default() }
    }

    /// Admits a question with so many tokens, if all three checks pass.
    pub(super) fn admit(
        self: &Arc<Self>,
        now: Instant,
        tokens: u64,
        has_fallback: bool,
    ) -> Result<InFlight, Blocked> {
        let (mut state, mut credit) = (lock(&self.state), lock(&self.credit));
        state.used = now;
        if let Allow::WaitUntil(at) = state.quota.allow(now, tokens) {
            return Err(Blocked { at, by: BlockedBy::Quota });
        }
        let pass = state.breaker.admit(now, has_fallback).map_err(|wait| match wait {
            BreakerWait::Open(at) => Blocked { at, by: BlockedBy::Breaker },
            BreakerWait::Probing(at) => Blocked { at, by: BlockedBy::Probes },
        })?;
        let credit_pass = credit.admit(now).map_err(|at| {
            state.breaker.release(pass);
            Blocked { at, by: BlockedBy::Credit }
        })?;
        state.quota.record_sent(now, tokens);
        let (upstream, pass) = (Arc::clone(self), Some(pass));
        Ok(InFlight { upstream, tokens, has_fallback, pass, credit_pass, recorded: false })
    }

    /// Until when the quota admits no question with so many tokens.
    pub(super) fn quota_wait(&self, now: Instant, tokens: u64) -> Option<Instant> {
        match lock(&self.state).quota.allow(now, tokens) {
            Allow::WaitUntil(at) => Some(at),
            Allow::Yes => None,
        }
    }

    /// Completes when the breaker may admit a question that it has blocked.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Whether it has no state that a new one would not have.
    fn is_idle(&self, now: Instant) -> bool {
        let state = lock(&self.state);
        let healthy = state.breaker.is_closed() && state.quota.is_idle(now) && lock(&self.credit).is_closed();
        healthy || now.saturating_duration_since(state.used) > STATE_TTL
    }
}

/// Why a question cannot be sent now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Blocked {
    /// When to check again.
    pub(super) at: Instant,
    pub(super) by: BlockedBy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockedBy {
    /// The breaker is open; the time is that of the next probe.
    Breaker,
    /// The breaker is half-open, and its probes are in flight.
    Probes,
    /// The provider's rate limit is exhausted.
    Quota,
    /// The key's credit is exhausted.
    Credit,
}

impl Blocked {
    /// The error of a question that does not wait any longer. It was not sent.
    pub(super) fn error(self, now: Instant) -> AskError {
        let (code, retry, why) = match self.by {
            BlockedBy::Breaker | BlockedBy::Probes => {
                let why = "the provider failed repeatedly (circuit breaker open); the question was not sent";
                (Code::ProviderError, Retryability::Later, why)
            }
            BlockedBy::Quota => {
                (Code::RateLimited, Retryability::Later, "the provider's rate limit is exhausted")
            }
            BlockedBy::Credit => {
                (Code::OverBudget, Retryability::AfterTopUp, "the key's credit is exhausted")
            }
        };
        let wait = self.at.saturating_duration_since(now);
        let wait = if self.by == BlockedBy::Probes { wait.min(PROBE_INTERVAL) } else { wait };
        AskError { retry_after: Some(wait), retry, ..AskError::new(code, why) }
    }
}

/// A question that was admitted. Dropped without a result, it frees its place: it was not sent, or
/// its caller left.
pub(super) struct InFlight {
    upstream: Arc<UpstreamHealth>,
    tokens: u64,
    has_fallback: bool,
    /// `None` for a probe that freed its place while it waits.
    pass: Option<Pass>,
    credit_pass: CreditPass,
    recorded: bool,
}

impl InFlight {
    /// Waits for `what`. A probe that waits for long frees its place meanwhile.
    pub(super) async fn wait_for<T>(&mut self, what: impl Future<Output = T>) -> T {
        let mut what = pin!(what);
        if let Ok(value) = timeout(PROBE_GRACE, what.as_mut()).await {
            return value;
        }
        if let Some(probe @ Pass::Probe(_)) = self.pass {
            self.pass = None;
            lock(&self.upstream.state).breaker.release(probe);
            self.upstream.changed.notify_waiters();
        }
        what.await
    }

    /// Whether the question may still be sent. A probe that freed its place takes one again.
    pub(super) fn confirm(&mut self) -> bool {
        let breaker = &mut lock(&self.upstream.state).breaker;
        match self.pass {
            Some(pass) => breaker.is_valid(pass),
            None => {
                self.pass = breaker.admit(Instant::now(), self.has_fallback).ok();
                self.pass.is_some()
            }
        }
    }

    /// The provider has begun to answer: if that was a probe, others need not wait for its end.
    pub(super) fn record_accepted(&self) {
        let breaker = &mut lock(&self.upstream.state).breaker;
        if let Some(pass) = self.pass.filter(|_| !breaker.is_closed()) {
            breaker.record_accepted(pass);
            self.upstream.changed.notify_waiters();
        }
    }

    /// Records the result. Returns how long the breaker admits no further question, if it is not closed.
    pub(super) fn record(
        mut self,
        question: &Question,
        result: &Result<Answer, AskError>,
    ) -> Option<Duration> {
        self.recorded = true;
        let now = Instant::now();
        let (headroom, request) = match result {
            Ok(answer) => (Some(&answer.headroom), 0),
            Err(error) => (error.headroom.as_deref(), question.content_hash()),
        };
        let (mut state, mut credit) = (lock(&self.upstream.state), lock(&self.upstream.credit));
        let was_closed = state.breaker.is_closed();
        state.quota.record_end(now, self.tokens, headroom);
        if let Some(pass) = self.pass {
            state.breaker.record(pass, request, result.as_ref(), now);
        }
        credit.record(request, result.as_ref(), now);
        if !was_closed {
            self.upstream.changed.notify_waiters();
        }
        state.breaker.next_probe(now).map(|at| at.saturating_duration_since(now))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.recorded {
            return;
        }
        let now = Instant::now();
        let (mut state, mut credit) = (lock(&self.upstream.state), lock(&self.upstream.credit));
        state.quota.record_end(now, self.tokens, None);
        if let Some(pass) = self.pass {
            state.breaker.release(pass);
        }
        credit.release(self.credit_pass, now);
        if !state.breaker.is_closed() {
            self.upstream.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(model: usize) -> UpstreamKey {
        let (endpoint, credential) = ("http://host".to_owned(), "acme key".to_owned());
        UpstreamKey { endpoint, credential, model: model.to_string() }
    }

    fn down() -> AskError {
        AskError { retry: Retryability::Later, ..AskError::new(Code::ProviderError, "") }
    }

    /// An upstream with an open breaker.
    fn broken(upstreams: &Upstreams) -> Arc<UpstreamHealth> {
        let upstream = upstreams.find(key(0));
        for number in 0..5 {
            let question = Question::new("id", number.to_string(), Instant::now());
            let in_flight = upstream.admit(Instant::now(), 1, false).unwrap();
            in_flight.record(&question, &Err(down()));
        }
        upstream
    }

    #[tokio::test(start_paused = true)]
    async fn probes_that_wait_for_a_limit_hold_up_no_other_question() {
        let upstream = broken(&Upstreams::default());
        let Err(Blocked { at, .. }) = upstream.admit(Instant::now(), 1, false) else { panic!("it is open") };
        tokio::time::sleep_until(at).await;
        let mut limited = [0; 3].map(|_| upstream.admit(Instant::now(), 1, false).unwrap());
        assert!(upstream.admit(Instant::now(), 1, false).is_err(), "three probes at most");
        for probe in &mut limited {
            let _ = timeout(2 * PROBE_GRACE, probe.wait_for(std::future::pending::<()>())).await;
        }
        let mut others = [0; 3].map(|_| upstream.admit(Instant::now(), 1, false).unwrap());
        assert!(!limited[0].confirm(), "its place is taken");
        assert!(others.iter_mut().all(InFlight::confirm));
        drop(others);
        assert!(limited.iter_mut().all(InFlight::confirm), "a place is free again");
        assert!(upstream.admit(Instant::now(), 1, false).is_err());
    }

    #[tokio::test]
    async fn the_number_of_upstreams_is_bounded_and_an_open_breaker_is_kept() {
        let upstreams = Upstreams::default();
        broken(&upstreams);
        for model in 1..10_000 {
            let in_flight = upstreams.find(key(model)).admit(Instant::now(), 1, false).unwrap();
            drop(in_flight);
        }
        assert!(lock(&upstreams.0).upstreams.len() <= EVICTION_INTERVAL);
        assert!(upstreams.find(key(0)).admit(Instant::now(), 1, false).is_err());
        lock(&upstreams.0).evict_idle(Instant::now() + 2 * STATE_TTL);
        let map = lock(&upstreams.0);
        assert_eq!((map.upstreams.len(), map.credit.len()), (0, 0));
    }
}
