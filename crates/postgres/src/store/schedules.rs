//! [`Schedules`] on PostgreSQL.

use longshore_core::schedule::{NewSchedule, Schedule};
use longshore_core::store::{
    FireResult, Firing, IfExists, Page, PutScheduleResult, ScheduleFilter, ScheduleList, ScheduleSwitch,
};
use longshore_core::{Result, ScheduleName, Schedules, Scope, TenantId};

use super::{operation, operations};
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
            if *filter == ScheduleFilter::Due
                && let Some(next_due) = self.next_fire_in()
            {
                let page = Page { items: vec![], next: None };
                return Ok(ScheduleList { page, now: self.inner.now(), next_due });
            }
            operation!(self, Relaxed, tx => schedules::list(&mut tx, scope, filter, after, limit))
        }
    }
}}
