//! Schedules by tenant and name, fired under the store's lock.

use std::ops::Bound;

use async_trait::async_trait;
use longshore_core::schedule::{NewSchedule, Schedule};
use longshore_core::store::{
    FireResult, Firing, IfExists, Page, PutScheduleResult, ScheduleFilter, ScheduleList, ScheduleSwitch,
    Schedules, SendResult, parse_schedule_cursor, schedule_cursor,
};
use longshore_core::{Error, Result, ScheduleName, Scope, TenantId, Timestamp};

use super::MemoryStore;
use super::post_write::DirtySet;
use super::state::State;

/// Ordered so that the schedules of one tenant are adjacent.
pub(super) type ScheduleKey = (TenantId, ScheduleName);

#[async_trait]
impl Schedules for MemoryStore {
    async fn put_schedule(
        &self,
        scope: &Scope,
        new: NewSchedule,
        if_there: IfExists,
    ) -> Result<PutScheduleResult> {
        new.check()?;
        scope.require(&new.tenant)?;
        Ok(self.write(|state, now| state.put_schedule(new, if_there, now)))
    }

    async fn switch_schedule(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        name: &ScheduleName,
        switch: ScheduleSwitch,
    ) -> Result<Schedule> {
        self.write(|state, _| {
            let schedule = state.schedule_mut(scope, tenant, name)?;
            schedule.switch(switch);
            let schedule = schedule.clone();
            if switch == ScheduleSwitch::Remove {
                state.schedules.remove(&(tenant.clone(), name.clone()));
            }
            Ok(schedule)
        })
    }

    async fn fire_schedule(&self, scope: &Scope, firing: Firing) -> Result<FireResult> {
        firing.check()?;
        self.write(|state, now| state.fire(scope, &firing, now))
    }

    async fn schedules(
        &self,
        scope: &Scope,
        filter: &ScheduleFilter,
        after: Option<&str>,
        limit: u32,
    ) -> Result<ScheduleList> {
        self.read(|state, now| {
            let active = state.schedules.values().filter(|schedule| !schedule.paused);
            let later = active.filter_map(|schedule| schedule.next_fire).filter(|at| *at > now);
            let next_due = later.min().map(|at| at.since(now));
            let is_due = |s: &Schedule| !s.paused && s.next_fire.is_some_and(|at| at <= now);
            let wanted = |s: &Schedule| match filter {
                ScheduleFilter::All => true,
                ScheduleFilter::Named(name) => s.name == *name,
                ScheduleFilter::Due => is_due(s),
            };
            let wanted = |s: &Schedule| scope.covers(&s.tenant) && wanted(s);
            Ok(ScheduleList { page: state.schedule_page(after, limit, wanted)?, now, next_due })
        })
    }
}

impl State {
    fn put_schedule(&mut self, new: NewSchedule, if_there: IfExists, now: Timestamp) -> PutScheduleResult {
        let key = (new.tenant.clone(), new.name.clone());
        let placed = PutScheduleResult::decide(new, self.schedules.get(&key).cloned(), if_there, now);
        if let PutScheduleResult::Created(schedule) | PutScheduleResult::Replaced(schedule) = &placed {
            self.schedules.insert(key, schedule.clone());
        }
        placed
    }

    fn schedule_mut(
        &mut self,
        scope: &Scope,
        tenant: &TenantId,
        name: &ScheduleName,
    ) -> Result<&mut Schedule> {
        let found = self.schedules.get_mut(&(tenant.clone(), name.clone()));
        found
            .filter(|schedule| scope.covers(&schedule.tenant))
            .ok_or_else(|| Error::not_found("schedule", name))
    }

    fn fire(&mut self, scope: &Scope, firing: &Firing, now: Timestamp) -> Result<FireResult> {
        let schedule = self.schedule_mut(scope, &firing.tenant, &firing.name)?;
        if let Some(answer) = firing.answer_without_send(schedule) {
            return Ok(answer);
        }
        let known: Vec<_> = firing.units.iter().map(|unit| self.units.contains_key(&unit.id)).collect();
        let mut answers = Vec::new();
        for unit in &firing.units {
            answers.push(self.enqueue(scope, unit.clone(), None, now));
        }
        if let Some(rejection) = answers.iter().find_map(SendResult::rejection).cloned() {
            // All units or none; nothing is published.
            let taken = answers.iter().zip(known).filter(|(_, known)| !known);
            for id in taken.filter_map(|(answer, _)| created(answer)).collect::<Vec<_>>() {
                self.remove(id);
            }
            self.dirty = DirtySet::default();
            return Ok(FireResult::Rejected(rejection));
        }
        firing.apply(self.schedule_mut(scope, &firing.tenant, &firing.name)?);
        Ok(FireResult::Committed(answers))
    }

    fn schedule_page(
        &self,
        after: Option<&str>,
        limit: u32,
        wanted: impl Fn(&Schedule) -> bool,
    ) -> Result<Page<Schedule>> {
        let start = match after.map(parse_schedule_cursor).transpose()? {
            None => Bound::Unbounded,
            Some((tenant, name)) => Bound::Excluded((parse_name(tenant)?, parse_name(name)?)),
        };
        let rest = self.schedules.range::<ScheduleKey, _>((start, Bound::Unbounded));
        let items = rest.map(|(_, schedule)| schedule).filter(|schedule| wanted(schedule));
        let page = Page::first(items.cloned(), limit, schedule_cursor);
        Ok(page.within_bytes(|_, schedule| schedule_cursor(schedule)))
    }
}

fn parse_name<T: TryFrom<String, Error: std::fmt::Display>>(text: &str) -> Result<T> {
    T::try_from(text.to_owned()).map_err(|error| Error::Invalid(error.to_string()))
}

fn created(sent: &SendResult) -> Option<longshore_core::UnitId> {
    match sent {
        SendResult::Created(id) => Some(*id),
        SendResult::Existing(_) | SendResult::Rejected(_) => None,
    }
}
