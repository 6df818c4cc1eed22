//! Deadlines of a worker: when it drains by itself, and when it stops.

use std::ops::Range;
use std::time::Duration;

use tokio::time::Instant;

use super::{MAX_DRAIN, Phase, ProgramCommand, Worker};

/// Maximum time between the last moment at which scripts are interrupted and the end of the lifetime;
/// at most a fortieth of the lifetime. In it the worker reports what it interrupted, before the base
/// system kills it.
const MAX_REPORT_MARGIN: Duration = Duration::from_secs(15);

impl Worker {
    /// When to call [`check_deadlines`](Self::check_deadlines) next.
    pub(super) fn next_wakeup(&self) -> Instant {
        let far = Instant::now() + Duration::from_secs(60);
        let idle = self.options.idle.filter(|_| self.phase == Phase::Working && self.tasks.is_idle());
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
        Some(self.started + last_drain(lifetime, self.options.drain).start)
    }

    /// When scripts that still run are interrupted because the lifetime ends.
    pub(super) fn interrupts_at(&self) -> Option<Instant> {
        let lifetime = self.options.lifetime?;
        Some(self.started + last_drain(lifetime, self.options.drain).end)
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
            self.drain(MAX_DRAIN);
        }
        let idle = self.options.idle.filter(|_| self.phase == Phase::Working && self.tasks.is_idle());
        if idle.is_some_and(|idle| now >= self.idle_since + idle) {
            "it was idle for too long".clone_into(&mut self.summary.end_reason);
            self.apply_command(ProgramCommand::Drain);
        }
    }
}

/// The time after its start at which a worker with this lifetime interrupts scripts.
pub(crate) fn interrupts_after(lifetime: Duration) -> Duration {
    lifetime.saturating_sub(MAX_REPORT_MARGIN.min(lifetime / 40))
}

/// The time of the worker's last drain, since its start. Scripts that still run at its end are
/// interrupted.
fn last_drain(lifetime: Duration, limit: Duration) -> Range<Duration> {
    let end = interrupts_after(lifetime);
    end.saturating_sub(limit.min(lifetime / 2))..end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_drain_begins_early_enough_for_its_limit() {
        let seconds = Duration::from_secs;
        let hours = |hours: u64| seconds(3600 * hours);
        let (limit, end) = (hours(1), hours(8) - MAX_REPORT_MARGIN);
        assert_eq!(last_drain(hours(8), limit), end - limit..end);
        assert_eq!(last_drain(seconds(40), seconds(10)), seconds(29)..seconds(39));
        assert_eq!(last_drain(seconds(40), hours(1)), seconds(19)..seconds(39), "it works half of its life");
    }
}
