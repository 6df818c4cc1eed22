//! Implements [`Schedules`].

use longshore_core::schedule::{NewSchedule, Schedule};
use longshore_core::store::{
    FireResult, Firing, IfExists, PutScheduleResult, ScheduleFilter, ScheduleList, ScheduleSwitch,
};
use longshore_core::{Result, ScheduleName, Schedules, Scope, TenantId};

use super::operations;
use crate::schedules;

operations! { Schedules {
    Durable put_schedule[scope: Scope](new: NewSchedule, if_there: IfExists) -> PutScheduleResult
        = schedules::put(&new, if_there);
    Durable switch_schedule[scope: Scope, tenant: TenantId, name: ScheduleName](
        switch: ScheduleSwitch
    ) -> Schedule = schedules::switch(switch);
    Durable fire_schedule[scope: Scope](firing: Firing) -> FireResult = schedules::fire(&firing);
    {
        async fn schedules(
            &self,
            scope: &Scope,
            filter: &ScheduleFilter,
            after: Option<&str>,
            limit: u32,
        ) -> Result<ScheduleList> {
            let (scope, filter) = (scope.clone(), filter.clone());
            let (now, after) = (self.options.clock.now(), after.map(str::to_owned));
            self.read(move |db| schedules::list(db, &scope, &filter, now, after.as_deref(), limit))
                .await
        }
    }
}}
