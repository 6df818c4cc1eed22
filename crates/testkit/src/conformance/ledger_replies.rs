//! Reply queues: each belongs to one session and closes with it.

use std::sync::Arc;

use longshore_core::store::SendResult;
use longshore_core::{Error, NewUnit, QueueName, SessionId, UnitId, UnitState};
use tokio::task::JoinSet;

use super::helpers::*;
use super::ledger_helpers::acme;
use crate::StoreFixture;

fn replies() -> QueueName {
    queue("acme/replies-1")
}

impl StoreFixture {
    async fn open_replies(&self, session: SessionId) -> Result<(), Error> {
        self.ledger.assign_reply_queue(&ALL, &acme(), &replies(), Some(session)).await
    }

    async fn close_replies(&self) {
        self.ledger.assign_reply_queue(&ALL, &acme(), &replies(), None).await.unwrap();
    }

    /// Whether a session has the queue open, so that another one cannot.
    async fn are_open(&self) -> bool {
        let probe = self.session().await;
        let taken = self.open_replies(probe).await.is_err();
        self.store.close_session(probe).await.unwrap();
        taken
    }

    async fn reply(&self) -> UnitId {
        self.send(NewUnit { tenant: acme(), queue: replies(), ..unit() }).await
    }
}

pub(super) async fn a_reply_queue_is_one_sessions(world: &StoreFixture) {
    let (one, two) = (world.session().await, world.session().await);
    assert!(!world.are_open().await);
    world.open_replies(one).await.unwrap();
    world.open_replies(one).await.unwrap();
    let taken = world.open_replies(two).await;
    assert!(matches!(taken, Err(Error::Invalid(_))), "{taken:?}");
    assert!(world.are_open().await);
    for _ in 0..2 {
        world.close_replies().await;
    }
    assert!(!world.are_open().await);
    world.open_replies(two).await.unwrap();
}

pub(super) async fn what_is_left_in_a_closed_reply_queue_is_cancelled(world: &StoreFixture) {
    let session = world.session().await;
    world.open_replies(session).await.unwrap();
    let (left, elsewhere) = (world.reply().await, world.send(unit()).await);
    world.close_replies().await;
    assert_eq!(world.state(left).await, UnitState::Cancelled);
    assert_eq!(world.state(elsewhere).await, UnitState::Ready);
}

pub(super) async fn a_reply_to_a_queue_that_nobody_reads_is_not_taken(world: &StoreFixture) {
    let reply = || NewUnit { tenant: acme(), queue: replies(), ..unit() };
    assert_eq!(world.ledger.send_reply(&ALL, reply()).await.unwrap(), None);
    let session = world.session().await;
    world.open_replies(session).await.unwrap();
    let (taken, elsewhere) = (reply(), tenant_scope("other"));
    for _ in 0..2 {
        let sent = world.ledger.send_reply(&tenant_scope("acme"), taken.clone()).await.unwrap();
        assert_eq!(sent, Some(SendResult::Created(taken.id)));
    }
    world.ledger.send_reply(&elsewhere, reply()).await.unwrap_err();
    world.close_replies().await;
    let (state, late) = (world.state(taken.id).await, reply());
    assert_eq!(
        (state, world.ledger.send_reply(&ALL, late.clone()).await.unwrap()),
        (UnitState::Cancelled, None)
    );
    let found = world.store.unit(&ALL, late.id).await;
    assert!(matches!(found, Err(Error::NotFound { .. })), "{found:?}");
}

pub(super) async fn no_reply_is_left_in_a_queue_that_was_closed_meanwhile(world: &StoreFixture) {
    for _ in 0..20 {
        let session = world.session().await;
        world.open_replies(session).await.unwrap();
        let mut senders = JoinSet::new();
        for _ in 0..4 {
            let ledger = Arc::clone(&world.ledger);
            senders.spawn(async move {
                let reply = NewUnit { tenant: acme(), queue: replies(), ..unit() };
                let id = reply.id;
                ledger.send_reply(&ALL, reply).await.unwrap().map(|_| id)
            });
        }
        world.store.close_session(session).await.unwrap();
        for id in senders.join_all().await.into_iter().flatten() {
            assert_eq!(world.state(id).await, UnitState::Cancelled);
        }
    }
}

pub(super) async fn a_reply_queue_goes_with_its_session(world: &StoreFixture) {
    let (dead, closed) = (world.session().await, world.session().await);
    for session in [dead, closed] {
        world.open_replies(session).await.unwrap();
        let (held, left) = (world.reply().await, world.reply().await);
        let taken = world.claim_one(session).await;
        assert_eq!(taken.unit.id, held);
        if session == dead {
            world.kill(session).await;
        } else {
            world.store.close_session(session).await.unwrap();
        }
        assert!(!world.are_open().await);
        assert_eq!(world.state(left).await, UnitState::Cancelled);
        assert_eq!(
            world.state(held).await,
            UnitState::Cancelled,
            "a released reply without a queue is cancelled"
        );
    }
}

pub(super) async fn a_reply_queue_goes_over_to_the_next_life(world: &StoreFixture) {
    let (former, session) = (world.session().await, world.session().await);
    world.open_replies(former).await.unwrap();
    let waiting = world.reply().await;
    world.store.adopt(former, session).await.unwrap();
    assert!(world.are_open().await);
    world.open_replies(session).await.unwrap();
    assert_eq!(world.state(waiting).await, UnitState::Ready, "the reply queue stays open");
    world.store.close_session(session).await.unwrap();
    assert!(!world.are_open().await);
}

pub(super) async fn a_session_that_has_ended_opens_no_reply_queue(world: &StoreFixture) {
    let session = world.session().await;
    world.store.close_session(session).await.unwrap();
    let answer = world.open_replies(session).await;
    assert!(matches!(answer, Err(Error::SessionGone(_))), "{answer:?}");
    assert!(!world.are_open().await);
}

pub(super) async fn another_tenants_reply_queue_does_not_exist(world: &StoreFixture) {
    let session = world.session().await;
    world.open_replies(session).await.unwrap();
    let (other, other_tenant) = (tenant_scope("other"), tenant("other"));
    let (ledger, queue) = (&world.ledger, replies());
    for tenant in [&acme(), &other_tenant] {
        for session in [Some(session), None] {
            let answer = ledger.assign_reply_queue(&other, tenant, &queue, session).await;
            assert!(matches!(answer, Err(Error::NotFound { .. })), "{answer:?}");
        }
    }
    assert!(world.are_open().await);
}
