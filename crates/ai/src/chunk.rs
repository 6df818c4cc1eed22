//! A process's share of a bucket that all processes draw from.
//!
//! Pure: the time is a parameter. A process draws ahead what it is likely to use within 100 ms and has
//! to use it within 200 ms, so that it asks the store ten or twenty times a second and not with every
//! question. Whoever leaves less than half of that has more drawn, so that the next need not wait.
//!
//! **No window exceeds limit + burst.** What is used between `s` and `e` was drawn between `s - 200 ms`
//! and `e`. A bucket that holds `C` and fills at `r` gives at most `C + r (e - s + 200 ms)` in that time,
//! however many draw. So with `C = burst - r · 200 ms` ([`Need::capacity`]) at most `burst + r (e - s)` is
//! used. Three things are more: a bucket holds at least one request, and a single question that needs
//! more than its bucket ever holds is let through when that is full; a store that takes longer than 200 ms
//! to answer adds what flows in meanwhile; and what is settled later is counted when it is settled.
//!
//! **What is not used in time is lost, not given back.** Given back and drawn anew it would never grow
//! old: ten processes that each keep a chunk fresh in this way let the bucket fill up beside their chunks,
//! and can then use all of them and the bucket at once. So that little is lost, a process draws no more
//! than its waiting questions need, or it has used in the 100 ms before.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use longshore::ledger::Draw;
use longshore::{ProfileName, TenantId};
use tokio::time::Instant;

use crate::profile::Limits;

/// How many minutes' worth may be used at once, unless it is said: a second's.
const BURST: f64 = 1.0 / 60.0;

/// How much is drawn ahead, and how long it may be kept.
const AHEAD: Duration = Duration::from_millis(100);
const KEEP: Duration = Duration::from_millis(200);

/// The smallest that a bucket can be: one request.
const LEAST: f64 = 1.0;

/// Sums of fractions are not exact.
const NEARLY: f64 = 1e-9;

/// What a question takes of one bucket.
#[derive(Debug, Clone, PartialEq)]
pub struct Need {
    /// Which, as `tenant/acme/requests` or `profile/acme/fast/tokens`.
    pub bucket: Arc<str>,
    /// What is in it.
    pub measure: Measure,
    /// How much flows in per minute.
    pub per_minute: f64,
    /// How much may be used at once after a rest.
    pub burst: f64,
    /// How much the question takes, as estimated.
    pub amount: f64,
}

/// What a bucket holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Requests: one per question.
    Requests,
    /// Tokens: charged by estimate, settled after the answer.
    Tokens,
}

impl Need {
    /// What a question without tokens takes of its tenant's limits.
    pub fn of_tenant(tenant: &TenantId, limits: &Limits) -> Vec<Self> {
        Self::of(&format!("tenant/{tenant}"), limits)
    }

    /// What a question without tokens takes of its profile's limits.
    pub fn of_profile(tenant: &TenantId, profile: &ProfileName, limits: &Limits) -> Vec<Self> {
        Self::of(&format!("profile/{tenant}/{profile}"), limits)
    }

    /// The same of a question of so many tokens.
    pub fn with_tokens(&self, tokens: u64) -> Self {
        let amount = match self.measure {
            Measure::Requests => self.amount,
            Measure::Tokens => tokens as f64,
        };
        Self { amount, ..self.clone() }
    }

    fn of(owner: &str, limits: &Limits) -> Vec<Self> {
        let minutes = limits.burst.unwrap_or(BURST);
        let need = |what: &str, measure, per_minute: f64, amount| Self {
            bucket: format!("{owner}/{what}").into(),
            measure,
            per_minute,
            burst: per_minute * minutes,
            amount,
        };
        let requests = limits.requests.map(|limit| need("requests", Measure::Requests, limit, 1.0));
        let tokens = limits.tokens.map(|limit| need("tokens", Measure::Tokens, limit, 0.0));
        requests.into_iter().chain(tokens).collect()
    }

    fn per(&self, time: Duration) -> f64 {
        self.per_minute / 60.0 * time.as_secs_f64()
    }

    /// How much the store's bucket holds.
    pub fn capacity(&self) -> f64 {
        (self.burst - self.per(KEEP)).max(LEAST)
    }

    /// The draw that fetches what is missing: at least for the first who waits, at most for all of them
    /// or for what is likely to be used soon.
    pub(crate) fn draw(&self, chunk: &Chunk, queued: f64, now: Instant) -> Draw {
        let left = chunk.left(now);
        let soon = queued.max(chunk.recent(now)).min(self.per(AHEAD));
        let at_least = self.amount - left;
        Draw { want: at_least.max(soon - left), at_least, ..self.settle(0.0) }
    }

    /// The draw that fetches ahead what is likely to be used soon, so that nobody has to wait for it;
    /// nothing while there is more than half of that. The same bounds hold as for whoever waits. A lone
    /// question has nothing before it, and fetches nothing ahead.
    pub(crate) fn refill(&self, chunk: &Chunk, now: Instant) -> Option<Draw> {
        let (left, soon) = (chunk.left(now), chunk.recent(now).min(self.per(AHEAD)));
        let at_least = (self.amount - left).max(NEARLY);
        (left < soon / 2.0).then(|| Draw { want: soon - left, at_least, ..self.settle(0.0) })
    }

    /// The draw that gives back so much, or takes it after the fact if it is below zero.
    pub(crate) fn settle(&self, credit: f64) -> Draw {
        Draw {
            bucket: self.bucket.to_string(),
            per_minute: self.per_minute,
            capacity: self.capacity(),
            want: -credit,
            at_least: 0.0,
        }
    }
}

/// What a process holds of one bucket.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    /// The oldest first.
    lots: VecDeque<Lot>,
    /// What was used since `since`, and in the 100 ms before that.
    used: f64,
    used_before: f64,
    since: Option<Instant>,
}

/// What came with one draw.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Lot {
    left: f64,
    until: Instant,
}

impl Chunk {
    /// What may be used now.
    pub(crate) fn left(&self, now: Instant) -> f64 {
        self.lots.iter().filter(|lot| now <= lot.until).map(|lot| lot.left).sum()
    }

    /// Whether so much may be used now.
    pub(crate) fn has(&self, amount: f64, now: Instant) -> bool {
        let mut missing = amount - NEARLY;
        let mut fresh = self.lots.iter().filter(|lot| now <= lot.until);
        // Mostly the oldest lot has enough.
        while missing > 0.0 {
            let Some(lot) = fresh.next() else { return false };
            missing -= lot.left;
        }
        true
    }

    /// Takes so much, the oldest first; says what it was taken from, for [`Chunk::put_back`].
    pub(crate) fn take(&mut self, amount: f64, now: Instant) -> Vec<Lot> {
        let mut taken = Vec::new();
        self.take_from(amount, now, |lot| taken.push(lot));
        taken
    }

    /// Takes so much for somebody who surely uses it.
    pub(crate) fn use_up(&mut self, amount: f64, now: Instant) {
        self.take_from(amount, now, drop);
    }

    fn take_from(&mut self, amount: f64, now: Instant, mut taken: impl FnMut(Lot)) {
        self.lots.retain(|lot| now <= lot.until);
        self.count(amount, now);
        let mut missing = amount;
        while let Some(lot) = self.lots.front_mut().filter(|_| missing > 0.0) {
            let part = lot.left.min(missing);
            taken(Lot { left: part, until: lot.until });
            missing -= part;
            lot.left -= part;
            if lot.left <= NEARLY {
                self.lots.pop_front();
            }
        }
    }

    /// Puts back what was taken and will not be used. It grows no younger by that.
    pub(crate) fn put_back(&mut self, lots: Vec<Lot>) {
        for lot in lots.into_iter().rev() {
            self.used = (self.used - lot.left).max(0.0);
            self.lots.push_front(lot);
        }
    }

    /// Keeps what a draw brought that was begun at `begun`. What comes so late that it would be over is
    /// there for those who wait at this moment.
    pub(crate) fn drew(&mut self, got: f64, begun: Instant, now: Instant) {
        self.lots.push_back(Lot { left: got, until: (begun + KEEP).max(now) });
    }

    /// What was used lately within 100 ms.
    fn recent(&self, now: Instant) -> f64 {
        match self.since {
            Some(since) if now < since + AHEAD => self.used_before,
            Some(since) if now < since + 2 * AHEAD => self.used,
            _ => 0.0,
        }
    }

    fn count(&mut self, amount: f64, now: Instant) {
        let before = self.recent(now);
        if self.since.is_none_or(|since| now >= since + AHEAD) {
            (self.used, self.used_before, self.since) = (0.0, before, Some(now));
        }
        self.used += amount;
    }

    /// Whether nothing is known of it that is worth remembering.
    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        self.left(now) == 0.0 && self.since.is_none_or(|since| now > since + 2 * AHEAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(amount: f64) -> Need {
        let bucket = "b".into();
        Need { bucket, measure: Measure::Requests, per_minute: 6000.0, burst: 100.0, amount }
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_bucket_holds_what_may_be_used_at_once_less_what_may_be_out() {
        assert_eq!(need(1.0).capacity(), 80.0);
        assert_eq!(Need { burst: 0.0, ..need(1.0) }.capacity(), 1.0, "one request goes at least");
    }

    #[test]
    fn what_is_drawn_is_used_in_time_or_lost() {
        let now = Instant::now();
        let mut chunk = Chunk::default();
        chunk.drew(3.0, now, now + millis(20));
        assert!(chunk.has(3.0, now + millis(200)) && !chunk.has(0.1, now + millis(201)));
        chunk.drew(2.0, now + millis(100), now + millis(120));
        chunk.take(1.0, now + millis(150));
        assert_eq!(chunk.left(now + millis(150)), 4.0);
        assert_eq!(chunk.left(now + millis(250)), 2.0, "the oldest is used first");
        chunk.drew(1.0, now, now + millis(900));
        assert!(chunk.has(1.0, now + millis(900)), "a slow store still serves who waits");
    }

    #[test]
    fn what_is_put_back_is_as_old_as_before() {
        let now = Instant::now();
        let mut chunk = Chunk::default();
        chunk.drew(1.0, now, now);
        chunk.drew(2.0, now + millis(50), now + millis(50));
        let taken = chunk.take(2.0, now + millis(60));
        assert_eq!(chunk.left(now + millis(60)), 1.0);
        chunk.put_back(taken);
        assert_eq!(chunk.left(now + millis(60)), 3.0);
        assert_eq!((chunk.left(now + millis(210)), chunk.left(now + millis(260))), (2.0, 0.0));
    }

    #[test]
    fn what_runs_low_is_fetched_ahead_if_as_much_was_used_lately() {
        let now = Instant::now();
        let mut chunk = Chunk::default();
        chunk.drew(8.0, now, now);
        let refill = |chunk: &Chunk, now| {
            let draw = need(1.0).refill(chunk, now)?;
            Some((draw.want, draw.at_least))
        };
        assert_eq!(refill(&chunk, now), None, "nothing was used");
        chunk.take(4.0, now);
        chunk.take(1.0, now + millis(100));
        assert_eq!(refill(&chunk, now + millis(100)), None, "there is enough");
        chunk.take(2.5, now + millis(120));
        assert_eq!(refill(&chunk, now + millis(120)), Some((3.5, 0.5)));
        assert_eq!(refill(&chunk, now + millis(350)), None, "long ago is forgotten");
    }

    #[test]
    fn as_much_is_drawn_as_waits_or_was_used_lately_but_no_more_than_100_ms_worth() {
        let now = Instant::now();
        let mut chunk = Chunk::default();
        let draw = |chunk: &Chunk, queued, now| {
            let draw = need(1.0).draw(chunk, queued, now);
            (draw.want, draw.at_least)
        };
        assert_eq!(draw(&chunk, 1.0, now), (1.0, 1.0), "a lone question draws for itself");
        assert_eq!(draw(&chunk, 7.0, now), (7.0, 1.0));
        assert_eq!(draw(&chunk, 500.0, now), (10.0, 1.0));
        chunk.drew(6.5, now, now);
        chunk.take(6.0, now);
        assert_eq!(draw(&chunk, 1.0, now + millis(99)), (0.5, 0.5), "what is left is counted");
        assert_eq!(draw(&chunk, 1.0, now + millis(100)), (5.5, 0.5));
        assert_eq!(draw(&chunk, 1.0, now + millis(250)), (1.0, 1.0), "and long ago is forgotten");
        let large = Need { amount: 50.0, ..need(1.0) }.draw(&chunk, 50.0, now + millis(250));
        assert_eq!((large.want, large.at_least), (50.0, 50.0));
        assert!(!chunk.is_idle(now + millis(150)) && chunk.is_idle(now + millis(250)));
    }
}
