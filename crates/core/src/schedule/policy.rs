//! Decides what a schedule does now: fire, skip times, defer, or wait.

use std::time::Duration;

use super::{MAX_CATCH_UP, MissedPolicy, OverlapPolicy, Schedule};
use crate::time::Timestamp;

/// A time that is older than this counts as missed. Younger ones fire late: a dead leader or a
/// restart of the store loses no time.
pub const MISSED_AFTER: Duration = Duration::from_secs(60);

/// Most due times considered in one decision. More than [`MAX_CATCH_UP`], and more than any
/// expression has within [`MISSED_AFTER`].
const MAX_DUE_TIMES: usize = 4 * MAX_CATCH_UP as usize;

/// The state of the previous firing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreviousFiring {
    /// There was none, or its record is gone.
    Absent,
    /// It has not ended.
    Live,
    /// It ended at this time.
    Ended(Timestamp),
}

/// What a schedule does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleDecision {
    /// Nothing is due.
    Wait,
    /// A time is due, but waits for the previous firing to end.
    Defer,
    /// It takes one step; a further step may follow at once.
    Step(ScheduleStep),
}

/// One step of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScheduleStep {
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
/// for the previous firing), *missed* (older than [`MISSED_AFTER`]) and *fresh*.
pub fn decide(
    schedule: &Schedule,
    previous: PreviousFiring,
    now: Timestamp,
    after: impl Fn(Timestamp) -> Option<Timestamp>,
) -> ScheduleDecision {
    let due = schedule.next_fire.filter(|first| *first <= now && !schedule.paused);
    let Some(first) = due else { return ScheduleDecision::Wait };
    let overlap = schedule.plan.overlap;
    if overlap == OverlapPolicy::Wait && previous == PreviousFiring::Live {
        return ScheduleDecision::Defer;
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
            PreviousFiring::Ended(at) if overlap == OverlapPolicy::Wait => Some(at),
            _ => None,
        };
        plan_step(&due, schedule.plan.missed, &DueCounts::of(&due, now, deferred_until))
    };
    if step.at.is_some() && overlap == OverlapPolicy::Skip && previous == PreviousFiring::Live {
        step.at = None;
        step.skipped += 1;
    }
    ScheduleDecision::Step(step)
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
        let late = |time: &Timestamp| now.since(*time) > MISSED_AFTER;
        Self {
            deferred: count(&deferred),
            missed: count(&|time| !deferred(time) && late(time)),
            fresh: count(&|time| *time <= now && !deferred(time) && !late(time)),
        }
    }
}

/// Skips the first times if so many are due that they are skipped under any policy.
fn skip_overflow(due: &[Timestamp], missed: MissedPolicy) -> ScheduleStep {
    let fired = match missed {
        MissedPolicy::Skip | MissedPolicy::Once => 1,
        MissedPolicy::All(limit) => limit.clamp(1, MAX_CATCH_UP) as usize,
    };
    let omitted = MAX_DUE_TIMES.saturating_sub(fired);
    ScheduleStep { at: None, next: due.get(omitted).copied(), missed: omitted as u64, skipped: 0 }
}

/// Skips as many times as the policy says, and fires the next one if it is due.
fn plan_step(due: &[Timestamp], policy: MissedPolicy, counts: &DueCounts) -> ScheduleStep {
    let overdue = counts.deferred + counts.missed;
    let omitted = match policy {
        MissedPolicy::All(limit) => overdue.saturating_sub(limit as usize),
        MissedPolicy::Skip if counts.missed > 0 => overdue,
        // One time stands for all: the first fresh one if there is any, else the newest.
        MissedPolicy::Skip | MissedPolicy::Once if counts.fresh > 0 => overdue,
        MissedPolicy::Skip | MissedPolicy::Once => overdue.saturating_sub(1),
    };
    let fires = omitted < overdue + counts.fresh;
    ScheduleStep {
        at: due.get(omitted).copied().filter(|_| fires),
        next: due.get(omitted + usize::from(fires)).copied(),
        missed: omitted.saturating_sub(counts.deferred) as u64,
        skipped: omitted.min(counts.deferred) as u64,
    }
}
