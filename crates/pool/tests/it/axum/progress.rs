//! Calls streamed as server-sent events.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::get;
use http_body_util::BodyExt;
use longshore_pool::axum::{Pools, WorkerPools, progress_sse};
use longshore_pool::{CallError, CallOptions, Operations, PoolCall, WorkerPool};

use super::{ask, json, page};
use crate::gate::{Gate, operations};
use crate::helpers::{eventually, exactly};

/// `climb` reports progress at each step, before and after the gate; `watch` runs until it is
/// cancelled.
fn climbing(gate: &Gate) -> Operations {
    let passage = gate.clone();
    operations(gate)
        .add_with("climb", move |(), call: &PoolCall, steps: u64| {
            for step in 1..=steps {
                call.progress(&step);
            }
            passage.pass(0);
            call.progress("at the top");
            Ok::<_, String>(steps)
        })
        .add_with("watch", |(), call: &PoolCall, (): ()| {
            while !call.is_cancelled() {
                std::thread::yield_now();
            }
            Err::<(), _>("stopped")
        })
}

fn app(pool: WorkerPool) -> Router {
    let climb = async |workers: WorkerPools| -> Result<Response, CallError> {
        let options = CallOptions::default().timeout(Duration::from_secs(600));
        progress_sse(&workers, "climb", &3, options).await
    };
    let fail = async |workers: WorkerPools| -> Result<Response, CallError> {
        progress_sse(&workers, "fail", "hunter2", CallOptions::default()).await
    };
    let watch = async |workers: WorkerPools| -> Result<Response, CallError> {
        progress_sse(&workers, "watch", &(), CallOptions::default().cancel_on_drop()).await
    };
    let unknown = async |workers: WorkerPools| -> Result<Response, CallError> {
        progress_sse(&workers, "unheard_of", &(), CallOptions::default()).await
    };
    let router = Router::new().route("/climb", get(climb)).route("/fail", get(fail));
    let router = router.route("/watch", get(watch)).route("/unknown", get(unknown));
    router.with_state(Pools::new().add(pool))
}

async fn pool(gate: &Gate) -> WorkerPool {
    WorkerPool::threads("climbers", climbing(gate), exactly(1)).await.unwrap()
}

/// The next chunk of the body.
async fn piece(body: &mut Body) -> String {
    let frame = body.frame().await.unwrap().unwrap();
    String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn progress_comes_while_the_call_runs_and_the_result_at_last() {
    let gate = Gate::default();
    let response = ask(&app(pool(&gate).await), "/climb").await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = response.into_body();
    let mut heard = piece(&mut body).await;
    assert!(heard.starts_with("retry: 2147483647"), "no browser makes the call again: {heard}");
    while !heard.contains("data: 3\n") {
        heard += &piece(&mut body).await;
    }
    // The gate is still closed, so the call is still running.
    assert!(!heard.contains("done"), "{heard}");
    gate.open();
    let rest = body.collect().await.unwrap().to_bytes();
    let rest = String::from_utf8(rest.to_vec()).unwrap();
    assert_eq!(rest, "event: progress\ndata: \"at the top\"\n\nevent: done\ndata: 3\n\n");
}

#[tokio::test]
async fn an_error_is_the_last_event_and_gives_nothing_away() {
    let (status, text) = page(&app(pool(&Gate::default()).await), "/fail").await;
    assert_eq!(status, 200);
    let data = text.split_once("event: error\ndata: ").unwrap().1;
    let problem: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!((&problem["kind"], &problem["status"]), (&"handler".into(), &500.into()));
    assert!(!text.contains("hunter2"), "{text}");
}

#[tokio::test]
async fn a_call_that_is_refused_is_no_stream_at_all() {
    let (status, problem) = json(&app(pool(&Gate::default()).await), "/unknown").await;
    assert_eq!((status.as_u16(), &problem["kind"]), (404, &"unknown_operation".into()));
}

#[tokio::test]
async fn a_browser_that_goes_away_takes_its_call_back_if_asked_to() {
    let pool = pool(&Gate::default()).await;
    let mut body = ask(&app(pool.clone()), "/watch").await.into_body();
    piece(&mut body).await;
    eventually("it runs", || pool.stats().busy == 1).await;
    drop(body);
    // It ends only because it sees the cancellation.
    eventually("it has stopped", || pool.stats().busy == 0).await;
}

#[tokio::test]
async fn a_browser_that_goes_away_leaves_its_call_to_be_done_otherwise() {
    let gate = Gate::default();
    let pool = pool(&gate).await;
    let body = ask(&app(pool.clone()), "/climb").await.into_body();
    gate.wait_for(1).await;
    drop(body);
    gate.open();
    eventually("it was done", || pool.stats().run.count == 1).await;
}

#[tokio::test]
async fn a_silent_call_has_a_heartbeat() {
    let gate = Gate::default();
    let mut body = ask(&app(pool(&gate).await), "/climb").await.into_body();
    let mut heard = "\n".to_owned();
    while !heard.contains("data: 3\n") {
        heard += &piece(&mut body).await;
    }
    // Paused time advances when all tasks are idle, as they are now that the call is at the gate. Before that, it
    // would advance to the call's time limit while the thread starts.
    tokio::time::pause();
    while !heard.contains("\n:\n") {
        heard += &piece(&mut body).await;
    }
    gate.open();
}
