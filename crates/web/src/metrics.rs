//! `/metrics`: Prometheus metrics, read from the store's counters.
//!
//! Labels are limited: queues by name without owner, pools by name, and at most [`MAX_LABELS`] of each;
//! further queues are summed up as `other`. A tenant's token sees the tenant's own figures.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use longshore::store::{QueueInfo, Queues};
use longshore::{Counts, Scope, Timestamp, UnitState};

use crate::api::pools;
use crate::app_state::AppState;
use crate::auth::Caller;
use crate::endpoints::ApiResult;
use crate::problem::Problem;

/// Maximum number of values per label.
const MAX_LABELS: usize = 100;

/// Answers a scrape.
pub(crate) async fn answer(app: Arc<AppState>, request: Request) -> Response {
    let (head, _) = request.into_parts();
    scrape(app, &head).await.unwrap_or_else(IntoResponse::into_response)
}

async fn scrape(app: Arc<AppState>, head: &Parts) -> ApiResult {
    let (caller, slot) = app.admit(head).await?;
    let collecting = async move {
        let mut response = collect(&app, &caller).await?.into_response();
        let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        Ok(response)
    };
    let response = slot.read(collecting).await?;
    Ok(slot.hold(response))
}

async fn collect(app: &AppState, caller: &Caller) -> Result<String, Problem> {
    let mut text = MetricsText::default();
    text.family("longshore_build_info", "gauge", "1, with the version as a label");
    text.line("longshore_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    let queues = app.store.queues(&caller.scope).await?;
    queue_metrics(&mut text, &queues, app.now());
    let totals = app.store.totals(&caller.scope, &Queues::All).await?;
    text.family("longshore_batches_open", "gauge", "Batches that are neither sealed nor given up");
    text.line("longshore_batches_open", &[], as_float(totals.open_batches));
    if caller.scope == Scope::All {
        worker_metrics(&mut text, app).await?;
        pool_metrics(&mut text, app, caller).await?;
    }
    Ok(text.0)
}

/// A queue's figures, summed over its lanes.
#[derive(Default)]
struct QueueMetrics {
    counts: Counts,
    bytes: u64,
    oldest: Option<Timestamp>,
    paused: bool,
}

fn queue_metrics(text: &mut MetricsText, queues: &[QueueInfo], now: Timestamp) {
    let mut by_name: BTreeMap<&str, QueueMetrics> = BTreeMap::new();
    for lane in queues {
        let name = lane.queue.as_str();
        let name = name.split_once('/').map_or(name, |(_, name)| name);
        let is_known = by_name.contains_key(name) || by_name.len() < MAX_LABELS;
        let metrics = by_name.entry(if is_known { name } else { "other" }).or_default();
        metrics.counts += lane.counts;
        metrics.bytes += lane.bytes;
        metrics.paused |= lane.paused;
        metrics.oldest = [metrics.oldest, lane.oldest_ready].into_iter().flatten().min();
    }
    text.family("longshore_units", "gauge", "Units that are kept, by queue and state");
    for (queue, metrics) in &by_name {
        for state in UnitState::ALL {
            let labels = [("queue", *queue), ("state", state.as_str())];
            text.line("longshore_units", &labels, as_float(metrics.counts.of(state)));
        }
    }
    text.family("longshore_queue_bytes", "gauge", "Bytes of payload of live units");
    for (queue, metrics) in &by_name {
        text.line("longshore_queue_bytes", &[("queue", queue)], as_float(metrics.bytes));
    }
    text.family("longshore_queue_oldest_ready_seconds", "gauge", "For how long the oldest waits");
    for (queue, metrics) in &by_name {
        let waits = metrics.oldest.map_or(0.0, |since| now.since(since).as_secs_f64());
        text.line("longshore_queue_oldest_ready_seconds", &[("queue", queue)], waits);
    }
    text.family("longshore_queue_paused", "gauge", "1 if the queue or a lane of it is paused");
    for (queue, metrics) in &by_name {
        let paused = f64::from(u8::from(metrics.paused));
        text.line("longshore_queue_paused", &[("queue", queue)], paused);
    }
}

async fn worker_metrics(text: &mut MetricsText, app: &AppState) -> Result<(), Problem> {
    let sessions = app.store.sessions().await?;
    let slots: u64 = sessions.iter().map(|session| u64::from(session.own_slots())).sum();
    let held: u64 = sessions.iter().map(|session| session.held).sum();
    for (name, about, value) in [
        // `serve` itself has a session without slots.
        ("longshore_workers", "Workers", sessions.iter().filter(|one| one.own_slots() > 0).count() as u64),
        ("longshore_worker_slots", "Slots of all workers", slots),
        ("longshore_worker_units", "Units that workers hold", held),
    ] {
        text.family(name, "gauge", about);
        text.line(name, &[], as_float(value));
    }
    Ok(())
}

async fn pool_metrics(text: &mut MetricsText, app: &AppState, caller: &Caller) -> Result<(), Problem> {
    let mut pools = pools::visible_pools(app, caller).await?;
    pools.truncate(MAX_LABELS);
    text.family("longshore_pool_permits", "gauge", "Permits of bounded pools: max, in_use, waiting");
    for pool in &pools {
        for (state, value) in
            [("max", pool.max.into()), ("in_use", pool.in_use.into()), ("waiting", pool.in_line)]
        {
            let labels = [("pool", pool.pool.as_str()), ("state", state)];
            text.line("longshore_pool_permits", &labels, as_float(value));
        }
    }
    for (name, about, of) in [
        ("longshore_pool_acquired_total", "Permits given", 0),
        ("longshore_pool_timeouts_total", "Waits without a permit", 1),
        ("longshore_pool_expired_total", "Leases that ran out", 2),
    ] {
        text.family(name, "counter", about);
        for pool in &pools {
            let value = [pool.acquired, pool.timeouts, pool.expired][of];
            text.line(name, &[("pool", pool.pool.as_str())], as_float(value));
        }
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus counts in floats")]
fn as_float(count: u64) -> f64 {
    count as f64
}

/// Builds Prometheus text format. Names contain no characters that need escaping.
#[derive(Default)]
struct MetricsText(String);

impl MetricsText {
    fn family(&mut self, name: &str, kind: &str, about: &str) {
        // Writing into a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {about}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push_str(name);
        if !labels.is_empty() {
            let all: Vec<String> = labels.iter().map(|(label, is)| format!("{label}=\"{is}\"")).collect();
            let _ = write!(self.0, "{{{}}}", all.join(","));
        }
        let _ = writeln!(self.0, " {value}");
    }
}
