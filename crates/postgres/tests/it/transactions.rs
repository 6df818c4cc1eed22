//! Operations inside the caller's own transaction: they commit or roll back with it, and block no
//! other transaction.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use longshore::outcome::Params;
use longshore::store::{
    Capacity, ClaimRequest, FinishRequest, FinishResult, QueueChange, Queues, SendRejection, SendResult,
    TenantChange,
};
use longshore::unit::{Dedup, DedupWindow, OnDuplicate};
use longshore::worker_session::{Lease, NewSession};
use longshore::{
    Admin as _, Effect, Enqueue as _, Error, Kind, NewBatch, NewUnit, Outcome, Queries as _, QueueName,
    Scope, SessionId, TenantId, Tenants as _, UnitId, UnitState, WorkerApi as _,
};
use longshore_postgres::tokio_postgres::{Client, NoTls};
use longshore_postgres::{PostgresOptions, PostgresStore};
use tokio::task::JoinSet;

use crate::test_server::{Database, Server};

/// A store in the application's own database.
pub(crate) struct OrderApp {
    pub(crate) store: Arc<PostgresStore>,
    pub(crate) session: SessionId,
    pub(crate) own: Client,
    pub(crate) database: Arc<Database>,
    pub(crate) tasks: JoinSet<()>,
    _server: Server,
}

pub(crate) fn kind() -> Kind {
    Kind::new("order").unwrap()
}

pub(crate) fn unit() -> NewUnit {
    NewUnit::new(kind(), serde_json::json!({"order": 1}))
}

fn keyed(key: &str) -> NewUnit {
    let (window, on_duplicate) = (DedupWindow::WhileLive, OnDuplicate::Existing);
    NewUnit { dedup: Some(Dedup { key: key.into(), window, on_duplicate }), ..unit() }
}

pub(crate) async fn order_app() -> OrderApp {
    let server = Server::start().await;
    let database = server.database().await;
    database.run(
        "CREATE TABLE orders (id integer PRIMARY KEY, state text NOT NULL);
         INSERT INTO orders VALUES (1, 'new'), (2, 'new')",
    );
    let store = PostgresStore::open(&database.url, PostgresOptions::default()).await.unwrap();
    let session = SessionId::new();
    let new = NewSession {
        kinds: BTreeMap::from([(kind(), longshore::Policy::default())]),
        slots: 9,
        ..NewSession::new(session, "")
    };
    store.open_session(new).await.unwrap();
    let mut tasks = JoinSet::new();
    let own = connect(&database, &mut tasks).await;
    OrderApp { store: Arc::new(store), session, own, database, tasks, _server: server }
}

pub(crate) async fn connect(database: &Database, tasks: &mut JoinSet<()>) -> Client {
    let (client, connection) =
        longshore_postgres::tokio_postgres::connect(&database.url, NoTls).await.unwrap();
    tasks.spawn(async move {
        let _ = connection.await;
    });
    client
}

impl OrderApp {
    pub(crate) async fn take(&self) -> Lease {
        self.claim(1).await[0]
    }

    pub(crate) async fn claim(&self, free: u32) -> Vec<Lease> {
        let claim = ClaimRequest { free_slots: free, ..ClaimRequest::new(self.session, vec![kind()], 9) };
        let claimed = self.store.claim(claim).await.unwrap();
        claimed.units.iter().map(|held| held.lease).collect()
    }

    pub(crate) async fn state(&self, unit: UnitId) -> UnitState {
        self.store.unit(&Scope::All, unit).await.unwrap().state
    }

    async fn state_of(&self, order: i32) -> String {
        let sql = format!("SELECT state FROM orders WHERE id = {order}");
        self.database.run(&sql).trim().to_owned()
    }

    async fn bound(&self, units: u64) {
        let capacity = Some(Capacity { units: Some(units), bytes: None });
        let change = QueueChange { paused: None, capacity };
        (&*self.store as &dyn longshore::Store)
            .change_queue(&Scope::All, &QueueName::default(), change)
            .await
            .unwrap();
    }

    pub(crate) async fn live(&self) -> u64 {
        self.store.totals(&Scope::All, &Queues::All).await.unwrap().counts.live()
    }

    pub(crate) async fn assert_consistent(&self) {
        assert_eq!(self.store.verify().await.unwrap(), []);
    }

    fn reservations(&self) -> String {
        self.database.run("SELECT count(*) FROM longshore_capacity_reservation").trim().to_owned()
    }
}

fn is_full(sent: &SendResult) -> bool {
    matches!(sent, SendResult::Rejected(SendRejection::Full { .. }))
}

#[tokio::test]
async fn units_sent_in_a_callers_transaction_share_its_fate() {
    let mut app = order_app().await;
    for commit in [false, true] {
        let store = Arc::clone(&app.store);
        let tx = app.own.transaction().await.unwrap();
        tx.execute("UPDATE orders SET state = 'sent' WHERE id = 1", &[]).await.unwrap();
        let sent = store.send_in(&tx, &Scope::All, &[unit(), keyed("k")]).await.unwrap();
        let SendResult::Created(id) = sent.value[0] else { panic!("{sent:?}") };
        assert!(store.unit(&Scope::All, id).await.is_err(), "not before the commit");
        if commit {
            tx.commit().await.unwrap();
            store.run_post_commit(sent.post_commit).await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        assert_eq!(store.unit(&Scope::All, id).await.is_ok(), commit);
        assert_eq!(app.state_of(1).await == "sent", commit);
    }
    assert_eq!(app.live().await, 2);
    app.assert_consistent().await;
}

#[tokio::test]
async fn a_send_that_fails_leaves_nothing_in_a_callers_transaction() {
    let mut app = order_app().await;
    let store = Arc::clone(&app.store);
    let tx = app.own.transaction().await.unwrap();
    let mut bad = unit();
    bad.weight.slots = 0;
    assert!(store.send_in(&tx, &Scope::All, &[unit(), bad]).await.is_err());
    tx.execute("UPDATE orders SET state = 'sent' WHERE id = 1", &[]).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(app.state_of(1).await, "sent", "the caller's own work stays");
    assert_eq!(app.live().await, 0);
    app.assert_consistent().await;
}

#[tokio::test]
async fn a_worker_hears_of_units_sent_in_a_callers_transaction() {
    let mut app = order_app().await;
    let store = Arc::clone(&app.store);
    let mut seen = store.wait_for_ready(0, Duration::ZERO).await;
    // The first wake-up is that of the store's own listener.
    seen = store.wait_for_ready(seen, Duration::from_millis(500)).await;
    let tx = app.own.transaction().await.unwrap();
    let sent = store.send_in(&tx, &Scope::All, &[unit()]).await.unwrap();
    tx.commit().await.unwrap();
    store.run_post_commit(sent.post_commit).await.unwrap();
    assert_ne!(store.wait_for_ready(seen, Duration::from_secs(20)).await, seen);
}

#[tokio::test]
async fn a_finish_in_a_callers_transaction_shares_its_fate() {
    let mut app = order_app().await;
    app.store.send(&Scope::All, vec![unit()]).await.unwrap();
    let lease = app.take().await;
    let end = [FinishRequest::new(lease, Outcome::Done(None))];
    for (commit, expected) in [(false, UnitState::Leased), (true, UnitState::Done)] {
        let (store, session) = (Arc::clone(&app.store), app.session);
        let tx = app.own.transaction().await.unwrap();
        let done = store.finish_in(&tx, session, &end).await.unwrap();
        assert_eq!(done.value, [FinishResult::Recorded(UnitState::Done)]);
        if commit {
            tx.commit().await.unwrap();
            store.run_post_commit(done.post_commit).await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        assert_eq!(store.unit(&Scope::All, lease.unit).await.unwrap().state, expected);
    }
    app.assert_consistent().await;
}

#[tokio::test]
async fn effects_go_with_a_finish_in_a_callers_transaction() {
    let mut app = order_app().await;
    app.store.send(&Scope::All, vec![unit()]).await.unwrap();
    let lease = app.take().await;
    let effect =
        |sql: &str| Effect { sql: sql.to_owned(), params: Params::Ordered(vec![]), expected_rows: Some(1) };
    let end =
        |sql| FinishRequest { effects: vec![effect(sql)], ..FinishRequest::new(lease, Outcome::Done(None)) };
    let (store, session) = (Arc::clone(&app.store), app.session);
    let tx = app.own.transaction().await.unwrap();
    let bad = [end("UPDATE orders SET state = 'x' WHERE id = 99")];
    let failed = store.finish_in(&tx, session, &bad).await.unwrap();
    assert!(matches!(failed.value[..], [FinishResult::EffectFailed(_)]), "{failed:?}");
    let good = [end("UPDATE orders SET state = 'packed' WHERE id = 1")];
    let done = store.finish_in(&tx, session, &good).await.unwrap();
    assert_eq!(done.value, [FinishResult::Recorded(UnitState::Done)]);
    tx.commit().await.unwrap();
    store.run_post_commit(done.post_commit).await.unwrap();
    assert_eq!(app.state_of(1).await, "packed");
    app.assert_consistent().await;
}

#[tokio::test]
async fn the_last_unit_of_a_batch_may_end_in_a_callers_transaction() {
    let mut app = order_app().await;
    let id = longshore::BatchId::new("b").unwrap();
    app.store.open_batch(&Scope::All, NewBatch::new(id.clone())).await.unwrap();
    let chunk =
        longshore::store::BatchChunk { expected: String::new(), next: "1".into(), units: vec![unit()] };
    app.store.add_to_batch(&Scope::All, &id, chunk).await.unwrap();
    (&*app.store as &dyn longshore::Store).seal_batch(&Scope::All, &id).await.unwrap();
    let lease = app.take().await;
    let (store, session) = (Arc::clone(&app.store), app.session);
    let tx = app.own.transaction().await.unwrap();
    let end = [FinishRequest::new(lease, Outcome::Done(None))];
    let done = store.finish_in(&tx, session, &end).await.unwrap();
    tx.commit().await.unwrap();
    store.run_post_commit(done.post_commit).await.unwrap();
    let batch = store.batch(&Scope::All, &id).await.unwrap();
    assert_eq!(batch.status, longshore::BatchStatus::Complete);
}

#[tokio::test]
async fn room_is_reserved_until_the_callers_transaction_ends() {
    let mut app = order_app().await;
    app.bound(3).await;
    for commit in [false, true] {
        let store = Arc::clone(&app.store);
        let tx = app.own.transaction().await.unwrap();
        let sent = store.send_in(&tx, &Scope::All, &[unit(), unit()]).await.unwrap();
        assert!(sent.value.iter().all(|sent| matches!(sent, SendResult::Created(_))), "{sent:?}");
        let others = store.send(&Scope::All, vec![unit(), unit()]).await.unwrap();
        assert!(!is_full(&others[0]) && is_full(&others[1]), "two places are taken: {others:?}");
        let more = store.send_in(&tx, &Scope::All, &[unit()]).await.unwrap();
        assert!(is_full(&more.value[0]), "its own as well: {more:?}");
        let SendResult::Created(id) = others[0] else { panic!("{others:?}") };
        if commit {
            tx.commit().await.unwrap();
            store.run_post_commit(sent.post_commit).await.unwrap();
            break;
        }
        tx.rollback().await.unwrap();
        let others = store.send(&Scope::All, vec![unit(), unit(), unit()]).await.unwrap();
        assert!(!is_full(&others[1]) && is_full(&others[2]), "free again at once: {others:?}");
        for sent in [&SendResult::Created(id), &others[0], &others[1]] {
            let SendResult::Created(id) = sent else { panic!("{sent:?}") };
            let ids = longshore::store::UnitSelection::Ids(vec![*id]);
            let cancel = longshore::store::UnitAction::Cancel;
            store.apply_unit_action(&Scope::All, ids, cancel).await.unwrap();
        }
    }
    assert_eq!((app.live().await, app.reservations().as_str()), (3, "0"));
    app.assert_consistent().await;
}

#[tokio::test]
async fn a_callers_savepoint_takes_its_units_and_soon_their_room_back() {
    let mut app = order_app().await;
    app.bound(1).await;
    let store = Arc::clone(&app.store);
    let mut tx = app.own.transaction().await.unwrap();
    let inner = tx.savepoint("mine").await.unwrap();
    let sent = store.send_in(&inner, &Scope::All, &[unit()]).await.unwrap();
    assert!(matches!(sent.value[..], [SendResult::Created(_)]), "{sent:?}");
    inner.rollback().await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(app.live().await, 0);
    // It is like a reservation that was committed just now, so it counts until it expires.
    app.database.run("UPDATE longshore_capacity_reservation SET expires_at = 0");
    let sent = store.send(&Scope::All, vec![unit()]).await.unwrap();
    assert!(matches!(sent[..], [SendResult::Created(_)]), "{sent:?}");
}

#[tokio::test]
async fn a_suspended_tenant_is_refused_in_a_callers_transaction() {
    let mut app = order_app().await;
    let suspend = TenantChange { suspended: Some(true), ..TenantChange::default() };
    app.store.put_tenant(&Scope::All, &TenantId::default(), suspend).await.unwrap();
    let store = Arc::clone(&app.store);
    let tx = app.own.transaction().await.unwrap();
    let sent = store.send_in(&tx, &Scope::All, &[unit()]).await.unwrap();
    assert!(matches!(sent.value[..], [SendResult::Rejected(SendRejection::Suspended(_))]), "{sent:?}");
    tx.commit().await.unwrap();
    assert_eq!(app.live().await, 0);
}

/// A dozen senders against a limit, half of them in transactions that stay open meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_transactions_never_let_a_queue_exceed_its_bound() {
    let mut app = order_app().await;
    app.bound(40).await;
    let mut senders: JoinSet<u64> = JoinSet::new();
    for number in 0..12_u32 {
        let mut own = connect(&app.database, &mut app.tasks).await;
        let store = Arc::clone(&app.store);
        senders.spawn(async move {
            let mut taken = 0;
            for round in 0..8_u32 {
                let units = [unit(), unit()];
                if (number + round) % 2 == 0 {
                    let sent = store.send(&Scope::All, units.to_vec()).await.unwrap();
                    taken += sent.iter().filter(|sent| !is_full(sent)).count() as u64;
                    continue;
                }
                let tx = own.transaction().await.unwrap();
                let sent = store.send_in(&tx, &Scope::All, &units).await.unwrap();
                tokio::task::yield_now().await;
                if round % 3 == 0 {
                    tx.rollback().await.unwrap();
                    continue;
                }
                tx.commit().await.unwrap();
                taken += sent.value.iter().filter(|sent| !is_full(sent)).count() as u64;
            }
            taken
        });
    }
    let taken: u64 = senders.join_all().await.into_iter().sum();
    assert_eq!((taken, app.live().await), (40, 40));
    app.assert_consistent().await;
}

#[tokio::test]
async fn nobody_waits_for_a_callers_transaction() {
    let mut app = order_app().await;
    app.bound(10).await;
    let store = Arc::clone(&app.store);
    let tx = app.own.transaction().await.unwrap();
    let sent = store.send_in(&tx, &Scope::All, &[unit(), keyed("k")]).await.unwrap();
    // While the transaction is open, other clients send, claim, finish and read.
    let other = store.send(&Scope::All, vec![unit()]).await.unwrap();
    assert!(matches!(other[..], [SendResult::Created(_)]), "{other:?}");
    let claim = ClaimRequest::new(app.session, vec![kind()], 9);
    let held = store.claim(claim).await.unwrap().units;
    assert_eq!(held.len(), 1, "the others are not there yet");
    let end = vec![FinishRequest::new(held[0].lease, Outcome::Done(None))];
    let done = store.finish(app.session, end).await.unwrap();
    assert_eq!(done, [FinishResult::Recorded(UnitState::Done)]);
    assert_eq!(store.verify().await.unwrap(), []);
    tx.commit().await.unwrap();
    store.run_post_commit(sent.post_commit).await.unwrap();
    assert_eq!(app.live().await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_that_send_one_key_at_once_one_is_taken() {
    let app = order_app().await;
    for round in 0..10 {
        let mut senders: JoinSet<SendResult> = JoinSet::new();
        for _ in 0..8 {
            let store = Arc::clone(&app.store);
            let unit = keyed(&format!("key-{round}"));
            senders.spawn(async move { store.send(&Scope::All, vec![unit]).await.unwrap().remove(0) });
        }
        let answers = senders.join_all().await;
        let made: Vec<_> = answers
            .iter()
            .filter_map(|sent| match sent {
                SendResult::Created(id) => Some(*id),
                _ => None,
            })
            .collect();
        assert_eq!(made.len(), 1, "{answers:?}");
        let rest = answers.iter().filter(|sent| **sent == SendResult::Existing(made[0])).count();
        assert_eq!(rest, 7, "{answers:?}");
    }
    assert_eq!(app.live().await, 10);
    app.assert_consistent().await;
}

/// Keys in two orders, as of two senders with overlapping lists.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn senders_whose_keys_cross_do_not_block_each_other_for_good() {
    let app = order_app().await;
    for round in 0..5 {
        let names: Vec<String> = (0..6).map(|number| format!("{round}-{number}")).collect();
        let mut senders: JoinSet<Vec<SendResult>> = JoinSet::new();
        for turned in [false, true] {
            let store = Arc::clone(&app.store);
            let mut units: Vec<NewUnit> = names.iter().map(|name| keyed(name)).collect();
            if turned {
                units.reverse();
            }
            senders.spawn(async move { store.send(&Scope::All, units).await.unwrap() });
        }
        let answers = senders.join_all().await.concat();
        let made = answers.iter().filter(|sent| matches!(sent, SendResult::Created(_))).count();
        assert_eq!(made, 6, "{answers:?}");
    }
    app.assert_consistent().await;
}

/// The dependency ends while a dependant is being sent: the dependant is never missed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unit_that_ends_while_another_begins_to_wait_for_it_releases_it() {
    let app = order_app().await;
    for _ in 0..30 {
        let first = unit();
        let mut waiting = unit();
        waiting.dependencies.units = vec![first.id];
        app.store.send(&Scope::All, vec![first]).await.unwrap();
        let lease = app.take().await;
        let end = vec![FinishRequest::new(lease, Outcome::Done(None))];
        let id = waiting.id;
        let (sent, done) =
            tokio::join!(app.store.send(&Scope::All, vec![waiting]), app.store.finish(app.session, end));
        assert_eq!(sent.unwrap(), [SendResult::Created(id)]);
        assert_eq!(done.unwrap(), [FinishResult::Recorded(UnitState::Done)]);
        let lease = app.take().await;
        assert_eq!(lease.unit, id);
        let end = vec![FinishRequest::new(lease, Outcome::Done(None))];
        app.store.finish(app.session, end).await.unwrap();
    }
    app.assert_consistent().await;
}

#[tokio::test]
async fn a_cursor_with_a_zero_character_is_refused() {
    let app = order_app().await;
    let id = longshore::BatchId::new("b").unwrap();
    let new = NewBatch { notes: "a\0b".into(), ..NewBatch::new(id.clone()) };
    app.store.open_batch(&Scope::All, new).await.unwrap();
    let chunk = longshore::store::BatchChunk { expected: String::new(), next: "1\0".into(), units: vec![] };
    let error = app.store.add_to_batch(&Scope::All, &id, chunk).await.unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error:?}");
}
