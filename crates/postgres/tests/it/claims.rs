//! Concurrent claims in more than one process. Each store here has its own connections and its own
//! stride state, and shares only the database with the other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longshore_core::store::{
    ClaimRequest, ClaimResult, FinishRequest, LaneChange, LeasedUnit, Queues, TenantChange,
};
use longshore_core::worker_session::NewSession;
use longshore_core::{
    Clock as _, Enqueue as _, Kind, NewUnit, Outcome, Payload, Policy, Queries as _, QueueName, Scope,
    SessionId, Store, TenantId, UnitId, UnitState, WorkerApi as _,
};
use longshore_postgres::tokio_postgres::{NoTls, connect};
use longshore_postgres::{PostgresOptions, PostgresStore};
use longshore_testkit::fairness::{caps_are_never_exceeded, largest_queue, shares_follow_weights};
use tokio::task::JoinSet;

use crate::test_server::{Database, Server};

const ALL: Scope = Scope::All;

fn kind() -> Kind {
    Kind::new("work").unwrap()
}

fn tenant(name: &str) -> TenantId {
    TenantId::new(name).unwrap()
}

fn units(who: &str, count: usize) -> Vec<NewUnit> {
    let one = || NewUnit::new(kind(), Payload::from(b"{}".as_slice()));
    (0..count).map(|_| NewUnit { tenant: tenant(who), ..one() }).collect()
}

/// Two stores on one database, as in two processes.
async fn two_stores() -> (Arc<Database>, [Arc<dyn Store>; 2]) {
    let database = Server::start().await.database().await;
    let stores = [open(&database).await, open(&database).await];
    (database, stores)
}

async fn open(database: &Database) -> Arc<dyn Store> {
    Arc::new(PostgresStore::open(&database.url, PostgresOptions::default()).await.unwrap())
}

async fn session(store: &dyn Store) -> SessionId {
    let id = SessionId::new();
    let kinds = BTreeMap::from([(kind(), Policy::default())]);
    let new = NewSession { kinds, slots: 64, ..NewSession::new(id, "crowd") };
    store.open_session(new).await.unwrap();
    id
}

fn claim_request(session: SessionId, free: u32) -> ClaimRequest {
    ClaimRequest { free_slots: free, holds_nothing: false, ..ClaimRequest::new(session, vec![kind()], 64) }
}

fn ids(claimed: &[LeasedUnit]) -> Vec<UnitId> {
    claimed.iter().map(|held| held.unit.id).collect()
}

async fn end(store: &dyn Store, session: SessionId, held: &[LeasedUnit]) {
    let done = |held: &LeasedUnit| FinishRequest::new(held.lease, Outcome::Done(None));
    store.finish(session, held.iter().map(done).collect()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_take_every_unit_and_none_twice() {
    let (_database, stores) = two_stores().await;
    let sent: Vec<UnitId> = {
        let units: Vec<NewUnit> = ["a", "b", "c"].iter().flat_map(|who| units(who, 400)).collect();
        let ids = units.iter().map(|unit| unit.id).collect();
        stores[0].send(&ALL, units).await.unwrap();
        ids
    };
    let mut claimers = JoinSet::new();
    for nth in 0..4_u32 {
        let store = Arc::clone(&stores[nth as usize % 2]);
        claimers.spawn(async move {
            let session = session(&*store).await;
            let mut taken = Vec::new();
            // The first empty claim is the end: other claimers may have emptied the queue, but no
            // unit is added.
            loop {
                let asked = ClaimRequest { prefetch: nth * 5, ..claim_request(session, 7 + nth * 10) };
                let held = store.claim(asked).await.unwrap().units;
                if held.is_empty() {
                    return taken;
                }
                taken.extend(ids(&held));
                let leases: Vec<_> = held.iter().map(|held| held.lease).collect();
                assert!(store.start(session, &leases).await.unwrap().iter().all(Option::is_some));
                end(&*store, session, &held).await;
            }
        });
    }
    let taken = claimers.join_all().await.concat();
    assert_eq!(taken.len(), sent.len());
    assert_eq!(taken.into_iter().collect::<BTreeSet<_>>(), sent.into_iter().collect());
    let all = stores[1].totals(&ALL, &Queues::All).await.unwrap().counts;
    assert_eq!((all.live(), all.done), (0, 1_200));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_are_fair_each_are_fair_together() {
    let (_database, stores) = two_stores().await;
    let weights = [("light", 1), ("middle", 2), ("heavy", 5)];
    for (who, weight) in weights {
        let change = TenantChange { weight: Some(weight), ..TenantChange::default() };
        stores[0].put_tenant(&ALL, &tenant(who), change).await.unwrap();
        stores[0].send(&ALL, units(who, 1_000)).await.unwrap();
    }
    let mut claimers = JoinSet::new();
    for nth in 0..4 {
        let store = Arc::clone(&stores[nth % 2]);
        claimers.spawn(async move {
            let session = session(&*store).await;
            let mut given: BTreeMap<TenantId, usize> = BTreeMap::new();
            for asked in [1, 2, 5, 16].into_iter().cycle().take(40) {
                let held = store.claim(claim_request(session, asked)).await.unwrap().units;
                assert_eq!(held.len(), asked as usize, "there is enough for all");
                for one in held {
                    *given.entry(one.unit.tenant).or_default() += 1;
                }
            }
            given
        });
    }
    let given = claimers.join_all().await;
    for (who, weight) in weights {
        let sum: usize = given.iter().filter_map(|part| part.get(&tenant(who))).sum();
        let due = 960 * weight as usize / 8;
        assert!(sum.abs_diff(due) * 20 <= due, "{who}: {sum} of {due}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_claimers_in_two_processes_never_exceed_a_cap() {
    const CAP: usize = 5;
    let (_database, stores) = two_stores().await;
    let cap = Some(Some(u32::try_from(CAP).unwrap()));
    let lane = LaneChange { cap, ..LaneChange::default() };
    let queue = QueueName::new("default").unwrap();
    stores[0].change_lane(&ALL, &queue, &tenant("capped"), lane).await.unwrap();
    stores[0].send(&ALL, units("capped", 200)).await.unwrap();
    let (held_units, max_held) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut claimers = JoinSet::new();
    for nth in 0..8 {
        let (store, held_units) = (Arc::clone(&stores[nth % 2]), Arc::clone(&held_units));
        let max_held = Arc::clone(&max_held);
        claimers.spawn(async move {
            let session = session(&*store).await;
            while store.totals(&ALL, &Queues::All).await.unwrap().counts.live() > 0 {
                let held = store.claim(claim_request(session, 3)).await.unwrap().units;
                let now = held_units.fetch_add(held.len(), Ordering::SeqCst) + held.len();
                max_held.fetch_max(now, Ordering::SeqCst);
                tokio::task::yield_now().await;
                // Subtract before the finish is committed, since other claimers may claim right
                // after it.
                held_units.fetch_sub(held.len(), Ordering::SeqCst);
                end(&*store, session, &held).await;
            }
        });
    }
    claimers.join_all().await;
    assert!(max_held.load(Ordering::SeqCst) <= CAP, "{max_held:?} at once");
    let all = stores[0].totals(&ALL, &Queues::All).await.unwrap().counts;
    assert_eq!((all.live(), all.done), (0, 200));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_passes_by_rows_that_others_hold() {
    let (database, [store, _]) = two_stores().await;
    for who in ["a", "b"] {
        store.send(&ALL, units(who, 20)).await.unwrap();
    }
    let (mut client, connection) = connect(&database.url, NoTls).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(connection);
    let open = client.transaction().await.unwrap();
    let held = "SELECT id FROM longshore_ready ORDER BY sort_key, id LIMIT 25 FOR UPDATE";
    assert_eq!(open.query(held, &[]).await.unwrap().len(), 25);
    let session = session(&*store).await;
    // Locked are 20 units of one tenant and 5 of the other: the rest is in one lane.
    assert_eq!(store.claim(claim_request(session, 30)).await.unwrap().units.len(), 15);
    open.rollback().await.unwrap();
    assert_eq!(store.claim(claim_request(session, 30)).await.unwrap().units.len(), 25);
}

/// Another transaction locks the rows, then rolls back without a notification.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_passed_by_rows_is_tried_again_soon() {
    let database = Server::start().await.database().await;
    let store = PostgresStore::open(&database.url, PostgresOptions::default()).await.unwrap();
    store.send(&ALL, units("a", 8)).await.unwrap();
    let session = session(&store).await;
    while !store.is_listening() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (mut client, connection) = connect(&database.url, NoTls).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(connection);
    // First all of them are locked, then some.
    for (held, left) in [(8, 0), (3, 5)] {
        let open = client.transaction().await.unwrap();
        let lock = format!("SELECT id FROM longshore_ready ORDER BY sort_key, id LIMIT {held} FOR UPDATE");
        assert_eq!(open.query(&lock, &[]).await.unwrap().len(), held);
        // Consume earlier wake-ups.
        let mut seen = store.wait_for_ready(u64::MAX, Duration::ZERO).await;
        while store.wait_for_ready(seen, Duration::from_millis(300)).await != seen {
            seen = store.wait_for_ready(u64::MAX, Duration::ZERO).await;
        }
        assert_eq!(store.claim(claim_request(session, 9)).await.unwrap().units.len(), left);
        open.rollback().await.unwrap();
        // Sooner than a listening worker polls without a notification.
        assert_ne!(store.wait_for_ready(seen, Duration::from_secs(3)).await, seen);
    }
    assert_eq!(store.claim(claim_request(session, 9)).await.unwrap().units.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_ends_while_it_claims_leaves_nothing_behind() {
    let (database, [store, other]) = two_stores().await;
    store.send(&ALL, units("a", 50)).await.unwrap();
    for _ in 0..30 {
        let id = session(&*store).await;
        let claimer = Arc::clone(&store);
        let mut claims = JoinSet::new();
        claims.spawn(async move {
            let mut taken = 0;
            // Until the store reports that the session is gone.
            while let Ok(ClaimResult { units, .. }) = claimer.claim(claim_request(id, 1)).await {
                taken += units.len();
            }
            taken
        });
        other.close_session(id).await.unwrap();
        claims.join_all().await;
    }
    let strays = "SELECT count(*) FROM longshore_unit_current WHERE state <> 2";
    assert_eq!(database.run(strays).trim(), "0");
    let all = store.totals(&ALL, &Queues::All).await.unwrap().counts;
    assert_eq!((all.ready, all.leased), (50, 0));
}

#[tokio::test]
async fn nobody_starves_among_ten_tenants_of_very_different_sizes() {
    shares_follow_weights(&Server::start().await.fixture().await, largest_queue()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bounded_by_caps_whoever_claims_at_once() {
    caps_are_never_exceeded(&Server::start().await.fixture().await).await;
}

/// Starts are a log beside the units: it must not grow, and no start may be lost.
#[tokio::test]
async fn a_run_that_goes_on_is_written_into_its_row_and_the_log_of_starts_ends() {
    let database = Server::start().await.database().await;
    let fixture = database.fixture().await;
    let store = &*fixture.store;
    let who = session(store).await;
    store.send(&ALL, units("default", 3)).await.unwrap();
    let held = store.claim(ClaimRequest { prefetch: 3, ..claim_request(who, 0) }).await.unwrap().units;
    let leases: Vec<_> = held.iter().map(|held| held.lease).collect();
    let then = fixture.clock.now();
    store.start(who, &leases).await.unwrap();
    let count = |what: &str| database.run(&format!("SELECT count(*) FROM {what}")).trim().to_owned();
    let counts = || [count("longshore_start_log"), count("longshore_unit WHERE started_at IS NOT NULL")];
    assert_eq!(counts(), ["1", "0"]);
    end(store, who, &held[..1]).await;
    fixture.clock.advance(Duration::from_secs(10));
    for _ in 0..2 {
        store.promote(100).await.unwrap();
    }
    assert_eq!(counts(), ["0", "2"]);
    let running = store.unit(&ALL, held[1].unit.id).await.unwrap();
    assert_eq!((running.attempt, running.started_at), (1, Some(then)));
    end(store, who, &held[1..]).await;
    let ended = store.unit(&ALL, held[1].unit.id).await.unwrap();
    assert_eq!((ended.state, ended.attempt), (UnitState::Done, 1), "counted once");
}
