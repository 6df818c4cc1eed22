//! Whether, and when, a question that was not answered is sent again.
//!
//! Pure: the time and the jitter are parameters. The deadline outweighs the number of tries: nothing is
//! waited for, and nothing is begun, that cannot end before it.

use std::time::Duration;

use tokio::time::Instant;

use crate::ask::{Again, AskError, Code, Left};

/// How often and how far apart a question is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tries {
    /// Tries in all, the first included.
    pub most: u32,
    /// The longest wait after the first failure; it doubles with each further one.
    pub base: Duration,
    /// The same after a refusal for the sake of a limit that does not say when it ends. Such limits are
    /// counted by the minute: whoever spends all tries within a few seconds has tried once.
    pub limited: Duration,
    /// The same after a question that never left.
    pub unsent: Duration,
    /// The longest wait of our own choosing. What the provider asks for may be longer.
    pub cap: Duration,
    /// A try that has less time than this is not begun: it would be billed and not answered.
    pub least: Duration,
}

/// What follows a try that brought no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Another, after this long.
    Again {
        /// How long.
        after: Duration,
    },
    /// None: the error stands.
    Stop,
}

impl Default for Tries {
    fn default() -> Self {
        Self {
            most: 5,
            base: Duration::from_secs(1),
            limited: Duration::from_secs(4),
            unsent: Duration::from_millis(100),
            cap: Duration::from_secs(30),
            least: Duration::from_millis(100),
        }
    }
}

impl Tries {
    /// For questions that have this long in all: a try needs a tenth of it, within reason.
    pub fn within(timeout: Duration) -> Self {
        let least = (timeout / 10).clamp(Duration::from_millis(100), Duration::from_secs(2));
        Self { least, ..Self::default() }
    }

    /// Whether a try that begins now can end before `until`.
    pub fn fits(&self, now: Instant, until: Instant) -> bool {
        now + self.least <= until
    }

    /// What follows try number `attempt` (from 1). `jitter` is anything from 0 to 1, evenly spread.
    pub fn next(
        &self,
        attempt: u32,
        error: &AskError,
        now: Instant,
        until: Instant,
        jitter: f64,
    ) -> Next {
        let base = match error.again {
            Again::Never | Again::Money | Again::Resumed => return Next::Stop,
            Again::NotSent => self.unsent,
            Again::Later if error.code == Code::RateLimited => self.limited,
            Again::Later => self.base,
        };
        let Some(room) = until.checked_duration_since(now + self.least) else { return Next::Stop };
        let told = error.retry_after;
        if attempt >= self.most || told.is_some_and(|told| told > room) {
            return Next::Stop;
        }
        let after = match (told, spent(error)) {
            // Never sooner; a little later, so that not all who were told the same come at once.
            (Some(told), _) => (told + share(self.base, jitter)).min(room),
            // Some comes back before all of it does: half the time is enough for somebody.
            (None, Some(reset)) => share(reset.min(room), 0.5 + jitter / 2.0),
            (None, None) => share(ceiling(base, attempt).min(self.cap).min(room), jitter),
        };
        Next::Again { after }
    }
}

/// In how long all of a limit is back of which nothing is left.
fn spent(error: &AskError) -> Option<Duration> {
    let headroom = error.headroom.as_deref().filter(|_| error.code == Code::RateLimited)?;
    let reset = |left: Option<Left>| left.filter(|left| left.left == 0)?.reset;
    reset(headroom.requests).max(reset(headroom.tokens))
}

fn ceiling(base: Duration, attempt: u32) -> Duration {
    base.saturating_mul(1 << attempt.saturating_sub(1).min(31))
}

fn share(of: Duration, jitter: f64) -> Duration {
    // `clamp` leaves what is no number as it is; that becomes nothing.
    let jitter = if jitter.is_nan() { 0.0 } else { jitter.clamp(0.0, 1.0) };
    of.mul_f64(jitter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ask::Headroom;

    fn error(code: Code, again: Again) -> AskError {
        AskError { again, ..AskError::new(code, "") }
    }

    fn told_to_wait(seconds: u64) -> AskError {
        let retry_after = Some(Duration::from_secs(seconds));
        AskError { retry_after, ..error(Code::RateLimited, Again::Later) }
    }

    fn next(attempt: u32, error: &AskError, left: f64, jitter: f64) -> Option<f64> {
        let now = Instant::now();
        let until = now + Duration::from_secs_f64(left);
        match Tries::default().next(attempt, error, now, until, jitter) {
            Next::Again { after } => Some((after.as_secs_f64() * 1e6).round() / 1e6),
            Next::Stop => None,
        }
    }

    #[test]
    fn the_wait_doubles_up_to_the_cap_and_jitter_takes_all_of_it() {
        let failed = error(Code::ProviderError, Again::Later);
        for (attempt, most) in [(1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0)] {
            assert_eq!(next(attempt, &failed, 600.0, 1.0), Some(most));
            assert_eq!(next(attempt, &failed, 600.0, 0.5), Some(most / 2.0));
            assert_eq!(next(attempt, &failed, 600.0, 0.0), Some(0.0));
        }
        assert_eq!(next(5, &failed, 600.0, 0.0), None, "five tries in all");
        let limited = error(Code::RateLimited, Again::Later);
        assert_eq!(next(4, &limited, 600.0, 1.0), Some(30.0));
    }

    #[test]
    fn what_cannot_work_or_means_money_or_may_have_been_billed_is_not_tried_again() {
        for (code, again) in [
            (Code::InvalidRequest, Again::Never),
            (Code::Timeout, Again::Never),
            (Code::RateLimited, Again::Money),
            (Code::InvalidRequest, Again::Money),
        ] {
            assert_eq!(next(1, &error(code, again), 600.0, 0.0), None, "{code} {again:?}");
            let told = AskError { retry_after: Some(Duration::ZERO), ..error(code, again) };
            assert_eq!(next(1, &told, 600.0, 0.0), None, "{code} {again:?}, whatever it asks for");
        }
    }

    /// A caller waits 60 s; doubling waits alone would take 31 to 62 of them.
    #[test]
    fn a_caller_that_leaves_after_a_minute_is_never_kept_longer() {
        let failed = error(Code::ProviderError, Again::Later);
        assert_eq!(next(2, &failed, 1.1, 1.0), Some(1.0), "the wait is what there is room for");
        assert_eq!(next(2, &failed, 0.1, 1.0), Some(0.0));
        assert_eq!(next(2, &failed, 0.099, 1.0), None, "and a try that could not end is not begun");
        assert_eq!(next(2, &failed, 0.0, 0.0), None);
    }

    /// oumi#2516: all tries spent in 7 s, while the limit was by the minute.
    #[test]
    fn a_limit_by_the_minute_is_waited_out_as_the_provider_says() {
        let minute = Left { limit: Some(50), left: 0, reset: Some(Duration::from_secs(57)) };
        let headroom = Headroom { requests: Some(minute), tokens: None };
        let limited = error(Code::RateLimited, Again::Later);
        let spent = AskError { headroom: Some(Box::new(headroom)), ..limited.clone() };
        assert_eq!(next(1, &spent, 600.0, 0.0), Some(28.5));
        assert_eq!(next(1, &spent, 600.0, 1.0), Some(57.0));
        assert_eq!(next(1, &spent, 20.1, 1.0), Some(20.0), "it is no promise: some may be back");
        let some = Headroom { requests: Some(Left { left: 3, ..minute }), tokens: None };
        let some = AskError { headroom: Some(Box::new(some)), ..limited };
        assert_eq!(next(1, &some, 600.0, 1.0), Some(4.0), "what is left is no reason to wait");
    }

    /// hermes-agent#53918: a cap of 120 s on what the provider asked for, which was 171.
    #[test]
    fn retry_after_is_never_cut_short() {
        assert_eq!(next(1, &told_to_wait(171), 600.0, 0.0), Some(171.0));
        assert_eq!(next(1, &told_to_wait(171), 600.0, 1.0), Some(172.0), "spread a little");
        assert_eq!(next(1, &told_to_wait(171), 171.1, 1.0), Some(171.0), "as far as there is room");
        assert_eq!(next(1, &told_to_wait(171), 171.09, 0.0), None);
        assert_eq!(next(1, &told_to_wait(0), 600.0, 0.0), Some(0.0));
        assert_eq!(next(5, &told_to_wait(0), 600.0, 0.0), None);
    }

    #[test]
    fn a_question_that_never_left_is_sent_again_almost_at_once() {
        let unsent = error(Code::ProviderError, Again::NotSent);
        assert_eq!(next(1, &unsent, 60.0, 1.0), Some(0.1));
        assert_eq!(next(4, &unsent, 60.0, 1.0), Some(0.8));
    }

    #[test]
    fn a_try_needs_a_tenth_of_the_time_within_reason() {
        let least = |seconds| Tries::within(Duration::from_secs(seconds)).least.as_millis();
        assert_eq!((least(0), least(10), least(600)), (100, 1000, 2000));
        let now = Instant::now();
        assert!(Tries::default().fits(now, now + Duration::from_millis(100)));
        assert!(!Tries::default().fits(now, now + Duration::from_millis(99)));
    }

    proptest::proptest! {
        #[test]
        fn no_wait_ends_too_late_and_none_is_shorter_than_asked(
            attempt in 1_u32..9, left in 0.0_f64..200.0, jitter in -1.0_f64..2.0,
            asked in proptest::option::of(0_u64..200), code in 0..2, again in 0..2,
        ) {
            let code = [Code::RateLimited, Code::ProviderError][code as usize];
            let again = [Again::Later, Again::NotSent][again as usize];
            let retry_after = asked.map(Duration::from_secs);
            let error = AskError { retry_after, ..error(code, again) };
            let (now, tries) = (Instant::now(), Tries::default());
            let until = now + Duration::from_secs_f64(left);
            if let Next::Again { after } = tries.next(attempt, &error, now, until, jitter) {
                proptest::prop_assert!(tries.fits(now + after, until));
                proptest::prop_assert!(retry_after.is_none_or(|asked| after >= asked));
                proptest::prop_assert!(attempt < 5);
            }
        }
    }
}
