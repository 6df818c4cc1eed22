//! A worker's hours: when it drains by itself, and when it must be gone.

use std::time::Duration;

use tokio::time::Instant;

use super::{Command, Mood, Worker};

/// How long before its end a worker takes nothing new, at most; else a tenth of its life.
const LAST_CALL: Duration = Duration::from_secs(60);

impl Worker {
    /// When to look at the clock.
    pub(super) fn wake(&self) -> Instant {
        let far = Instant::now() + Duration::from_secs(60);
        let idle = self.options.idle.filter(|_| self.hands.is_idle());
        let drained = match self.mood {
            Mood::Draining(until) => Some(until),
            _ => None,
        };
        let idle = idle.map(|idle| self.idle_since + idle);
        let orphans = self.shop.orphans(|orphans| orphans.due()).flatten();
        let times = [idle, self.last_call(), drained, self.aside.next(), orphans];
        times.into_iter().flatten().min().unwrap_or(far).min(far)
    }

    /// When nothing new is taken any more.
    fn last_call(&self) -> Option<Instant> {
        let whole = self.options.lifetime.filter(|_| self.mood == Mood::Working)?;
        Some(self.began + whole.saturating_sub(last_hour(whole)))
    }

    pub(super) fn look_at_the_clock(&mut self) {
        let now = Instant::now();
        self.shop.orphans(|orphans| orphans.look(now));
        for (lease, report) in self.aside.overdue(now) {
            self.settle(lease, report);
        }
        if let Mood::Draining(until) = self.mood
            && now >= until
        {
            self.heed(Command::Stop);
        }
        if self.last_call().is_some_and(|at| now >= at) {
            "its time is nearly over".clone_into(&mut self.life.why);
            self.heed(Command::Drain);
            if let (Mood::Draining(until), Some(whole)) = (&mut self.mood, self.options.lifetime) {
                // Its allocation began before it did: what is still running then is interrupted, and
                // told of, rather than killed.
                *until = self.began + whole.saturating_sub(last_hour(whole) / 4);
            }
        }
        let idle = self.options.idle.filter(|_| self.mood == Mood::Working && self.hands.is_idle());
        if idle.is_some_and(|idle| now >= self.idle_since + idle) {
            "it had nothing to do".clone_into(&mut self.life.why);
            self.heed(Command::Drain);
        }
    }
}

/// How long before the end of so long a life nothing new is taken.
fn last_hour(whole: Duration) -> Duration {
    LAST_CALL.min(whole / 10)
}
