//! 8 and 9: long and delayed units that run twice, and concurrency limits of one that are exceeded.

use std::sync::Arc;
use std::time::Duration;

use longshore::services::Services;
use longshore::unit::Cap;
use longshore::{
    Client, Clock, Context, Kind, NewUnit, Store, SystemClock, Verdict, WhenFull, Worker,
};
use tokio::sync::Notify;
use tokio::task::{JoinSet, block_in_place};

use super::kit::{Ground, Runs, assert_in_order, brisk, counts, kind, unit};

const TTL: Duration = Duration::from_secs(3);

/// Runs `work` while a worker that claims no unit does the maintenance.
async fn with_upkeep<T>(ground: &Ground, work: impl Future<Output = T>) -> T {
    let nothing = Kind::new("nothing").unwrap();
    let worker = Worker::builder(ground.open().await)
        .ttl(TTL)
        .handle_fn(nothing, brisk(), |_: Context, _: u64| async { Ok::<(), String>(()) })
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
    let [one, two] = block_in_place(Ground::both);
    tokio::join!(long_units_run_once(&one), long_units_run_once(&two));
}

/// Units that run three times the session TTL, some of which block their thread, units queued behind
/// them, and units that become due only after that time.
async fn long_units_run_once(ground: &Ground) {
    let store = ground.open().await;
    let runs = Arc::new(Runs::default());
    let later = Some(SystemClock.now() + TTL * 3);
    let delayed = |unit| NewUnit { not_before: later, ..unit };
    let mut sent: Vec<NewUnit> = ["long", "block", "long", "block"].map(unit).into();
    sent.extend((0..20).map(|_| unit("short")));
    sent.extend((0..20).map(|_| delayed(unit("short"))));
    let all = sent.len();
    Client::new(store.clone()).send_many(sent, WhenFull::Refuse).await.unwrap();
    let (first, second) = (patient(ground, &runs).await, patient(ground, &runs).await);
    let work = async { tokio::join!(first.run(), second.run()) };
    let (first, second) = with_upkeep(ground, work).await;
    assert_eq!(first.unwrap().done + second.unwrap().done, all as u64, "{}", ground.name());
    assert_eq!(runs.all(), vec![1; all], "{}", ground.name());
    assert_in_order(&*store).await;
}

async fn patient(ground: &Ground, runs: &Arc<Runs>) -> Worker {
    let runs = Arc::clone(runs);
    Worker::builder(ground.open().await)
        .slots(2)
        .ttl(TTL)
        .until_idle(true)
        .handle_fn(kind(), brisk(), move |context: Context, how: String| {
            let runs = Arc::clone(&runs);
            async move {
                let _running = runs.begin(context.unit().id);
                match how.as_str() {
                    "long" => tokio::time::sleep(TTL * 3).await,
                    "block" => block_in_place(|| std::thread::sleep(TTL * 3)),
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
    let [one, two] = block_in_place(Ground::both);
    tokio::join!(one_at_a_time(&one), one_at_a_time(&two));
}

async fn one_at_a_time(ground: &Ground) {
    let store = ground.open().await;
    let runs = Arc::new(Runs::default());
    let cap = Some(Cap { key: "printer".to_owned(), limit: 1 });
    let ways = ["ok", "retry", "snooze", "ok", "kill", "ok"];
    let sent: Vec<NewUnit> = ways
        .iter()
        .cycle()
        .take(12)
        .map(|way| NewUnit { cap: cap.clone(), ..unit(*way) })
        .collect();
    let all = sent.len();
    let client = Client::new(store.clone());
    client.send_many(sent, WhenFull::Refuse).await.unwrap();
    let mut crew = JoinSet::new();
    for _ in 0..3 {
        crew.spawn(lives(ground.open().await, Arc::clone(&runs)));
    }
    let kills = with_upkeep(ground, crew.join_all()).await;
    assert_eq!(kills.into_iter().sum::<u32>(), 2, "{}", ground.name());
    assert_eq!(runs.peak(), 1, "{}", ground.name());
    // The first run of half of the units did not finish.
    assert_eq!(runs.all().into_iter().sum::<u32>(), 12 + 6, "{}", ground.name());
    assert_eq!(counts(&*store).await.done, all as u64);
    // Nothing holds the concurrency key any more.
    let held = async {
        let session = super::kit::session(&*store).await;
        client.send(NewUnit { cap, ..unit("ok") }).await.unwrap();
        let held = super::kit::claim(&*store, session, 5).await.len();
        store.close_session(session).await.unwrap();
        held
    };
    assert_eq!(held.await, 1);
    assert_in_order(&*store).await;
}

/// Runs one worker after another until nothing is left; returns how many were killed.
async fn lives(store: Arc<dyn Store>, runs: Arc<Runs>) -> u32 {
    let mut kills = 0;
    loop {
        let doom = Arc::new(Notify::new());
        let worker = mortal(&store, &runs, &doom);
        tokio::select! {
            ended = worker.run() => {
                ended.unwrap();
                return kills;
            }
            // Dropped midway: the session stays open, and all handlers are dropped.
            () = doom.notified() => kills += 1,
        }
    }
}

fn mortal(store: &Arc<dyn Store>, runs: &Arc<Runs>, doom: &Arc<Notify>) -> Worker {
    let (runs, doom) = (Arc::clone(runs), Arc::clone(doom));
    Worker::builder(Arc::clone(store))
        .slots(4)
        .ttl(TTL)
        .services(Services::None)
        .until_idle(true)
        .handle_fn(kind(), brisk(), move |context: Context, way: String| {
            let (runs, doom) = (Arc::clone(&runs), Arc::clone(&doom));
            async move {
                let (nth, _running) = runs.begin(context.unit().id);
                tokio::task::yield_now().await;
                match (nth, way.as_str()) {
                    (1, "retry") => Err(Verdict::retry("test", "as told")),
                    (1, "snooze") => Err(Verdict::Snooze(Duration::from_millis(10))),
                    (1, "kill") => {
                        doom.notify_one();
                        std::future::pending().await
                    }
                    _ => Ok(()),
                }
            }
        })
        .build()
        .unwrap()
}
