//! 1 and 15: workers that die, and workers that are told to stop.

use std::sync::Arc;
use std::time::Duration;

use longshore::services::Services;
use longshore::{Client, Context, Payload, UnitState, Verdict, Worker};
use serde_json::json;

use super::kit::{ALL, Ground, Runs, assert_in_order, kind, on_both, runtime, unit, until};
use crate::support::{Place, SOON, eventually};

/// The number of lines; each run appends one.
fn lines(place: &Place, name: &str) -> usize {
    place.read(name).lines().count()
}

#[test]
fn complaint_01_a_killed_workers_units_run_again_once_and_a_slow_living_one_keeps_its_own() {
    on_both(|ground| {
        one_is_killed_and_one_is_slow(ground);
        runtime().block_on(a_namesake_takes_over(ground));
    });
}

fn one_is_killed_and_one_is_slow(ground: &Ground) {
    let place = &ground.place;
    let hangs = "echo >> killed; test $(wc -l < killed) -ge 2 || sleep 600";
    let killed = place.submit_script(hangs, &[]);
    let mut doomed = place.start(&["worker", "--slots", "1", "--ttl", "2s"]);
    eventually(SOON, || (lines(place, "killed") == 1).then_some(()));
    doomed.kill();
    // Runs for three session TTLs while another worker checks liveness.
    let slow = place.submit_script("echo >> slow; sleep 6", &[]);
    let args = ["worker", "--slots", "1", "--ttl", "2s", "--until-idle"];
    let mut others = [place.start(&args), place.start(&args)];
    for worker in &mut others {
        assert_eq!(worker.ends_within(SOON), 0);
    }
    assert_eq!((lines(place, "killed"), lines(place, "slow")), (2, 1), "{}", ground.name());
    for (id, attempts) in [(&killed, 2), (&slow, 1)] {
        let unit = place.unit(id);
        assert_eq!(
            (&unit["state"], &unit["attempt"]),
            (&json!("done"), &json!(attempts)),
            "{unit}"
        );
    }
    place.run(&["verify"]).ok();
}

/// A worker is identified by a random session id. A worker started under a dead worker's label
/// neither keeps the dead worker's units leased nor loses its own.
async fn a_namesake_takes_over(ground: &Ground) {
    let runs = Arc::new(Runs::default());
    let sender = ground.open().await;
    let id = Client::new(sender.clone()).send(unit("hang")).await.unwrap();
    let namesake = async |services| {
        let runs = Arc::clone(&runs);
        Worker::builder(ground.open().await)
            .label("pod-0")
            .ttl(Duration::from_secs(1))
            .services(services)
            .until_idle(true)
            .handle_fn(kind(), super::kit::brisk(), move |context: Context, _: String| {
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
        _ = namesake(Services::None).await.run() => unreachable!("it hangs"),
        () = until(async || runs.of(id) == 1) => {}
    }
    let report = namesake(Services::All).await.run().await.unwrap();
    assert_eq!((report.done, runs.of(id)), (1, 2), "{}", ground.name());
    assert_in_order(&*sender).await;
}

#[test]
fn complaint_15_a_deploy_uses_no_attempt_and_loses_no_progress() {
    on_both(|ground| {
        what_runs_is_finished_and_the_rest_goes_back(&ground.place);
        what_is_interrupted_costs_no_attempt(&ground.place);
        runtime().block_on(a_checkpoint_outlives_its_worker(ground));
    });
}

fn what_runs_is_finished_and_the_rest_goes_back(place: &Place) {
    let script = "echo > started; while ! test -e go; do sleep 0.05; done";
    let running = place.submit_script(script, &[]);
    let waiting = place.submit_script("true", &[]);
    let mut worker = place.start(&["worker", "--slots", "1"]);
    eventually(SOON, || place.path("started").exists().then_some(()));
    worker.signal("TERM");
    eventually(SOON, || place.read("stderr").contains("draining").then_some(()));
    // Units that were not started are released immediately, not after the last run.
    eventually(SOON, || (place.queue()["counts"]["leased"] == 1).then_some(()));
    let unit = place.unit(&waiting);
    assert_eq!((&unit["state"], &unit["attempt"]), (&json!("ready"), &json!(0)), "{unit}");
    place.write("go", "");
    assert_eq!(worker.ends_within(SOON), 0);
    let unit = place.unit(&running);
    assert_eq!((&unit["state"], &unit["attempt"]), (&json!("done"), &json!(1)), "{unit}");
    assert_eq!(place.run(&["workers", "--json"]).ok().json(), json!([]));
    place.work();
}

fn what_is_interrupted_costs_no_attempt(place: &Place) {
    let id = place.submit_script("echo > begun; sleep 600", &[]);
    let mut worker = place.start(&["worker", "--slots", "1", "--drain-timeout", "200ms"]);
    eventually(SOON, || place.path("begun").exists().then_some(()));
    worker.signal("TERM");
    assert_eq!(worker.ends_within(SOON), 130, "the exit code says that something was left");
    let unit = place.unit(&id);
    assert_eq!((&unit["state"], &unit["attempt"]), (&json!("ready"), &json!(0)), "{unit}");
    place.run(&["unit", "cancel", &id]).ok();
    place.run(&["verify"]).ok();
}

async fn a_checkpoint_outlives_its_worker(ground: &Ground) {
    let store = ground.open().await;
    let id = Client::new(store.clone()).send(unit("steps")).await.unwrap();
    let worker = || {
        Worker::builder(store.clone())
            .grace(Duration::from_millis(50))
            .until_idle(true)
            .handle_fn(kind(), super::kit::brisk(), |context: Context, _: String| async move {
                if let Some(kept) = context.checkpoint() {
                    return Ok::<u32, Verdict>(kept.parse()?);
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
        until(async || store.unit(&ALL, id).await.unwrap().checkpoint.is_some()).await;
        control.stop();
    };
    let (report, ()) = tokio::join!(interrupted.run(), stopper);
    assert_eq!(report.unwrap().interrupted, 1, "{}", ground.name());
    let left = store.unit(&ALL, id).await.unwrap();
    assert_eq!((left.state, left.attempt), (UnitState::Ready, 0));
    assert_eq!(worker().run().await.unwrap().done, 1);
    let done = store.unit(&ALL, id).await.unwrap();
    assert_eq!((done.attempt, done.result.unwrap().parse::<u32>().unwrap()), (1, 7));
    assert_in_order(&*store).await;
}
