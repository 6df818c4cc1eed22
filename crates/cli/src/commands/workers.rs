//! `workers`: who works, and giving orders.

use longshore::SessionId;
use longshore::session::{Order, Session};
use rustix::process::{Signal, kill_process};
use serde::Serialize;

use super::{connect, now};
use crate::args::operate::{SessionPrefix, WorkerOrder, Workers};
use crate::error::WithHint;
use crate::exit::ExitCode;
use crate::output::{Table, cell, right};
use crate::settings::Settings;
use crate::span::{ago, brief};
use crate::supervise::lock::holder;

/// Runs the command.
pub async fn run(typed: Workers, settings: &Settings) -> anyhow::Result<ExitCode> {
    if let Some(WorkerOrder::Refresh) = typed.order {
        return refresh(settings);
    }
    let (store, _) = connect(settings).await?;
    let sessions = store.sessions().await?;
    let (who, order) = match typed.order {
        None | Some(WorkerOrder::List | WorkerOrder::Refresh) => {
            settings.output.list(&sessions, || table(&sessions))?;
            return Ok(ExitCode::Good);
        }
        Some(WorkerOrder::Work(who)) => (who, Order::Work),
        Some(WorkerOrder::Quiet(who)) => (who, Order::Quiet),
        Some(WorkerOrder::Drain(who)) => (who, Order::Drain),
        Some(WorkerOrder::Stop(who)) => (who, Order::Stop),
    };
    let session = find(&sessions, &who.id)?;
    store.order(session, order).await?;
    answer(session, order, settings)?;
    Ok(ExitCode::Good)
}

/// Tells the supervisor on this machine.
fn refresh(settings: &Settings) -> anyhow::Result<ExitCode> {
    let supervisor = holder(&settings.supervise.pid_file)?;
    kill_process(supervisor, Signal::HUP)?;
    let pid = supervisor.as_raw_nonzero();
    settings.output.answer(&serde_json::json!({ "supervisor": pid }), || {
        format!("supervisor {pid} replaces its processes, one after the other")
    })?;
    Ok(ExitCode::Good)
}

fn find(sessions: &[Session], wanted: &SessionPrefix) -> anyhow::Result<SessionId> {
    let mut found = sessions.iter().map(|s| s.id).filter(|id| wanted.matches(*id));
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        (Some(_), Some(_)) => Err(anyhow::anyhow!("several workers' ids begin with `{wanted}`"))
            .hint("write more of it"),
        (None, _) => Err(longshore::Error::not_found("worker", wanted))
            .hint("`longshore workers` shows who is there"),
    }
}

fn answer(session: SessionId, order: Order, settings: &Settings) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct Answer {
        worker: SessionId,
        order: Order,
    }
    settings.output.answer(&Answer { worker: session, order }, || {
        format!("worker {session} will hear it with its next heartbeat: {}", name(order))
    })
}

fn name(order: Order) -> &'static str {
    match order {
        Order::Work => "work",
        Order::Quiet => "quiet",
        Order::Drain => "drain",
        Order::Stop => "stop",
    }
}

fn table(sessions: &[Session]) -> Table {
    let [worker, label, order] = ["worker", "label", "order"].map(cell);
    let heading = [
        worker,
        label,
        order,
        right("slots"),
        right("held"),
        right("cpu"),
        cell("kinds"),
        cell("since"),
        cell("last beat"),
    ];
    let mut table = Table::new(heading, "no workers");
    let now = now();
    for session in sessions {
        let kinds: Vec<&str> = session.kinds.iter().map(longshore::Kind::as_str).collect();
        table.row([
            cell(session.id),
            cell(&session.label),
            cell(name(session.order)),
            right(session.slots),
            right(session.held),
            right(session.cpu.map_or_else(String::new, brief)),
            cell(kinds.join(",")),
            cell(ago(session.opened_at, now)),
            cell(ago(session.beat_at, now)),
        ]);
    }
    table
}
