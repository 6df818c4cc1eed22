//! Fires schedules when their times come.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use longshore_core::schedule::{Decision, Overlap, Previous, Schedule, Starts, batch_of, unit_of};
use longshore_core::schedule::{Step, decide};
use longshore_core::store::{Fired, Firing};
use longshore_core::{Error, Result, ScheduleName, Scope, Store, TenantId, Timestamp};
use tokio::time::Instant;

use super::{Report, Service};
use crate::timetable::Timetable;

/// Takes due schedules on, step by step, and sleeps no longer than until the next is due.
pub struct Scheduler {
    store: Arc<dyn Store>,
    /// The last revision that could not be read, so that it is said once.
    broken: BTreeMap<(TenantId, ScheduleName), u64>,
}

/// Schedules per page.
const PAGE: u32 = 100;
/// Steps of one schedule in a round: one that makes up for much must not keep the others.
const STEPS: u32 = 50;
/// How soon a schedule is looked at again that waits for something to end or for room.
const HELD: Duration = Duration::from_secs(1);
/// Rounds are at least this far apart.
const FLOOR: Duration = Duration::from_millis(2);

/// How a schedule stands after a round.
enum Stands {
    /// Nothing more is due before this time.
    Caught(Option<Timestamp>),
    /// It waits for something.
    Held,
    /// There is more to do at once.
    Behind,
}

impl Scheduler {
    /// A scheduler.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, broken: BTreeMap::new() }
    }

    /// Takes a schedule on until nothing is due, it must wait, or it had its share.
    async fn take_on(&mut self, mut schedule: Schedule, now: Timestamp) -> Result<(u64, Stands)> {
        let Some(times) = self.read(&schedule) else { return Ok((0, Stands::Held)) };
        let mut fired = 0;
        for _ in 0..STEPS {
            let previous = previous(&*self.store, &schedule).await?;
            let step = match decide(&schedule, previous, now, |time| times.after(time)) {
                Decision::Wait => return Ok((fired, Stands::Caught(schedule.next_fire))),
                Decision::Hold => return Ok((fired, Stands::Held)),
                Decision::Step(step) => step,
            };
            let firing = Firing::of(&schedule, step, now);
            match self.store.fire_schedule(&Scope::All, firing.clone()).await {
                Ok(Fired::Committed(_)) => firing.apply(&mut schedule),
                // Whoever moved it knows better; and who is removed fires no more.
                Ok(Fired::Moved) | Err(Error::NotFound { .. }) => {
                    return Ok((fired, Stands::Caught(None)));
                }
                Ok(Fired::Refused(refusal)) => {
                    let Schedule { tenant, name, .. } = &schedule;
                    tracing::warn!(%tenant, schedule = %name, %refusal, "a schedule cannot fire");
                    return Ok((fired, Stands::Held));
                }
                Err(error) => return Err(error),
            }
            fired += u64::from(step.at.is_some());
            tell(&schedule, &step);
        }
        Ok((fired, Stands::Behind))
    }

    /// The schedule's times. One that a newer version wrote may not be readable here.
    fn read(&mut self, schedule: &Schedule) -> Option<Timetable> {
        let key = (schedule.tenant.clone(), schedule.name.clone());
        match Timetable::new(&schedule.plan.cron, &schedule.plan.zone) {
            Ok(times) => {
                self.broken.remove(&key);
                Some(times)
            }
            Err(error) => {
                if self.broken.insert(key, schedule.revision) != Some(schedule.revision) {
                    tracing::error!(%error, schedule = %schedule.name, "a schedule is not readable");
                }
                None
            }
        }
    }
}

impl Service for Scheduler {
    const NAME: &'static str = "scheduler";

    /// A schedule that another process adds is seen no later than this.
    fn every(&self) -> Duration {
        Duration::from_secs(2)
    }

    async fn run_once(&mut self, _now: Instant) -> Result<Report> {
        let mut report = Report::default();
        let (mut after, mut soonest) = (None, None::<Duration>);
        let mut soon = |wait: Duration| soonest = Some(soonest.map_or(wait, |now| now.min(wait)));
        loop {
            let found = self.store.due_schedules(after.as_deref(), PAGE).await?;
            found.next.into_iter().for_each(&mut soon);
            for schedule in found.due.items {
                let name = schedule.name.clone();
                let (fired, stands) = match self.take_on(schedule, found.now).await {
                    // One that cannot be fired must not keep the others from it.
                    Err(error) if !error.is_retryable() => {
                        tracing::error!(%error, schedule = %name, "cannot be fired");
                        continue;
                    }
                    taken => taken?,
                };
                report.moved += fired;
                match stands {
                    Stands::Caught(next) => {
                        next.map(|next| next.since(found.now)).into_iter().for_each(&mut soon);
                    }
                    Stands::Held => soon(HELD),
                    Stands::Behind => report.more = true,
                }
            }
            after = found.due.next;
            if after.is_none() {
                break;
            }
        }
        report.next = soonest.filter(|wait| *wait < self.every()).map(|wait| wait.max(FLOOR));
        Ok(report)
    }
}

/// What became of what the schedule started last, as far as its policy asks.
async fn previous(store: &dyn Store, schedule: &Schedule) -> Result<Previous> {
    let Some(at) = schedule.last_fire.filter(|_| schedule.plan.overlap != Overlap::Allow) else {
        return Ok(Previous::Gone);
    };
    let Schedule { tenant, name, plan, .. } = schedule;
    let scope = Scope::Tenant(tenant.clone());
    let unit = match store.unit(&scope, unit_of(tenant, name, at)).await {
        Ok(unit) if !unit.state.is_final() => return Ok(Previous::Live),
        Ok(unit) => Previous::Ended(unit.since),
        Err(Error::NotFound { .. }) => Previous::Gone,
        Err(error) => return Err(error),
    };
    if plan.template.starts == Starts::Unit {
        return Ok(unit);
    }
    match store.batch(&scope, &batch_of(tenant, name, at)).await {
        Ok(batch) if !batch.status.is_final() || batch.counts.live() > 0 => Ok(Previous::Live),
        Ok(batch) => Ok(batch.completed_at.map_or(unit, Previous::Ended)),
        // It was never opened, or is pruned.
        Err(Error::NotFound { .. }) => Ok(unit),
        Err(error) => Err(error),
    }
}

fn tell(schedule: &Schedule, step: &Step) {
    let Schedule { tenant, name, .. } = schedule;
    if let Some(at) = step.at {
        tracing::info!(%tenant, schedule = %name, %at, "a schedule fired");
    }
    if step.missed > 0 {
        tracing::warn!(%tenant, schedule = %name, missed = step.missed, "times were missed");
    }
    if step.skipped > 0 {
        let skipped = step.skipped;
        tracing::info!(%tenant, schedule = %name, skipped, "the previous firing is live: skipped");
    }
}
