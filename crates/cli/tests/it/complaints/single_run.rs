//! 8 and 9: long and delayed units that run twice, and concurrency limits of one that are exceeded.

use std::sync::Arc;
use std::time::Duration;

use longshore::services::Services;
use longshore::unit::ConcurrencyCap;
use longshore::{Client, Clock, Context, Kind, NewUnit, Store, SystemClock, Verdict, WhenFull, Worker};
use tokio::sync::Notify;
use tokio::task::{JoinSet, block_in_place};

use super::fixture::{RunCounter, StoreFixture, assert_consistent, counts, fast_retry, kind, unit};

const SESSION_TTL: Duration = Duration::from_secs(3);

/// Runs `work` while a worker that claims no unit does the maintenance.
async fn with_maintenance<T>(fixture: &StoreFixture, work: impl Future<Output = T>) -> T {
    let nothing = Kind::new("nothing").unwrap();
    let worker = Worker::builder(fixture.open().await)
        .ttl(SESSION_TTL)
        .handle_fn(nothing, fast_retry(), |_: Context, _: u64| async { Ok::<(), String>(()) })
        .build()
        .unwrap();
    let control = worker.control();
    let work = async {
        let answer = work.await;
        control.drain();
        answer
    };
    let (report, answer) = tokio::join!(worker.run(), work);
    report.unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn complaint_08_long_and_long_delayed_units_run_once() {
    let [one, two] = block_in_place(StoreFixture::both);
    tokio::join!(assert_long_units_run_once(&one), assert_long_units_run_once(&two));
}

/// Units that run three times the session TTL, some of which block their thread, units queued behind
/// them, and units that become due only after that time.
async fn assert_long_units_run_once(fixture: &StoreFixture) {
    let store = fixture.open().await;
    let runs = Arc::new(RunCounter::default());
    let later = Some(SystemClock.now() + SESSION_TTL * 3);
    let delayed = |unit| NewUnit { not_before: later, ..unit };
    let mut sent: Vec<NewUnit> = ["long", "block", "long", "block"].map(unit).into();
    sent.extend((0..20).map(|_| unit("short")));
    sent.extend((0..20).map(|_| delayed(unit("short"))));
    let all = sent.len();
    Client::new(store.clone()).send_many(sent, WhenFull::Reject).await.unwrap();
    let (first, second) =
        (worker_for_long_units(fixture, &runs).await, worker_for_long_units(fixture, &runs).await);
    let work = async { tokio::join!(first.run(), second.run()) };
    let (first, second) = with_maintenance(fixture, work).await;
    assert_eq!(first.unwrap().done + second.unwrap().done, all as u64, "{}", fixture.name());
    assert_eq!(runs.all(), vec![1; all], "{}", fixture.name());
    assert_consistent(&*store).await;
}

async fn worker_for_long_units(fixture: &StoreFixture, runs: &Arc<RunCounter>) -> Worker {
    let runs = Arc::clone(runs);
    Worker::builder(fixture.open().await)
        .slots(2)
        .ttl(SESSION_TTL)
        .until_idle(true)
        .handle_fn(kind(), fast_retry(), move |context: Context, behaviour: String| {
            let runs = Arc::clone(&runs);
            async move {
                let _running = runs.begin(context.unit().id);
                match behaviour.as_str() {
                    "long" => tokio::time::sleep(SESSION_TTL * 3).await,
                    "block" => block_in_place(|| std::thread::sleep(SESSION_TTL * 3)),
                    _ => {}
                }
                Ok::<(), String>(())
            }
        })
        .build()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn complaint_09_one_at_a_time_stays_one_over_kills_retries_snoozes_and_prefetch() {
    let [one, two] = block_in_place(StoreFixture::both);
    tokio::join!(assert_one_at_a_time(&one), assert_one_at_a_time(&two));
}

async fn assert_one_at_a_time(fixture: &StoreFixture) {
    let store = fixture.open().await;
    let runs = Arc::new(RunCounter::default());
    let cap = Some(ConcurrencyCap { key: "printer".to_owned(), limit: 1 });
    let behaviours = ["ok", "retry", "snooze", "ok", "kill", "ok"];
    let sent: Vec<NewUnit> = behaviours
        .iter()
        .cycle()
        .take(12)
        .map(|behaviour| NewUnit { cap: cap.clone(), ..unit(*behaviour) })
        .collect();
    let all = sent.len();
    let client = Client::new(store.clone());
    client.send_many(sent, WhenFull::Reject).await.unwrap();
    let mut workers = JoinSet::new();
    for _ in 0..3 {
        workers.spawn(run_with_kills(fixture.open().await, Arc::clone(&runs)));
    }
    let kills = with_maintenance(fixture, workers.join_all()).await;
    assert_eq!(kills.into_iter().sum::<u32>(), 2, "{}", fixture.name());
    assert_eq!(runs.peak(), 1, "{}", fixture.name());
    // The first run of half of the units did not finish.
    assert_eq!(runs.all().into_iter().sum::<u32>(), 12 + 6, "{}", fixture.name());
    assert_eq!(counts(&*store).await.done, all as u64);
    // Nothing holds the concurrency key any more.
    let held = async {
        let session = super::fixture::session(&*store).await;
        client.send(NewUnit { cap, ..unit("ok") }).await.unwrap();
        let held = super::fixture::claim(&*store, session, 5).await.len();
        store.close_session(session).await.unwrap();
        held
    };
    assert_eq!(held.await, 1);
    assert_consistent(&*store).await;
}

/// Runs one worker after another until nothing is left; returns how many were killed.
async fn run_with_kills(store: Arc<dyn Store>, runs: Arc<RunCounter>) -> u32 {
    let mut kills = 0;
    loop {
        let kill = Arc::new(Notify::new());
        let worker = killable_worker(&store, &runs, &kill);
        tokio::select! {
            ended = worker.run() => {
                ended.unwrap();
                return kills;
            }
            // Dropped midway: the session stays open, and all handlers are dropped.
            () = kill.notified() => kills += 1,
        }
    }
}

fn killable_worker(store: &Arc<dyn Store>, runs: &Arc<RunCounter>, kill: &Arc<Notify>) -> Worker {
    let (runs, kill) = (Arc::clone(runs), Arc::clone(kill));
    Worker::builder(Arc::clone(store))
        .slots(4)
        .ttl(SESSION_TTL)
        .services(Services::None)
        .until_idle(true)
        .handle_fn(kind(), fast_retry(), move |context: Context, behaviour: String| {
            let (runs, kill) = (Arc::clone(&runs), Arc::clone(&kill));
            async move {
                let (nth, _running) = runs.begin(context.unit().id);
                tokio::task::yield_now().await;
                match (nth, behaviour.as_str()) {
                    (1, "retry") => Err(Verdict::retry("test", "as told")),
                    (1, "snooze") => Err(Verdict::Snooze(Duration::from_millis(10))),
                    (1, "kill") => {
                        kill.notify_one();
                        std::future::pending().await
                    }
                    _ => Ok(()),
                }
            }
        })
        .build()
        .unwrap()
}
