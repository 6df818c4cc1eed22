//! Limits learnt from a provider's headers, before the refusal comes.
//!
//! Pure. A provider says with every answer how much is left and in how long all of it is back. What it
//! said, less what has been sent and not yet been heard of, is what may still be sent. That is on the
//! careful side by what the provider has counted already; as answers come in, it becomes exact.

use std::time::Duration;

use tokio::time::Instant;

use crate::ask::{Headroom, Left};
use crate::breaker::Allow;

/// With less than this part of a limit left, questions are spread over the time until it is back.
const LITTLE: f64 = 0.1;

/// How long a question waits for news of others that are out, at least and at most.
const SOON: Duration = Duration::from_millis(50);
const LATER: Duration = Duration::from_secs(1);

/// What is said to last longer than a day is a mistake of somebody's.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Stands before a key and a model.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    requests: Side,
    tokens: Side,
}

/// Requests or tokens.
#[derive(Debug, Clone, Copy, Default)]
struct Side {
    /// What was said last.
    seen: Option<Seen>,
    /// What is out.
    out: f64,
    /// When the last question was sent.
    sent: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    limit: Option<f64>,
    left: f64,
    at: Instant,
    /// When all of it is back.
    full: Instant,
}

impl Gate {
    /// Whether a question of so many tokens, its answer included, may be sent now.
    pub fn allow(&self, now: Instant, tokens: u64) -> Allow {
        let waits = [self.requests.wait(now, 1.0), self.tokens.wait(now, tokens as f64)];
        waits.into_iter().flatten().max().map_or(Allow::Yes, Allow::WaitUntil)
    }

    /// A question was sent. Whoever says this says later that it ended: [`Gate::heard`].
    pub fn sent(&mut self, now: Instant, tokens: u64) {
        self.requests.send(now, 1.0);
        self.tokens.send(now, tokens as f64);
    }

    /// A question that was sent has ended, with what was said of limits; with nothing if it was given
    /// up.
    pub fn heard(&mut self, now: Instant, tokens: u64, headroom: Option<&Headroom>) {
        self.requests.end(1.0);
        self.tokens.end(tokens as f64);
        if let Some(headroom) = headroom {
            self.requests.learn(now, headroom.requests);
            self.tokens.learn(now, headroom.tokens);
        }
    }
}

impl Side {
    /// Until when a question must wait that needs so much.
    fn wait(&self, now: Instant, need: f64) -> Option<Instant> {
        let seen = self.seen.filter(|seen| now < seen.full)?;
        // More than there ever is goes when all of it is there, or nobody is out to wait for.
        let need = seen.limit.map_or(need, |limit| need.min(limit));
        let left = seen.left_at(now);
        if left < need {
            return Some(seen.enough_at(need));
        }
        if left - self.out < need {
            let pace = seen.pace(need).unwrap_or(SOON).clamp(SOON, LATER);
            return Some((now + pace).min(seen.full));
        }
        let little = seen.limit.is_some_and(|limit| left < limit * LITTLE);
        let next = self.sent.filter(|_| little)? + seen.pace(need)?;
        (now < next).then(|| next.min(seen.full))
    }

    fn send(&mut self, now: Instant, need: f64) {
        self.out += need;
        self.sent = Some(now);
    }

    fn end(&mut self, need: f64) {
        self.out = (self.out - need).max(0.0);
    }

    /// Without a time when it is back, nobody could be told until when to wait.
    fn learn(&mut self, now: Instant, left: Option<Left>) {
        let Some(Left { limit, left, reset: Some(reset) }) = left else { return };
        // Some servers say 0 where they mean that there is no limit.
        let limit = limit.filter(|limit| *limit > 0).map(|limit| limit as f64);
        let full = now + reset.min(LONGEST);
        self.seen = Some(Seen { limit, left: left as f64, at: now, full });
    }
}

impl Seen {
    /// How much comes back per second, if that can be told.
    fn inflow(&self) -> Option<f64> {
        let missing = self.limit? - self.left;
        let inflow = missing / (self.full - self.at).as_secs_f64();
        (inflow.is_finite() && inflow > 0.0).then_some(inflow)
    }

    /// What is left, should it come back little by little.
    fn left_at(&self, now: Instant) -> f64 {
        let back = self.inflow().unwrap_or_default() * (now - self.at).as_secs_f64();
        self.left + back
    }

    /// When enough is back: little by little, or all at once in the end.
    fn enough_at(&self, need: f64) -> Instant {
        let wait = self.inflow().map(|inflow| (need - self.left) / inflow);
        let wait = wait.and_then(|wait| Duration::try_from_secs_f64(wait).ok());
        wait.map_or(self.full, |wait| (self.at + wait).min(self.full))
    }

    /// How far apart questions are that need so much: as fast as it comes back, or as what is left lasts
    /// until all of it is back, whichever is faster.
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

    fn left(limit: u64, left: u64, reset: f64) -> Option<Left> {
        Some(Left { limit: Some(limit), left, reset: Some(Duration::from_secs_f64(reset)) })
    }

    fn told(gate: &mut Gate, now: Instant, requests: Option<Left>, tokens: Option<Left>) {
        gate.sent(now, 10);
        gate.heard(now, 10, Some(&Headroom { requests, tokens }));
    }

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn without_a_word_everything_goes() {
        let now = Instant::now();
        let mut gate = Gate::default();
        (0..1000).for_each(|_| gate.sent(now, 1_000_000));
        assert_eq!(gate.allow(now, u64::MAX), Allow::Yes);
        let endless = Some(Left { limit: None, left: 0, reset: None });
        told(&mut gate, now, endless, endless);
        assert_eq!(gate.allow(now, 1), Allow::Yes, "nobody knows until when");
    }

    #[test]
    fn with_nothing_left_nobody_is_sent_before_something_is_back() {
        let now = Instant::now();
        let mut gate = Gate::default();
        told(&mut gate, now, left(60, 0, 60.0), None);
        assert_eq!(gate.allow(now, 1), Allow::WaitUntil(now + seconds(1.0)));
        assert_eq!(gate.allow(now + seconds(1.0), 1), Allow::Yes);
        let unknown = Some(Left { limit: None, left: 0, reset: Some(seconds(20.0)) });
        told(&mut gate, now, unknown, None);
        assert_eq!(gate.allow(now, 1), Allow::WaitUntil(now + seconds(20.0)));
        assert_eq!(gate.allow(now + seconds(20.0), 1), Allow::Yes);
    }

    #[test]
    fn a_long_question_waits_for_its_tokens_and_a_short_one_passes() {
        let now = Instant::now();
        let mut gate = Gate::default();
        told(&mut gate, now, None, left(6_000, 3_000, 30.0));
        assert_eq!(gate.allow(now, 3_000), Allow::Yes);
        assert_eq!(gate.allow(now, 4_000), Allow::WaitUntil(now + seconds(10.0)));
        assert_eq!(gate.allow(now, 1_000_000), Allow::WaitUntil(now + seconds(30.0)));
        assert_eq!(gate.allow(now + seconds(30.0), 1_000_000), Allow::Yes, "not never");
    }

    #[test]
    fn what_is_out_counts_until_it_is_heard_of_or_given_up() {
        let now = Instant::now();
        let mut gate = Gate::default();
        told(&mut gate, now, left(100, 50, 30.0), None);
        for _ in 0..50 {
            assert_eq!(gate.allow(now, 1), Allow::Yes);
            gate.sent(now, 1);
        }
        assert!(matches!(gate.allow(now, 1), Allow::WaitUntil(_)));
        gate.heard(now, 1, None);
        assert_eq!(gate.allow(now, 1), Allow::Yes);
    }

    #[test]
    fn the_last_tenth_is_spread_over_the_time_until_more_is_there() {
        let now = Instant::now();
        let mut gate = Gate::default();
        told(&mut gate, now, left(100, 5, 60.0), None);
        // 95 in 60 seconds come back: one every 0.63 s. Five would last 12 s each.
        let Allow::WaitUntil(next) = gate.allow(now, 1) else { panic!("not paced") };
        assert!((next - now).as_secs_f64() > 0.6 && (next - now).as_secs_f64() < 0.65);
        assert_eq!(gate.allow(next, 1), Allow::Yes);
        told(&mut gate, now, left(100, 50, 60.0), None);
        assert_eq!(gate.allow(now, 1), Allow::Yes, "with half of it left there is no hurry");
    }

    #[test]
    fn whatever_a_provider_says_of_its_limits_does_no_harm() {
        let now = Instant::now();
        for (limit, left) in [(u64::MAX, 0), (u64::MAX, 1), (0, u64::MAX), (1, 1), (1, 0)] {
            for reset in [Duration::ZERO, Duration::MAX] {
                let mut gate = Gate::default();
                let said = Some(Left { limit: Some(limit), left, reset: Some(reset) });
                told(&mut gate, now, said, said);
                gate.sent(now, u64::MAX);
                let _ = (gate.allow(now, u64::MAX), gate.allow(now + seconds(1e7), 0));
            }
        }
    }

    #[test]
    fn a_provider_that_counts_by_bucket_never_has_to_refuse() {
        // 120 a minute, refilled continuously; answers take 500 ms; sixteen at a time.
        let (mut gate, begin) = (Gate::default(), Instant::now());
        let (mut level, mut at) = (120.0_f64, begin);
        let mut out: Vec<(Instant, Left)> = Vec::new();
        let (mut now, mut sent) = (begin, 0);
        while now < begin + seconds(120.0) {
            let (back, still) = out.into_iter().partition(|(end, _)| *end <= now);
            out = still;
            for (_, left) in Vec::<(Instant, Left)>::from_iter(back) {
                let headroom = Headroom { requests: Some(left), tokens: None };
                gate.heard(now, 1, Some(&headroom));
            }
            while out.len() < 16 && gate.allow(now, 1) == Allow::Yes {
                gate.sent(now, 1);
                level = (level + (now - at).as_secs_f64() * 2.0).min(120.0) - 1.0;
                at = now;
                assert!(level >= 0.0, "refused after {sent}");
                sent += 1;
                let reset = Some(seconds((120.0 - level) / 2.0));
                let left = Left { limit: Some(120), left: level as u64, reset };
                out.push((now + seconds(0.5), left));
            }
            now += seconds(0.01);
        }
        assert!(sent > 300, "and of 360 most were sent: {sent}");
    }
}
