//! Workers and commands to them.

use std::time::Duration;

use longshore::worker_session::{Session, WorkerCommand};
use longshore::{Error, Kind, SessionId, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::endpoints::ApiResult;
use crate::problem::Problem;
use crate::request_context::{RequestContext, json};

/// A worker with its session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerView {
    /// The session id.
    pub id: SessionId,
    /// Host, process id and program, for people.
    pub label: String,
    /// Its Longshore version.
    pub version: String,
    /// Kinds that it can run.
    pub kinds: Vec<Kind>,
    /// Number of slots.
    pub slots: u32,
    /// Number of units it holds.
    pub held: u64,
    /// Its current command.
    pub order: WorkerCommand,
    /// When its session was opened.
    pub opened_at: Timestamp,
    /// When its last heartbeat came.
    pub beat_at: Timestamp,
    /// Number of heartbeats.
    pub beats: u64,
    /// It counts as dead after so long without a heartbeat.
    pub ttl_seconds: f64,
    /// CPU time of the worker and its children, if it reports it.
    pub cpu_seconds: Option<f64>,
}

impl From<Session> for WorkerView {
    fn from(session: Session) -> Self {
        let Session { id, label, version, kinds, slots, held, command: order, beats, .. } = session;
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

/// For the client.
impl From<WorkerView> for Session {
    fn from(view: WorkerView) -> Self {
        let WorkerView { id, label, version, kinds, slots, held, order, beats, .. } = view;
        let (opened_at, beat_at) = (view.opened_at, view.beat_at);
        let ttl = Duration::try_from_secs_f64(view.ttl_seconds).unwrap_or_default();
        let cpu = view.cpu_seconds.and_then(|cpu| Duration::try_from_secs_f64(cpu).ok());
        let (command, process) = (order, None);
        Self { id, label, version, kinds, slots, ttl, beats, opened_at, beat_at, held, command, cpu, process }
    }
}

/// The response to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct WorkerCommandResponse {
    worker: SessionId,
    order: WorkerCommand,
}

pub(super) async fn list(ctx: RequestContext) -> ApiResult {
    let sessions = ctx.app.store.sessions().await?;
    let items: Vec<WorkerView> = sessions.into_iter().map(WorkerView::from).collect();
    ctx.page(items, |worker| worker.id.to_string())
}

pub(super) async fn quiet(ctx: RequestContext) -> ApiResult {
    send_command(ctx, WorkerCommand::Quiet).await
}

pub(super) async fn work(ctx: RequestContext) -> ApiResult {
    send_command(ctx, WorkerCommand::Work).await
}

pub(super) async fn drain(ctx: RequestContext) -> ApiResult {
    send_command(ctx, WorkerCommand::Drain).await
}

pub(super) async fn stop(ctx: RequestContext) -> ApiResult {
    send_command(ctx, WorkerCommand::Stop).await
}

async fn send_command(ctx: RequestContext, order: WorkerCommand) -> ApiResult {
    let id: SessionId = ctx.path("worker").map_err(|_| Problem::bad_request("a worker's id is a UUID"))?;
    let sessions = ctx.app.store.sessions().await?;
    let found = sessions.iter().find(|session| session.id == id);
    let label = &found.ok_or_else(|| Error::not_found("worker", id))?.label;
    ctx.audit(None, id, label).await?;
    ctx.app.store.command_worker(id, order).await?;
    json(&WorkerCommandResponse { worker: id, order })
}
