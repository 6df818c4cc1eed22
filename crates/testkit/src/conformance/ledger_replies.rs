//! Reply queues: each belongs to one session and closes with it.

use std::sync::Arc;

use longshore_core::store::SendResult;
use longshore_core::{Error, NewUnit, QueueName, Scope, SessionId, UnitId, UnitState};
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

    /// Whether a session has the queue open.
    async fn are_open(&self) -> bool {
        let open = self.ledger.reply_queues(&ALL, &acme(), Some(replies())).await.unwrap();
        !open.is_empty()
    }

    async fn reply(&self) -> UnitId {
        self.send(NewUnit { tenant: acme(), queue: replies(), ..unit() }).await
    }
}

pub(super) async fn a_reply_queue_is_one_sessions(fixture: &StoreFixture) {
    let (one, two) = (fixture.session().await, fixture.session().await);
    assert!(!fixture.are_open().await);
    fixture.open_replies(one).await.unwrap();
    fixture.open_replies(one).await.unwrap();
    let taken = fixture.open_replies(two).await;
    assert!(matches!(taken, Err(Error::ReplyQueueOpen(queue)) if queue == replies()));
    assert!(fixture.are_open().await);
    for _ in 0..2 {
        fixture.close_replies().await;
    }
    assert!(!fixture.are_open().await);
    fixture.open_replies(two).await.unwrap();
}

pub(super) async fn what_is_left_in_a_closed_reply_queue_is_cancelled(fixture: &StoreFixture) {
    let session = fixture.session().await;
    fixture.open_replies(session).await.unwrap();
    let (left, elsewhere) = (fixture.reply().await, fixture.send(unit()).await);
    fixture.close_replies().await;
    assert_eq!(fixture.state(left).await, UnitState::Cancelled);
    assert_eq!(fixture.state(elsewhere).await, UnitState::Ready);
}

pub(super) async fn a_reply_to_a_queue_that_nobody_reads_is_not_taken(fixture: &StoreFixture) {
    let reply = || NewUnit { tenant: acme(), queue: replies(), ..unit() };
    assert_eq!(fixture.ledger.send_reply(&ALL, reply(), None).await.unwrap(), None);
    let session = fixture.session().await;
    fixture.open_replies(session).await.unwrap();
    let (taken, elsewhere) = (reply(), tenant_scope("other"));
    let stranger = Some(fixture.session().await);
    assert_eq!(fixture.ledger.send_reply(&ALL, reply(), stranger).await.unwrap(), None);
    for reader in [None, Some(session)] {
        let sent = fixture.ledger.send_reply(&tenant_scope("acme"), taken.clone(), reader).await.unwrap();
        assert_eq!(sent, Some(SendResult::Created(taken.id)));
    }
    fixture.ledger.send_reply(&elsewhere, reply(), None).await.unwrap_err();
    fixture.close_replies().await;
    let (state, late) = (fixture.state(taken.id).await, reply());
    assert_eq!(
        (state, fixture.ledger.send_reply(&ALL, late.clone(), None).await.unwrap()),
        (UnitState::Cancelled, None)
    );
    let found = fixture.store.unit(&ALL, late.id).await;
    assert!(matches!(found, Err(Error::NotFound { .. })), "{found:?}");
}

pub(super) async fn no_reply_is_left_in_a_queue_that_was_closed_meanwhile(fixture: &StoreFixture) {
    for _ in 0..20 {
        let session = fixture.session().await;
        fixture.open_replies(session).await.unwrap();
        let mut senders = JoinSet::new();
        for _ in 0..4 {
            let ledger = Arc::clone(&fixture.ledger);
            senders.spawn(async move {
                let reply = NewUnit { tenant: acme(), queue: replies(), ..unit() };
                let id = reply.id;
                ledger.send_reply(&ALL, reply, None).await.unwrap().map(|_| id)
            });
        }
        fixture.store.close_session(session).await.unwrap();
        for id in senders.join_all().await.into_iter().flatten() {
            assert_eq!(fixture.state(id).await, UnitState::Cancelled);
        }
    }
}

pub(super) async fn a_reply_queue_goes_with_its_session(fixture: &StoreFixture) {
    let (dead, closed) = (fixture.session().await, fixture.session().await);
    for session in [dead, closed] {
        fixture.open_replies(session).await.unwrap();
        let (held, left) = (fixture.reply().await, fixture.reply().await);
        let taken = fixture.claim_one(session).await;
        assert_eq!(taken.unit.id, held);
        if session == dead {
            fixture.kill(session).await;
        } else {
            fixture.store.close_session(session).await.unwrap();
        }
        assert!(!fixture.are_open().await);
        assert_eq!(fixture.state(left).await, UnitState::Cancelled);
        assert_eq!(
            fixture.state(held).await,
            UnitState::Cancelled,
            "a released reply without a queue is cancelled"
        );
    }
}

pub(super) async fn a_reply_queue_goes_over_to_the_next_life(fixture: &StoreFixture) {
    let (former, session) = (fixture.session().await, fixture.session().await);
    fixture.open_replies(former).await.unwrap();
    let waiting = fixture.reply().await;
    fixture.store.adopt(former, session).await.unwrap();
    assert!(fixture.are_open().await);
    fixture.open_replies(session).await.unwrap();
    assert_eq!(fixture.state(waiting).await, UnitState::Ready, "the reply queue stays open");
    fixture.store.close_session(session).await.unwrap();
    assert!(!fixture.are_open().await);
}

pub(super) async fn a_session_that_has_ended_opens_no_reply_queue(fixture: &StoreFixture) {
    let session = fixture.session().await;
    fixture.store.close_session(session).await.unwrap();
    let answer = fixture.open_replies(session).await;
    assert!(matches!(answer, Err(Error::SessionGone(_))), "{answer:?}");
    assert!(!fixture.are_open().await);
}

pub(super) async fn open_reply_queues_are_listed_with_the_sessions_that_read_them(fixture: &StoreFixture) {
    let (one, two) = (fixture.session().await, fixture.session().await);
    fixture.open_replies(one).await.unwrap();
    let other = queue("acme/replies-2");
    fixture.ledger.assign_reply_queue(&ALL, &acme(), &other, Some(two)).await.unwrap();
    let list = async |scope: &Scope, queue: Option<QueueName>| {
        let open = fixture.ledger.reply_queues(scope, &acme(), queue).await.unwrap();
        open.into_iter().map(|open| (open.queue, open.session)).collect::<Vec<_>>()
    };
    let own = tenant_scope("acme");
    assert_eq!(list(&own, None).await, [(replies(), one), (other.clone(), two)]);
    assert_eq!(list(&own, Some(other.clone())).await, [(other, two)]);
    assert_eq!(list(&own, Some(queue("acme/replies"))).await, []);
    assert_eq!(list(&tenant_scope("other"), None).await, []);
}

pub(super) async fn another_tenants_reply_queue_does_not_exist(fixture: &StoreFixture) {
    let session = fixture.session().await;
    fixture.open_replies(session).await.unwrap();
    let (other, other_tenant) = (tenant_scope("other"), tenant("other"));
    let (ledger, queue) = (&fixture.ledger, replies());
    for tenant in [&acme(), &other_tenant] {
        for session in [Some(session), None] {
            let answer = ledger.assign_reply_queue(&other, tenant, &queue, session).await;
            assert!(matches!(answer, Err(Error::NotFound { .. })), "{answer:?}");
        }
    }
    assert!(fixture.are_open().await);
}
