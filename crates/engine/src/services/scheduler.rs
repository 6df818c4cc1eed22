//! Fires schedules at their times.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use longshore_core::schedule::{
    FiringScope, OverlapPolicy, PreviousFiring, Schedule, ScheduleDecision, firing_batch_id, firing_unit_id,
};
use longshore_core::schedule::{ScheduleStep, decide};
use longshore_core::store::{FireResult, Firing, ScheduleFilter};
use longshore_core::{Error, Result, ScheduleName, Scope, Store, TenantId, Timestamp};
use tokio::time::Instant;

use super::{Service, ServiceReport};
use crate::cron::CronSchedule;

/// Advances due schedules step by step. Sleeps no longer than until the next schedule is due.
pub struct Scheduler {
    store: Arc<dyn Store>,
    /// The last unreadable revision of each schedule, so that it is logged once.
    unreadable: BTreeMap<(TenantId, ScheduleName), u64>,
}

/// Schedules per page.
const PAGE_SIZE: u32 = 100;
/// Steps of one schedule per round: a schedule that catches up must not delay the others.
const MAX_STEPS: u32 = 50;
/// How soon a schedule is checked again that waits for its previous run or for queue capacity.
const BLOCKED_RETRY: Duration = Duration::from_secs(1);
/// Minimum time between rounds.
const MIN_INTERVAL: Duration = Duration::from_millis(2);

/// A schedule's state after a round.
enum ScheduleProgress {
    /// Nothing more is due before this time.
    UpToDate(Option<Timestamp>),
    /// Waits for its previous run or for queue capacity.
    Blocked,
    /// More steps are due now.
    Behind,
}

impl Scheduler {
    /// Creates a scheduler.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, unreadable: BTreeMap::new() }
    }

    /// Advances a schedule until nothing is due, it is blocked, or it has used its share of steps.
    async fn advance(&mut self, mut schedule: Schedule, now: Timestamp) -> Result<(u64, ScheduleProgress)> {
        let Some(times) = self.cron_of(&schedule) else {
            return Ok((0, ScheduleProgress::Blocked));
        };
        let mut fired = 0;
        for _ in 0..MAX_STEPS {
            let previous = previous(&*self.store, &schedule).await?;
            let step = match decide(&schedule, previous, now, |time| times.next_after(time)) {
                ScheduleDecision::Wait => {
                    return Ok((fired, ScheduleProgress::UpToDate(schedule.next_fire)));
                }
                ScheduleDecision::Defer => return Ok((fired, ScheduleProgress::Blocked)),
                ScheduleDecision::Step(step) => step,
            };
            let firing = Firing::of(&schedule, step, now);
            match self.store.fire_schedule(&Scope::All, firing.clone()).await {
                Ok(FireResult::Committed(_)) => firing.apply(&mut schedule),
                // Another process moved the schedule and decides about it, or it was removed.
                Ok(FireResult::Conflict) | Err(Error::NotFound { .. }) => {
                    return Ok((fired, ScheduleProgress::UpToDate(None)));
                }
                Ok(FireResult::Rejected(rejection)) => {
                    let Schedule { tenant, name, .. } = &schedule;
                    tracing::warn!(%tenant, schedule = %name, %rejection, "a schedule cannot fire");
                    return Ok((fired, ScheduleProgress::Blocked));
                }
                Err(error) => return Err(error),
            }
            fired += u64::from(step.at.is_some());
            log_step(&schedule, &step);
        }
        Ok((fired, ScheduleProgress::Behind))
    }

    /// Parses the schedule's times. A newer version may have written one that is unreadable here.
    fn cron_of(&mut self, schedule: &Schedule) -> Option<CronSchedule> {
        let key = (schedule.tenant.clone(), schedule.name.clone());
        match CronSchedule::new(&schedule.plan.cron, &schedule.plan.zone) {
            Ok(times) => {
                self.unreadable.remove(&key);
                Some(times)
            }
            Err(error) => {
                if self.unreadable.insert(key, schedule.revision) != Some(schedule.revision) {
                    tracing::error!(%error, schedule = %schedule.name, "a schedule is unreadable");
                }
                None
            }
        }
    }
}

impl Service for Scheduler {
    const NAME: &'static str = "scheduler";

    /// A schedule that another process adds is found within this time.
    fn interval(&self) -> Duration {
        Duration::from_secs(2)
    }

    async fn run_once(&mut self, _now: Instant) -> Result<ServiceReport> {
        let mut report = ServiceReport::default();
        let (mut after, mut soonest) = (None, None::<Duration>);
        let mut soon = |wait: Duration| soonest = Some(soonest.map_or(wait, |now| now.min(wait)));
        loop {
            let (all, due) = (Scope::All, ScheduleFilter::Due);
            let found = self.store.schedules(&all, &due, after.as_deref(), PAGE_SIZE).await?;
            found.next_due.into_iter().for_each(&mut soon);
            for schedule in found.page.items {
                let name = schedule.name.clone();
                let (fired, progress) = match self.advance(schedule, found.now).await {
                    // A schedule that cannot fire must not block the others.
                    Err(error) if !error.is_retryable() => {
                        tracing::error!(%error, schedule = %name, "a schedule cannot be fired");
                        continue;
                    }
                    taken => taken?,
                };
                report.moved += fired;
                match progress {
                    ScheduleProgress::UpToDate(next) => {
                        next.map(|next| next.since(found.now)).into_iter().for_each(&mut soon);
                    }
                    ScheduleProgress::Blocked => soon(BLOCKED_RETRY),
                    ScheduleProgress::Behind => report.more = true,
                }
            }
            after = found.page.next;
            if after.is_none() {
                break;
            }
        }
        report.next = soonest.filter(|wait| *wait < self.interval()).map(|wait| wait.max(MIN_INTERVAL));
        Ok(report)
    }
}

/// The state of the unit or batch that the schedule started last, if its overlap policy needs it.
async fn previous(store: &dyn Store, schedule: &Schedule) -> Result<PreviousFiring> {
    let Some(at) = schedule.last_fire.filter(|_| schedule.plan.overlap != OverlapPolicy::Allow) else {
        return Ok(PreviousFiring::Absent);
    };
    let Schedule { tenant, name, plan, .. } = schedule;
    let scope = Scope::Tenant(tenant.clone());
    let unit = match store.unit(&scope, firing_unit_id(tenant, name, schedule.created_at, at)).await {
        Ok(unit) if !unit.state.is_final() => return Ok(PreviousFiring::Live),
        Ok(unit) => PreviousFiring::Ended(unit.since),
        Err(Error::NotFound { .. }) => PreviousFiring::Absent,
        Err(error) => return Err(error),
    };
    if plan.template.starts == FiringScope::Unit {
        return Ok(unit);
    }
    match store.batch(&scope, &firing_batch_id(tenant, name, at)).await {
        Ok(batch) if !batch.status.is_final() || batch.counts.live() > 0 => Ok(PreviousFiring::Live),
        Ok(batch) => Ok(batch.completed_at.map_or(unit, PreviousFiring::Ended)),
        // The batch was never opened, or is pruned.
        Err(Error::NotFound { .. }) => Ok(unit),
        Err(error) => Err(error),
    }
}

fn log_step(schedule: &Schedule, step: &ScheduleStep) {
    let Schedule { tenant, name, .. } = schedule;
    if let Some(at) = step.at {
        tracing::info!(%tenant, schedule = %name, %at, "a schedule fired");
    }
    if step.missed > 0 {
        tracing::warn!(%tenant, schedule = %name, missed = step.missed, "missed scheduled times");
    }
    if step.skipped > 0 {
        let skipped = step.skipped;
        tracing::info!(%tenant, schedule = %name, skipped, "skipped: the previous run is live");
    }
}
