//! Circuit breakers: stop sending while that cannot succeed.
//!
//! Pure: results and times come in, decisions go out. A [`Breaker`] guards a model behind an
//! endpoint and a credential, and opens when the provider fails repeatedly; a [`CreditBreaker`]
//! guards a key and opens when its credit is exhausted. When its time is over, probes are sent, and
//! their results decide.

use std::time::Duration;

use longshore::{exponential_delay, half_jitter};
use tokio::time::Instant;

use crate::model_api::{AskError, Code, Retryability};

/// Consecutive failures that open a [`Breaker`].
const MAX_FAILURES: u32 = 5;

/// Different requests that have to fail before a [`Breaker`] opens, or opens again: one request that
/// always fails says nothing about others.
const MIN_REQUESTS: usize = 3;

/// How long a [`Breaker`] stays open at first; doubled after each failed round of probes.
const OPEN_TIME: Duration = Duration::from_millis(500);

/// Longest time that a [`Breaker`] stays open: after an outage, work continues within this time.
/// Probes are few, so that the provider does not notice them.
const MAX_OPEN_TIME: Duration = Duration::from_secs(5);

/// Probes of a half-open [`Breaker`] in flight, at first.
const MAX_PROBES: usize = 3;

/// How often that number is doubled while no probe has failed, and how many times: a provider that is
/// down fails at once, and a model that works may take minutes to answer. Also the retry time
/// meanwhile.
pub(crate) const PROBE_INTERVAL: Duration = Duration::from_secs(1);
const MAX_DOUBLINGS: u32 = 5;

/// How a question passed a [`Breaker`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pass {
    /// The breaker was closed.
    Free,
    /// As a probe of this round.
    Probe(u32),
}

/// Why a [`Breaker`] admits no question now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BreakerWait {
    /// Nothing is sent before this time.
    Open(Instant),
    /// Probes are in flight. Without their results, more may be sent at this time.
    Probing(Instant),
}

/// Guards a model behind an endpoint and a credential.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    state: BreakerState,
    /// Rounds of probes so far.
    round: u32,
    /// How often it opened without closing in between.
    opened: u32,
}

#[derive(Debug)]
enum BreakerState {
    /// Counts consecutive failures, and the hashes of the requests that failed.
    Closed { failures: u32, requests: Vec<u64> },
    /// Nothing is sent before this time.
    Open(Instant),
    /// Probes are sent: how many are in flight, and the hashes of the requests that failed.
    HalfOpen { since: Instant, in_flight: usize, failed: Vec<u64> },
}

impl Default for BreakerState {
    fn default() -> Self {
        Self::Closed { failures: 0, requests: Vec::new() }
    }
}

impl Breaker {
    /// Admits a question. Each admitted question ends by [`Breaker::record`] or
    /// [`Breaker::release`]. A question with a fallback is a probe only if few others are: it can be
    /// answered elsewhere.
    pub(crate) fn admit(&mut self, now: Instant, has_fallback: bool) -> Result<Pass, BreakerWait> {
        match &mut self.state {
            BreakerState::Closed { .. } => return Ok(Pass::Free),
            BreakerState::Open(until) if now < *until => return Err(BreakerWait::Open(*until)),
            BreakerState::HalfOpen { since, in_flight, failed } => {
                let intervals = now.saturating_duration_since(*since).as_secs() / PROBE_INTERVAL.as_secs();
                let intervals = u32::try_from(intervals).unwrap_or(u32::MAX);
                let doublings = if failed.is_empty() && !has_fallback { intervals } else { 0 };
                if *in_flight + failed.len() < MAX_PROBES << doublings.min(MAX_DOUBLINGS) {
                    *in_flight += 1;
                    return Ok(Pass::Probe(self.round));
                }
                let next = since.checked_add(PROBE_INTERVAL.saturating_mul(intervals.saturating_add(1)));
                return Err(BreakerWait::Probing(next.unwrap_or(now + PROBE_INTERVAL)));
            }
            BreakerState::Open(_) => {}
        }
        self.round = self.round.wrapping_add(1);
        self.state = BreakerState::HalfOpen { since: now, in_flight: 1, failed: Vec::new() };
        Ok(Pass::Probe(self.round))
    }

    /// A question ended without a result that says something about the provider: it was not sent,
    /// or its caller left. Another question may be the probe.
    pub(crate) fn release(&mut self, pass: Pass) {
        if let (BreakerState::HalfOpen { in_flight, .. }, Pass::Probe(round)) = (&mut self.state, pass)
            && round == self.round
        {
            *in_flight = in_flight.saturating_sub(1);
        }
    }

    /// The provider has begun to answer a probe: it works, however long the answer takes.
    pub(crate) fn record_accepted(&mut self, pass: Pass) {
        if matches!(self.state, BreakerState::HalfOpen { .. }) && pass == Pass::Probe(self.round) {
            (self.state, self.opened) = (BreakerState::default(), 0);
        }
    }

    /// Records the result of a question, of which `request` is a hash. Any response shows that the
    /// provider works, unless it reports a failure. Our own deadline says nothing about the
    /// provider, except for a probe.
    pub(crate) fn record<T>(&mut self, pass: Pass, request: u64, result: Result<T, &AskError>, now: Instant) {
        self.release(pass);
        let error = match result {
            Err(error) if provider_failed(error) || error.provider_status.is_none() => error,
            _ => return (self.state, self.opened) = (BreakerState::default(), 0),
        };
        let failed = provider_failed(error);
        match &mut self.state {
            BreakerState::Closed { failures, requests } if failed => {
                *failures = failures.saturating_add(1);
                add_distinct(requests, request);
                if *failures >= MAX_FAILURES && requests.len() >= MIN_REQUESTS {
                    self.open(now, request);
                }
            }
            BreakerState::HalfOpen { failed: requests, .. }
                if pass == Pass::Probe(self.round) && (failed || error.code == Code::Timeout) =>
            {
                add_distinct(requests, request);
                if requests.len() >= MIN_REQUESTS {
                    self.open(now, request);
                }
            }
            // Sent before it opened, or in an earlier round: no new information.
            _ => {}
        }
    }

    /// Whether an admitted question may still be sent: it may have waited for something else
    /// meanwhile.
    pub(crate) fn is_valid(&self, pass: Pass) -> bool {
        match self.state {
            BreakerState::Closed { .. } => true,
            BreakerState::Open(_) => false,
            BreakerState::HalfOpen { .. } => pass == Pass::Probe(self.round),
        }
    }

    /// When questions may pass again; `None` if they pass without conditions.
    pub(crate) fn next_probe(&self, now: Instant) -> Option<Instant> {
        match self.state {
            BreakerState::Closed { .. } => None,
            BreakerState::Open(until) => Some(until),
            BreakerState::HalfOpen { .. } => Some(now + PROBE_INTERVAL),
        }
    }

    /// Whether questions pass without conditions.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state, BreakerState::Closed { .. })
    }

    /// Opens for a time with jitter, so that several processes do not send their probes together.
    fn open(&mut self, now: Instant, request: u64) {
        let delay = exponential_delay(OPEN_TIME, MAX_OPEN_TIME, self.opened);
        self.opened = self.opened.saturating_add(1);
        self.state = BreakerState::Open(now + half_jitter(delay, request as f64 / u64::MAX as f64));
    }
}

fn add_distinct(requests: &mut Vec<u64>, request: u64) {
    if requests.len() < MIN_REQUESTS && !requests.contains(&request) {
        requests.push(request);
    }
}

/// Whether the provider failed: not an invalid question, and not a rate limit.
fn provider_failed(error: &AskError) -> bool {
    let ours = error.provider_status.is_some_and(|status| (400..500).contains(&status));
    error.code == Code::ProviderError && error.retry != Retryability::AfterTopUp && !ours
}

/// How often an open [`CreditBreaker`] admits a probe: shows whether the key has credit again.
const CREDIT_PROBE_INTERVAL: Duration = Duration::from_secs(15 * 60);

/// How soon another probe of a [`CreditBreaker`] follows one without a conclusive result.
const CREDIT_PROBE_TIMEOUT: Duration = Duration::from_secs(60);

/// Guards a key.
#[derive(Debug, Default)]
pub(crate) struct CreditBreaker {
    state: CreditState,
    /// Hashes of the requests that were rejected for a lack of credit by a message alone, since the
    /// last answer. One of them may be the reason itself; several together are not.
    rejected: Vec<u64>,
}

#[derive(Debug, Clone, Copy, Default)]
enum CreditState {
    #[default]
    Closed,
    /// Nothing is sent before this time.
    Open(Instant),
    /// A probe is in flight; without a result, another one is sent at this time.
    Probing(Instant),
}

impl CreditBreaker {
    /// Admits a question, or returns when to try again.
    pub(crate) fn admit(&mut self, now: Instant) -> Result<CreditPass, Instant> {
        match self.state {
            CreditState::Closed => Ok(CreditPass { is_probe: false }),
            CreditState::Open(until) | CreditState::Probing(until) if now < until => Err(until),
            CreditState::Open(_) | CreditState::Probing(_) => {
                self.state = CreditState::Probing(now + CREDIT_PROBE_TIMEOUT);
                Ok(CreditPass { is_probe: true })
            }
        }
    }

    /// A question ended without a result. If it was the probe, the next one may be it.
    pub(crate) fn release(&mut self, pass: CreditPass, now: Instant) {
        if pass.is_probe && matches!(self.state, CreditState::Probing(_)) {
            self.state = CreditState::Open(now);
        }
    }

    /// Records the result of a question, of which `request` is a hash. Only an answer shows that
    /// there is credit again.
    pub(crate) fn record<T>(&mut self, request: u64, result: Result<T, &AskError>, now: Instant) {
        match (result, self.state) {
            (Err(error), CreditState::Closed) if error.may_be_about_the_question() => {
                add_distinct(&mut self.rejected, request);
                if self.rejected.len() >= MIN_REQUESTS {
                    self.state = CreditState::Open(now + CREDIT_PROBE_INTERVAL);
                }
            }
            (Err(error), _) if error.retry == Retryability::AfterTopUp => {
                self.state = CreditState::Open(now + CREDIT_PROBE_INTERVAL);
            }
            (Err(_), CreditState::Probing(_)) => {
                self.state = CreditState::Open(now + CREDIT_PROBE_TIMEOUT);
            }
            (Err(_), _) => {}
            (Ok(_), _) => *self = Self::default(),
        }
    }

    /// Whether the key has credit, as far as is known.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state, CreditState::Closed)
    }
}

/// How a question passed a [`CreditBreaker`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CreditPass {
    is_probe: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn error(code: Code, again: Retryability, status: u16) -> AskError {
        AskError { retry: again, provider_status: Some(status), ..AskError::new(code, "") }
    }

    fn down() -> AskError {
        error(Code::ProviderError, Retryability::Later, 529)
    }

    /// Hashes at the end of the range, so that the open times have no jitter.
    fn request(number: u64) -> u64 {
        u64::MAX - number
    }

    fn fail(breaker: &mut Breaker, number: u64, now: Instant) {
        let pass = breaker.admit(now, false).unwrap();
        breaker.record::<()>(pass, request(number), Err(&down()), now);
    }

    /// Until when it is open. It may not be closed.
    fn open_until(breaker: &Breaker) -> Instant {
        let BreakerState::Open(until) = breaker.state else { panic!("{breaker:?}") };
        until
    }

    fn broken(now: Instant) -> Breaker {
        let mut breaker = Breaker::default();
        (0..5).for_each(|number| fail(&mut breaker, number, now));
        open_until(&breaker);
        breaker
    }

    #[test]
    fn it_opens_after_five_failures_in_a_row_of_three_requests() {
        let now = Instant::now();
        let mut breaker = Breaker::default();
        for _ in 0..20 {
            (0..4).for_each(|number| fail(&mut breaker, number, now));
            breaker.record(Pass::Free, 0, Ok(()), now);
        }
        (0..50).for_each(|number| fail(&mut breaker, number % 2, now));
        assert!(breaker.is_closed(), "two requests that always fail do not open it");
        fail(&mut breaker, 2, now);
        assert!(breaker.admit(now, false).is_err());
    }

    #[test]
    fn an_invalid_request_or_a_limit_or_a_deadline_never_opens_it() {
        let now = Instant::now();
        let mut breaker = Breaker::default();
        for error in [
            error(Code::InvalidRequest, Retryability::Never, 400),
            error(Code::ProviderAuth, Retryability::Never, 401),
            error(Code::RateLimited, Retryability::Later, 429),
            error(Code::ProviderError, Retryability::Later, 409),
            error(Code::RateLimited, Retryability::AfterTopUp, 429),
            AskError::new(Code::Timeout, ""),
            AskError::new(Code::Internal, ""),
        ] {
            (0..50).for_each(|number| breaker.record::<()>(Pass::Free, number, Err(&error), now));
            assert!(breaker.is_closed(), "{error}");
        }
        let unreachable = AskError { retry: Retryability::NotSent, provider_status: None, ..down() };
        (0..5).for_each(|number| breaker.record::<()>(Pass::Free, number, Err(&unreachable), now));
        assert!(!breaker.is_closed(), "a provider that cannot be reached has failed");
    }

    #[test]
    fn three_probes_decide_and_the_open_time_grows_until_one_succeeds() {
        let mut now = Instant::now();
        let mut breaker = broken(now);
        for millis in [500, 1000, 2000, 4000, 5000, 5000] {
            let until = open_until(&breaker);
            let open_time = until - now;
            assert!(open_time.abs_diff(Duration::from_millis(millis)) < Duration::from_micros(1));
            assert_eq!(breaker.admit(now, false), Err(BreakerWait::Open(until)));
            now = until;
            let probes = [0; 3].map(|_| breaker.admit(now, false).unwrap());
            assert!(probes.iter().all(|pass| matches!(pass, Pass::Probe(_))));
            assert_eq!(breaker.admit(now, false), Err(BreakerWait::Probing(now + PROBE_INTERVAL)));
            for (number, pass) in probes.into_iter().enumerate() {
                breaker.record::<()>(pass, request(number as u64), Err(&down()), now);
            }
        }
        now = open_until(&breaker);
        let probes = [0; 2].map(|_| breaker.admit(now, false).unwrap());
        breaker.record::<()>(probes[0], request(0), Err(&down()), now);
        breaker.record(probes[1], request(1), Ok(()), now);
        assert_eq!(breaker.admit(now, false), Ok(Pass::Free), "one success outweighs a failure");
        assert!(breaker.is_valid(probes[0]));
    }

    #[test]
    fn one_request_that_always_fails_does_not_open_it_again() {
        let now = Instant::now();
        let mut breaker = broken(now);
        let now = open_until(&breaker);
        (0..20).for_each(|_| fail(&mut breaker, 7, now));
        let pass = breaker.admit(now, false).unwrap();
        breaker.record(pass, request(8), Ok(()), now);
        assert!(breaker.is_closed());
    }

    #[test]
    fn a_probe_that_is_rejected_for_another_reason_shows_that_the_provider_works() {
        let now = Instant::now();
        for (error, works) in [
            (error(Code::RateLimited, Retryability::Later, 429), true),
            (error(Code::InvalidRequest, Retryability::Never, 400), true),
            (AskError::new(Code::Timeout, ""), false),
            (AskError::new(Code::Internal, ""), false),
        ] {
            let mut breaker = broken(now);
            let pass = breaker.admit(now + seconds(1), false).unwrap();
            breaker.record::<()>(pass, 1, Err(&error), now + seconds(1));
            assert_eq!(breaker.is_closed(), works, "{error}");
        }
    }

    #[test]
    fn a_dropped_probe_frees_its_place() {
        let now = Instant::now();
        let mut breaker = broken(now);
        assert!(!breaker.is_valid(Pass::Free));
        let now = now + seconds(1);
        let probes = [0; 3].map(|_| breaker.admit(now, false).unwrap());
        assert!(breaker.admit(now, false).is_err());
        breaker.release(probes[0]);
        assert!(breaker.admit(now, false).is_ok());
        assert!(breaker.is_valid(probes[0]) && !breaker.is_valid(Pass::Free));
    }

    #[test]
    fn while_no_probe_fails_more_are_sent_each_second() {
        let start = Instant::now() + seconds(1);
        let mut breaker = broken(Instant::now());
        let mut probes = Vec::new();
        for (second, all) in [(0, 3), (1, 6), (2, 12), (3, 24), (4, 48), (5, 96), (600, 96)] {
            let now = start + seconds(second);
            while let Ok(pass) = breaker.admit(now, false) {
                probes.push(pass);
            }
            assert_eq!(probes.len(), all, "after {second} s");
            assert_eq!(breaker.admit(now, false), Err(BreakerWait::Probing(now + PROBE_INTERVAL)));
            assert!(breaker.admit(now, true).is_err(), "a question with a fallback is answered elsewhere");
        }
        probes.drain(1..).for_each(|pass| breaker.release(pass));
        breaker.record::<()>(probes[0], 0, Err(&down()), start);
        assert!(breaker.admit(start, false).is_ok() && breaker.admit(start, false).is_ok());
        assert!(breaker.admit(start, false).is_err(), "one has failed");
    }

    #[test]
    fn an_answer_that_has_begun_closes_it() {
        let now = Instant::now();
        let mut breaker = broken(now);
        breaker.record_accepted(Pass::Free);
        assert!(!breaker.is_closed(), "it was sent before the breaker opened");
        let pass = breaker.admit(now + seconds(1), false).unwrap();
        breaker.record_accepted(pass);
        assert!(breaker.is_closed());
        breaker.record::<()>(pass, 1, Err(&down()), now);
        assert!(breaker.is_closed(), "it counts as one failure");
    }

    #[test]
    fn failures_of_questions_that_were_in_flight_when_it_opened_change_nothing() {
        let now = Instant::now();
        let mut breaker = broken(now);
        let until = open_until(&breaker);
        (0..30).for_each(|number| breaker.record::<()>(Pass::Free, number, Err(&down()), now));
        assert_eq!(open_until(&breaker), until);
        breaker.record(Pass::Free, 0, Ok(()), now);
        assert!(breaker.is_closed(), "but an answer is an answer");
    }

    #[test]
    fn a_key_without_credit_is_probed_rarely_until_it_is_topped_up() {
        let now = Instant::now();
        let mut breaker = CreditBreaker::default();
        (0..50).for_each(|_| breaker.record::<()>(0, Err(&down()), now));
        assert!(breaker.is_closed(), "only credit counts");

        let unpaid = error(Code::OverBudget, Retryability::AfterTopUp, 402);
        breaker.record::<()>(0, Err(&unpaid), now);
        assert_eq!(breaker.admit(now), Err(now + seconds(900)));
        let probe = breaker.admit(now + seconds(900)).unwrap();
        breaker.release(probe, now + seconds(900));
        assert_eq!(breaker.admit(now + seconds(900)), Ok(probe), "the first one was not sent");
        breaker.record::<()>(0, Err(&down()), now + seconds(901));
        let inconclusive = Err(now + seconds(961));
        assert_eq!(breaker.admit(now + seconds(901)), inconclusive, "it did not mention credit");
        assert_eq!(breaker.admit(now + seconds(961)), Ok(probe));
        breaker.record::<()>(0, Err(&unpaid), now + seconds(962));
        assert_eq!(breaker.admit(now + seconds(962)), Err(now + seconds(1862)));
        assert_eq!(breaker.admit(now + seconds(1862)), Ok(probe));
        breaker.record(0, Ok(()), now + seconds(1863));
        assert!(breaker.is_closed());
    }
}
