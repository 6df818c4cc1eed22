//! `queue`: looking at queues, pausing, resuming and purging them.

use std::io::{BufRead, IsTerminal};

use longshore::store::{Operated, QueueChange, QueueInfo, UnitAction, UnitSelection};
use longshore::{Error, QueueName, Store, UnitState};
use serde::Serialize;

use super::unit::told;
use super::{connect, now};
use crate::args::operate::Queue as Typed;
use crate::error::{WithHint, usage};
use crate::exit::ExitCode;
use crate::output::{Table, cell, right};
use crate::settings::Settings;
use crate::span::ago;

/// The states in which a unit waits.
const WAITING: [UnitState; 3] = [UnitState::Blocked, UnitState::Scheduled, UnitState::Ready];

/// Runs the command.
pub async fn run(typed: Typed, settings: &Settings) -> anyhow::Result<ExitCode> {
    let (store, _) = connect(settings)?;
    match typed {
        Typed::List => {
            let lanes = store.queues(&settings.scope()).await?;
            settings.output.list(&lanes, || table(&lanes))?;
        }
        Typed::Show { queue } => show(&*store, &queue, settings).await?,
        Typed::Pause { queue } => pause(&*store, &queue, true, settings).await?,
        Typed::Resume { queue } => pause(&*store, &queue, false, settings).await?,
        Typed::Purge { queue, yes } => return purge(&*store, &queue, yes, settings).await,
    }
    Ok(ExitCode::Good)
}

async fn lanes(
    store: &dyn Store,
    queue: &QueueName,
    settings: &Settings,
) -> anyhow::Result<Vec<QueueInfo>> {
    let mut lanes = store.queues(&settings.scope()).await?;
    lanes.retain(|lane| lane.queue == *queue);
    if lanes.is_empty() {
        return Err(Error::not_found("queue", queue))
            .hint("`longshore queue list` shows the queues; one appears with its first unit");
    }
    Ok(lanes)
}

async fn show(store: &dyn Store, queue: &QueueName, settings: &Settings) -> anyhow::Result<()> {
    let lanes = lanes(store, queue, settings).await?;
    settings.output.list(&lanes, || table(&lanes))
}

fn table(lanes: &[QueueInfo]) -> Table {
    let [blocked, scheduled, ready, leased] =
        ["blocked", "scheduled", "ready", "leased"].map(right);
    let [done, failed, cancelled] = ["done", "failed", "cancelled"].map(right);
    let heading = [
        cell("queue"),
        cell("tenant"),
        cell("state"),
        blocked,
        scheduled,
        ready,
        leased,
        done,
        failed,
        cancelled,
        cell("oldest ready"),
    ];
    let mut table = Table::new(heading, "no queues");
    let now = now();
    for lane in lanes {
        let counts = &lane.counts;
        table.row([
            cell(&lane.queue),
            cell(&lane.tenant),
            cell(if lane.paused { "paused" } else { "open" }),
            right(counts.blocked),
            right(counts.scheduled),
            right(counts.ready),
            right(counts.leased),
            right(counts.done),
            right(counts.failed),
            right(counts.cancelled),
            cell(lane.oldest_ready.map_or(String::new(), |time| ago(time, now))),
        ]);
    }
    table
}

async fn pause(
    store: &dyn Store,
    queue: &QueueName,
    paused: bool,
    settings: &Settings,
) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct Answer<'a> {
        queue: &'a QueueName,
        paused: bool,
    }
    let change = QueueChange { paused: Some(paused), ..QueueChange::default() };
    store.change_queue(&settings.scope(), queue, change).await?;
    let is = if paused { "paused" } else { "open" };
    settings.output.answer(&Answer { queue, paused }, || format!("queue `{queue}` is {is}"))
}

async fn purge(
    store: &dyn Store,
    queue: &QueueName,
    yes: bool,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let lanes = lanes(store, queue, settings).await?;
    let waiting: u64 = lanes.iter().map(|lane| lane.counts.live() - lane.counts.leased).sum();
    if !yes && !agreed(waiting, queue, settings)? {
        return Ok(ExitCode::Cancelled);
    }
    let mut all = Operated::default();
    for state in WAITING {
        let selection = UnitSelection::Queue(queue.clone(), state);
        let done = store.operate_units(&settings.scope(), selection, UnitAction::Cancel).await?;
        all.changed += done.changed;
        all.requested += done.requested;
        all.skipped += done.skipped;
    }
    settings.output.answer(&all, || told(&all, "units cancelled"))?;
    Ok(ExitCode::Good)
}

fn agreed(waiting: u64, queue: &QueueName, settings: &Settings) -> anyhow::Result<bool> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(usage("purging asks first, and nobody is there to answer"))
            .hint("say --yes if you mean it");
    }
    settings.output.note(format!("Cancel {waiting} waiting units of queue `{queue}`? [y/N]"));
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
