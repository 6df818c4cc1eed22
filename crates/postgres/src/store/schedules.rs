//! [`Schedules`] on PostgreSQL.

use async_trait::async_trait;
use longshore_core::schedule::{NewSchedule, Schedule};
use longshore_core::store::{DueSchedules, Fired, Firing, IfThere, Page, Placed, ScheduleSwitch};
use longshore_core::{Result, ScheduleName, Schedules, Scope, TenantId};

use super::{PostgresStore, operation};
use crate::schedules;

#[async_trait]
impl Schedules for PostgresStore {
    async fn put_schedule(
        &self,
        scope: &Scope,
        new: NewSchedule,
        if_there: IfThere,
    ) -> Result<Placed> {
        operation!(self, Durable, tx => schedules::put(&mut tx, scope, &new, if_there))
    }

    async fn remove_schedule(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &ScheduleName,
    ) -> Result<()> {
        operation!(self, Durable, tx => schedules::remove(&mut tx, scope, tenant, name))
    }

    async fn switch_schedule(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &ScheduleName,
        switch: ScheduleSwitch,
    ) -> Result<Schedule> {
        operation!(self, Durable, tx => schedules::switch(&mut tx, scope, tenant, name, switch))
    }

    async fn fire_schedule(&self, scope: &Scope, firing: Firing) -> Result<Fired> {
        operation!(self, Durable, tx => schedules::fire(&mut tx, scope, &firing))
    }

    async fn schedule(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &ScheduleName,
    ) -> Result<Schedule> {
        operation!(self, Relaxed, tx => schedules::show(&mut tx, scope, tenant, name))
    }

    async fn schedules(
        &self,
        scope: &Scope,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Schedule>> {
        operation!(self, Relaxed, tx => schedules::list(&mut tx, scope, after, limit))
    }

    async fn due_schedules(&self, after: Option<&str>, limit: u32) -> Result<DueSchedules> {
        if let Some(next) = self.next_fire_in() {
            let (now, due) = (self.inner.options.clock.now(), Page { items: vec![], next: None });
            return Ok(DueSchedules { now, due, next });
        }
        let clock_source = self.inner.options.clock_source;
        operation!(self, Relaxed, tx => schedules::due(&mut tx, after, limit, clock_source))
    }
}
