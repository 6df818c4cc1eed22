//! Rate limits learnt from a provider's headers, before it rejects a question.
//!
//! Pure. A provider reports with every answer how much of its limits remains, and when they are
//! reset. What remains, less what is in flight, may still be sent. This is too careful by what the
//! provider has counted already; it becomes exact as answers arrive.

use std::time::Duration;

use tokio::time::Instant;

use crate::model_api::{Headroom, RemainingLimit};

/// Whether a question may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allow {
    /// Yes.
    Yes,
    /// Not before this time. Then check again.
    WaitUntil(Instant),
}

/// Below this part of a limit, questions are spread over the time until the reset.
const SPREAD_BELOW: f64 = 0.1;

/// Shortest and longest wait for the results of calls in flight.
const MIN_WAIT: Duration = Duration::from_millis(50);
const MAX_WAIT: Duration = Duration::from_secs(1);

/// A longer reset time is a provider's mistake.
const MAX_RESET: Duration = Duration::from_secs(24 * 3600);

/// The quota of a key and a model.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProviderQuota {
    requests: QuotaState,
    tokens: QuotaState,
}

/// The quota of requests or of tokens.
#[derive(Debug, Clone, Copy, Default)]
struct QuotaState {
    /// The last report.
    report: Option<ReportedLimit>,
    /// What is in flight.
    out: f64,
    /// When the last question was sent.
    sent: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct ReportedLimit {
    limit: Option<f64>,
    left: f64,
    at: Instant,
    /// When the limit is reset.
    full: Instant,
}

impl ProviderQuota {
    /// Whether a question with so many tokens, its answer included, may be sent now.
    pub(crate) fn allow(&self, now: Instant, tokens: u64) -> Allow {
        let waits = [self.requests.wait(now, 1.0), self.tokens.wait(now, tokens as f64)];
        waits.into_iter().flatten().max().map_or(Allow::Yes, Allow::WaitUntil)
    }

    /// Whether nothing is in flight and no report is valid.
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        [self.requests, self.tokens]
            .iter()
            .all(|state| state.out <= 0.0 && state.report.is_none_or(|report| report.full <= now))
    }

    /// Records that a question was sent. The caller has to record its end: [`ProviderQuota::record_end`].
    pub(crate) fn record_sent(&mut self, now: Instant, tokens: u64) {
        self.requests.send(now, 1.0);
        self.tokens.send(now, tokens as f64);
    }

    /// Records the end of a question, with the reported limits; with `None` if it was abandoned.
    pub(crate) fn record_end(&mut self, now: Instant, tokens: u64, headroom: Option<&Headroom>) {
        self.requests.end(1.0);
        self.tokens.end(tokens as f64);
        if let Some(headroom) = headroom {
            self.requests.learn(now, headroom.requests);
            self.tokens.learn(now, headroom.tokens);
        }
    }
}

impl QuotaState {
    /// Until when a question that needs so much has to wait.
    fn wait(&self, now: Instant, need: f64) -> Option<Instant> {
        let report = self.report.filter(|report| now < report.full)?;
        // A question above the limit is sent when all of it is available, or when nothing is in
        // flight.
        let need = report.limit.map_or(need, |limit| need.min(limit));
        let left = report.left_at(now);
        if left < need {
            return Some(report.enough_at(need));
        }
        if left - self.out < need {
            let pace = report.pace(need).unwrap_or(MIN_WAIT).clamp(MIN_WAIT, MAX_WAIT);
            return Some((now + pace).min(report.full));
        }
        let little = report.limit.is_some_and(|limit| left < limit * SPREAD_BELOW);
        let next = self.sent.filter(|_| little)? + report.pace(need)?;
        (now < next).then(|| next.min(report.full))
    }

    fn send(&mut self, now: Instant, need: f64) {
        self.out += need;
        self.sent = Some(now);
    }

    fn end(&mut self, need: f64) {
        self.out = (self.out - need).max(0.0);
    }

    /// Ignores a report without a reset time: there would be no time to wait for.
    fn learn(&mut self, now: Instant, left: Option<RemainingLimit>) {
        let Some(RemainingLimit { limit, left, reset: Some(reset) }) = left else { return };
        // Some servers send 0 for "no limit".
        let limit = limit.filter(|limit| *limit > 0).map(|limit| limit as f64);
        let full = now + reset.min(MAX_RESET);
        self.report = Some(ReportedLimit { limit, left: left as f64, at: now, full });
    }
}

impl ReportedLimit {
    /// What is refilled per second, if known.
    fn inflow(&self) -> Option<f64> {
        let missing = self.limit? - self.left;
        let inflow = missing / (self.full - self.at).as_secs_f64();
        (inflow.is_finite() && inflow > 0.0).then_some(inflow)
    }

    /// What remains now, if the limit is refilled continuously.
    fn left_at(&self, now: Instant) -> f64 {
        let back = self.inflow().unwrap_or_default() * (now - self.at).as_secs_f64();
        self.left + back
    }

    /// When enough is available: by continuous refill, or at the reset.
    fn enough_at(&self, need: f64) -> Instant {
        let wait = self.inflow().map(|inflow| (need - self.left) / inflow);
        let wait = wait.and_then(|wait| Duration::try_from_secs_f64(wait).ok());
        wait.map_or(self.full, |wait| (self.at + wait).min(self.full))
    }

    /// The interval between questions that need so much: by the refill rate, or by spreading what
    /// remains until the reset, whichever is faster.
    fn pace(&self, need: f64) -> Option<Duration> {
        let whole = (self.full - self.at).as_secs_f64();
        let by_inflow = self.inflow().map(|inflow| need / inflow);
        let by_rest = whole * need / self.left;
        let pace = by_inflow.map_or(by_rest, |pace| pace.min(by_rest)).min(whole);
        Duration::try_from_secs_f64(pace).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(limit: u64, left: u64, reset: f64) -> Option<RemainingLimit> {
        Some(RemainingLimit { limit: Some(limit), left, reset: Some(Duration::from_secs_f64(reset)) })
    }

    fn report(
        quota: &mut ProviderQuota,
        now: Instant,
        requests: Option<RemainingLimit>,
        tokens: Option<RemainingLimit>,
    ) {
        quota.record_sent(now, 10);
        quota.record_end(now, 10, Some(&Headroom { requests, tokens }));
    }

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn without_a_word_everything_goes() {
        let now = Instant::now();
        let mut quota = ProviderQuota::default();
        (0..1000).for_each(|_| quota.record_sent(now, 1_000_000));
        assert_eq!(quota.allow(now, u64::MAX), Allow::Yes);
        let endless = Some(RemainingLimit { limit: None, left: 0, reset: None });
        report(&mut quota, now, endless, endless);
        assert_eq!(quota.allow(now, 1), Allow::Yes, "the reset time is unknown");
    }

    #[test]
    fn with_nothing_left_nobody_is_sent_before_something_is_back() {
        let now = Instant::now();
        let mut quota = ProviderQuota::default();
        report(&mut quota, now, left(60, 0, 60.0), None);
        assert_eq!(quota.allow(now, 1), Allow::WaitUntil(now + seconds(1.0)));
        assert_eq!(quota.allow(now + seconds(1.0), 1), Allow::Yes);
        let unknown = Some(RemainingLimit { limit: None, left: 0, reset: Some(seconds(20.0)) });
        report(&mut quota, now, unknown, None);
        assert_eq!(quota.allow(now, 1), Allow::WaitUntil(now + seconds(20.0)));
        assert_eq!(quota.allow(now + seconds(20.0), 1), Allow::Yes);
    }

    #[test]
    fn a_long_question_waits_for_its_tokens_and_a_short_one_passes() {
        let now = Instant::now();
        let mut quota = ProviderQuota::default();
        report(&mut quota, now, None, left(6_000, 3_000, 30.0));
        assert_eq!(quota.allow(now, 3_000), Allow::Yes);
        assert_eq!(quota.allow(now, 4_000), Allow::WaitUntil(now + seconds(10.0)));
        assert_eq!(quota.allow(now, 1_000_000), Allow::WaitUntil(now + seconds(30.0)));
        assert_eq!(quota.allow(now + seconds(30.0), 1_000_000), Allow::Yes, "not never");
    }

    #[test]
    fn what_is_out_counts_until_it_is_heard_of_or_given_up() {
        let now = Instant::now();
        let mut quota = ProviderQuota::default();
        report(&mut quota, now, left(100, 50, 30.0), None);
        for _ in 0..50 {
            assert_eq!(quota.allow(now, 1), Allow::Yes);
            quota.record_sent(now, 1);
        }
        assert!(matches!(quota.allow(now, 1), Allow::WaitUntil(_)));
        quota.record_end(now, 1, None);
        assert_eq!(quota.allow(now, 1), Allow::Yes);
    }

    #[test]
    fn the_last_tenth_is_spread_over_the_time_until_more_is_there() {
        let now = Instant::now();
        let mut quota = ProviderQuota::default();
        report(&mut quota, now, left(100, 5, 60.0), None);
        // 95 are refilled in 60 seconds: one every 0.63 s. Five would last 12 s each.
        let Allow::WaitUntil(next) = quota.allow(now, 1) else { panic!("not paced") };
        assert!((next - now).as_secs_f64() > 0.6 && (next - now).as_secs_f64() < 0.65);
        assert_eq!(quota.allow(next, 1), Allow::Yes);
        report(&mut quota, now, left(100, 50, 60.0), None);
        assert_eq!(quota.allow(now, 1), Allow::Yes, "with half of it left there is no hurry");
    }

    #[test]
    fn whatever_a_provider_says_of_its_limits_does_no_harm() {
        let now = Instant::now();
        for (limit, left) in [(u64::MAX, 0), (u64::MAX, 1), (0, u64::MAX), (1, 1), (1, 0)] {
            for reset in [Duration::ZERO, Duration::MAX] {
                let mut quota = ProviderQuota::default();
                let remaining = Some(RemainingLimit { limit: Some(limit), left, reset: Some(reset) });
                report(&mut quota, now, remaining, remaining);
                quota.record_sent(now, u64::MAX);
                let _ = (quota.allow(now, u64::MAX), quota.allow(now + seconds(1e7), 0));
            }
        }
    }

    #[test]
    fn a_provider_that_counts_by_bucket_never_has_to_refuse() {
        // 120 a minute, refilled continuously; answers take 500 ms; sixteen at a time.
        let (mut quota, begin) = (ProviderQuota::default(), Instant::now());
        let (mut level, mut at) = (120.0_f64, begin);
        let mut out: Vec<(Instant, RemainingLimit)> = Vec::new();
        let (mut now, mut sent) = (begin, 0);
        while now < begin + seconds(120.0) {
            let (back, still) = out.into_iter().partition(|(end, _)| *end <= now);
            out = still;
            for (_, left) in Vec::<(Instant, RemainingLimit)>::from_iter(back) {
                let headroom = Headroom { requests: Some(left), tokens: None };
                quota.record_end(now, 1, Some(&headroom));
            }
            while out.len() < 16 && quota.allow(now, 1) == Allow::Yes {
                quota.record_sent(now, 1);
                level = (level + (now - at).as_secs_f64() * 2.0).min(120.0) - 1.0;
                at = now;
                assert!(level >= 0.0, "refused after {sent}");
                sent += 1;
                let reset = Some(seconds((120.0 - level) / 2.0));
                let left = RemainingLimit { limit: Some(120), left: level as u64, reset };
                out.push((now + seconds(0.5), left));
            }
            now += seconds(0.01);
        }
        assert!(sent > 300, "and of 360 most were sent: {sent}");
    }
}
