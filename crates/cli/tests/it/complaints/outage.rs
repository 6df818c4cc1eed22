//! 7: workers that stay idle after the database was unavailable.

use std::sync::Arc;
use std::time::Duration;

use longshore::{Client, Context, Store, WhenFull, Worker, WorkerControl};
use longshore_testkit::FaultyStore;
use longshore_testkit::servers::PrivatePostgres;
use tokio::task::{JoinSet, block_in_place};

use super::kit::{Ground, assert_in_order, brisk, counts, kind, units, until};

/// Units sent before, during and after an outage.
const EACH: usize = 40;

/// Two workers that nothing restarts.
struct Crew {
    tasks: JoinSet<Result<longshore::WorkerReport, longshore::WorkerError>>,
    controls: Vec<WorkerControl>,
    sent: usize,
}

impl Crew {
    fn start(stores: [Arc<dyn Store>; 2]) -> Self {
        let mut crew = Self { tasks: JoinSet::new(), controls: Vec::new(), sent: 0 };
        for store in stores {
            let worker = Worker::builder(store)
                .slots(4)
                .ttl(Duration::from_secs(2))
                .handle_fn(kind(), brisk(), |_: Context, _: u64| async {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    Ok::<(), String>(())
                })
                .build()
                .unwrap();
            crew.controls.push(worker.control());
            crew.tasks.spawn(worker.run());
        }
        crew
    }

    async fn send(&mut self, store: &Arc<dyn Store>) {
        let client = Client::new(Arc::clone(store));
        client.send_many(units(EACH), WhenFull::Refuse).await.unwrap();
        self.sent += EACH;
    }

    /// Waits until all sent units are done.
    async fn has_done_all(&self, store: &dyn Store) {
        let done = async || {
            let totals = store.totals(&super::kit::ALL, &longshore::store::Queues::All).await;
            totals.is_ok_and(|totals| totals.counts.done == self.sent as u64)
        };
        until(done).await;
    }

    async fn ends_well(mut self, store: &dyn Store) {
        self.has_done_all(store).await;
        self.controls.iter().for_each(WorkerControl::drain);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap().unwrap();
        }
        assert_eq!(counts(store).await.finished(), self.sent as u64);
        assert_in_order(store).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn complaint_07_workers_go_on_by_themselves_after_the_database_was_away() {
    on_postgres().await;
    on_sqlite().await;
}

/// The server crashes, restarts cleanly, and terminates every connection, both while workers run
/// units and while they are idle.
async fn on_postgres() {
    let mut ground = block_in_place(Ground::postgres);
    let store = ground.open().await;
    let mut crew = Crew::start([ground.open().await, ground.open().await]);
    let troubles: [fn(&mut PrivatePostgres); 3] = [
        |server| server.restart_immediate().unwrap(),
        |server| server.restart().unwrap(),
        |server| drop(server.run(CUT).unwrap()),
    ];
    for trouble in troubles {
        crew.send(&store).await;
        block_in_place(|| trouble(ground.server.as_mut().unwrap()));
        crew.send(&store).await;
        crew.has_done_all(&*store).await;
        block_in_place(|| trouble(ground.server.as_mut().unwrap()));
        crew.send(&store).await;
        crew.has_done_all(&*store).await;
    }
    crew.ends_well(&*store).await;
}

const CUT: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = 'longshore' AND pid <> pg_backend_pid()";

/// There is no server, but a file can be unavailable for a while.
async fn on_sqlite() {
    let ground = Ground::sqlite();
    let store = ground.open().await;
    let first = Arc::new(FaultyStore::new(ground.open().await));
    let second = Arc::new(FaultyStore::new(ground.open().await));
    let mut crew = Crew::start([first.clone(), second.clone()]);
    for _ in 0..3 {
        crew.send(&store).await;
        first.outage(true);
        second.outage(true);
        let tried = first.calls("beat");
        until(async || first.calls("beat") > tried).await;
        first.outage(false);
        second.outage(false);
        crew.send(&store).await;
        crew.has_done_all(&*store).await;
    }
    crew.ends_well(&*store).await;
}
