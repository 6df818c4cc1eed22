//! Storage of schedules; firings are compare-and-set.

use std::time::Duration;

use async_trait::async_trait;

use crate::Result;
use crate::name::{ScheduleName, Scope, TenantId};
use crate::page::invalid_cursor;
use crate::schedule::{NewSchedule, Schedule, ScheduleStep};
use crate::store::{Page, SendRejection, SendResult};
use crate::time::Timestamp;
use crate::unit::NewUnit;

/// What to do if a schedule with the name exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfExists {
    /// Leave it as it is.
    Keep,
    /// Replace its plan, pause and next time; keep its history and counters.
    Replace,
}

/// The result of putting a schedule.
#[derive(Debug, Clone, PartialEq)]
pub enum PutScheduleResult {
    /// It is new.
    Created(Schedule),
    /// It replaced a schedule with the same name.
    Replaced(Schedule),
    /// A schedule with the same name exists and was kept.
    Unchanged(Schedule),
}

impl PutScheduleResult {
    /// The result of putting `new` where `found` has its name. The store writes the schedule, unless
    /// it was kept.
    pub fn decide(new: NewSchedule, found: Option<Schedule>, if_there: IfExists, now: Timestamp) -> Self {
        match found {
            Some(found) if if_there == IfExists::Keep => Self::Unchanged(found),
            Some(mut found) => {
                found.replace(new);
                Self::Replaced(found)
            }
            None => Self::Created(Schedule::new(new, now)),
        }
    }
}

/// An action on a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleSwitch {
    /// It does not fire until it is resumed.
    Pause,
    /// It fires again, from this time on; times that passed meanwhile do not count as missed.
    Resume {
        /// The first of its times after now.
        next: Option<Timestamp>,
    },
    /// It is removed. Units that it sent stay.
    Remove,
}

/// One step of a schedule, based on the state that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Firing {
    /// Its tenant.
    pub tenant: TenantId,
    /// Its name.
    pub name: ScheduleName,
    /// Its revision when it was read.
    pub revision: u64,
    /// Its next time when it was read.
    pub expected: Option<Timestamp>,
    /// The step to write.
    pub step: ScheduleStep,
    /// The units to send; none if times are only skipped.
    pub units: Vec<NewUnit>,
}

impl Firing {
    /// A firing of `schedule` as it was read.
    pub fn of(schedule: &Schedule, step: ScheduleStep, now: Timestamp) -> Self {
        let Schedule { tenant, name, plan, .. } = schedule;
        let unit = |at| plan.template.unit((tenant, name, schedule.created_at), at, now);
        Self {
            tenant: tenant.clone(),
            name: name.clone(),
            revision: schedule.revision,
            expected: schedule.next_fire,
            units: step.at.map(unit).into_iter().collect(),
            step,
        }
    }

    /// The answer if there is nothing to write: the schedule has changed since it was read, or this
    /// firing is a repeat.
    pub fn answer_without_send(&self, schedule: &Schedule) -> Option<FireResult> {
        if !self.is_current(schedule) {
            return Some(FireResult::Conflict);
        }
        let again = self.units.iter().map(|unit| SendResult::Created(unit.id));
        self.is_repeat(schedule).then(|| FireResult::Committed(again.collect()))
    }

    /// Whether `schedule` has not changed since it was read.
    fn is_current(&self, schedule: &Schedule) -> bool {
        self.revision == schedule.revision && self.expected == schedule.next_fire
    }

    /// Whether this firing is stored already: it does not move the next time (a manual firing) and
    /// is repeated after a lost answer.
    fn is_repeat(&self, schedule: &Schedule) -> bool {
        let stays = self.step.next == self.expected;
        stays && self.step.at.is_some() && self.step.at == schedule.last_fire
    }

    /// Applies the step.
    pub fn apply(&self, schedule: &mut Schedule) {
        let ScheduleStep { at, next, missed, skipped } = self.step;
        schedule.next_fire = next;
        schedule.last_fire = at.or(schedule.last_fire);
        schedule.fired += u64::from(at.is_some());
        schedule.missed_times += missed;
        schedule.skipped += skipped;
    }

    /// Rejects units of another tenant, and invalid units.
    pub fn check(&self) -> Result<()> {
        for unit in &self.units {
            unit.check()?;
            if unit.tenant != self.tenant {
                let message = format!("schedule `{}` may only send units of its own tenant", self.name);
                return Err(crate::Error::Invalid(message));
            }
        }
        Ok(())
    }
}

/// The result of a firing.
#[derive(Debug, Clone, PartialEq)]
pub enum FireResult {
    /// The step and the units are stored; one result per unit. Also for a repeat.
    Committed(Vec<SendResult>),
    /// The schedule was fired or changed meanwhile: nothing was written.
    Conflict,
    /// A unit was rejected, for example because the queue is full: nothing was written.
    Rejected(SendRejection),
}

/// Selects schedules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduleFilter {
    /// All.
    All,
    /// The ones with this name.
    Named(ScheduleName),
    /// Schedules that are due by the store's clock and not paused.
    Due,
}

/// Schedules, by tenant and name.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleList {
    /// The schedules.
    pub page: Page<Schedule>,
    /// The store's time, which decides what is due.
    pub now: Timestamp,
    /// Time until the next schedule is due; known for [`ScheduleFilter::Due`].
    pub next_due: Option<Duration>,
}

/// Schedules. Every operation sees only schedules within `scope`.
#[async_trait]
pub trait Schedules: Send + Sync + 'static {
    /// Adds or replaces a schedule.
    async fn put_schedule(
        &self,
        scope: &Scope,
        new: NewSchedule,
        if_there: IfExists,
    ) -> Result<PutScheduleResult>;

    /// Pauses, resumes or removes a schedule, and returns it. No effect if it already is paused or
    /// active.
    async fn switch_schedule(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &ScheduleName,
        switch: ScheduleSwitch,
    ) -> Result<Schedule>;

    /// Takes one step of a schedule and sends its units, both or neither, if it has not changed
    /// since it was read ([`Firing::answer_without_send`]): one firing per time, with any number of competitors.
    /// If a unit is rejected, nothing is written.
    async fn fire_schedule(&self, scope: &Scope, firing: Firing) -> Result<FireResult>;

    /// Schedules, by tenant and name.
    async fn schedules(
        &self,
        scope: &Scope,
        filter: &ScheduleFilter,
        after: Option<&str>,
        limit: u32,
    ) -> Result<ScheduleList>;
}

/// The cursor after a schedule. Names contain no `/`.
pub fn schedule_cursor(schedule: &Schedule) -> String {
    format!("{}/{}", schedule.tenant, schedule.name)
}

/// Parses a cursor into tenant and name.
pub fn parse_schedule_cursor(cursor: &str) -> Result<(&str, &str)> {
    cursor.split_once('/').ok_or_else(|| invalid_cursor(cursor))
}
