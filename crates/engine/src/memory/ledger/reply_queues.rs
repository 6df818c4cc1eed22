//! Reply queues, each with the session that owns it.

use async_trait::async_trait;
use longshore_core::store::{OpenReplyQueue, ReplyQueues, SendResult, UnitAction};
use longshore_core::{Error, NewUnit, QueueName, Result, Scope, SessionId, TenantId, Timestamp, UnitId};

use super::LedgerState;
use crate::memory::MemoryStore;
use crate::memory::state::State;

#[async_trait]
impl ReplyQueues for MemoryStore {
    async fn assign_reply_queue(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        queue: &QueueName,
        session: Option<SessionId>,
    ) -> Result<()> {
        require_access(scope, tenant, queue)?;
        let key = (tenant.clone(), queue.clone());
        self.write(|state, now| {
            let Some(session) = session else {
                if state.ledger.replies.remove(&key).is_some() {
                    state.cancel_replies(tenant, queue, now);
                }
                return Ok(());
            };
            if !state.sessions.contains_key(&session) {
                return Err(Error::SessionGone(session));
            }
            let holder = *state.ledger.replies.entry(key).or_insert(session);
            if holder == session { Ok(()) } else { Err(Error::ReplyQueueOpen(queue.clone())) }
        })
    }

    async fn reply_queues(
        &self,
        scope: &Scope,
        tenant: &TenantId,
        queue: Option<QueueName>,
    ) -> Result<Vec<OpenReplyQueue>> {
        let matches = |(owner, name): &(TenantId, QueueName)| {
            scope.covers(owner) && owner == tenant && queue.as_ref().is_none_or(|queue| queue == name)
        };
        Ok(self.read(|state, _| {
            let open = state.ledger.replies.iter().filter(|(key, _)| matches(key));
            open.map(|((_, queue), session)| OpenReplyQueue { queue: queue.clone(), session: *session })
                .collect()
        }))
    }

    async fn send_reply(
        &self,
        scope: &Scope,
        unit: NewUnit,
        reader: Option<SessionId>,
    ) -> Result<Option<SendResult>> {
        scope.check_units(std::slice::from_ref(&unit))?;
        Ok(self.write(|state, now| {
            let key = (unit.tenant.clone(), unit.queue.clone());
            let open = state.ledger.replies.get(&key);
            let open = open.is_some_and(|session| reader.is_none_or(|reader| reader == *session));
            open.then(|| state.enqueue(&Scope::All, unit, None, now))
        }))
    }
}

fn require_access(scope: &Scope, tenant: &TenantId, queue: &QueueName) -> Result<()> {
    let own = scope.covers(tenant) && queue.admits(tenant);
    own.then_some(()).ok_or_else(|| Error::not_found("queue", queue))
}

impl LedgerState {
    pub(in crate::memory) fn transfer_replies(&mut self, from: SessionId, to: SessionId) {
        let held = self.replies.values_mut().filter(|holder| **holder == from);
        held.for_each(|holder| *holder = to);
    }
}

impl State {
    /// Closes the reply queues of a session that ended.
    pub(in crate::memory) fn close_replies_of(&mut self, session: SessionId, now: Timestamp) {
        let held = self.ledger.replies.extract_if(.., |_, holder| *holder == session);
        for ((tenant, queue), _) in held.collect::<Vec<_>>() {
            self.cancel_replies(&tenant, &queue, now);
        }
    }

    fn cancel_replies(&mut self, tenant: &TenantId, queue: &QueueName, now: Timestamp) {
        let left = self
            .units
            .values()
            .map(|record| &record.unit)
            .filter(|unit| unit.tenant == *tenant && unit.queue == *queue && !unit.state.is_final());
        let left: Vec<UnitId> = left.map(|unit| unit.id).collect();
        self.operate(&left, UnitAction::Cancel, now);
    }
}
