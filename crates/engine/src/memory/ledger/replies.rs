//! Reply queues, each with the session that has it open.

use async_trait::async_trait;
use longshore_core::ledger::Replies;
use longshore_core::store::Sent;
use longshore_core::{
    Error, NewUnit, QueueName, Result, Scope, SessionId, TenantId, Timestamp, UnitId,
};

use super::Books;
use crate::memory::MemoryStore;
use crate::memory::intake::check;
use crate::memory::state::State;

#[async_trait]
impl Replies for MemoryStore {
    async fn open_replies(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        queue: &QueueName,
        session: SessionId,
    ) -> Result<()> {
        may_have(scope, tenant, queue)?;
        self.write(|state, _| {
            if !state.sessions.contains_key(&session) {
                return Err(Error::SessionGone(session));
            }
            let place = (tenant.clone(), queue.clone());
            let holder = *state.books.replies.entry(place).or_insert(session);
            if holder == session { Ok(()) } else { Err(Error::Invalid(taken(queue))) }
        })
    }

    async fn close_replies(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        queue: &QueueName,
    ) -> Result<()> {
        may_have(scope, tenant, queue)?;
        self.write(|state, now| {
            if state.books.replies.remove(&(tenant.clone(), queue.clone())).is_some() {
                state.cancel_replies(tenant, queue, now);
            }
        });
        Ok(())
    }

    async fn reply(&self, scope: &Scope, unit: NewUnit) -> Result<Option<Sent>> {
        check(scope, std::slice::from_ref(&unit))?;
        Ok(self.write(|state, now| {
            let place = (unit.tenant.clone(), unit.queue.clone());
            let open = state.books.replies.contains_key(&place);
            open.then(|| state.take_in(unit, None, now))
        }))
    }

    async fn replies_open(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        queue: &QueueName,
    ) -> Result<bool> {
        let place = (tenant.clone(), queue.clone());
        Ok(scope.covers(tenant) && self.read(|state, _| state.books.replies.contains_key(&place)))
    }
}

fn may_have(scope: &Scope, tenant: &TenantId, queue: &QueueName) -> Result<()> {
    let own = scope.covers(tenant) && queue.admits(tenant);
    own.then_some(()).ok_or_else(|| Error::not_found("queue", queue))
}

fn taken(queue: &QueueName) -> String {
    format!("another session reads the replies of queue `{queue}`")
}

impl Books {
    pub(in crate::memory) fn hand_over_replies(&mut self, from: SessionId, to: SessionId) {
        let held = self.replies.values_mut().filter(|holder| **holder == from);
        held.for_each(|holder| *holder = to);
    }
}

impl State {
    /// A session's reply queues go with it.
    pub(in crate::memory) fn drop_replies(&mut self, session: SessionId, now: Timestamp) {
        let held = self.books.replies.extract_if(.., |_, holder| *holder == session);
        for ((tenant, queue), _) in held.collect::<Vec<_>>() {
            self.cancel_replies(&tenant, &queue, now);
        }
    }

    fn cancel_replies(&mut self, tenant: &TenantId, queue: &QueueName, now: Timestamp) {
        let left = self.units.values().map(|record| &record.unit).filter(|unit| {
            unit.tenant == *tenant && unit.queue == *queue && !unit.state.is_final()
        });
        let left: Vec<UnitId> = left.map(|unit| unit.id).collect();
        self.cancel(&left, now);
    }
}
