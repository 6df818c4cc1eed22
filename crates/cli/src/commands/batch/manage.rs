//! Every verb of `batch`: running batch files, and looking at batches and steering them.

use std::collections::HashSet;

use longshore::batch::BatchAction;
use longshore::ledger::ParkedCounts;
use longshore::{Batch, BatchId, BatchStatus, Client, Timestamp, UnitState};
use longshore_dispatch::request::ArrayAction;

use super::place::{connect_to, connect_to_both};
use super::record::Summary;
use super::{bulk, drain, recover, report, rows, run_file, start, summary};
use crate::args::batch::{Batch as Typed, Named, Somewhere};
use crate::args::operate::{InPool, PageArgs};
use crate::commands::dispatch::arrays;
use crate::commands::{Connected, connect, now, watch};
use crate::exit::ExitCode;
use crate::output::{Table, cell, right};
use crate::settings::Settings;
use crate::span::{ago, brief};

/// Runs the command.
pub async fn run(typed: Typed, settings: &Settings) -> anyhow::Result<ExitCode> {
    let (batch, action) = match typed {
        Typed::Run(typed) => return run_file(*typed, settings).await,
        Typed::Start(typed) => return start(*typed, settings).await,
        Typed::Recover { names } => return recover::run(names, settings).await,
        Typed::List { status, page, pool } => return list(status, &page, &pool, settings).await,
        Typed::Status(batch) => return status(&batch.batch.name, &batch.pool, settings).await,
        Typed::Watch { batch: Somewhere { batch: Named { name }, pool }, limit } => {
            let limit = limit.map(|span| span.0);
            if let Some(folder) = &pool.dir {
                return watch::run_in(folder, &name, limit, settings).await;
            }
            let (_, client) = connect_to(&name, settings).await?;
            return watch::run(&client, &name, limit, settings).await;
        }
        Typed::Drain { batch: Somewhere { batch: Named { name }, pool }, limit } => {
            let limit = limit.map(|span| span.0);
            if let Some(folder) = &pool.dir {
                return drain::run_in(folder, &name, limit, settings).await;
            }
            let (_, client) = connect_to(&name, settings).await?;
            return drain::run(&client, &name, limit, settings).await;
        }
        Typed::Rows { batch: Somewhere { batch: Named { name }, pool }, failed, state, page } => {
            let state = if failed { Some(UnitState::Failed) } else { state };
            return rows::run(&name, &pool, state, &page, settings).await;
        }
        Typed::Report { batch: Somewhere { batch: Named { name }, pool }, html, output } => {
            return report::run(&name, &pool, html, output.as_deref(), settings).await;
        }
        Typed::Pause { batch, reason } => (batch, ArrayAction::Pause { reason }),
        Typed::Resume(batch) => (batch, ArrayAction::Resume),
        Typed::Cancel(batch) => (batch, ArrayAction::Cancel),
        // Whether or not --failed was said: there is nothing else to retry.
        Typed::Retry { batch, failed: _ } => (batch, ArrayAction::Retry),
    };
    let name = batch.batch.name;
    if let Some(folder) = &batch.pool.dir {
        let array = arrays::steer(folder, &name, Some(action), settings).await?;
        return steered(&array, settings);
    }
    let action = match action {
        ArrayAction::Pause { reason } => BatchAction::Pause { reason },
        ArrayAction::Resume => BatchAction::Resume,
        ArrayAction::Cancel => BatchAction::Cancel,
        ArrayAction::Retry => BatchAction::RetryFailed,
    };
    let (_, client) = connect_to(&name, settings).await?;
    act(&client, &name, action, settings).await
}

/// Whether a command knows better ways to end at a signal than to be dropped.
pub fn obeys_signals(typed: &Typed) -> bool {
    matches!(typed, Typed::Run(_) | Typed::Start(_) | Typed::Recover { .. })
}

async fn list(
    status: Option<BatchStatus>,
    page: &PageArgs,
    pool: &InPool,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let (found, next) = match &pool.dir {
        Some(folder) => arrays::list(folder, status, page, settings).await?,
        None => {
            let (store, client) = connect(settings).await?;
            let (scope, after) = (client.scope(), page.after.as_deref());
            let found = store.batches(scope, status, after, page.limit).await?;
            (found.items, found.next)
        }
    };
    let items: Vec<Summary<'_>> = found.iter().map(Summary::of).collect();
    settings.output.list(&items, || table(&found))?;
    if let Some(next) = next {
        settings.output.note(format!("more with --after {next}"));
    }
    Ok(ExitCode::Good)
}

fn table(batches: &[Batch]) -> Table {
    let heading = ["batch", "status"].map(cell);
    let numbers = ["total", "done", "failed", "cancelled", "left"].map(right);
    let [name, status] = heading;
    let [total, done, failed, cancelled, left] = numbers;
    let heading = [name, status, total, done, failed, cancelled, left, cell("initiated")];
    let mut table = Table::new(heading, "no batches");
    let now = now();
    for batch in batches {
        let counts = &batch.counts;
        table.row([
            cell(&batch.id),
            cell(batch.status),
            right(counts.total()),
            right(counts.done),
            right(counts.failed),
            right(counts.cancelled),
            right(counts.live()),
            cell(ago(batch.initiated_at, now)),
        ]);
    }
    table
}

async fn status(name: &BatchId, pool: &InPool, settings: &Settings) -> anyhow::Result<ExitCode> {
    if let Some(folder) = &pool.dir {
        let array = arrays::steer(folder, name, None, settings).await?;
        settings.output.record(&Summary::of(&array), || record(&array, None))?;
        return Ok(ExitCode::Good);
    }
    let (batch, parked) = looked_at(name, settings).await?;
    let summary = Summary::of(&batch).with_parked(parked);
    settings.output.record(&summary, || record(&batch, parked))?;
    Ok(ExitCode::Good)
}

/// A batch, and what of it is with a provider, which only the store itself knows.
async fn looked_at(
    name: &BatchId,
    settings: &Settings,
) -> anyhow::Result<(Batch, Option<ParkedCounts>)> {
    if settings.server.is_some() {
        let (store, client) = connect_to(name, settings).await?;
        return Ok((store.batch(client.scope(), name).await?, None));
    }
    let Connected { store, ledger, client } = connect_to_both(name, settings).await?;
    let batch = store.batch(client.scope(), name).await?;
    let parked = ledger.parked(name).await?;
    Ok((batch, (parked.total() > 0).then_some(parked)))
}

fn record(batch: &Batch, parked: Option<ParkedCounts>) -> Table {
    let now = now();
    let time = |time: Option<Timestamp>| time.map_or(String::new(), |time| ago(time, now));
    let counts = &batch.counts;
    let mut table = Table::record();
    table.field("batch", &batch.id);
    table.field("status", batch.status);
    table.field("reason", batch.reason.as_deref().unwrap_or_default());
    table
        .field("total", format!("{}{}", counts.total(), if batch.sealed { "" } else { " so far" }));
    for state in longshore::UnitState::ALL {
        if counts.of(state) > 0 {
            table.field(state.as_str(), counts.of(state));
        }
    }
    if let Some(ParkedCounts { waiting, out, answered }) = parked {
        let words = format!("{out} out, {waiting} waiting to go, {answered} answered");
        table.field("with the provider", words);
    }
    table.field("type", &batch.kind);
    table.field("notes", &batch.notes);
    table.field("initiated", format!("{} {}", time(Some(batch.initiated_at)), by(batch)));
    table.field("started", time(batch.started_at));
    table.field("completed", time(batch.completed_at));
    if let (Some(start), Some(end)) = (batch.started_at, batch.completed_at) {
        table.field("took", brief(end.since(start)));
    }
    table.field("cost", summary::money(batch));
    if batch.generation > 1 {
        table.field("generation", batch.generation);
    }
    table
}

fn by(batch: &Batch) -> String {
    if batch.initiated_by.is_empty() { String::new() } else { format!("by {}", batch.initiated_by) }
}

async fn act(
    client: &Client,
    name: &BatchId,
    action: BatchAction,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let cancels = action == BatchAction::Cancel;
    let batch = client.store().operate_batch(client.scope(), name, action).await?;
    if cancels {
        // What is with a provider is to be cancelled now, and not at the next look.
        let woken = bulk::wake(&**client.store(), client.scope(), &HashSet::from([name])).await;
        woken.inspect_err(|error| tracing::debug!(%error, "nobody was woken")).ok();
    }
    steered(&batch, settings)
}

fn steered(batch: &Batch, settings: &Settings) -> anyhow::Result<ExitCode> {
    let words = || format!("batch `{}` is {}", batch.id, batch.status);
    settings.output.answer(&Summary::of(batch), words)?;
    Ok(ExitCode::Good)
}
