//! `queue`: shows, pauses, resumes, bounds and purges queues.

use longshore::duration::format_ago;
use longshore::store::{QueueInfo, UnitActionResult};
use longshore::{Error, QueueName, TenantId, UnitState};
use longshore_dispatch::request::QueueSettings;
use serde::Serialize;

use super::unit::operation_text;
use super::{confirm, now};
use crate::args::queue::{LaneArg, QueueCommand as Typed};
use crate::error::WithHint;
use crate::exit::ExitCode;
use crate::output::{Table, cell, right};
use crate::settings::Settings;

mod set;
mod source;

use source::QueueSource;

/// The states in which a unit waits.
const WAITING: [UnitState; 3] = [UnitState::Blocked, UnitState::Scheduled, UnitState::Ready];

/// Runs the command.
pub async fn run(typed: Typed, settings: &Settings) -> anyhow::Result<ExitCode> {
    let folder = match &typed {
        Typed::List { pool } | Typed::Show { pool, .. } => &pool.dir,
        Typed::Pause { pool, .. } | Typed::Resume { pool, .. } => &pool.dir,
        Typed::Set(change) => &change.pool.dir,
        Typed::Purge { pool, .. } => &pool.dir,
    };
    let mut queues = QueueSource::open(folder.clone(), settings).await?;
    match typed {
        Typed::List { .. } => {
            let lanes = queues.list().await?;
            settings.output.list(&lanes, || table(&lanes))?;
        }
        Typed::Show { queue, .. } => show(&mut queues, &queue, settings).await?,
        Typed::Pause { lane, .. } => pause(&mut queues, &lane, true, settings).await?,
        Typed::Resume { lane, .. } => pause(&mut queues, &lane, false, settings).await?,
        Typed::Set(change) => set::run(&mut queues, &change, settings).await?,
        Typed::Purge { queue, yes, .. } => return purge(&mut queues, &queue, yes, settings).await,
    }
    Ok(ExitCode::Good)
}

async fn lanes(queues: &mut QueueSource, queue: &QueueName) -> anyhow::Result<Vec<QueueInfo>> {
    let mut lanes = queues.list().await?;
    lanes.retain(|lane| lane.queue == *queue);
    if lanes.is_empty() {
        return Err(Error::not_found("queue", queue))
            .hint("`longshore queue list` shows the queues; one appears with its first unit");
    }
    Ok(lanes)
}

async fn show(queues: &mut QueueSource, queue: &QueueName, settings: &Settings) -> anyhow::Result<()> {
    let lanes = lanes(queues, queue).await?;
    settings.output.list(&lanes, || table(&lanes))?;
    if settings.output.is_json() {
        return Ok(());
    }
    settings.output.line("")?;
    settings.output.list(&lanes, || set::table(&lanes))
}

fn table(lanes: &[QueueInfo]) -> Table {
    let [blocked, scheduled, ready, leased] = ["blocked", "scheduled", "ready", "leased"].map(right);
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
            cell(state(lane)),
            right(counts.blocked),
            right(counts.scheduled),
            right(counts.ready),
            right(counts.leased),
            right(counts.done),
            right(counts.failed),
            right(counts.cancelled),
            cell(lane.oldest_ready.map_or(String::new(), |time| format_ago(time, now))),
        ]);
    }
    table
}

fn state(lane: &QueueInfo) -> &'static str {
    match (lane.suspended, lane.paused) {
        (true, _) => "suspended",
        (false, true) => "paused",
        (false, false) => "open",
    }
}

async fn pause(
    queues: &mut QueueSource,
    typed: &LaneArg,
    paused: bool,
    settings: &Settings,
) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct PauseResult<'a> {
        queue: &'a QueueName,
        #[serde(skip_serializing_if = "Option::is_none")]
        lane: Option<&'a TenantId>,
        paused: bool,
    }
    let (queue, lane) = (&typed.queue, set::lane(typed, settings));
    let change = QueueSettings { paused: Some(paused), ..QueueSettings::default() };
    queues.change(queue, lane, change).await?;
    let is = if paused { "paused" } else { "open" };
    let answer = PauseResult { queue, lane, paused };
    settings.output.answer(&answer, || format!("{} is {is}", set::name(queue, lane)))
}

async fn purge(
    queues: &mut QueueSource,
    queue: &QueueName,
    yes: bool,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let lanes = lanes(queues, queue).await?;
    let waiting: u64 = lanes.iter().map(|lane| lane.counts.live() - lane.counts.leased).sum();
    let question = format!("Cancel {waiting} waiting units of queue `{queue}`?");
    if !yes && !confirm(&question, settings)? {
        return Ok(ExitCode::Cancelled);
    }
    let mut all = UnitActionResult::default();
    for state in WAITING {
        let done = queues.cancel(queue, state).await?;
        all.changed += done.changed;
        all.requested += done.requested;
        all.skipped += done.skipped;
    }
    settings.output.answer(&all, || operation_text(&all, "units cancelled"))?;
    Ok(ExitCode::Good)
}
