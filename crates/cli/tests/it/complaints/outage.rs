//! 7: workers that stay idle after the database was unavailable.

use std::sync::Arc;
use std::time::Duration;

use longshore::{Client, Context, Store, WhenFull, Worker, WorkerControl};
use longshore_testkit::FaultyStore;
use longshore_testkit::servers::PrivatePostgres;
use tokio::task::{JoinSet, block_in_place};

use super::fixture::{StoreFixture, assert_consistent, counts, fast_retry, kind, units, wait_until};

/// Units sent before, during and after an outage.
const UNITS_PER_STEP: usize = 40;

/// Two workers that nothing restarts.
struct WorkerPair {
    tasks: JoinSet<Result<longshore::WorkerReport, longshore::WorkerError>>,
    controls: Vec<WorkerControl>,
    sent: usize,
}

impl WorkerPair {
    fn start(stores: [Arc<dyn Store>; 2]) -> Self {
        let mut workers = Self { tasks: JoinSet::new(), controls: Vec::new(), sent: 0 };
        for store in stores {
            let worker = Worker::builder(store)
                .slots(4)
                .ttl(Duration::from_secs(2))
                .handle_fn(kind(), fast_retry(), |_: Context, _: u64| async {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    Ok::<(), String>(())
                })
                .build()
                .unwrap();
            workers.controls.push(worker.control());
            workers.tasks.spawn(worker.run());
        }
        workers
    }

    async fn send(&mut self, store: &Arc<dyn Store>) {
        let client = Client::new(Arc::clone(store));
        client.send_many(units(UNITS_PER_STEP), WhenFull::Reject).await.unwrap();
        self.sent += UNITS_PER_STEP;
    }

    /// Waits until all sent units are done.
    async fn wait_until_done(&self, store: &dyn Store) {
        let done = async || {
            let totals = store.totals(&super::fixture::ALL, &longshore::store::Queues::All).await;
            totals.is_ok_and(|totals| totals.counts.done == self.sent as u64)
        };
        wait_until(done).await;
    }

    async fn drain_and_verify(mut self, store: &dyn Store) {
        self.wait_until_done(store).await;
        self.controls.iter().for_each(WorkerControl::drain);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap().unwrap();
        }
        assert_eq!(counts(store).await.finished(), self.sent as u64);
        assert_consistent(store).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn complaint_07_workers_go_on_by_themselves_after_the_database_was_away() {
    outages_on_postgres().await;
    outages_on_sqlite().await;
}

/// The server crashes, restarts cleanly, and terminates every connection, both while workers run
/// units and while they are idle.
async fn outages_on_postgres() {
    let mut fixture = block_in_place(StoreFixture::postgres);
    let store = fixture.open().await;
    let mut workers = WorkerPair::start([fixture.open().await, fixture.open().await]);
    let outages: [fn(&mut PrivatePostgres); 3] = [
        |server| server.restart_immediate().unwrap(),
        |server| server.restart().unwrap(),
        |server| drop(server.run(TERMINATE_CONNECTIONS).unwrap()),
    ];
    for outage in outages {
        workers.send(&store).await;
        block_in_place(|| outage(fixture.server.as_mut().unwrap()));
        workers.send(&store).await;
        workers.wait_until_done(&*store).await;
        block_in_place(|| outage(fixture.server.as_mut().unwrap()));
        workers.send(&store).await;
        workers.wait_until_done(&*store).await;
    }
    workers.drain_and_verify(&*store).await;
}

const TERMINATE_CONNECTIONS: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = 'longshore' AND pid <> pg_backend_pid()";

/// There is no server, but a file can be unavailable for a while.
async fn outages_on_sqlite() {
    let fixture = StoreFixture::sqlite();
    let store = fixture.open().await;
    let first = Arc::new(FaultyStore::new(fixture.open().await));
    let second = Arc::new(FaultyStore::new(fixture.open().await));
    let mut workers = WorkerPair::start([first.clone(), second.clone()]);
    for _ in 0..3 {
        workers.send(&store).await;
        first.set_outage(true);
        second.set_outage(true);
        // A worker that lost its session on a slow machine opens another.
        let tries = || first.calls("heartbeat") + first.calls("open_session");
        let tried = tries();
        wait_until(async || tries() > tried).await;
        first.set_outage(false);
        second.set_outage(false);
        workers.send(&store).await;
        workers.wait_until_done(&*store).await;
    }
    workers.drain_and_verify(&*store).await;
}
