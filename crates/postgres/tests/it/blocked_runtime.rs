//! Handlers that block every thread of their runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use longshore::store::{Enqueue as _, Queries as _, Queues};
use longshore::{
    Context, Kind, NewUnit, Policy, Scope, Services, UnitState, Worker, WorkerControl, WorkerReport,
};
use longshore_postgres::{PostgresOptions, PostgresStore};
use longshore_testkit::servers::PrivatePostgres;
use serde_json::json;

const TTL: Duration = Duration::from_secs(3);
const THREADS: usize = 2;

fn kind() -> Kind {
    Kind::new("work").unwrap()
}

/// Runs a worker with its own store on a runtime of `THREADS` threads.
fn run_worker(
    url: String,
    services: Services,
    queues: Queues,
    work: impl Fn() + Clone + Send + Sync + 'static,
) -> (WorkerControl, JoinHandle<WorkerReport>) {
    let (control, started) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
        runtime.unwrap().block_on(async move {
            let store = Arc::new(PostgresStore::open(&url, PostgresOptions::default()).await.unwrap());
            let handler = move |_: Context, (): ()| {
                let work = work.clone();
                async move {
                    work();
                    Ok::<(), String>(())
                }
            };
            let worker = Worker::builder(store).slots(2).ttl(TTL).services(services).queues(queues);
            let worker = worker.handle_fn(kind(), Policy::default(), handler).build().unwrap();
            control.send(worker.control()).unwrap();
            worker.run().await.unwrap()
        })
    });
    (started.recv().unwrap(), thread)
}

#[tokio::test]
async fn a_worker_whose_handlers_block_every_thread_is_not_declared_dead() {
    let server = PrivatePostgres::start().unwrap();
    let store = PostgresStore::open(&server.url(), PostgresOptions::default()).await.unwrap();
    let unit = || NewUnit::new(kind(), json!(null));
    let units = [unit(), unit()];
    let ids = units.each_ref().map(|unit| unit.id);
    store.send(&Scope::All, units.to_vec()).await.unwrap();

    let none = Queues::Named(vec![]);
    let (rescuer, rescuer_thread) = run_worker(server.url(), Services::All, none, || {});
    let runs = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&runs);
    let block = move || {
        count.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(TTL * 5 / 2);
    };
    let (control, thread) = run_worker(server.url(), Services::None, Queues::All, block);
    let deadline = tokio::time::Instant::now() + TTL * 20;
    for id in ids {
        while store.unit(&Scope::All, id).await.unwrap().state != UnitState::Done {
            assert!(tokio::time::Instant::now() < deadline, "the unit did not end");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(store.unit(&Scope::All, id).await.unwrap().attempt, 1);
    }
    control.drain();
    rescuer.drain();
    let report = thread.join().unwrap();
    rescuer_thread.join().unwrap();
    assert_eq!((report.done, report.lost, runs.load(Ordering::SeqCst)), (2, 0, 2));
}
