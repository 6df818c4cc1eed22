//! A process's share of a bucket that all processes draw from.
//!
//! Pure: the time is a parameter. A process draws in advance what it is likely to use within 100
//! ms, and has to use it within 200 ms. So it calls the store ten to twenty times a second and not
//! with every question. When less than half of that is left, more is drawn, so that the next
//! question need not wait.
//!
//! **No window exceeds limit + burst.** What is used between `s` and `e` was drawn between `s - 200
//! ms` and `e`. A bucket that holds `C` and refills at `r` gives at most `C + r (e - s + 200 ms)`
//! in that time, however many processes draw. So with `C = burst - r · 200 ms` ([`BucketCharge::capacity`])
//! at most `burst + r (e - s)` is used. There are three exceptions: a bucket holds at least one
//! request, and a single question that needs more than its bucket ever holds is admitted when the
//! bucket is full; a store that takes longer than 200 ms to answer adds what is refilled meanwhile;
//! and what is settled later counts when it is settled.
//!
//! **What is not used in time is lost, not returned.** Returned and drawn again it would never
//! expire: ten processes that keep their leases fresh in this way let the bucket refill besides,
//! and can then use all leases and the bucket at once. So that little is lost, a process draws no
//! more than its waiting questions need, or than it used in the 100 ms before.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use longshore::accounts::BucketRequest;
use longshore::{ProfileName, TenantId};
use tokio::time::Instant;

use crate::profile::ProfileLimits;

/// The default burst, in minutes of the limit: one second.
const DEFAULT_BURST: f64 = 1.0 / 60.0;

/// How much is drawn in advance, and how long it may be used.
const DRAW_AHEAD: Duration = Duration::from_millis(100);
const LEASE_TTL: Duration = Duration::from_millis(200);

/// The smallest bucket: one request.
const MIN_CAPACITY: f64 = 1.0;

/// Sums of fractions are not exact.
const EPSILON: f64 = 1e-9;

/// What a question takes from one bucket.
#[derive(Debug, Clone, PartialEq)]
pub struct BucketCharge {
    /// The bucket, as `tenant/acme/requests` or `profile/acme/fast/tokens`.
    pub bucket: Arc<str>,
    /// What it counts.
    pub measure: Measure,
    /// The refill per minute.
    pub per_minute: f64,
    /// How much may be used at once after an idle time.
    pub burst: f64,
    /// How much the question takes, as estimated.
    pub amount: f64,
}

/// What a bucket counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Requests: one per question.
    Requests,
    /// Tokens: charged by estimate, settled after the answer.
    Tokens,
}

impl BucketCharge {
    /// What a question without tokens takes from its tenant's buckets.
    pub fn of_tenant(tenant: &TenantId, limits: &ProfileLimits) -> Vec<Self> {
        Self::of(&format!("tenant/{tenant}"), limits)
    }

    /// What a question without tokens takes from its profile's buckets.
    pub fn of_profile(tenant: &TenantId, profile: &ProfileName, limits: &ProfileLimits) -> Vec<Self> {
        Self::of(&format!("profile/{tenant}/{profile}"), limits)
    }

    /// What a question with so many tokens takes.
    pub fn with_tokens(&self, tokens: u64) -> Self {
        let amount = match self.measure {
            Measure::Requests => self.amount,
            Measure::Tokens => tokens as f64,
        };
        Self { amount, ..self.clone() }
    }

    fn of(owner: &str, limits: &ProfileLimits) -> Vec<Self> {
        let minutes = limits.burst.unwrap_or(DEFAULT_BURST);
        let charge = |what: &str, measure, per_minute: f64, amount| Self {
            bucket: format!("{owner}/{what}").into(),
            measure,
            per_minute,
            burst: per_minute * minutes,
            amount,
        };
        let requests = limits.requests.map(|limit| charge("requests", Measure::Requests, limit, 1.0));
        let tokens = limits.tokens.map(|limit| charge("tokens", Measure::Tokens, limit, 0.0));
        requests.into_iter().chain(tokens).collect()
    }

    fn per(&self, time: Duration) -> f64 {
        self.per_minute / 60.0 * time.as_secs_f64()
    }

    /// How many minutes the bucket takes to refill what the question takes.
    pub(crate) fn minutes(&self) -> f64 {
        self.amount / self.per_minute
    }

    /// The capacity of the store's bucket.
    pub fn capacity(&self) -> f64 {
        (self.burst - self.per(LEASE_TTL)).max(MIN_CAPACITY)
    }

    /// The draw for waiting questions: at least for the first one, at most for all of them or for
    /// what is likely to be used soon.
    pub(crate) fn draw(&self, lease: &TokenLease, queued: f64, now: Instant) -> BucketRequest {
        let left = lease.left(now);
        let soon = queued.max(lease.recent(now)).min(self.per(DRAW_AHEAD));
        let at_least = self.amount - left;
        BucketRequest { amount: at_least.max(soon - left), minimum: at_least, ..self.settle(0.0) }
    }

    /// The draw in advance of what is likely to be used soon; `None` while more than half of that
    /// is left. The same bounds apply as for waiting questions. A single question has no usage
    /// before it, and draws nothing in advance.
    pub(crate) fn refill(&self, lease: &TokenLease, now: Instant) -> Option<BucketRequest> {
        let (left, soon) = (lease.left(now), lease.recent(now).min(self.per(DRAW_AHEAD)));
        let at_least = (self.amount - left).max(EPSILON);
        (left < soon / 2.0).then(|| BucketRequest {
            amount: soon - left,
            minimum: at_least,
            ..self.settle(0.0)
        })
    }

    /// The draw that returns so much, or charges it afterwards if negative.
    pub(crate) fn settle(&self, credit: f64) -> BucketRequest {
        BucketRequest {
            bucket: self.bucket.to_string(),
            per_minute: self.per_minute,
            capacity: self.capacity(),
            amount: -credit,
            minimum: 0.0,
        }
    }
}

/// What a process holds of one bucket.
#[derive(Debug, Default)]
pub(crate) struct TokenLease {
    /// Oldest first.
    parts: VecDeque<LeasePart>,
    /// What was used since `since`, and in the 100 ms before that.
    used: f64,
    used_before: f64,
    since: Option<Instant>,
}

/// What one draw brought.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LeasePart {
    left: f64,
    until: Instant,
}

impl TokenLease {
    /// What may be used now.
    pub(crate) fn left(&self, now: Instant) -> f64 {
        self.parts.iter().filter(|part| now <= part.until).map(|part| part.left).sum()
    }

    /// Whether so much may be used now.
    pub(crate) fn has(&self, amount: f64, now: Instant) -> bool {
        let mut missing = amount - EPSILON;
        let mut fresh = self.parts.iter().filter(|part| now <= part.until);
        // Usually the oldest part has enough.
        while missing > 0.0 {
            let Some(part) = fresh.next() else { return false };
            missing -= part.left;
        }
        true
    }

    /// Takes so much, oldest first; returns the parts, for [`TokenLease::put_back`].
    pub(crate) fn take(&mut self, amount: f64, now: Instant) -> Vec<LeasePart> {
        let mut taken = Vec::new();
        self.take_from(amount, now, |part| taken.push(part));
        taken
    }

    /// Takes so much for a question that is surely sent.
    pub(crate) fn take_for_use(&mut self, amount: f64, now: Instant) {
        self.take_from(amount, now, drop);
    }

    fn take_from(&mut self, amount: f64, now: Instant, mut taken: impl FnMut(LeasePart)) {
        self.parts.retain(|part| now <= part.until);
        self.count(amount, now);
        let mut missing = amount;
        while let Some(part) = self.parts.front_mut().filter(|_| missing > 0.0) {
            let amount = part.left.min(missing);
            taken(LeasePart { left: amount, until: part.until });
            missing -= amount;
            part.left -= amount;
            if part.left <= EPSILON {
                self.parts.pop_front();
            }
        }
    }

    /// Returns parts that will not be used. Their expiry does not change.
    pub(crate) fn put_back(&mut self, parts: Vec<LeasePart>) {
        for part in parts.into_iter().rev() {
            self.used = (self.used - part.left).max(0.0);
            self.parts.push_front(part);
        }
    }

    /// Adds what a draw brought that was started at `started`. If it arrives so late that it would be
    /// expired, the questions waiting at this moment may use it.
    pub(crate) fn add(&mut self, got: f64, started: Instant, now: Instant) {
        self.parts.push_back(LeasePart { left: got, until: (started + LEASE_TTL).max(now) });
    }

    /// What was used in the last 100 ms.
    fn recent(&self, now: Instant) -> f64 {
        match self.since {
            Some(since) if now < since + DRAW_AHEAD => self.used_before,
            Some(since) if now < since + 2 * DRAW_AHEAD => self.used,
            _ => 0.0,
        }
    }

    fn count(&mut self, amount: f64, now: Instant) {
        let before = self.recent(now);
        if self.since.is_none_or(|since| now >= since + DRAW_AHEAD) {
            (self.used, self.used_before, self.since) = (0.0, before, Some(now));
        }
        self.used += amount;
    }

    /// Whether it holds nothing and had no recent usage.
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        self.left(now) == 0.0 && self.since.is_none_or(|since| now > since + 2 * DRAW_AHEAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charge(amount: f64) -> BucketCharge {
        let bucket = "b".into();
        BucketCharge { bucket, measure: Measure::Requests, per_minute: 6000.0, burst: 100.0, amount }
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_bucket_holds_what_may_be_used_at_once_less_what_may_be_out() {
        assert_eq!(charge(1.0).capacity(), 80.0);
        assert_eq!(BucketCharge { burst: 0.0, ..charge(1.0) }.capacity(), 1.0, "one request goes at least");
    }

    #[test]
    fn what_is_drawn_is_used_in_time_or_lost() {
        let now = Instant::now();
        let mut lease = TokenLease::default();
        lease.add(3.0, now, now + millis(20));
        assert!(lease.has(3.0, now + millis(200)) && !lease.has(0.1, now + millis(201)));
        lease.add(2.0, now + millis(100), now + millis(120));
        lease.take(1.0, now + millis(150));
        assert_eq!(lease.left(now + millis(150)), 4.0);
        assert_eq!(lease.left(now + millis(250)), 2.0, "the oldest is used first");
        lease.add(1.0, now, now + millis(900));
        assert!(lease.has(1.0, now + millis(900)), "a slow store still serves who waits");
    }

    #[test]
    fn what_is_put_back_is_as_old_as_before() {
        let now = Instant::now();
        let mut lease = TokenLease::default();
        lease.add(1.0, now, now);
        lease.add(2.0, now + millis(50), now + millis(50));
        let taken = lease.take(2.0, now + millis(60));
        assert_eq!(lease.left(now + millis(60)), 1.0);
        lease.put_back(taken);
        assert_eq!(lease.left(now + millis(60)), 3.0);
        assert_eq!((lease.left(now + millis(210)), lease.left(now + millis(260))), (2.0, 0.0));
    }

    #[test]
    fn what_runs_low_is_fetched_ahead_if_as_much_was_used_lately() {
        let now = Instant::now();
        let mut lease = TokenLease::default();
        lease.add(8.0, now, now);
        let refill = |lease: &TokenLease, now| {
            let draw = charge(1.0).refill(lease, now)?;
            Some((draw.amount, draw.minimum))
        };
        assert_eq!(refill(&lease, now), None, "nothing was used");
        lease.take(4.0, now);
        lease.take(1.0, now + millis(100));
        assert_eq!(refill(&lease, now + millis(100)), None, "there is enough");
        lease.take(2.5, now + millis(120));
        assert_eq!(refill(&lease, now + millis(120)), Some((3.5, 0.5)));
        assert_eq!(refill(&lease, now + millis(350)), None, "long ago is forgotten");
    }

    #[test]
    fn as_much_is_drawn_as_waits_or_was_used_lately_but_no_more_than_100_ms_worth() {
        let now = Instant::now();
        let mut lease = TokenLease::default();
        let draw = |lease: &TokenLease, queued, now| {
            let draw = charge(1.0).draw(lease, queued, now);
            (draw.amount, draw.minimum)
        };
        assert_eq!(draw(&lease, 1.0, now), (1.0, 1.0), "a lone question draws for itself");
        assert_eq!(draw(&lease, 7.0, now), (7.0, 1.0));
        assert_eq!(draw(&lease, 500.0, now), (10.0, 1.0));
        lease.add(6.5, now, now);
        lease.take(6.0, now);
        assert_eq!(draw(&lease, 1.0, now + millis(99)), (0.5, 0.5), "what is left is counted");
        assert_eq!(draw(&lease, 1.0, now + millis(100)), (5.5, 0.5));
        assert_eq!(draw(&lease, 1.0, now + millis(250)), (1.0, 1.0), "and long ago is forgotten");
        let large = BucketCharge { amount: 50.0, ..charge(1.0) }.draw(&lease, 50.0, now + millis(250));
        assert_eq!((large.amount, large.minimum), (50.0, 50.0));
        assert!(!lease.is_idle(now + millis(150)) && lease.is_idle(now + millis(250)));
    }
}
