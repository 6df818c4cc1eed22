//! Circuit breakers: stop sending to an endpoint or with a key while that cannot succeed.
//!
//! Pure: results and times come in, decisions go out. A [`Breaker`] guards an endpoint and opens
//! when the provider fails repeatedly; a [`CreditBreaker`] guards a key and opens when its credit is
//! exhausted. When its time is over, one question is sent as a probe, and its result decides.

use std::time::Duration;

use longshore::exponential_delay;
use tokio::time::Instant;

use crate::model_api::{AskError, Code, Retryability};

/// Whether a question may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allow {
    /// Yes.
    Yes,
    /// Yes, as the only one: others wait for its result.
    Probe,
    /// Not before this time. Then check again.
    WaitUntil(Instant),
}

/// Consecutive failures that open a [`Breaker`].
const MAX_FAILURES: u32 = 5;

/// How long a [`Breaker`] stays open at first; doubled after each failed probe.
const OPEN_TIME: Duration = Duration::from_secs(5);

/// Longest time that a [`Breaker`] stays open.
const MAX_OPEN_TIME: Duration = Duration::from_secs(120);

/// How often an open [`CreditBreaker`] admits a probe: shows whether the key has credit again.
const CREDIT_PROBE_INTERVAL: Duration = Duration::from_secs(15 * 60);

/// How long to wait for a probe's result. After that, a probe without a result (its caller was
/// dropped) no longer blocks. Also how soon another probe follows an inconclusive one of a
/// [`CreditBreaker`].
const PROBE_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Closed,
    /// Nothing is sent before this time.
    Open(Instant),
    /// A probe is in flight; without a result, another one is sent at this time.
    Probing(Instant),
}

impl State {
    /// Admits a probe when it is due.
    fn allow(&mut self, now: Instant) -> Allow {
        match *self {
            Self::Closed => Allow::Yes,
            Self::Open(until) | Self::Probing(until) if now < until => Allow::WaitUntil(until),
            Self::Open(_) | Self::Probing(_) => {
                *self = Self::Probing(now + PROBE_TIMEOUT);
                Allow::Probe
            }
        }
    }

    /// A probe was admitted and not sent: the next question may be one.
    fn cancel_probe(&mut self, now: Instant) {
        if matches!(self, Self::Probing(_)) {
            *self = Self::Open(now);
        }
    }

    fn open_until(self) -> Option<Instant> {
        match self {
            Self::Closed => None,
            Self::Open(until) | Self::Probing(until) => Some(until),
        }
    }
}

/// Guards an endpoint.
#[derive(Debug, Clone, Default)]
pub(crate) struct Breaker {
    state: State,
    /// Consecutive failures.
    failures: u32,
    /// How often it opened without closing in between.
    opened: u32,
}

impl Breaker {
    /// Whether a question may be sent now.
    pub(crate) fn allow(&mut self, now: Instant) -> Allow {
        self.state.allow(now)
    }

    /// An admitted question was not sent.
    pub(crate) fn cancel_probe(&mut self, now: Instant) {
        self.state.cancel_probe(now);
    }

    /// Records a question's result. Any response shows that the provider works, unless it reports a
    /// failure. Our own timeout says nothing about the provider, except for a probe.
    pub(crate) fn record<T>(&mut self, result: Result<T, &AskError>, now: Instant) {
        let failed = result.as_ref().err().is_some_and(|error| provider_failed(error));
        let silent = result.as_ref().err().is_some_and(|error| error.code == Code::Timeout);
        match self.state {
            State::Closed if failed => {
                self.failures += 1;
                if self.failures >= MAX_FAILURES {
                    self.open(now);
                }
            }
            State::Closed if silent => {}
            State::Probing(_) if failed || silent => self.open(now),
            // Sent before it opened: no new information.
            State::Open(_) if failed || silent => {}
            _ => (self.state, self.failures, self.opened) = (State::Closed, 0, 0),
        }
    }

    /// Until when nothing is sent; `None` if it is closed.
    pub(crate) fn open_until(&self) -> Option<Instant> {
        self.state.open_until()
    }

    fn open(&mut self, now: Instant) {
        let rest = exponential_delay(OPEN_TIME, MAX_OPEN_TIME, self.opened);
        self.opened = self.opened.saturating_add(1);
        self.state = State::Open(now + rest);
    }
}

/// Whether the provider failed: not an invalid question, and not a rate limit.
fn provider_failed(error: &AskError) -> bool {
    let ours = error.provider_status.is_some_and(|status| (400..500).contains(&status));
    error.code == Code::ProviderError && error.retry != Retryability::AfterTopUp && !ours
}

/// Guards a key.
#[derive(Debug, Clone, Default)]
pub(crate) struct CreditBreaker {
    state: State,
}

impl CreditBreaker {
    /// Whether a question may be sent with the key now.
    pub(crate) fn allow(&mut self, now: Instant) -> Allow {
        self.state.allow(now)
    }

    /// An admitted question was not sent.
    pub(crate) fn cancel_probe(&mut self, now: Instant) {
        self.state.cancel_probe(now);
    }

    /// Records a question's result. Only an answer shows that there is credit again.
    pub(crate) fn record<T>(&mut self, result: Result<T, &AskError>, now: Instant) {
        match (result, self.state) {
            (Err(error), _) if error.retry == Retryability::AfterTopUp => {
                self.state = State::Open(now + CREDIT_PROBE_INTERVAL);
            }
            (Err(_), State::Probing(_)) => {
                self.state = State::Open(now + PROBE_TIMEOUT);
            }
            (Err(_), _) => {}
            (Ok(_), _) => self.state = State::Closed,
        }
    }

    /// Until when nothing is sent; `None` if it is closed.
    pub(crate) fn open_until(&self) -> Option<Instant> {
        self.state.open_until()
    }
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

    fn broken(now: Instant) -> Breaker {
        let mut breaker = Breaker::default();
        for _ in 0..5 {
            assert_eq!(breaker.allow(now), Allow::Yes);
            breaker.record::<()>(Err(&down()), now);
        }
        breaker
    }

    #[test]
    fn it_opens_after_failures_in_a_row_and_not_before() {
        let now = Instant::now();
        let mut breaker = Breaker::default();
        for _ in 0..20 {
            for _ in 0..4 {
                breaker.record::<()>(Err(&down()), now);
            }
            breaker.record(Ok(()), now);
        }
        assert_eq!((breaker.allow(now), breaker.open_until()), (Allow::Yes, None));
        assert_eq!(broken(now).allow(now), Allow::WaitUntil(now + seconds(5)));
    }

    #[test]
    fn what_is_our_own_fault_or_a_limit_or_our_deadline_never_opens_it() {
        let now = Instant::now();
        let mut breaker = Breaker::default();
        for error in [
            error(Code::InvalidRequest, Retryability::Never, 400),
            error(Code::ProviderAuth, Retryability::Never, 401),
            error(Code::RateLimited, Retryability::Later, 429),
            error(Code::ProviderError, Retryability::Later, 409),
            error(Code::RateLimited, Retryability::AfterTopUp, 429),
            AskError::new(Code::Timeout, ""),
        ] {
            (0..50).for_each(|_| breaker.record::<()>(Err(&error), now));
            assert_eq!(breaker.allow(now), Allow::Yes, "{error}");
        }
        let unreachable = AskError { retry: Retryability::NotSent, provider_status: None, ..down() };
        (0..5).for_each(|_| breaker.record::<()>(Err(&unreachable), now));
        assert!(breaker.open_until().is_some(), "a provider that cannot be reached has failed");
    }

    #[test]
    fn one_probe_decides_and_the_rest_grows_until_one_succeeds() {
        let mut now = Instant::now();
        let mut breaker = broken(now);
        for rest in [5, 10, 20, 40, 80, 120, 120] {
            assert_eq!(breaker.allow(now), Allow::WaitUntil(now + seconds(rest)));
            now += seconds(rest);
            assert_eq!(breaker.allow(now), Allow::Probe);
            assert!(matches!(breaker.allow(now), Allow::WaitUntil(_)), "one at a time");
            breaker.record::<()>(Err(&down()), now);
        }
        now += seconds(120);
        assert_eq!(breaker.allow(now), Allow::Probe);
        breaker.record(Ok(()), now);
        assert_eq!(breaker.allow(now), Allow::Yes);
        assert_eq!(broken(now).open_until(), Some(now + seconds(5)), "and it begins anew");
    }

    #[test]
    fn a_probe_that_is_refused_for_another_reason_shows_that_the_provider_lives() {
        let now = Instant::now();
        for (error, lives) in [
            (error(Code::RateLimited, Retryability::Later, 429), true),
            (error(Code::InvalidRequest, Retryability::Never, 400), true),
            (AskError::new(Code::Timeout, ""), false),
        ] {
            let mut breaker = broken(now);
            assert_eq!(breaker.allow(now + seconds(5)), Allow::Probe);
            breaker.record::<()>(Err(&error), now + seconds(6));
            assert_eq!(breaker.allow(now + seconds(6)) == Allow::Yes, lives, "{error}");
        }
    }

    #[test]
    fn a_probe_whose_caller_left_blocks_nobody_for_ever() {
        let now = Instant::now();
        let mut breaker = broken(now);
        assert_eq!(breaker.allow(now + seconds(5)), Allow::Probe);
        assert_eq!(breaker.allow(now + seconds(64)), Allow::WaitUntil(now + seconds(65)));
        assert_eq!(breaker.allow(now + seconds(65)), Allow::Probe);
    }

    #[test]
    fn a_probe_that_was_not_sent_blocks_nobody() {
        let (now, mut money) = (Instant::now(), CreditBreaker::default());
        let mut breaker = broken(now);
        breaker.cancel_probe(now);
        assert_eq!(breaker.open_until(), Some(now + seconds(5)), "it was none");
        assert_eq!(breaker.allow(now + seconds(5)), Allow::Probe);
        breaker.cancel_probe(now + seconds(6));
        assert_eq!(breaker.allow(now + seconds(6)), Allow::Probe);
        money.record::<()>(Err(&error(Code::RateLimited, Retryability::AfterTopUp, 429)), now);
        assert_eq!(money.allow(now + seconds(900)), Allow::Probe);
        money.cancel_probe(now + seconds(900));
        assert_eq!(money.allow(now + seconds(900)), Allow::Probe);
    }

    #[test]
    fn failures_of_questions_that_were_out_when_it_opened_change_nothing() {
        let now = Instant::now();
        let mut breaker = broken(now);
        (0..30).for_each(|_| breaker.record::<()>(Err(&down()), now + seconds(1)));
        assert_eq!(breaker.open_until(), Some(now + seconds(5)));
        breaker.record(Ok(()), now + seconds(2));
        assert_eq!(breaker.allow(now + seconds(2)), Allow::Yes, "but an answer is an answer");
    }

    #[test]
    fn a_key_without_money_is_tried_seldom_until_somebody_has_paid() {
        let now = Instant::now();
        let mut breaker = CreditBreaker::default();
        (0..50).for_each(|_| breaker.record::<()>(Err(&down()), now));
        assert_eq!(breaker.allow(now), Allow::Yes, "only money counts");

        let unpaid = error(Code::RateLimited, Retryability::AfterTopUp, 429);
        breaker.record::<()>(Err(&unpaid), now);
        assert_eq!(breaker.allow(now), Allow::WaitUntil(now + seconds(900)));
        assert_eq!(breaker.allow(now + seconds(900)), Allow::Probe);
        breaker.record::<()>(Err(&down()), now + seconds(901));
        assert_eq!(
            breaker.open_until(),
            Some(now + seconds(961)),
            "the answer did not say that credit is exhausted"
        );
        assert_eq!(breaker.allow(now + seconds(961)), Allow::Probe);
        breaker.record::<()>(Err(&unpaid), now + seconds(962));
        assert_eq!(breaker.open_until(), Some(now + seconds(1862)));
        assert_eq!(breaker.allow(now + seconds(1862)), Allow::Probe);
        breaker.record(Ok(()), now + seconds(1863));
        assert_eq!(breaker.allow(now + seconds(1863)), Allow::Yes);
    }
}
