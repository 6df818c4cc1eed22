//! Responses to failed calls.

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::routing::get;
use longshore_pool::axum::{Pools, WorkerPools};
use longshore_pool::{CallError, CallOptions};
use serde_json::Value;
use std::time::Duration;

use super::{ask, json, page};
use crate::gate::gated;
use crate::helpers::{eventually, exactly, pool, worker};

/// Calls the operation in the path.
async fn call(
    workers: WorkerPools,
    Path((operation, words)): Path<(String, String)>,
) -> Result<String, CallError> {
    let options = CallOptions::default().timeout(Duration::from_secs(20));
    let result: Value = workers.call_with(&operation, &words, options).await?;
    Ok(result.to_string())
}

fn app(pools: Pools) -> Router {
    Router::new().route("/{operation}/{words}", get(call)).with_state(pools)
}

#[tokio::test]
async fn what_was_asked_and_what_was_said_stays_inside() {
    let (pool, _) = gated(|_| ()).await;
    let app = app(Pools::new().add(pool));
    for (path, status, kind) in [
        ("/fail/hunter2", 500, "handler"),
        ("/panic/hunter2", 500, "panic"),
        ("/double/hunter2", 400, "bad_arguments"),
        ("/unheard_of/hunter2", 404, "unknown_operation"),
    ] {
        let (got, text) = page(&app, path).await;
        assert_eq!(got.as_u16(), status, "{path}: {text}");
        let problem: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&problem["kind"], &problem["status"]), (&kind.into(), &status.into()));
        assert!(!text.contains("hunter2") && !text.contains("gate"), "{text}");
    }
}

#[tokio::test]
async fn a_full_queue_is_a_503_that_says_when_to_come_again() {
    let (pool, gate) = gated(|settings| (settings.min, settings.max, settings.queue) = (1, 1, 1)).await;
    pool.call_detached("gate", &0_u64).unwrap();
    gate.wait_for(1).await;
    pool.call_detached("gate", &1_u64).unwrap();
    eventually("one waits", || pool.stats().queue_depth == 1).await;
    let app = app(Pools::new().add(pool));
    let response = ask(&app, "/echo/words").await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()["retry-after"], "1");
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    gate.open();
}

#[tokio::test]
async fn a_pool_that_shuts_down_is_a_503() {
    let (pool, _) = gated(|_| ()).await;
    pool.close(Duration::from_secs(10)).await;
    let (status, problem) = json(&app(Pools::new().add(pool)), "/echo/words").await;
    assert_eq!((status.as_u16(), &problem["kind"]), (503, &"shutting_down".into()));
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_a_504() {
    let (pool, gate) = gated(|settings| settings.timeout = Duration::from_millis(10)).await;
    let slow = async |workers: WorkerPools| -> Result<String, CallError> {
        Ok(workers.call::<_, u64>("gate", &1_u64).await?.to_string())
    };
    let app = Router::new().route("/", get(slow)).with_state(Pools::new().add(pool));
    let (status, problem) = json(&app, "/").await;
    assert_eq!((status.as_u16(), &problem["kind"]), (504, &"timeout".into()));
    gate.open();
}

#[tokio::test]
async fn a_worker_that_dies_is_a_502_without_its_last_words() {
    let pool = pool(worker("json", "well"), exactly(1)).await;
    let die = async |workers: WorkerPools| -> Result<(), CallError> {
        // The worker writes "leaving with 3" to its standard error before it exits.
        workers.call("exit", &3).await
    };
    let app = Router::new().route("/", get(die)).with_state(Pools::new().add(pool));
    let (status, text) = page(&app, "/").await;
    assert_eq!(status, StatusCode::BAD_GATEWAY, "{text}");
    assert!(text.contains("worker_died") && !text.contains("leaving"), "{text}");
}
