//! Finishes that take long: each delays only its own unit.

use std::sync::Arc;
use std::time::Duration;

use longshore::effect_budget::EFFECT_TIMEOUT;
use longshore::outcome::Params;
use longshore::{
    Context, Effect, Enqueue as _, HandlerReply, HandlerResult, Kind, NewUnit, Policy, Queries as _,
    RetryPolicy, Scope, Unit, UnitId, UnitState, Worker, WorkerBuilder, WorkerReport,
};
use longshore_postgres::{PostgresOptions, PostgresStore};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::test_server::{Database, Server};
use crate::transactions::connect;

const TEST_TIMEOUT: Duration = Duration::from_secs(60);

fn kind() -> Kind {
    Kind::new("work").unwrap()
}

/// A worker with a handler that inserts what `select` returns. The runs of the first `units` end at the same time; later
/// units insert what the first does.
fn worker(store: &Arc<PostgresStore>, units: usize, select: impl Fn(usize) -> String) -> WorkerBuilder {
    let selects: Arc<Vec<String>> = Arc::new((0..units).map(select).collect());
    let barrier = Arc::new(Barrier::new(units));
    let once = RetryPolicy { max_attempts: 1, ..RetryPolicy::default() };
    let handler = move |_: Context, index: usize| {
        let (selects, barrier) = (Arc::clone(&selects), Arc::clone(&barrier));
        async move {
            if index < units {
                barrier.wait().await;
            }
            let sql = format!("INSERT INTO note {}", selects.get(index).unwrap_or(&selects[0]));
            let effect = Effect { sql, params: Params::Ordered(vec![]), expected_rows: Some(1) };
            HandlerResult::Ok(HandlerReply::new(()).with_effects([effect]))
        }
    };
    let slots = u32::try_from(units).unwrap();
    let policy = Policy { retry: once, ..Policy::default() };
    Worker::builder(store.clone()).slots(slots).handle_fn(kind(), policy, handler)
}

/// Sends units with their index as payload.
async fn send(store: &PostgresStore, count: usize) -> Vec<UnitId> {
    let units: Vec<_> = (0..count).map(|index| NewUnit::new(kind(), serde_json::json!(index))).collect();
    let ids = units.iter().map(|unit| unit.id).collect();
    store.send(&Scope::All, units).await.unwrap();
    ids
}

async fn run(worker: WorkerBuilder) -> WorkerReport {
    let worker = worker.until_idle(true).build().unwrap();
    timeout(TEST_TIMEOUT, worker.run()).await.unwrap().unwrap()
}

async fn units(store: &PostgresStore, ids: &[UnitId]) -> Vec<Unit> {
    let mut found = Vec::new();
    for id in ids {
        found.push(store.unit(&Scope::All, *id).await.unwrap());
    }
    found
}

/// A database with a table for effects, and a store with short time limits.
async fn open(effect_timeout: Duration) -> (Arc<Database>, Arc<PostgresStore>) {
    let database = Server::start().await.database().await;
    database.run("CREATE TABLE note (text text)");
    let options =
        PostgresOptions { timeout: Duration::from_secs(2), effect_timeout, ..PostgresOptions::default() };
    let store = PostgresStore::open(&database.url, options).await.unwrap();
    (database, Arc::new(store))
}

#[tokio::test]
async fn effects_that_exceed_their_time_limit_fail_and_the_others_are_recorded_first() {
    let (database, store) = open(Duration::from_secs(1)).await;
    let ids = send(&store, 20).await;
    let is_slow = |index: usize| index.is_multiple_of(7);
    let select = |index| if is_slow(index) { "SELECT 'slow' FROM pg_sleep(60)" } else { "SELECT 'quick'" };
    let report = run(worker(&store, ids.len(), |index| select(index).to_owned())).await;
    assert_eq!((report.done, report.failed, report.lost), (17, 3, 0));
    let units = units(&store, &ids).await;
    let (slow, quick): (Vec<_>, Vec<_>) = units.iter().enumerate().partition(|(index, _)| is_slow(*index));
    for (_, unit) in &slow {
        let failure = unit.failure.as_ref().unwrap();
        assert_eq!(failure.code, EFFECT_TIMEOUT);
        assert!(failure.message.contains("pg_sleep(60)"), "{}", failure.message);
    }
    let last_quick = quick.iter().map(|(_, unit)| unit.since).max().unwrap();
    assert!(slow.iter().all(|(_, unit)| unit.since >= last_quick), "the quick ones do not wait");
    assert_eq!(database.run("SELECT text, count(*) FROM note GROUP BY 1").trim(), "quick\t17");
}

/// What effects defer to the commit runs in their time limit, and a failure is blamed on their own unit.
#[tokio::test]
async fn deferred_triggers_and_constraints_cost_their_own_unit_only() {
    let (database, store) = open(Duration::from_secs(1)).await;
    database.run(
        "CREATE FUNCTION check_note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           IF NEW.text = 'slow' THEN PERFORM pg_sleep(60); END IF;
           IF NEW.text = 'bad' THEN RAISE 'not this one'; END IF;
           RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER check_note AFTER INSERT ON note
         DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION check_note()",
    );
    let ids = send(&store, 9).await;
    let text = |index| match index {
        3 => "slow",
        5 => "bad",
        _ => "good",
    };
    let began = Instant::now();
    let report = run(worker(&store, ids.len(), |index| format!("SELECT '{}'", text(index)))).await;
    assert_eq!((report.done, report.failed, report.lost), (7, 2, 0));
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let units = units(&store, &ids).await;
    assert_eq!(units[3].failure.as_ref().unwrap().code, EFFECT_TIMEOUT);
    assert!(units[5].failure.as_ref().unwrap().message.contains("not this one"), "{:?}", units[5].failure);
    assert_eq!(database.run("SELECT text, count(*) FROM note GROUP BY 1").trim(), "good\t7");
}

/// PostgreSQL closes the connection at a message over 1 GB; here a trigger fails with an error that tells nothing.
#[tokio::test]
async fn an_outcome_that_makes_calls_fail_delays_only_its_own_record() {
    let (database, store) = open(Duration::from_secs(1)).await;
    database.run(
        "CREATE SEQUENCE failures;
         CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           IF NEW.result = convert_to('\"poison\"', 'UTF8') AND nextval('failures') < 22 THEN
             RAISE 'damaged' USING ERRCODE = 'XX001'; END IF;
           RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON longshore_unit
         FOR EACH ROW EXECUTE FUNCTION refuse()",
    );
    let ids = send(&store, 8).await;
    let barrier = Arc::new(Barrier::new(ids.len()));
    let worker = Worker::builder(store.clone())
        .slots(8)
        .handle_fn(kind(), Policy::default(), move |_: Context, index: usize| {
            let barrier = Arc::clone(&barrier);
            async move {
                barrier.wait().await;
                Ok::<_, String>(if index == 6 { "poison" } else { "good" })
            }
        })
        .until_idle(true)
        .build()
        .unwrap();
    let running = timeout(TEST_TIMEOUT, worker.run());
    let report = running.await.unwrap().unwrap();
    assert_eq!((report.done, report.lost), (8, 0));
    let units = units(&store, &ids).await;
    let last_good =
        units.iter().enumerate().filter(|(index, _)| *index != 6).map(|(_, unit)| unit.since).max();
    assert!(Some(units[6].since) > last_good, "the others do not wait for it");
}

#[tokio::test]
async fn an_effect_that_waits_for_a_lock_uses_no_attempt() {
    let (database, store) = open(Duration::from_millis(500)).await;
    database.run("CREATE TABLE hot (n integer); INSERT INTO hot VALUES (0)");
    let ids = send(&store, 5).await;
    let mut tasks = JoinSet::new();
    let mut own = connect(&database, &mut tasks).await;
    let held = own.transaction().await.unwrap();
    held.batch_execute("SELECT FROM hot FOR UPDATE").await.unwrap();
    let select = |index| if index == 2 { "SELECT 'x' FROM lock_hot()" } else { "SELECT 'x'" };
    database.run(
        "CREATE FUNCTION lock_hot() RETURNS integer LANGUAGE sql AS 'UPDATE hot SET n = n + 1 RETURNING n'",
    );
    let running = run(worker(&store, ids.len(), |index| select(index).to_owned()));
    let release = async {
        let (done, locked) = async {
            let deadline = Instant::now() + TEST_TIMEOUT;
            loop {
                let units = units(&store, &ids).await;
                let done = units.iter().filter(|unit| unit.state == UnitState::Done).count();
                if done == 4 || Instant::now() > deadline {
                    break (done, units[2].state);
                }
            }
        }
        .await;
        assert_eq!((done, locked), (4, UnitState::Leased), "the others do not wait");
        // More of them than attempts to get the lock.
        let began = Instant::now();
        for _ in 0..20 {
            let later = NewUnit::new(kind(), serde_json::json!(ids.len()));
            let id = later.id;
            store.send(&Scope::All, vec![later]).await.unwrap();
            while store.unit(&Scope::All, id).await.unwrap().state != UnitState::Done {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "later ones wait for the lock: {:?}",
            began.elapsed()
        );
        // Longer than one attempt to get the lock.
        tokio::time::sleep(Duration::from_secs(1)).await;
        held.commit().await.unwrap();
    };
    let (report, ()) = tokio::join!(running, release);
    assert_eq!((report.done, report.failed), (25, 0));
    assert_eq!(database.run("SELECT n FROM hot").trim(), "1");
}

#[tokio::test]
async fn an_effect_that_the_server_cannot_run_now_uses_no_attempt() {
    let (database, store) = open(Duration::from_secs(1)).await;
    // The first calls fail, as on a server without memory; sequences are not rolled back.
    database.run(
        "CREATE SEQUENCE calls;
         CREATE FUNCTION trouble(code text) RETURNS integer LANGUAGE plpgsql AS $$ BEGIN
           IF nextval('calls') <= 8 THEN RAISE 'no' USING ERRCODE = code; END IF; RETURN 1; END $$",
    );
    let codes = ["53200", "53400", "58030", "XX000", "08001", "HV00N", "57014"];
    let ids = send(&store, codes.len()).await;
    let select = |index: usize| format!("SELECT 'x' FROM trouble('{}')", codes[index]);
    let report = run(worker(&store, ids.len(), select)).await;
    assert_eq!((report.done, report.failed), (7, 0));
}

#[tokio::test]
async fn effects_that_take_longer_together_than_one_call_may_are_recorded_in_several() {
    let (database, store) = open(Duration::from_secs(2)).await;
    let ids = send(&store, 40).await;
    let report = run(worker(&store, ids.len(), |_| "SELECT 'x' FROM pg_sleep(0.1)".to_owned())).await;
    assert_eq!((report.done, report.lost), (40, 0));
    assert_eq!(database.run("SELECT count(*) FROM note").trim(), "40");
}

#[tokio::test]
async fn a_unit_that_another_transaction_has_locked_delays_only_its_own_record() {
    let (database, store) = open(Duration::from_secs(2)).await;
    // Shorter than ten seconds.
    database.run(
        "DO $do$ BEGIN EXECUTE replace(pg_get_functiondef('longshore_finish_fast'::regproc), '10s', '300ms');
         END $do$",
    );
    let ids = send(&store, 8).await;
    let mut tasks = JoinSet::new();
    let mut own = connect(&database, &mut tasks).await;
    let held = own.transaction().await.unwrap();
    let lock = format!("SELECT 1 FROM longshore_unit WHERE id = '{}' FOR UPDATE", ids[3]);
    held.batch_execute(&lock).await.unwrap();

    let barrier = Arc::new(Barrier::new(ids.len()));
    let worker = Worker::builder(store.clone())
        .slots(8)
        .handle_fn(kind(), Policy::default(), move |_: Context, index: usize| {
            let barrier = Arc::clone(&barrier);
            async move {
                if index < 8 {
                    barrier.wait().await;
                }
                Ok::<usize, String>(index)
            }
        })
        .build()
        .unwrap();
    let control = worker.control();
    let operator = async {
        let states = async |ids: &[UnitId]| {
            let units = units(&store, ids).await;
            units.iter().filter(|unit| unit.state == UnitState::Done).count()
        };
        let deadline = Instant::now() + TEST_TIMEOUT;
        let later = NewUnit::new(kind(), serde_json::json!(8));
        let all = [ids.clone(), vec![later.id]].concat();
        store.send(&Scope::All, vec![later]).await.unwrap();
        while states(&all).await < 8 {
            assert!(Instant::now() < deadline, "the others wait for the locked unit");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(states(&ids[3..4]).await, 0);
        held.rollback().await.unwrap();
        while states(&all).await < 9 {
            assert!(Instant::now() < deadline, "the unit is not recorded");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        control.drain();
    };
    let (report, ()) = tokio::join!(worker.run(), operator);
    let report = report.unwrap();
    assert_eq!((report.done, report.lost), (9, 0));
    assert!(units(&store, &ids).await.iter().all(|unit| unit.attempt == 1));
}
