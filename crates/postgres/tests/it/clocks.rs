//! Clocks of other machines are wrong at times: only the server's clock decides.

use std::sync::Arc;
use std::time::Duration;

use longshore::store::{ClaimRequest, FinishRequest, Retention};
use longshore::worker_session::NewSession;
use longshore::{
    Client, Clock, Enqueue as _, Maintenance as _, NewUnit, Outcome, Policy, Queries as _, Scope, SessionId,
    SystemClock, Timestamp, UnitState, WorkerApi as _,
};
use longshore_postgres::{PostgresOptions, PostgresStore};
use longshore_testkit::ManualClock;

use crate::test_server::{Database, Server};
use crate::transactions::{kind, unit};

const ALL: Scope = Scope::All;
const HOUR: Duration = Duration::from_secs(3600);
const TWO_DAYS: Duration = Duration::from_secs(2 * 24 * 3600);

/// A store on a machine with a clock that shows `time`. The limit of the skew is out of the way.
async fn store_at(database: &Database, time: Timestamp) -> (PostgresStore, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(time));
    let options =
        PostgresOptions { clock: clock.clone(), max_clock_skew: Duration::MAX, ..PostgresOptions::default() };
    (PostgresStore::open(&database.url, options).await.unwrap(), clock)
}

async fn session(store: &PostgresStore) -> SessionId {
    let session = SessionId::new();
    let kinds = [(kind(), Policy::default())].into();
    store.open_session(NewSession { kinds, slots: 9, ..NewSession::new(session, "") }).await.unwrap();
    session
}

/// A unit that is done, one that is due in an hour, and one that expires in an hour.
async fn send_three(store: &PostgresStore) -> [NewUnit; 3] {
    let now = SystemClock.now();
    let session = session(store).await;
    let done = unit();
    store.send(&ALL, vec![done.clone()]).await.unwrap();
    let claimed = store.claim(ClaimRequest::new(session, vec![kind()], 9)).await.unwrap();
    let finish = FinishRequest::new(claimed.units[0].lease, Outcome::Done(None));
    store.finish(session, vec![finish]).await.unwrap();
    let due = NewUnit { not_before: Some(now + HOUR), ..unit() };
    let expiring = NewUnit { deadline: Some(now + HOUR), ..unit() };
    store.send(&ALL, vec![due.clone(), expiring.clone()]).await.unwrap();
    [done, due, expiring]
}

#[tokio::test]
async fn a_client_counts_from_the_servers_time() {
    let database = Server::start().await.database().await;
    let (store, _) = store_at(&database, SystemClock.now() - HOUR).await;
    let now = Client::new(Arc::new(store)).store_time().await.unwrap();
    assert!(SystemClock.now().since(now) < HOUR / 60 && now.since(SystemClock.now()) < HOUR / 60, "{now}");
}

/// Maintains the store as a leader does, and checks that nothing was pruned, promoted or expired early.
async fn assert_nothing_happens_early(store: &PostgresStore, units: &[NewUnit; 3]) {
    let day = 24 * HOUR;
    let retention =
        Retention { done: day, failed: day, batches: day, audit_log: day, ..Retention::default() };
    assert_eq!(store.prune(retention, 100).await.unwrap().units, 0, "pruned a unit that ended just now");
    let promoted = store.promote(100).await.unwrap();
    assert_eq!((promoted.due, promoted.expired), (0, 0));
    let left = promoted.next_due.unwrap();
    assert!(left <= HOUR && left > HOUR / 2, "{left:?}");
    for (unit, state) in units.iter().zip([UnitState::Done, UnitState::Scheduled, UnitState::Ready]) {
        assert_eq!(store.unit(&ALL, unit.id).await.unwrap().state, state);
    }
}

/// What the store writes has the server's time.
async fn assert_writes_the_servers_time(store: &PostgresStore, expiring: &NewUnit) {
    let (session, sent) = (session(store).await, unit());
    store.send(&ALL, vec![sent.clone()]).await.unwrap();
    let claimed = store.claim(ClaimRequest::new(session, vec![kind()], 9)).await.unwrap();
    let claimed: Vec<_> = claimed.units.iter().map(|held| &held.unit).collect();
    assert_eq!(claimed.iter().map(|unit| unit.id).collect::<Vec<_>>(), [expiring.id, sent.id], "by rank");
    for unit in claimed {
        for time in [unit.created_at, unit.since, unit.started_at.unwrap()] {
            let apart = time.since(SystemClock.now()).max(SystemClock.now().since(time));
            assert!(apart < HOUR, "{time}");
        }
    }
}

#[tokio::test]
async fn a_machine_two_days_ahead_prunes_and_expires_nothing_early() {
    let server = Server::start().await;
    let database = server.database().await;
    let (store, _) = store_at(&database, SystemClock.now()).await;
    let units = send_three(&store).await;
    let (ahead, _) = store_at(&database, SystemClock.now() + TWO_DAYS).await;
    assert_nothing_happens_early(&ahead, &units).await;
    assert_writes_the_servers_time(&ahead, &units[2]).await;
}

#[tokio::test]
async fn a_clock_that_jumps_while_the_store_is_open_changes_nothing() {
    let server = Server::start().await;
    let database = server.database().await;
    let (store, clock) = store_at(&database, SystemClock.now()).await;
    let units = send_three(&store).await;
    clock.advance(TWO_DAYS);
    assert_nothing_happens_early(&store, &units).await;
    clock.set(SystemClock.now() - TWO_DAYS);
    assert_nothing_happens_early(&store, &units).await;
    assert_writes_the_servers_time(&store, &units[2]).await;
}

#[tokio::test]
async fn a_machine_whose_clock_is_far_off_is_refused() {
    let server = Server::start().await;
    let database = server.database().await;
    let open = async |time| {
        let options =
            PostgresOptions { clock: Arc::new(ManualClock::at(time)), ..PostgresOptions::default() };
        PostgresStore::open(&database.url, options).await.map(drop).map_err(|error| error.to_string())
    };
    let error = open(SystemClock.now() + TWO_DAYS).await.unwrap_err();
    assert!(error.contains("ahead of PostgreSQL's; the most is 5 min"), "{error}");
    let error = open(SystemClock.now() - TWO_DAYS).await.unwrap_err();
    assert!(error.contains("behind PostgreSQL's"), "{error}");
    open(SystemClock.now() + Duration::from_secs(60)).await.unwrap();
}
