//! 1 and 15: workers that die, and workers that are told to stop.

use std::sync::Arc;
use std::time::Duration;

use longshore::services::Services;
use longshore::{Client, Context, Payload, UnitState, Verdict, Worker};
use serde_json::json;

use super::fixture::{
    ALL, RunCounter, StoreFixture, assert_consistent, kind, on_both_stores, runtime, unit, wait_until,
};
use crate::support::{TIMEOUT, TestDir, eventually};

/// The number of lines; each run appends one.
fn line_count(dir: &TestDir, name: &str) -> usize {
    dir.read(name).lines().count()
}

#[test]
fn complaint_01_a_killed_workers_units_run_again_once_and_a_slow_living_one_keeps_its_own() {
    on_both_stores(|fixture| {
        killed_and_slow_worker(fixture);
        runtime().block_on(same_label_takes_over(fixture));
    });
}

fn killed_and_slow_worker(fixture: &StoreFixture) {
    let dir = &fixture.dir;
    let hangs = "echo >> killed; test $(wc -l < killed) -ge 2 || sleep 600";
    let killed = dir.submit_script(hangs, &[]);
    let mut doomed = dir.start(&["worker", "--slots", "1", "--ttl", "2s"]);
    eventually(TIMEOUT, || (line_count(dir, "killed") == 1).then_some(()));
    doomed.kill();
    // Runs for three session TTLs while another worker checks liveness.
    let slow = dir.submit_script("echo >> slow; sleep 6", &[]);
    let args = ["worker", "--slots", "1", "--ttl", "2s", "--until-idle"];
    let mut others = [dir.start(&args), dir.start(&args)];
    for worker in &mut others {
        assert_eq!(worker.ends_within(TIMEOUT), 0);
    }
    assert_eq!((line_count(dir, "killed"), line_count(dir, "slow")), (2, 1), "{}", fixture.name());
    for (id, attempts) in [(&killed, 2), (&slow, 1)] {
        let unit = dir.unit(id);
        assert_eq!((&unit["state"], &unit["attempt"]), (&json!("done"), &json!(attempts)), "{unit}");
    }
    dir.run(&["verify"]).ok();
}

/// A worker is identified by a random session id. A worker started under a dead worker's label
/// neither keeps the dead worker's units leased nor loses its own.
async fn same_label_takes_over(fixture: &StoreFixture) {
    let runs = Arc::new(RunCounter::default());
    let sender = fixture.open().await;
    let id = Client::new(sender.clone()).send(unit("hang")).await.unwrap();
    let worker_with_label = async |services| {
        let runs = Arc::clone(&runs);
        Worker::builder(fixture.open().await)
            .label("pod-0")
            .ttl(Duration::from_secs(1))
            .services(services)
            .until_idle(true)
            .handle_fn(kind(), super::fixture::fast_retry(), move |context: Context, _: String| {
                let runs = Arc::clone(&runs);
                async move {
                    let (nth, _running) = runs.begin(context.unit().id);
                    if nth == 1 {
                        std::future::pending::<()>().await;
                    }
                    Ok::<(), Verdict>(())
                }
            })
            .build()
            .unwrap()
    };
    tokio::select! {
        _ = worker_with_label(Services::None).await.run() => unreachable!("it hangs"),
        () = wait_until(async || runs.of(id) == 1) => {}
    }
    let report = worker_with_label(Services::All).await.run().await.unwrap();
    assert_eq!((report.done, runs.of(id)), (1, 2), "{}", fixture.name());
    assert_consistent(&*sender).await;
}

#[test]
fn complaint_15_a_deploy_uses_no_attempt_and_loses_no_progress() {
    on_both_stores(|fixture| {
        drain_finishes_running_and_releases_rest(&fixture.dir);
        interrupt_uses_no_attempt(&fixture.dir);
        runtime().block_on(checkpoint_survives_worker(fixture));
    });
}

fn drain_finishes_running_and_releases_rest(dir: &TestDir) {
    let script = "echo > started; while ! test -e go; do sleep 0.05; done";
    let running = dir.submit_script(script, &[]);
    let waiting = dir.submit_script("true", &[]);
    let mut worker = dir.start(&["worker", "--slots", "1"]);
    eventually(TIMEOUT, || dir.path("started").exists().then_some(()));
    worker.signal("TERM");
    eventually(TIMEOUT, || dir.read("stderr").contains("draining").then_some(()));
    // Units that were not started are released immediately, not after the last run.
    eventually(TIMEOUT, || (dir.queue()["counts"]["leased"] == 1).then_some(()));
    let unit = dir.unit(&waiting);
    assert_eq!((&unit["state"], &unit["attempt"]), (&json!("ready"), &json!(0)), "{unit}");
    dir.write("go", "");
    assert_eq!(worker.ends_within(TIMEOUT), 0);
    let unit = dir.unit(&running);
    assert_eq!((&unit["state"], &unit["attempt"]), (&json!("done"), &json!(1)), "{unit}");
    assert_eq!(dir.run(&["workers", "--json"]).ok().json(), json!([]));
    dir.work();
}

fn interrupt_uses_no_attempt(dir: &TestDir) {
    let id = dir.submit_script("echo > begun; sleep 600", &[]);
    let mut worker = dir.start(&["worker", "--slots", "1", "--drain-timeout", "200ms"]);
    eventually(TIMEOUT, || dir.path("begun").exists().then_some(()));
    worker.signal("TERM");
    assert_eq!(worker.ends_within(TIMEOUT), 130, "the exit code reports an interrupted unit");
    let unit = dir.unit(&id);
    assert_eq!((&unit["state"], &unit["attempt"]), (&json!("ready"), &json!(0)), "{unit}");
    dir.run(&["unit", "cancel", &id]).ok();
    dir.run(&["verify"]).ok();
}

async fn checkpoint_survives_worker(fixture: &StoreFixture) {
    let store = fixture.open().await;
    let id = Client::new(store.clone()).send(unit("steps")).await.unwrap();
    let worker = || {
        Worker::builder(store.clone())
            .grace(Duration::from_millis(50))
            .until_idle(true)
            .handle_fn(kind(), super::fixture::fast_retry(), |context: Context, _: String| async move {
                if let Some(checkpoint) = context.checkpoint() {
                    return Ok::<u32, Verdict>(checkpoint.parse()?);
                }
                context.save_checkpoint(Payload::from(json!(7))).await?;
                std::future::pending().await
            })
            .build()
            .unwrap()
    };
    let interrupted = worker();
    let control = interrupted.control();
    let stopper = async {
        wait_until(async || store.unit(&ALL, id).await.unwrap().checkpoint.is_some()).await;
        control.stop();
    };
    let (report, ()) = tokio::join!(interrupted.run(), stopper);
    assert_eq!(report.unwrap().interrupted, 1, "{}", fixture.name());
    let left = store.unit(&ALL, id).await.unwrap();
    assert_eq!((left.state, left.attempt), (UnitState::Ready, 0));
    assert_eq!(worker().run().await.unwrap().done, 1);
    let done = store.unit(&ALL, id).await.unwrap();
    assert_eq!((done.attempt, done.result.unwrap().parse::<u32>().unwrap()), (1, 7));
    assert_consistent(&*store).await;
}
