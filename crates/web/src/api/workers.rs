//! Workers: who they are, and orders to them.

use std::time::Duration;

use longshore::session::{Order, Session};
use longshore::store::Page;
use longshore::{Error, Kind, SessionId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::call::{Call, json};
use crate::problem::Problem;
use crate::table::Answer;

/// A worker as programs read it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// Its session.
    pub id: SessionId,
    /// For people: host, process id, program.
    pub label: String,
    /// Longshore's version there.
    pub version: String,
    /// What it can run.
    pub kinds: Vec<Kind>,
    /// How much at once.
    pub slots: u32,
    /// How many units it has.
    pub held: u64,
    /// What it was asked to do.
    pub order: Order,
    /// Since when it is there.
    pub opened_at: Timestamp,
    /// When it was last heard of.
    pub beat_at: Timestamp,
    /// How often it was heard of.
    pub beats: u64,
    /// After so long without a word it counts as dead.
    pub ttl_seconds: f64,
    /// CPU time that it and its children have used, if it says.
    pub cpu_seconds: Option<f64>,
}

impl From<Session> for Shown {
    fn from(session: Session) -> Self {
        let Session { id, label, version, kinds, slots, held, order, beats, .. } = session;
        let (opened_at, beat_at) = (session.opened_at, session.beat_at);
        let ttl_seconds = session.ttl.as_secs_f64();
        let cpu_seconds = session.cpu.map(|cpu| cpu.as_secs_f64());
        Self {
            id,
            label,
            version,
            kinds,
            slots,
            held,
            order,
            opened_at,
            beat_at,
            beats,
            ttl_seconds,
            cpu_seconds,
        }
    }
}

/// The way back, for who reads it.
impl From<Shown> for Session {
    fn from(shown: Shown) -> Self {
        let Shown { id, label, version, kinds, slots, held, order, beats, .. } = shown;
        let (opened_at, beat_at) = (shown.opened_at, shown.beat_at);
        let ttl = Duration::try_from_secs_f64(shown.ttl_seconds).unwrap_or_default();
        let cpu = shown.cpu_seconds.and_then(|cpu| Duration::try_from_secs_f64(cpu).ok());
        Self { id, label, version, kinds, slots, ttl, beats, opened_at, beat_at, held, order, cpu }
    }
}

/// An order that was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ordered {
    worker: SessionId,
    order: Order,
}

pub(super) async fn list(call: Call) -> Answer {
    let sessions = call.house.store.sessions().await?;
    let items: Vec<Shown> = sessions.into_iter().map(Shown::from).collect();
    json(&Page { items, next: None })
}

pub(super) async fn quiet(call: Call) -> Answer {
    order(call, Order::Quiet).await
}

pub(super) async fn work(call: Call) -> Answer {
    order(call, Order::Work).await
}

pub(super) async fn drain(call: Call) -> Answer {
    order(call, Order::Drain).await
}

pub(super) async fn stop(call: Call) -> Answer {
    order(call, Order::Stop).await
}

async fn order(call: Call, order: Order) -> Answer {
    let id: SessionId = call.path("worker").map_err(|_| Problem::bad("a worker's id is a UUID"))?;
    let sessions = call.house.store.sessions().await?;
    let found = sessions.iter().find(|session| session.id == id);
    let label = &found.ok_or_else(|| Error::not_found("worker", id))?.label;
    call.note(None, id, label).await?;
    call.house.store.order(id, order).await?;
    json(&Ordered { worker: id, order })
}
