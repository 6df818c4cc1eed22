//! Schedules: put, steered, listed, and fired by compare-and-set.

use std::time::Duration;

use async_trait::async_trait;

use crate::Result;
use crate::name::{ScheduleName, Scope, TenantId};
use crate::schedule::{NewSchedule, Schedule, Step};
use crate::store::{Page, Refusal, Sent};
use crate::time::Timestamp;
use crate::unit::NewUnit;

/// What is wanted if a schedule of that name is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfThere {
    /// It stays as it is.
    Keep,
    /// Its plan, pause and next time are replaced; its past and its counters stay.
    Replace,
}

/// What became of a schedule that was put.
#[derive(Debug, Clone, PartialEq)]
pub enum Placed {
    /// It is new.
    Created(Schedule),
    /// It took the place of one with the same name.
    Replaced(Schedule),
    /// One was there and stayed: this one.
    Kept(Schedule),
}

/// How a schedule is steered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleSwitch {
    /// It does not fire until it is resumed.
    Pause,
    /// It fires again, from this time on; what passed meanwhile was not missed.
    Resume {
        /// The first of its times after now.
        next: Option<Timestamp>,
    },
}

/// One step of a schedule, as whoever takes it believes it to be.
#[derive(Debug, Clone, PartialEq)]
pub struct Firing {
    /// Whose it is.
    pub tenant: TenantId,
    /// Which.
    pub name: ScheduleName,
    /// Its revision when it was read.
    pub revision: u64,
    /// Its next time when it was read.
    pub expected: Option<Timestamp>,
    /// What is to be written.
    pub step: Step,
    /// What is sent; nothing if times are only left out.
    pub units: Vec<NewUnit>,
}

impl Firing {
    /// A firing of `schedule` as it was read.
    pub fn of(schedule: &Schedule, step: Step, now: Timestamp) -> Self {
        let Schedule { tenant, name, plan, .. } = schedule;
        let unit = |at| plan.template.unit(tenant, name, at, now);
        Self {
            tenant: tenant.clone(),
            name: name.clone(),
            revision: schedule.revision,
            expected: schedule.next_fire,
            units: step.at.map(unit).into_iter().collect(),
            step,
        }
    }

    /// Whether `schedule` is still as it was when the firing was decided.
    pub fn holds(&self, schedule: &Schedule) -> bool {
        self.revision == schedule.revision && self.expected == schedule.next_fire
    }

    /// Whether this very firing is in already: it did not move the next time (somebody fired by
    /// hand) and was repeated after its answer was lost.
    pub fn is_repeat(&self, schedule: &Schedule) -> bool {
        let stays = self.step.next == self.expected;
        stays && self.step.at.is_some() && self.step.at == schedule.last_fire
    }

    /// Writes the step.
    pub fn apply(&self, schedule: &mut Schedule) {
        let Step { at, next, missed, skipped } = self.step;
        schedule.next_fire = next;
        schedule.last_fire = at.or(schedule.last_fire);
        schedule.fired += u64::from(at.is_some());
        schedule.missed_times += missed;
        schedule.skipped += skipped;
    }

    /// Refuses units of another tenant, and those that no store should have to handle.
    pub fn check(&self) -> Result<()> {
        for unit in &self.units {
            unit.check()?;
            if unit.tenant != self.tenant {
                let message = format!("schedule `{}` sends units of its own tenant", self.name);
                return Err(crate::Error::Invalid(message));
            }
        }
        Ok(())
    }
}

/// What became of a firing.
#[derive(Debug, Clone, PartialEq)]
pub enum Fired {
    /// The step and the units are in; one answer per unit. Also the answer to a repeat.
    Committed(Vec<Sent>),
    /// Somebody fired or changed the schedule meanwhile: nothing was done.
    Moved,
    /// A unit was refused, as for want of room: nothing was done.
    Refused(Refusal),
}

/// Schedules that are due, and when the next one is.
#[derive(Debug, Clone, PartialEq)]
pub struct DueSchedules {
    /// The store's time: what "due" refers to.
    pub now: Timestamp,
    /// Those that are due and not paused.
    pub due: Page<Schedule>,
    /// In how long the first of the others is due.
    pub next: Option<Duration>,
}

/// Schedules. All verbs see only what is within `scope`; the rest does not exist.
#[async_trait]
pub trait Schedules: Send + Sync + 'static {
    /// Puts a schedule.
    async fn put_schedule(
        &self,
        scope: &Scope,
        new: NewSchedule,
        if_there: IfThere,
    ) -> Result<Placed>;

    /// Removes a schedule. What it has sent stays.
    async fn remove_schedule(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &ScheduleName,
    ) -> Result<()>;

    /// Pauses or resumes a schedule. Pausing a paused one, or resuming one that fires, changes
    /// nothing.
    async fn switch_schedule(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &ScheduleName,
        switch: ScheduleSwitch,
    ) -> Result<Schedule>;

    /// Takes one step of a schedule and sends its units, both or neither, if it is still as it was
    /// read ([`Firing::holds`]): one firing per time, however many try. If any unit is refused,
    /// nothing is done.
    async fn fire_schedule(&self, scope: &Scope, firing: Firing) -> Result<Fired>;

    /// One schedule.
    async fn schedule(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &ScheduleName,
    ) -> Result<Schedule>;

    /// Schedules by tenant and name.
    async fn schedules(
        &self,
        scope: &Scope,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Schedule>>;

    /// Those of every tenant that are due by the store's clock, by tenant and name.
    async fn due_schedules(&self, after: Option<&str>, limit: u32) -> Result<DueSchedules>;
}

/// A list's cursor: behind this schedule. No name holds a `/`.
pub fn schedule_cursor(schedule: &Schedule) -> String {
    format!("{}/{}", schedule.tenant, schedule.name)
}

/// Tenant and name of a cursor.
pub fn read_schedule_cursor(cursor: &str) -> Result<(&str, &str)> {
    let parts = cursor.split_once('/');
    parts.ok_or_else(|| crate::Error::Invalid(format!("`{cursor}` is not a cursor of this list")))
}
