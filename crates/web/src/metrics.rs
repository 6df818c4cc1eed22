//! `/metrics`: figures for Prometheus, read from the store's kept counts.
//!
//! Labels are few on purpose: queues by their names without their owners, pools by theirs, and of each
//! no more than [`MOST`]; the rest is summed up as `other`. A tenant's token sees its own figures.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use longshore::store::{QueueInfo, Queues};
use longshore::{Counts, Scope, Timestamp, UnitState};

use crate::api::pools;
use crate::door::Caller;
use crate::house::House;
use crate::problem::Problem;

/// Names of one sort that are told apart.
const MOST: usize = 100;

/// Answers with the figures.
pub(crate) async fn answer(house: Arc<House>, request: Request) -> Response {
    let (head, _) = request.into_parts();
    let gathering = async {
        let caller = house.door.admit(&head, house.now()).await?;
        gather(&house, &caller).await
    };
    let told = tokio::time::timeout(house.limits.time, gathering).await;
    match told.unwrap_or_else(|_| Err(Problem::slow("it took too long"))) {
        Ok(text) => {
            let mut response = text.into_response();
            let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
            response.headers_mut().insert(CONTENT_TYPE, kind);
            response
        }
        Err(problem) => problem.into_response(),
    }
}

async fn gather(house: &House, caller: &Caller) -> Result<String, Problem> {
    let mut text = Text::default();
    text.family("longshore_build_info", "gauge", "1, with the version as a label");
    text.line("longshore_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    let queues = house.store.queues(&caller.scope).await?;
    of_queues(&mut text, &queues, house.now());
    let totals = house.store.totals(&caller.scope, &Queues::All).await?;
    text.family("longshore_batches_open", "gauge", "Batches that are neither sealed nor given up");
    text.line("longshore_batches_open", &[], figure(totals.open_batches));
    if caller.scope == Scope::All {
        of_workers(&mut text, house).await?;
        of_pools(&mut text, house, caller).await?;
    }
    Ok(text.0)
}

/// A queue's figures over all its lanes.
#[derive(Default)]
struct Depth {
    counts: Counts,
    bytes: u64,
    oldest: Option<Timestamp>,
    paused: bool,
}

fn of_queues(text: &mut Text, queues: &[QueueInfo], now: Timestamp) {
    let mut by_name: BTreeMap<&str, Depth> = BTreeMap::new();
    for lane in queues {
        let name = lane.queue.as_str();
        let name = name.split_once('/').map_or(name, |(_, name)| name);
        let is_known = by_name.contains_key(name) || by_name.len() < MOST;
        let depth = by_name.entry(if is_known { name } else { "other" }).or_default();
        depth.counts += lane.counts;
        depth.bytes += lane.bytes;
        depth.paused |= lane.paused;
        depth.oldest = [depth.oldest, lane.oldest_ready].into_iter().flatten().min();
    }
    text.family("longshore_units", "gauge", "Units that are kept, by queue and state");
    for (queue, depth) in &by_name {
        for state in UnitState::ALL {
            let labels = [("queue", *queue), ("state", state.as_str())];
            text.line("longshore_units", &labels, figure(depth.counts.of(state)));
        }
    }
    text.family("longshore_queue_bytes", "gauge", "Bytes of payload of live units");
    for (queue, depth) in &by_name {
        text.line("longshore_queue_bytes", &[("queue", queue)], figure(depth.bytes));
    }
    text.family("longshore_queue_oldest_ready_seconds", "gauge", "For how long the oldest waits");
    for (queue, depth) in &by_name {
        let waits = depth.oldest.map_or(0.0, |since| now.since(since).as_secs_f64());
        text.line("longshore_queue_oldest_ready_seconds", &[("queue", queue)], waits);
    }
    text.family("longshore_queue_paused", "gauge", "1 if the queue or a lane of it is paused");
    for (queue, depth) in &by_name {
        let paused = f64::from(u8::from(depth.paused));
        text.line("longshore_queue_paused", &[("queue", queue)], paused);
    }
}

async fn of_workers(text: &mut Text, house: &House) -> Result<(), Problem> {
    let sessions = house.store.sessions().await?;
    let slots: u64 = sessions.iter().map(|session| u64::from(session.own_slots())).sum();
    let held: u64 = sessions.iter().map(|session| session.held).sum();
    for (name, about, value) in [
        // `serve` itself has a session, and runs nothing.
        (
            "longshore_workers",
            "Workers",
            sessions.iter().filter(|one| one.own_slots() > 0).count() as u64,
        ),
        ("longshore_worker_slots", "Slots of all workers", slots),
        ("longshore_worker_units", "Units that workers hold", held),
    ] {
        text.family(name, "gauge", about);
        text.line(name, &[], figure(value));
    }
    Ok(())
}

async fn of_pools(text: &mut Text, house: &House, caller: &Caller) -> Result<(), Problem> {
    let mut pools = pools::gather(house, caller).await?;
    pools.truncate(MOST);
    text.family(
        "longshore_pool_permits",
        "gauge",
        "Permits of bounded pools: max, in_use, waiting",
    );
    for pool in &pools {
        for (state, value) in
            [("max", pool.max.into()), ("in_use", pool.in_use.into()), ("waiting", pool.in_line)]
        {
            let labels = [("pool", pool.pool.as_str()), ("state", state)];
            text.line("longshore_pool_permits", &labels, figure(value));
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
            text.line(name, &[("pool", pool.pool.as_str())], figure(value));
        }
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus counts in floats")]
fn figure(count: u64) -> f64 {
    count as f64
}

/// Figures as Prometheus reads them. Names hold nothing that would have to be escaped.
#[derive(Default)]
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, about: &str) {
        // Writing into a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {about}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push_str(name);
        if !labels.is_empty() {
            let all: Vec<String> =
                labels.iter().map(|(label, is)| format!("{label}=\"{is}\"")).collect();
            let _ = write!(self.0, "{{{}}}", all.join(","));
        }
        let _ = writeln!(self.0, " {value}");
    }
}
