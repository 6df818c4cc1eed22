//! What a schedule does now: fire, leave times out, hold, or wait.

use std::time::Duration;

use super::{MAX_CATCH_UP, Missed, Overlap, Schedule};
use crate::time::Timestamp;

/// A time that is older than this counts as missed. Younger ones merely fire late: a leader that
/// died or a store that was restarted costs no time.
pub const GRACE: Duration = Duration::from_secs(60);

/// How many times are looked at in one decision. More than [`MAX_CATCH_UP`] and than any expression
/// has within [`GRACE`].
const LOOK: usize = 4 * MAX_CATCH_UP as usize;

/// What became of what the previous firing started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Previous {
    /// There is no record of it, or there was none.
    Gone,
    /// It has not ended.
    Live,
    /// It ended then.
    Ended(Timestamp),
}

/// What a schedule does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Nothing is due.
    Wait,
    /// Something is due and waits for the previous firing to end.
    Hold,
    /// It moves on by one step; there may be another at once.
    Step(Step),
}

/// One step of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Step {
    /// The time that fires; `None` if times are only left out.
    pub at: Option<Timestamp>,
    /// The time that is next after this step.
    pub next: Option<Timestamp>,
    /// Times left out because they were missed.
    pub missed: u64,
    /// Times left out because the previous firing was live.
    pub skipped: u64,
}

/// Decides what `schedule` does at `now`. `after` is its timetable: the first time after another.
///
/// Due times are of three sorts, in this order: *held* (they came while the schedule waited for the
/// previous firing), *missed* (older than [`GRACE`]) and *fresh*.
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
    // A timetable that does not move on must not keep us here.
    let follow = |time: Timestamp| after(time).filter(|next| *next > time);
    let mut due: Vec<Timestamp> = std::iter::successors(Some(first), |time| follow(*time))
        .take_while(|time| *time <= now)
        .take(LOOK)
        .collect();
    let next = due.last().and_then(|last| follow(*last));
    let full = due.len() == LOOK;
    due.extend(next);
    let mut step = if full {
        crowded(&due, schedule.plan.missed)
    } else {
        let held_until = match previous {
            Previous::Ended(at) if overlap == Overlap::Wait => Some(at),
            _ => None,
        };
        choose(&due, schedule.plan.missed, &Sorts::of(&due, now, held_until))
    };
    if step.at.is_some() && overlap == Overlap::Skip && previous == Previous::Live {
        step.at = None;
        step.skipped += 1;
    }
    Decision::Step(step)
}

/// How many due times there are of each sort.
struct Sorts {
    held: usize,
    missed: usize,
    fresh: usize,
}

impl Sorts {
    fn of(due: &[Timestamp], now: Timestamp, held_until: Option<Timestamp>) -> Self {
        let count = |is: &dyn Fn(&Timestamp) -> bool| due.iter().filter(|time| is(time)).count();
        let held = |time: &Timestamp| held_until.is_some_and(|until| *time <= until);
        let late = |time: &Timestamp| now.since(*time) > GRACE;
        Self {
            held: count(&held),
            missed: count(&|time| !held(time) && late(time)),
            fresh: count(&|time| *time <= now && !held(time) && !late(time)),
        }
    }
}

/// So many are due that those at the front are left out whatever the others are.
fn crowded(due: &[Timestamp], missed: Missed) -> Step {
    let kept = match missed {
        Missed::Skip | Missed::Once => 1,
        Missed::All(limit) => limit.clamp(1, MAX_CATCH_UP) as usize,
    };
    let left_out = LOOK.saturating_sub(kept);
    Step { at: None, next: due.get(left_out).copied(), missed: left_out as u64, skipped: 0 }
}

/// Leaves out as many as the policy says and fires the next, if it is due.
fn choose(due: &[Timestamp], policy: Missed, sorts: &Sorts) -> Step {
    let owed = sorts.held + sorts.missed;
    let left_out = match policy {
        Missed::All(limit) => owed.saturating_sub(limit as usize),
        Missed::Skip if sorts.missed > 0 => owed,
        // One stands for all: the first fresh one if there is any, else the newest.
        Missed::Skip | Missed::Once if sorts.fresh > 0 => owed,
        Missed::Skip | Missed::Once => owed.saturating_sub(1),
    };
    let fires = left_out < owed + sorts.fresh;
    Step {
        at: due.get(left_out).copied().filter(|_| fires),
        next: due.get(left_out + usize::from(fires)).copied(),
        missed: left_out.saturating_sub(sorts.held) as u64,
        skipped: left_out.min(sorts.held) as u64,
    }
}
