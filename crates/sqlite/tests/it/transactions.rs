//! `effects_exactly_once`: SQL that commits with a finish, and operations inside the caller's own
//! transaction.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use longshore::outcome::Params;
use longshore::store::{ClaimRequest, FinishRequest, FinishResult, Queues, SendResult};
use longshore::worker_session::{Lease, NewSession};
use longshore::{
    Effect, Enqueue as _, Kind, NewUnit, Outcome, Queries as _, Scope, SessionId, SqlValue, UnitState,
    WorkerApi as _,
};
use longshore_sqlite::rusqlite::{Connection, TransactionBehavior};
use longshore_sqlite::{SqliteOptions, SqliteStore};

struct Shop {
    store: Arc<SqliteStore>,
    session: SessionId,
    own: Connection,
    _folder: tempfile::TempDir,
}

fn kind() -> Kind {
    Kind::new("order").unwrap()
}

fn unit() -> NewUnit {
    NewUnit::new(kind(), serde_json::json!({"order": 1}))
}

/// A store in the application's own database.
async fn shop() -> Shop {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let app = Connection::open(&path).unwrap();
    app.execute_batch(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL, note TEXT, price REAL,
         raw BLOB); INSERT INTO orders (id, state) VALUES (1, 'new'), (2, 'new');
         CREATE TABLE unit (id INTEGER); CREATE TABLE batch (id INTEGER);",
    )
    .unwrap();
    drop(app);
    let store = Arc::new(SqliteStore::open(&path, SqliteOptions::default()).unwrap());
    let session = SessionId::new();
    store
        .open_session(NewSession {
            kinds: BTreeMap::from([(kind(), longshore::Policy::default())]),
            slots: 9,
            ..NewSession::new(session, "")
        })
        .await
        .unwrap();
    let own = store.connect().unwrap();
    Shop { store, session, own, _folder: folder }
}

impl Shop {
    async fn take(&self) -> Lease {
        let claim = ClaimRequest { free_slots: 1, ..ClaimRequest::new(self.session, vec![kind()], 9) };
        self.store.claim(claim).await.unwrap().units[0].lease
    }

    async fn finish(&self, lease: Lease, effects: Vec<Effect>) -> FinishResult {
        let end = FinishRequest { effects, ..FinishRequest::new(lease, Outcome::Done(None)) };
        self.store.finish(self.session, vec![end]).await.unwrap().remove(0)
    }

    fn state_of(&self, order: i64) -> String {
        let sql = "SELECT state FROM orders WHERE id = ?1";
        self.own.query_row(sql, [order], |row| row.get(0)).unwrap()
    }
}

fn set_state(order: i64, state: &str, expected_rows: Option<u64>) -> Effect {
    Effect {
        sql: "UPDATE orders SET state = :state WHERE id = :id".to_owned(),
        params: Params::Named(vec![
            ("state".to_owned(), SqlValue::Text(state.to_owned())),
            ("id".to_owned(), SqlValue::Int(order)),
            ("not_used".to_owned(), SqlValue::Null),
        ]),
        expected_rows,
    }
}

#[tokio::test]
async fn effects_exactly_once() {
    let shop = shop().await;
    shop.store.send(&Scope::All, vec![unit()]).await.unwrap();
    let lease = shop.take().await;
    let effects = vec![
        set_state(1, "checked", Some(1)),
        Effect {
            sql: "UPDATE orders SET note = ?1, price = ?2, raw = ?3 WHERE id = 1".to_owned(),
            params: Params::Ordered(vec![
                SqlValue::Text("it's; DROP TABLE orders --".to_owned()),
                SqlValue::Real(9.5),
                SqlValue::Blob(vec![0, 255]),
            ]),
            expected_rows: None,
        },
    ];
    assert_eq!(shop.finish(lease, effects.clone()).await, FinishResult::Recorded(UnitState::Done));
    assert_eq!(shop.state_of(1), "checked");
    // The same finish again, as after a lost answer: recognised, and no effect runs twice.
    shop.own.execute("UPDATE orders SET state = 'shipped' WHERE id = 1", []).unwrap();
    assert_eq!(shop.finish(lease, effects).await, FinishResult::Recorded(UnitState::Done));
    assert_eq!(shop.state_of(1), "shipped");
}

#[tokio::test]
async fn an_effect_that_changes_another_number_of_rows_leaves_nothing() {
    let shop = shop().await;
    shop.store.send(&Scope::All, vec![unit()]).await.unwrap();
    let lease = shop.take().await;
    let effects = vec![set_state(1, "checked", Some(1)), set_state(99, "checked", Some(1))];
    match shop.finish(lease, effects).await {
        FinishResult::EffectFailed(failure) => {
            assert_eq!(failure.code, "effect-rows");
            assert!(failure.message.contains("0 rows instead of 1"), "{failure}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(shop.state_of(1), "new", "the first effect is undone with the second");
    let unit = shop.store.unit(&Scope::All, lease.unit).await.unwrap();
    assert_eq!(unit.state, UnitState::Leased, "the handler's word is still to come");
}

#[tokio::test]
async fn bad_sql_in_one_effect_does_not_touch_its_neighbours() {
    let shop = shop().await;
    shop.store.send(&Scope::All, vec![unit(), unit()]).await.unwrap();
    let (bad, good) = (shop.take().await, shop.take().await);
    let end = |lease, effect| FinishRequest {
        effects: vec![effect],
        ..FinishRequest::new(lease, Outcome::Done(None))
    };
    let broken = Effect { sql: "UPDATE nowhere SET x = 1".to_owned(), ..set_state(1, "x", None) };
    let ends = vec![end(bad, broken), end(good, set_state(2, "checked", Some(1)))];
    let answers = shop.store.finish(shop.session, ends).await.unwrap();
    assert!(matches!(&answers[0], FinishResult::EffectFailed(failure) if failure.code == "effect"));
    assert_eq!(answers[1], FinishResult::Recorded(UnitState::Done));
    assert_eq!(shop.state_of(2), "checked");
}

#[tokio::test]
async fn units_sent_in_a_callers_transaction_share_its_fate() {
    let mut shop = shop().await;
    for commit in [false, true] {
        let store = Arc::clone(&shop.store);
        let tx = shop.own.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        tx.execute("UPDATE orders SET state = 'sent' WHERE id = 1", []).unwrap();
        let sent = store.send_in(&tx, &Scope::All, &[unit()]).unwrap();
        let SendResult::Created(id) = sent[0] else { panic!("{sent:?}") };
        if commit {
            tx.commit().unwrap();
        } else {
            tx.rollback().unwrap();
        }
        assert_eq!(store.unit(&Scope::All, id).await.is_ok(), commit);
        assert_eq!(shop.state_of(1) == "sent", commit);
    }
    assert_eq!(shop.store.verify().await.unwrap(), []);
}

#[tokio::test]
async fn a_send_that_fails_leaves_nothing_in_a_callers_transaction() {
    let mut shop = shop().await;
    let store = Arc::clone(&shop.store);
    let tx = shop.own.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let mut bad = unit();
    bad.weight.slots = 0;
    assert!(store.send_in(&tx, &Scope::All, &[unit(), bad]).is_err());
    tx.execute("UPDATE orders SET state = 'sent' WHERE id = 1", []).unwrap();
    tx.commit().unwrap();
    assert_eq!(shop.state_of(1), "sent", "the caller's own work stays");
    let totals = store.totals(&Scope::All, &Queues::All).await.unwrap();
    assert_eq!(totals.counts.total(), 0);
    assert_eq!(store.verify().await.unwrap(), []);
}

#[tokio::test]
async fn an_effect_that_rolls_everything_back_harms_nobody_else() {
    let shop = shop().await;
    shop.own
        .execute_batch(
            "CREATE TRIGGER no_refunds BEFORE UPDATE ON orders WHEN new.state = 'refund'
             BEGIN SELECT RAISE(ROLLBACK, 'no refunds'); END",
        )
        .unwrap();
    shop.store.send(&Scope::All, vec![unit(), unit()]).await.unwrap();
    let (good, bad) = (shop.take().await, shop.take().await);
    let end = |lease, effect| FinishRequest {
        effects: vec![effect],
        ..FinishRequest::new(lease, Outcome::Done(None))
    };
    let both = vec![end(good, set_state(2, "checked", None)), end(bad, set_state(1, "refund", None))];
    let error = shop.store.finish(shop.session, both).await.unwrap_err();
    assert!(error.to_string().contains("rolled"), "{error}");
    assert_eq!(shop.state_of(2), "new", "all or nothing");
    let alone = shop.finish(good, vec![set_state(2, "checked", None)]).await;
    assert_eq!(alone, FinishResult::Recorded(UnitState::Done));
    assert_eq!(shop.finish(bad, vec![]).await, FinishResult::Recorded(UnitState::Done));
    assert_eq!(shop.store.verify().await.unwrap(), []);
}

#[tokio::test]
async fn verbs_that_gather_behind_a_broken_deferred_key_go_through() {
    let shop = shop().await;
    shop.own
        .execute_batch(
            "CREATE TABLE card (owner INTEGER REFERENCES orders (id)
             DEFERRABLE INITIALLY DEFERRED)",
        )
        .unwrap();
    shop.store.send(&Scope::All, vec![unit()]).await.unwrap();
    let lease = shop.take().await;
    let card = Effect { sql: "INSERT INTO card VALUES (:id)".into(), ..set_state(99, "", None) };
    let end = FinishRequest { effects: vec![card], ..FinishRequest::new(lease, Outcome::Done(None)) };
    // The lock is held, so that all operations queue behind one commit, the bad one last.
    shop.own.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut sends: Vec<_> = (0..20).map(|_| shop.store.send(&Scope::All, vec![unit()])).collect();
    let mut bad = shop.store.finish(shop.session, vec![end]);
    std::future::poll_fn(|context| {
        assert!(sends.iter_mut().all(|send| send.as_mut().poll(context).is_pending()));
        assert!(bad.as_mut().poll(context).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
    shop.own.execute_batch("COMMIT").unwrap();
    let error = bad.await.unwrap_err();
    assert!(matches!(error, longshore::Error::Invalid(_)), "{error:?}");
    for send in sends {
        assert!(matches!(send.await.unwrap()[..], [SendResult::Created(_)]), "once and for all");
    }
    let counts = shop.store.totals(&Scope::All, &Queues::All).await.unwrap().counts;
    assert_eq!((counts.ready, counts.leased), (20, 1));
    assert_eq!(shop.finish(lease, vec![]).await, FinishResult::Recorded(UnitState::Done));
    assert_eq!(shop.store.verify().await.unwrap(), []);
}

#[tokio::test]
async fn a_worker_hears_of_units_sent_in_a_callers_transaction() {
    let mut shop = shop().await;
    let store = Arc::clone(&shop.store);
    let seen = store.wait_for_ready(0, Duration::ZERO).await;
    let tx = shop.own.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    store.send_in(&tx, &Scope::All, &[unit()]).unwrap();
    tx.commit().unwrap();
    let woken = store.wait_for_ready(seen, Duration::from_secs(20)).await;
    assert_ne!(woken, seen);
}

#[tokio::test]
async fn a_finish_in_a_callers_transaction_shares_its_fate() {
    let mut shop = shop().await;
    shop.store.send(&Scope::All, vec![unit()]).await.unwrap();
    let lease = shop.take().await;
    let end = [FinishRequest::new(lease, Outcome::Done(None))];
    for (commit, expected) in [(false, UnitState::Leased), (true, UnitState::Done)] {
        let (store, session) = (Arc::clone(&shop.store), shop.session);
        let tx = shop.own.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        let answers = store.finish_in(&tx, session, &end).unwrap();
        assert_eq!(answers, [FinishResult::Recorded(UnitState::Done)]);
        if commit {
            tx.commit().unwrap();
        } else {
            tx.rollback().unwrap();
        }
        assert_eq!(store.unit(&Scope::All, lease.unit).await.unwrap().state, expected);
    }
    assert_eq!(shop.store.verify().await.unwrap(), []);
}
