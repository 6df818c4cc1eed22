//! `workers`: lists workers and sends them commands.

use longshore::SessionId;
use longshore::duration::{self, format_ago};
use longshore::worker_session::{Session, WorkerCommand};
use rustix::process::{Signal, kill_process};
use serde::Serialize;

use super::{connect, now};
use crate::args::unit_worker::{SessionPrefix, WorkersArgs, WorkersCommand};
use crate::error::WithHint;
use crate::exit::ExitCode;
use crate::output::{Table, cell, right};
use crate::settings::Settings;
use crate::supervise::pidfile::running_pid;

/// Runs the command.
pub async fn run(typed: WorkersArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    if let Some(WorkersCommand::Refresh) = typed.order {
        return refresh(settings);
    }
    let (store, _) = connect(settings).await?;
    let sessions = store.sessions().await?;
    let (target, order) = match typed.order {
        None | Some(WorkersCommand::List | WorkersCommand::Refresh) => {
            settings.output.list(&sessions, || table(&sessions))?;
            return Ok(ExitCode::Good);
        }
        Some(WorkersCommand::Work(target)) => (target, WorkerCommand::Work),
        Some(WorkersCommand::Quiet(target)) => (target, WorkerCommand::Quiet),
        Some(WorkersCommand::Drain(target)) => (target, WorkerCommand::Drain),
        Some(WorkersCommand::Stop(target)) => (target, WorkerCommand::Stop),
    };
    let session = find(&sessions, &target.id)?;
    store.command_worker(session, order).await?;
    answer(session, order, settings)?;
    Ok(ExitCode::Good)
}

/// Signals the supervisor on this machine.
fn refresh(settings: &Settings) -> anyhow::Result<ExitCode> {
    let supervisor = running_pid(&settings.supervise.pid_file)?;
    kill_process(supervisor, Signal::HUP)?;
    let pid = supervisor.as_raw_nonzero();
    settings.output.answer(&serde_json::json!({ "supervisor": pid }), || {
        format!("supervisor {pid} replaces its processes one by one")
    })?;
    Ok(ExitCode::Good)
}

fn find(sessions: &[Session], wanted: &SessionPrefix) -> anyhow::Result<SessionId> {
    let mut found = sessions.iter().map(|s| s.id).filter(|id| wanted.matches(*id));
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        (Some(_), Some(_)) => {
            Err(anyhow::anyhow!("several workers' ids begin with `{wanted}`")).hint("give more characters")
        }
        (None, _) => {
            Err(longshore::Error::not_found("worker", wanted)).hint("`longshore workers` lists the workers")
        }
    }
}

fn answer(session: SessionId, order: WorkerCommand, settings: &Settings) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct CommandResult {
        worker: SessionId,
        order: WorkerCommand,
    }
    settings.output.answer(&CommandResult { worker: session, order }, || {
        format!("worker {session} gets the command with its next heartbeat: {}", order.as_str())
    })
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
            cell(session.command.as_str()),
            right(session.slots),
            right(session.held),
            right(session.cpu.map_or_else(String::new, duration::format)),
            cell(kinds.join(",")),
            cell(format_ago(session.opened_at, now)),
            cell(format_ago(session.beat_at, now)),
        ]);
    }
    table
}
