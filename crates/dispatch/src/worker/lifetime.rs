//! Deadlines of a worker: when it drains by itself, and when it stops.

use std::time::Duration;

use tokio::time::Instant;

use super::{Phase, ProgramCommand, Worker};

/// Maximum time between the last moment at which scripts are interrupted and the end of the lifetime;
/// at most a fortieth of the lifetime. In it the worker reports what it interrupted, before the base
/// system kills it.
const MAX_REPORT_MARGIN: Duration = Duration::from_secs(15);

impl Worker {
    /// When to call [`check_deadlines`](Self::check_deadlines) next.
    pub(super) fn next_wakeup(&self) -> Instant {
        let far = Instant::now() + Duration::from_secs(60);
        let idle = self.options.idle.filter(|_| self.tasks.is_idle());
        let drained = match self.phase {
            Phase::Draining(until) => Some(until),
            _ => None,
        };
        let idle = idle.map(|idle| self.idle_since + idle);
        let orphans = self.context.with_subreaper(|subreaper| subreaper.due()).flatten();
        let times = [idle, self.drain_at(), drained, self.signal_grace.next_deadline(), orphans];
        times.into_iter().flatten().min().unwrap_or(far).min(far)
    }

    /// When the worker drains because its lifetime ends.
    fn drain_at(&self) -> Option<Instant> {
        let lifetime = self.options.lifetime.filter(|_| self.phase == Phase::Working)?;
        Some(self.started + lifetime.saturating_sub(report_margin(lifetime) + self.drain_limit(lifetime)))
    }

    /// How long the worker drains at the end of its lifetime.
    fn drain_limit(&self, lifetime: Duration) -> Duration {
        self.options.drain.min(lifetime / 2)
    }

    pub(super) fn check_deadlines(&mut self) {
        let now = Instant::now();
        self.context.with_subreaper(|subreaper| subreaper.reap(now));
        for (lease, report) in self.signal_grace.take_expired(now) {
            self.record_end(lease, report);
        }
        if let Phase::Draining(until) = self.phase
            && now >= until
        {
            self.apply_command(ProgramCommand::Stop);
        }
        if self.drain_at().is_some_and(|at| now >= at) {
            "its lifetime is nearly over".clone_into(&mut self.summary.end_reason);
            let lifetime = self.options.lifetime.unwrap_or_default();
            let until = self.started + lifetime.saturating_sub(report_margin(lifetime));
            self.drain(until.saturating_duration_since(now));
        }
        let idle = self.options.idle.filter(|_| self.phase == Phase::Working && self.tasks.is_idle());
        if idle.is_some_and(|idle| now >= self.idle_since + idle) {
            "it was idle for too long".clone_into(&mut self.summary.end_reason);
            self.apply_command(ProgramCommand::Drain);
        }
    }
}

/// How long before the end of its lifetime a worker interrupts scripts.
fn report_margin(lifetime: Duration) -> Duration {
    MAX_REPORT_MARGIN.min(lifetime / 40)
}
