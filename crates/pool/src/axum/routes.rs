//! Monitoring routes: health for load balancers, statistics for operators.

use std::collections::BTreeMap;

use ::axum::Router;
use ::axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use ::axum::http::{HeaderValue, StatusCode};
use ::axum::response::{IntoResponse, Response};
use ::axum::routing::{MethodRouter, get};
use serde::Serialize;

use super::pools::Pools;
use crate::health::Health;
use crate::pool::WorkerPool;
use crate::stats::WorkerPoolStats;

impl Pools {
    /// Routes `/health` and `/stats`, to be nested anywhere. `/health` reports `ok`, `degraded` or
    /// `failed` (with status 503) and nothing else. `/stats` contains reasons and names of
    /// operations, so it should not be public; [`Pools::health_route`] is `/health` alone.
    pub fn router<S: Clone + Send + Sync + 'static>(&self) -> Router<S> {
        let pools = self.clone();
        let stats = move || {
            let pools = pools.clone();
            async move { json(StatusCode::OK, &reports(&pools)) }
        };
        Router::new().route("/health", self.health_route()).route("/stats", get(stats))
    }

    /// The handler of `/health`.
    pub fn health_route<S: Clone + Send + Sync + 'static>(&self) -> MethodRouter<S> {
        let pools = self.clone();
        get(move || {
            let pools = pools.clone();
            async move { health(&pools) }
        })
    }
}

/// Serves metrics in the Prometheus text format. `render` comes from the app's exporter:
/// `metrics(move || handle.render())` with `metrics-exporter-prometheus`.
#[cfg(feature = "metrics")]
pub fn metrics<S: Clone + Send + Sync + 'static>(
    render: impl Fn() -> String + Clone + Send + Sync + 'static,
) -> MethodRouter<S> {
    get(move || async move { uncached(StatusCode::OK, "text/plain; version=0.0.4", render()) })
}

#[derive(Serialize)]
struct HealthPage<'a> {
    status: &'static str,
    pools: BTreeMap<&'a str, &'static str>,
}

fn health(pools: &Pools) -> Response {
    let all = pools.health();
    let status = match all.is_serving() {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    let each = pools.iter().map(|pool| (pool.name(), status_name(&pool.health())));
    json(status, &HealthPage { status: status_name(&all), pools: each.collect() })
}

fn status_name(health: &Health) -> &'static str {
    match health {
        Health::Ok => "ok",
        Health::Degraded { .. } => "degraded",
        Health::Failed { .. } => "failed",
    }
}

#[derive(Serialize)]
struct PoolReport {
    health: Health,
    stats: WorkerPoolStats,
}

fn reports(pools: &Pools) -> BTreeMap<&str, PoolReport> {
    let of = |pool: &WorkerPool| PoolReport { health: pool.health(), stats: pool.stats() };
    pools.iter().map(|pool| (pool.name(), of(pool))).collect()
}

fn json(status: StatusCode, page: &impl Serialize) -> Response {
    uncached(status, "application/json", serde_json::to_string(page).unwrap_or_default())
}

/// A response that must not be cached.
fn uncached(status: StatusCode, form: &'static str, page: String) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(form)),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (status, headers, page).into_response()
}
