//! A primary and a standby in one URL: the primary crashes, the standby is promoted, and the former primary returns as
//! its standby.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use longshore::store::Queues;
use longshore::{
    BatchId, BatchStatus, BoundedPool, Client, Context, Enqueue as _, Kind, NewBatch, NewUnit, Policy,
    PoolName, Queries as _, Scope, UnitId, UnitState, Worker,
};
use longshore_postgres::{PostgresOptions, PostgresStore};
use longshore_testkit::servers::PrivatePostgres;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::{Instant, sleep};

use crate::outages::wait_until_notified;

const TEST_TIMEOUT: Duration = Duration::from_secs(120);
const MAX_PERMITS: u32 = 3;

/// Two servers, of which one replicates the other.
struct Cluster {
    primary: PrivatePostgres,
    standby: PrivatePostgres,
    url: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Replication {
    /// A commit waits until the standby has it on disk.
    Synchronous,
    Asynchronous,
}

impl Cluster {
    fn start() -> Self {
        let primary = PrivatePostgres::start().unwrap();
        let standby = primary.start_standby().unwrap();
        let hosts = format!("127.0.0.1:{},127.0.0.1:{}", primary.port(), standby.port());
        let one = format!("127.0.0.1:{}", primary.port());
        let url = format!("{}?target_session_attrs=read-write", primary.url().replace(&one, &hosts));
        Self { primary, standby, url }
    }

    /// Sets the replication, and waits until the standby has all that was committed.
    fn replicate(&self, replication: Replication) {
        let names = if replication == Replication::Synchronous { "*" } else { "" };
        self.primary.run(&format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'")).unwrap();
        self.primary.run("SELECT pg_reload_conf()").unwrap();
        let state = if replication == Replication::Synchronous { "sync" } else { "async" };
        let streams = format!(
            "SELECT count(*) FROM pg_stat_replication WHERE sync_state = '{state}'
             AND replay_lsn >= pg_current_wal_flush_lsn()"
        );
        let until = Instant::now() + TEST_TIMEOUT;
        while self.primary.run(&streams).unwrap().trim() == "0" {
            assert!(Instant::now() < until, "the standby does not follow");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The primary crashes and the standby is promoted.
    fn fail_over(&mut self) {
        self.primary.crash().unwrap();
        self.standby.promote().unwrap();
        std::mem::swap(&mut self.primary, &mut self.standby);
        // Without this the new primary would wait for a standby that it does not have yet.
        self.primary.run("ALTER SYSTEM SET synchronous_standby_names = ''").unwrap();
        self.primary.run("SELECT pg_reload_conf()").unwrap();
    }

    /// The former primary returns as a standby.
    fn rejoin(&mut self) {
        self.standby.rejoin(&self.primary).unwrap();
    }
}

async fn open(url: &str) -> Arc<PostgresStore> {
    Arc::new(PostgresStore::open(url, PostgresOptions::default()).await.unwrap())
}

fn kind() -> Kind {
    Kind::new("work").unwrap()
}

fn units(count: usize) -> Vec<NewUnit> {
    (0..count).map(|_| NewUnit::new(kind(), serde_json::json!({}))).collect()
}

/// Sends until `over` is set, and returns the ids of all units.
async fn send_until(client: Client, over: Arc<AtomicBool>) -> Vec<UnitId> {
    let mut sent = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let units = units(5);
        sent.extend(units.iter().map(|unit| unit.id));
        let results = client.send_many(units, longshore::WhenFull::Wait).await.unwrap();
        assert!(results.iter().all(|result| result.rejection().is_none()), "{results:?}");
        sleep(Duration::from_millis(2)).await;
    }
    sent
}

/// Acquires and releases permits until `over` is set.
async fn hold_permits(pool: BoundedPool, holders: Arc<AtomicU32>, over: Arc<AtomicBool>) {
    while !over.load(Ordering::Relaxed) {
        let Ok(permit) = pool.acquire().await else { continue };
        assert!(holders.fetch_add(1, Ordering::SeqCst) < MAX_PERMITS, "more holders than permits");
        sleep(Duration::from_millis(5)).await;
        holders.fetch_sub(1, Ordering::SeqCst);
        drop(permit);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_unit_lost_in_a_storm_of_failovers_to_a_synchronous_standby() {
    let failovers = if std::env::var_os("LONGSHORE_SOAK").is_some() { 12 } else { 2 };
    let mut cluster = block_in_place(Cluster::start);
    let store = open(&cluster.url).await;
    block_in_place(|| cluster.replicate(Replication::Synchronous));
    let client = Client::new(store.clone()).with_retry_timeout(TEST_TIMEOUT);
    let batch = BatchId::new("night").unwrap();
    let mut writer = client.open_batch(NewBatch::new(batch.clone())).await.unwrap();
    writer.add(units(500), "1".into()).await.unwrap();
    writer.seal().await.unwrap();

    let over = Arc::new(AtomicBool::new(false));
    let holders = Arc::new(AtomicU32::new(0));
    let (mut senders, mut workers, mut permits) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
    let mut controls = Vec::new();
    for _ in 0..2 {
        senders.spawn(send_until(client.clone(), Arc::clone(&over)));
        let store = open(&cluster.url).await;
        let pool = BoundedPool::builder(store.clone(), PoolName::new("scarce").unwrap(), MAX_PERMITS)
            .lease(Duration::from_secs(2))
            .build();
        for _ in 0..4 {
            permits.spawn(hold_permits(pool.clone(), Arc::clone(&holders), Arc::clone(&over)));
        }
        let worker = Worker::builder(store)
            .slots(8)
            .handle_fn(kind(), Policy::default(), |_: Context, _: serde_json::Value| async {
                sleep(Duration::from_millis(1)).await;
                Ok::<(), String>(())
            })
            .build()
            .unwrap();
        controls.push(worker.control());
        workers.spawn(async move { worker.run().await.unwrap() });
    }
    for _ in 0..failovers {
        let done = totals(&store).await;
        let until = Instant::now() + TEST_TIMEOUT;
        while totals(&store).await < done + 200 {
            assert!(Instant::now() < until, "nothing moves");
            sleep(Duration::from_millis(20)).await;
        }
        let begun = Instant::now();
        block_in_place(|| cluster.fail_over());
        let promoted = begun.elapsed();
        let done = totals(&store).await;
        while totals(&store).await == done {
            assert!(begun.elapsed() < TEST_TIMEOUT, "nothing moves after a failover");
            sleep(Duration::from_millis(5)).await;
        }
        println!("promoted after {promoted:?}, works again after {:?}", begun.elapsed());
        block_in_place(|| cluster.rejoin());
        block_in_place(|| cluster.replicate(Replication::Synchronous));
    }
    over.store(true, Ordering::Relaxed);
    permits.join_all().await;
    let sent: Vec<UnitId> = senders.join_all().await.into_iter().flatten().collect();
    let until = Instant::now() + TEST_TIMEOUT;
    while totals(&store).await < (sent.len() + 500) as u64 {
        assert!(Instant::now() < until, "units are left");
        sleep(Duration::from_millis(20)).await;
    }
    let counts = store.totals(&Scope::All, &Queues::All).await.unwrap().counts;
    assert_eq!((counts.done, counts.total()), ((sent.len() + 500) as u64, (sent.len() + 500) as u64));
    for id in sent.iter().step_by(50) {
        assert_eq!(store.unit(&Scope::All, *id).await.unwrap().state, UnitState::Done);
    }
    let batch = store.batch(&Scope::All, &batch).await.unwrap();
    assert_eq!((batch.status, batch.counts.done), (BatchStatus::Complete, 500));
    assert_eq!(store.verify().await.unwrap(), []);
    let sender = open(&cluster.url).await;
    wait_until_notified(&store, &sender).await;
    controls.iter().for_each(longshore::WorkerControl::drain);
    workers.join_all().await;
}

/// How many units are done, asked until the store answers.
async fn totals(store: &PostgresStore) -> u64 {
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        match store.totals(&Scope::All, &Queues::All).await {
            Ok(totals) => return totals.counts.done,
            Err(error) => assert!(error.is_retryable() && Instant::now() < until, "{error}"),
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// What an asynchronous standby had not received is lost, as docs/postgres.md says; all that is left is consistent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_asynchronous_standby_loses_the_last_commits_and_nothing_else() {
    let mut cluster = block_in_place(Cluster::start);
    let store = open(&cluster.url).await;
    let received = units(50);
    let kept: Vec<UnitId> = received.iter().map(|unit| unit.id).collect();
    store.send(&Scope::All, received).await.unwrap();
    block_in_place(|| {
        cluster.replicate(Replication::Asynchronous);
        // The standby is cut off from here on.
        cluster.standby.run("ALTER SYSTEM SET primary_conninfo = ''").unwrap();
        cluster.standby.run("SELECT pg_reload_conf()").unwrap();
        let until = Instant::now() + TEST_TIMEOUT;
        while cluster.primary.run("SELECT count(*) FROM pg_stat_replication").unwrap().trim() != "0" {
            assert!(Instant::now() < until, "the standby still follows");
        }
    });
    let late = units(50);
    let lost: Vec<UnitId> = late.iter().map(|unit| unit.id).collect();
    store.send(&Scope::All, late.clone()).await.unwrap();
    block_in_place(|| cluster.fail_over());
    totals(&store).await;
    for id in &kept {
        assert_eq!(store.unit(&Scope::All, *id).await.unwrap().state, UnitState::Ready);
    }
    for id in &lost {
        assert!(store.unit(&Scope::All, *id).await.is_err(), "it was not replicated");
    }
    // A sender that kept its units sends them again: no unit is stored twice.
    store.send(&Scope::All, late).await.unwrap();
    assert_eq!(store.totals(&Scope::All, &Queues::All).await.unwrap().counts.ready, 100);
    assert_eq!(store.verify().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_former_primary_that_comes_back_gets_no_writes() {
    let mut cluster = block_in_place(Cluster::start);
    let store = open(&cluster.url).await;
    block_in_place(|| cluster.replicate(Replication::Synchronous));
    block_in_place(|| cluster.fail_over());
    totals(&store).await;
    // It is the first host of the URL, and accepts writes. The other server ends all connections.
    let former = &mut cluster.standby;
    let connections = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE application_name = 'longshore' AND pid <> pg_backend_pid()";
    block_in_place(|| {
        former.restart().unwrap();
        former.run("ALTER SYSTEM SET synchronous_standby_names = ''").unwrap();
        former.run("SELECT pg_reload_conf()").unwrap();
        cluster.primary.run(connections).unwrap();
    });
    let mut errors = Vec::new();
    for _ in 0..20 {
        if let Err(error) = store.send(&Scope::All, units(1)).await {
            assert!(error.is_retryable(), "{error}");
            errors.push(error.to_string());
        }
    }
    let sent = block_in_place(|| former.run("SELECT count(*) FROM longshore_unit").unwrap());
    assert_eq!(sent.trim(), "0");
    assert!(errors.last().is_some_and(|error| error.contains("former primary")), "{errors:?}");
    block_in_place(|| former.stop());
    totals(&store).await;
    store.send(&Scope::All, units(1)).await.unwrap();
}
