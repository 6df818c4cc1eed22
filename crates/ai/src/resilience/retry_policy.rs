//! Whether and when a failed question is sent again.
//!
//! Pure: the time and the jitter are parameters. The deadline outweighs the number of attempts: no
//! wait and no attempt is started that cannot end before it. A wait is at least half of its
//! ceiling, so that an endpoint that refuses connections is not asked five times within a second.
//! Only the last one before the deadline may be shorter, down to half of the first.

use std::time::Duration;

use longshore::{exponential_delay, half_jitter};
use tokio::time::Instant;

use crate::model_api::{AskError, Code, RemainingLimit, Retryability};

/// Number and spacing of attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRetryPolicy {
    /// Attempts in all, the first included.
    pub max_attempts: u32,
    /// Longest wait after the first failure; doubled with each further one.
    pub base: Duration,
    /// Longest wait after the first rejection by a rate limit without a retry time. Such limits are
    /// counted by the minute: several attempts within a few seconds count as one.
    pub rate_limit_base: Duration,
    /// Longest wait by this policy. The provider may ask for a longer one.
    pub cap: Duration,
    /// An attempt with less time than this is not started: it would be billed and not answered.
    pub min_attempt_time: Duration,
}

/// The decision after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryDecision {
    /// Retry after this delay.
    Retry {
        /// The delay.
        after: Duration,
    },
    /// Return the error.
    Stop,
}

impl Default for CallRetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 5,
            base: Duration::from_secs(1),
            rate_limit_base: Duration::from_secs(4),
            cap: Duration::from_secs(30),
            min_attempt_time: Duration::from_millis(100),
        }
    }
}

impl CallRetryPolicy {
    /// The decision after attempt number `attempt` (from 1). `jitter` is uniform between 0 and 1.
    pub fn decide(
        &self,
        attempt: u32,
        error: &AskError,
        now: Instant,
        deadline: Instant,
        jitter: f64,
    ) -> RetryDecision {
        // `clamp` keeps NaN.
        let jitter = if jitter.is_nan() { 0.0 } else { jitter.clamp(0.0, 1.0) };
        let base = match error.retry {
            Retryability::Never | Retryability::AfterTopUp | Retryability::AfterResume => {
                return RetryDecision::Stop;
            }
            Retryability::Later if error.code == Code::RateLimited => self.rate_limit_base,
            Retryability::Later | Retryability::NotSent => self.base,
        };
        let Some(room) = deadline.checked_duration_since(now + self.min_attempt_time) else {
            return RetryDecision::Stop;
        };
        let asked = error.retry_after;
        let is_too_late = asked.map_or(room < self.base / 2, |asked| asked > room);
        if attempt >= self.max_attempts || is_too_late {
            return RetryDecision::Stop;
        }
        let after = match (asked, exhausted_reset(error)) {
            // Never sooner; a little later, so that callers with the same retry time do not come
            // back together.
            (Some(asked), _) => (asked + self.base.mul_f64(jitter)).min(room),
            // Limits are refilled gradually: half the time is enough for some callers.
            (None, Some(reset)) => half_jitter(reset.min(room), jitter),
            (None, None) => {
                let ceiling = exponential_delay(base, self.cap, attempt.saturating_sub(1));
                half_jitter(ceiling, jitter).min(room)
            }
        };
        RetryDecision::Retry { after }
    }
}

/// When an exhausted limit is reset.
fn exhausted_reset(error: &AskError) -> Option<Duration> {
    let headroom = error.headroom.as_deref().filter(|_| error.code == Code::RateLimited)?;
    let reset = |left: Option<RemainingLimit>| left.filter(|left| left.left == 0)?.reset;
    reset(headroom.requests).max(reset(headroom.tokens))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model_api::Headroom;

    fn error(code: Code, again: Retryability) -> AskError {
        AskError { retry: again, ..AskError::new(code, "") }
    }

    fn told_to_wait(seconds: u64) -> AskError {
        let retry_after = Some(Duration::from_secs(seconds));
        AskError { retry_after, ..error(Code::RateLimited, Retryability::Later) }
    }

    fn decide(attempt: u32, error: &AskError, left: f64, jitter: f64) -> Option<f64> {
        let now = Instant::now();
        let deadline = now + Duration::from_secs_f64(left);
        match CallRetryPolicy::default().decide(attempt, error, now, deadline, jitter) {
            RetryDecision::Retry { after } => Some((after.as_secs_f64() * 1e6).round() / 1e6),
            RetryDecision::Stop => None,
        }
    }

    #[test]
    fn the_wait_doubles_up_to_the_cap_and_is_at_least_half_of_it() {
        // A connection that is refused comes back no sooner than a failure of the provider.
        for again in [Retryability::Later, Retryability::NotSent] {
            let failed = error(Code::ProviderError, again);
            for (attempt, most) in [(1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0)] {
                assert_eq!(decide(attempt, &failed, 600.0, 1.0), Some(most));
                assert_eq!(decide(attempt, &failed, 600.0, 0.5), Some(most * 0.75));
                assert_eq!(decide(attempt, &failed, 600.0, 0.0), Some(most / 2.0));
                assert_eq!(decide(attempt, &failed, 600.0, f64::NAN), Some(most / 2.0));
            }
        }
        let failed = error(Code::ProviderError, Retryability::Later);
        assert_eq!(decide(5, &failed, 600.0, 0.0), None, "five tries in all");
        let limited = error(Code::RateLimited, Retryability::Later);
        assert_eq!(decide(4, &limited, 600.0, 1.0), Some(30.0));
    }

    #[test]
    fn what_cannot_work_or_means_money_or_may_have_been_billed_is_not_tried_again() {
        for (code, again) in [
            (Code::InvalidRequest, Retryability::Never),
            (Code::Timeout, Retryability::Never),
            (Code::RateLimited, Retryability::AfterTopUp),
            (Code::InvalidRequest, Retryability::AfterTopUp),
        ] {
            assert_eq!(decide(1, &error(code, again), 600.0, 0.0), None, "{code} {again:?}");
            let with_delay = AskError { retry_after: Some(Duration::ZERO), ..error(code, again) };
            assert_eq!(decide(1, &with_delay, 600.0, 0.0), None, "{code} {again:?}, whatever it asks for");
        }
    }

    /// A caller waits 60 s; doubling waits alone would take 31 to 62 of them.
    #[test]
    fn a_caller_that_leaves_after_a_minute_is_never_kept_longer() {
        let failed = error(Code::ProviderError, Retryability::Later);
        assert_eq!(decide(2, &failed, 1.1, 1.0), Some(1.0), "the wait is what there is room for");
        assert_eq!(decide(4, &failed, 0.6, 0.0), Some(0.5), "half of the first wait, at least");
        assert_eq!(decide(4, &failed, 0.59, 1.0), None);
        assert_eq!(decide(2, &told_to_wait(0), 0.099, 1.0), None, "a try that could not end is not started");
        assert_eq!(decide(2, &failed, 0.0, 0.0), None);
    }

    /// oumi#2516: all tries spent in 7 s, while the limit was by the minute.
    #[test]
    fn a_limit_by_the_minute_is_waited_out_as_the_provider_says() {
        let minute = RemainingLimit { limit: Some(50), left: 0, reset: Some(Duration::from_secs(57)) };
        let headroom = Headroom { requests: Some(minute), tokens: None };
        let limited = error(Code::RateLimited, Retryability::Later);
        let spent = AskError { headroom: Some(Box::new(headroom)), ..limited.clone() };
        assert_eq!(decide(1, &spent, 600.0, 0.0), Some(28.5));
        assert_eq!(decide(1, &spent, 600.0, 1.0), Some(57.0));
        assert_eq!(decide(1, &spent, 20.1, 1.0), Some(20.0), "it is no promise: some may be back");
        let some = Headroom { requests: Some(RemainingLimit { left: 3, ..minute }), tokens: None };
        let some = AskError { headroom: Some(Box::new(some)), ..limited };
        assert_eq!(decide(1, &some, 600.0, 1.0), Some(4.0), "what is left is no reason to wait");
    }

    /// hermes-agent#53918: a cap of 120 s on what the provider asked for, which was 171.
    #[test]
    fn retry_after_is_never_cut_short() {
        assert_eq!(decide(1, &told_to_wait(171), 600.0, 0.0), Some(171.0));
        assert_eq!(decide(1, &told_to_wait(171), 600.0, 1.0), Some(172.0), "spread a little");
        assert_eq!(decide(1, &told_to_wait(171), 171.1, 1.0), Some(171.0), "as far as there is room");
        assert_eq!(decide(1, &told_to_wait(171), 171.09, 0.0), None);
        assert_eq!(decide(1, &told_to_wait(0), 600.0, 0.0), Some(0.0));
        assert_eq!(decide(5, &told_to_wait(0), 600.0, 0.0), None);
    }

    proptest::proptest! {
        #[test]
        fn no_wait_ends_too_late_and_none_is_shorter_than_asked(
            attempt in 1_u32..9, left in 0.0_f64..200.0, jitter in -1.0_f64..2.0,
            asked in proptest::option::of(0_u64..200), code in 0..2, again in 0..2,
        ) {
            let code = [Code::RateLimited, Code::ProviderError][code as usize];
            let again = [Retryability::Later, Retryability::NotSent][again as usize];
            let retry_after = asked.map(Duration::from_secs);
            let error = AskError { retry_after, ..error(code, again) };
            let (now, policy) = (Instant::now(), CallRetryPolicy::default());
            let deadline = now + Duration::from_secs_f64(left);
            let decision = policy.decide(attempt, &error, now, deadline, jitter);
            if let RetryDecision::Retry { after } = decision {
                proptest::prop_assert!(now + after + policy.min_attempt_time <= deadline);
                proptest::prop_assert!(retry_after.is_none_or(|asked| after >= asked));
                proptest::prop_assert!(attempt < 5);
            }
        }
    }
}
