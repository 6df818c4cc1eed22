//! Health and statistics.

use axum::Router;
use axum::http::StatusCode;
use longshore_pool::axum::Pools;
use std::time::Duration;

use super::{ask, json, page};
use crate::gate::gated;
use crate::helpers::{exactly, pool, worker};

#[tokio::test]
async fn health_is_a_word_per_pool_and_a_status() {
    let (threads, _) = gated(|_| ()).await;
    let processes = pool(worker("json", "well"), exactly(1)).await;
    let pools = Pools::new().add(threads).add(processes.clone());
    let app = Router::new().nest("/pools", pools.router());
    let (status, health) = json(&app, "/pools/health").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(health, serde_json::json!({"status": "ok", "pools": {"gated": "ok", "test": "ok"}}));
    processes.close(Duration::from_secs(10)).await;
    let (status, health) = json(&app, "/pools/health").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(health["pools"], serde_json::json!({"gated": "ok", "test": "failed"}));
}

#[tokio::test]
async fn numbers_are_shown_by_pool_and_never_cached() {
    let (pool, _) = gated(|_| ()).await;
    let _: u64 = pool.call("double", &2_u64).await.unwrap();
    let app = Router::new().nest("/pools", Pools::new().add(pool).router());
    let (_, stats) = json(&app, "/pools/stats").await;
    let gated = &stats["gated"];
    assert_eq!((&gated["health"]["status"], &gated["stats"]["done"]), (&"ok".into(), &1.into()));
    assert_eq!(gated["stats"]["operations"]["double"]["done"], 1);
    assert!(gated["stats"]["run"]["p50"].as_f64().is_some_and(|seconds| seconds > 0.0), "{stats}");
    let response = ask(&app, "/pools/stats").await;
    assert_eq!(response.headers()["cache-control"], "no-store");
}

#[cfg(feature = "metrics")]
#[tokio::test]
async fn metrics_are_what_the_exporter_renders() {
    let route = longshore_pool::axum::metrics(|| "longshore_pool_queue_depth 0\n".to_owned());
    let app = Router::new().route("/metrics", route);
    let response = ask(&app, "/metrics").await;
    assert!(response.headers()["content-type"].to_str().unwrap().starts_with("text/plain"));
    assert_eq!(page(&app, "/metrics").await.1, "longshore_pool_queue_depth 0\n");
}

#[tokio::test]
async fn health_can_stand_alone() {
    let (pool, _) = gated(|_| ()).await;
    let app: Router = Router::new().route("/up", Pools::new().add(pool).health_route());
    assert_eq!(page(&app, "/up").await.0, StatusCode::OK);
}
