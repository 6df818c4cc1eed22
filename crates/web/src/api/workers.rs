//! Workers: who they are, and orders to them.

use longshore::session::{Order, Session};
use longshore::store::Page;
use longshore::{Error, Kind, SessionId, Timestamp};
use serde::Serialize;

use crate::call::{Call, json};
use crate::problem::Problem;
use crate::table::Answer;

/// A worker as programs read it.
#[derive(Debug, Serialize)]
pub(crate) struct Shown {
    pub(crate) id: SessionId,
    pub(crate) label: String,
    pub(crate) version: String,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) slots: u32,
    pub(crate) held: u64,
    pub(crate) order: Order,
    pub(crate) opened_at: Timestamp,
    pub(crate) beat_at: Timestamp,
    pub(crate) ttl_seconds: f64,
    /// CPU time that it and its children have used, if it says.
    pub(crate) cpu_seconds: Option<f64>,
}

impl From<Session> for Shown {
    fn from(session: Session) -> Self {
        Self {
            id: session.id,
            label: session.label,
            version: session.version,
            kinds: session.kinds,
            slots: session.slots,
            held: session.held,
            order: session.order,
            opened_at: session.opened_at,
            beat_at: session.beat_at,
            ttl_seconds: session.ttl.as_secs_f64(),
            cpu_seconds: session.cpu.map(|cpu| cpu.as_secs_f64()),
        }
    }
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
    #[derive(Serialize)]
    struct Ordered {
        worker: SessionId,
        order: Order,
    }
    let id: SessionId = call.path("worker").map_err(|_| Problem::bad("a worker's id is a UUID"))?;
    let sessions = call.house.store.sessions().await?;
    let found = sessions.iter().find(|session| session.id == id);
    let label = &found.ok_or_else(|| Error::not_found("worker", id))?.label;
    call.note(None, id, label).await?;
    call.house.store.order(id, order).await?;
    json(&Ordered { worker: id, order })
}
