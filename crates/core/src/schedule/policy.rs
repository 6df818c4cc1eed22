//! Decides what a schedule does now: fire, skip times, defer, or wait.

use std::time::Duration;

use super::{MAX_CATCH_UP, Missed, Overlap, Schedule};
use crate::time::Timestamp;

/// A time that is older than this counts as missed. Younger ones fire late: a dead leader or a
/// restart of the store loses no time.
pub const GRACE: Duration = Duration::from_secs(60);

/// Most due times considered in one decision. More than [`MAX_CATCH_UP`], and more than any
/// expression has within [`GRACE`].
const MAX_DUE_TIMES: usize = 4 * MAX_CATCH_UP as usize;

/// The state of the previous firing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Previous {
    /// There was none, or its record is gone.
    Gone,
    /// It has not ended.
    Live,
    /// It ended at this time.
    Ended(Timestamp),
}

/// What a schedule does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Nothing is due.
    Wait,
    /// A time is due, but waits for the previous firing to end.
    Hold,
    /// It takes one step; a further step may follow at once.
    Step(Step),
}

/// One step of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Step {
    /// The time that fires; `None` if times are only skipped.
    pub at: Option<Timestamp>,
    /// The next time after this step.
    pub next: Option<Timestamp>,
    /// Times skipped because they were missed.
    pub missed: u64,
    /// Times skipped because the previous firing was live.
    pub skipped: u64,
}

/// Decides what `schedule` does at `now`. `after` returns its first time after another.
///
/// Due times come in three groups, in this order: *deferred* (they came while the schedule waited
/// for the previous firing), *missed* (older than [`GRACE`]) and *fresh*.
pub fn decide(
    schedule: &Schedule,
    previous: Previous,
    now: Timestamp,
    after: impl Fn(Timestamp) -> Option<Timestamp>,
) -> Decision {
    let due = schedule.next_fire.filter(|first| *first <= now && !schedule.paused);
    let Some(first) = due else { return Decision::Wait };
    let overlap = schedule.plan.overlap;
    if overlap == Overlap::Wait && previous == Previous::Live {
        return Decision::Hold;
    }
    // Stop if `after` does not advance.
    let next_after = |time: Timestamp| after(time).filter(|next| *next > time);
    let mut due: Vec<Timestamp> = std::iter::successors(Some(first), |time| next_after(*time))
        .take_while(|time| *time <= now)
        .take(MAX_DUE_TIMES)
        .collect();
    let next = due.last().and_then(|last| next_after(*last));
    let overflow = due.len() == MAX_DUE_TIMES;
    due.extend(next);
    let mut step = if overflow {
        skip_overflow(&due, schedule.plan.missed)
    } else {
        let deferred_until = match previous {
            Previous::Ended(at) if overlap == Overlap::Wait => Some(at),
            _ => None,
        };
        plan_step(&due, schedule.plan.missed, &DueCounts::of(&due, now, deferred_until))
    };
    if step.at.is_some() && overlap == Overlap::Skip && previous == Previous::Live {
        step.at = None;
        step.skipped += 1;
    }
    Decision::Step(step)
}

/// The number of due times in each group.
struct DueCounts {
    deferred: usize,
    missed: usize,
    fresh: usize,
}

impl DueCounts {
    fn of(due: &[Timestamp], now: Timestamp, deferred_until: Option<Timestamp>) -> Self {
        let count = |is: &dyn Fn(&Timestamp) -> bool| due.iter().filter(|time| is(time)).count();
        let deferred = |time: &Timestamp| deferred_until.is_some_and(|until| *time <= until);
        let late = |time: &Timestamp| now.since(*time) > GRACE;
        Self {
            deferred: count(&deferred),
            missed: count(&|time| !deferred(time) && late(time)),
            fresh: count(&|time| *time <= now && !deferred(time) && !late(time)),
        }
    }
}

/// Skips the first times if so many are due that they are skipped under any policy.
fn skip_overflow(due: &[Timestamp], missed: Missed) -> Step {
    let fired = match missed {
        Missed::Skip | Missed::Once => 1,
        Missed::All(limit) => limit.clamp(1, MAX_CATCH_UP) as usize,
    };
    let omitted = MAX_DUE_TIMES.saturating_sub(fired);
    Step { at: None, next: due.get(omitted).copied(), missed: omitted as u64, skipped: 0 }
}

/// Skips as many times as the policy says, and fires the next one if it is due.
fn plan_step(due: &[Timestamp], policy: Missed, counts: &DueCounts) -> Step {
    let overdue = counts.deferred + counts.missed;
    let omitted = match policy {
        Missed::All(limit) => overdue.saturating_sub(limit as usize),
        Missed::Skip if counts.missed > 0 => overdue,
        // One time stands for all: the first fresh one if there is any, else the newest.
        Missed::Skip | Missed::Once if counts.fresh > 0 => overdue,
        Missed::Skip | Missed::Once => overdue.saturating_sub(1),
    };
    let fires = omitted < overdue + counts.fresh;
    Step {
        at: due.get(omitted).copied().filter(|_| fires),
        next: due.get(omitted + usize::from(fires)).copied(),
        missed: omitted.saturating_sub(counts.deferred) as u64,
        skipped: omitted.min(counts.deferred) as u64,
    }
}
