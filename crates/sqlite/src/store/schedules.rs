//! Implements [`Schedules`].

use async_trait::async_trait;
use longshore_core::schedule::{NewSchedule, Schedule};
use longshore_core::store::{DueSchedules, Fired, Firing, IfThere, Page, Placed, ScheduleSwitch};
use longshore_core::{Result, ScheduleName, Schedules, Scope, TenantId};

use super::SqliteStore;
use crate::schedules;
use crate::tx::Tx;
use crate::writer::Durability::Durable;

#[async_trait]
impl Schedules for SqliteStore {
    async fn put_schedule(
        &self,
        scope: &Scope,
        new: NewSchedule,
        if_there: IfThere,
    ) -> Result<Placed> {
        let scope = scope.clone();
        self.writer.call(Durable, move |tx| schedules::put(tx, &scope, &new, if_there)).await
    }

    async fn remove_schedule(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &ScheduleName,
    ) -> Result<()> {
        let (scope, tenant, name) = (scope.clone(), tenant.clone(), name.clone());
        self.writer.call(Durable, move |tx| schedules::remove(tx, &scope, &tenant, &name)).await
    }

    async fn switch_schedule(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &ScheduleName,
        switch: ScheduleSwitch,
    ) -> Result<Schedule> {
        let (scope, tenant, name) = (scope.clone(), tenant.clone(), name.clone());
        let op = move |tx: &mut Tx<'_>| schedules::switch(tx, &scope, &tenant, &name, switch);
        self.writer.call(Durable, op).await
    }

    async fn fire_schedule(&self, scope: &Scope, firing: Firing) -> Result<Fired> {
        let scope = scope.clone();
        self.writer.call(Durable, move |tx| schedules::fire(tx, &scope, &firing)).await
    }

    async fn schedule(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &ScheduleName,
    ) -> Result<Schedule> {
        let (scope, tenant, name) = (scope.clone(), tenant.clone(), name.clone());
        self.read(move |db| schedules::show(db, &scope, &tenant, &name)).await
    }

    async fn schedules(
        &self,
        scope: &Scope,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Page<Schedule>> {
        let (scope, after) = (scope.clone(), after.map(str::to_owned));
        self.read(move |db| schedules::list(db, &scope, after.as_deref(), limit)).await
    }

    async fn due_schedules(&self, after: Option<&str>, limit: u32) -> Result<DueSchedules> {
        let (now, after) = (self.options.clock.now(), after.map(str::to_owned));
        self.read(move |db| schedules::due(db, now, after.as_deref(), limit)).await
    }
}
