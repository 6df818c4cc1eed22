//! `dispatch worker`: single workers of a pool.

use std::time::Duration;

use longshore::{ResourceAmount, byte_size, duration};
use longshore_dispatch::request::{ClientRequest, ServerReply, WorkerAction, WorkerDetails, WorkerStatus};
use longshore_dispatch::scheduler::{amount, label};

use super::status::{short_uid, worker_table};
use super::{connect, unexpected_reply};
use crate::args::dispatch::{PoolWorkerArgs, PoolWorkerCommand};
use crate::args::dispatch_pool::DispatchPoolArg;
use crate::exit::ExitCode;
use crate::output::Table;
use crate::settings::Settings;

/// Runs the command.
pub async fn run(typed: PoolWorkerCommand, settings: &Settings) -> anyhow::Result<ExitCode> {
    match typed {
        PoolWorkerCommand::List(pool) => {
            let all = request(&pool, Vec::new(), WorkerAction::Show, settings).await?;
            let statuses: Vec<&WorkerStatus> = all.iter().map(|worker| &worker.status).collect();
            settings.output.list(&all, || worker_table(statuses))?;
        }
        PoolWorkerCommand::Info(PoolWorkerArgs { workers, pool }) => {
            let all = request(&pool, workers, WorkerAction::Show, settings).await?;
            if settings.output.is_json() {
                settings.output.json(&all)?;
                return Ok(ExitCode::Good);
            }
            for (number, worker) in all.iter().enumerate() {
                if number > 0 {
                    settings.output.line("")?;
                }
                settings.output.record(worker, || record(worker))?;
            }
        }
        PoolWorkerCommand::Drain(typed) => {
            let action = WorkerAction::Drain(typed.drain_timeout.0);
            end(typed.workers, action, "leaves when its scripts have ended", settings).await?;
        }
        PoolWorkerCommand::Stop(typed) => end(typed, WorkerAction::Stop, "stops", settings).await?,
    }
    Ok(ExitCode::Good)
}

async fn request(
    pool: &DispatchPoolArg,
    workers: Vec<String>,
    action: WorkerAction,
    settings: &Settings,
) -> anyhow::Result<Vec<WorkerDetails>> {
    let mut client = connect(pool, settings).await?;
    match client.request(&ClientRequest::Workers(workers, action)).await? {
        ServerReply::Workers(workers) => Ok(workers),
        other => Err(unexpected_reply(&other)),
    }
}

async fn end(
    typed: PoolWorkerArgs,
    action: WorkerAction,
    word: &str,
    settings: &Settings,
) -> anyhow::Result<()> {
    let ended = request(&typed.pool, typed.workers, action, settings).await?;
    settings.output.answer(&ended, || {
        let lines = ended.iter().map(|WorkerDetails { status, running, .. }| {
            let (uid, scripts) = (short_uid(&status.uid), running.len());
            format!("worker {uid} on {} {word}; {scripts} scripts run", status.host)
        });
        lines.collect::<Vec<_>>().join("\n")
    })
}

fn record(worker: &WorkerDetails) -> Table {
    let WorkerDetails {
        status,
        version,
        launch,
        resources,
        available_memory,
        interrupts_in,
        running,
        waiting,
    } = worker;
    let mut table = Table::record();
    table.field("worker", &status.uid);
    table.field("host", format!("{}, process {}", status.host, status.pid));
    table.field("state", &status.mood);
    table.field("version", version);
    if let Some(launch) = launch {
        table.field("launch", launch);
    }
    table.field(
        "threads",
        format!("{} of {} are free", status.threads.saturating_sub(status.load), status.threads),
    );
    for (name, (has, free)) in resources {
        table.field(
            label(name),
            format!("{} of {} are free", amount(name, *free), amount(name, ResourceAmount::whole(*has))),
        );
    }
    table.field("load", format!("{:.2}", status.average));
    table.field("memory of its host", format!("{} are available", byte_size::format(available_memory << 20)));
    if let Some(time) = interrupts_in {
        let time = Duration::from_secs(time.0.as_secs());
        table.field("interrupts scripts", format!("in {}", duration::format(time)));
    }
    for unit in running {
        table.field("runs", unit);
    }
    if !waiting.is_empty() {
        table.field("has waiting", waiting.len());
    }
    table
}
