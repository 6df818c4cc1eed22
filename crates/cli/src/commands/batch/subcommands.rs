//! The subcommands of `batch`.

use std::collections::HashSet;

use longshore::accounts::PendingCounts;
use longshore::batch::BatchAction;
use longshore::duration::{self, format_ago};
use longshore::{Batch, BatchId, BatchStatus, Client, Timestamp, UnitState};
use longshore_dispatch::request::ArrayAction;

use super::batch_json::BatchSummary;
use super::context::{connect_to_batch, connect_to_batch_with_ledger};
use super::{drain, provider_batch, recover, report, rows, run_file, start, summary};
use crate::args::batch::{BatchCommand as Typed, BatchNameArg, BatchTarget};
use crate::args::unit_worker::{PageArgs, PoolTarget};
use crate::commands::dispatch::arrays;
use crate::commands::{StoreHandles, connect, now, watch};
use crate::exit::ExitCode;
use crate::output::{Table, cell, right};
use crate::settings::Settings;

/// Runs the command.
pub async fn run(typed: Typed, settings: &Settings) -> anyhow::Result<ExitCode> {
    let (batch, action) = match typed {
        Typed::Run(typed) => return run_file(*typed, settings).await,
        Typed::Start(typed) => return start(*typed, settings).await,
        Typed::Recover { names } => return recover::run(names, settings).await,
        Typed::List { status, page, pool } => return list(status, &page, &pool, settings).await,
        Typed::Status(batch) => return status(&batch.batch.name, &batch.pool, settings).await,
        Typed::Watch { batch: BatchTarget { batch: BatchNameArg { name }, pool }, limit } => {
            let limit = limit.map(|span| span.0);
            if let Some(folder) = &pool.dir {
                return watch::run_in_pool(folder, &name, limit, settings).await;
            }
            let (_, client) = connect_to_batch(&name, settings).await?;
            return watch::run(&client, &name, limit, settings).await;
        }
        Typed::Drain { batch: BatchTarget { batch: BatchNameArg { name }, pool }, limit } => {
            let limit = limit.map(|span| span.0);
            if let Some(folder) = &pool.dir {
                return drain::run_in_pool(folder, &name, limit, settings).await;
            }
            let (_, client) = connect_to_batch(&name, settings).await?;
            return drain::run(&client, &name, limit, settings).await;
        }
        Typed::Rows { batch: BatchTarget { batch: BatchNameArg { name }, pool }, failed, state, page } => {
            let state = if failed { Some(UnitState::Failed) } else { state };
            return rows::run(&name, &pool, state, &page, settings).await;
        }
        Typed::Report { batch: BatchTarget { batch: BatchNameArg { name }, pool }, html, output } => {
            return report::run(&name, &pool, html, output.as_deref(), settings).await;
        }
        Typed::Pause { batch, reason } => (batch, ArrayAction::Pause { reason }),
        Typed::Resume(batch) => (batch, ArrayAction::Resume),
        Typed::Cancel(batch) => (batch, ArrayAction::Cancel),
        // With or without --failed: nothing else can be retried.
        Typed::Retry { batch, failed: _ } => (batch, ArrayAction::Retry),
    };
    let name = batch.batch.name;
    if let Some(folder) = &batch.pool.dir {
        let array = arrays::apply(folder, &name, Some(action), settings).await?;
        return print_status(&array, settings);
    }
    let action = match action {
        ArrayAction::Pause { reason } => BatchAction::Pause { reason },
        ArrayAction::Resume => BatchAction::Resume,
        ArrayAction::Cancel => BatchAction::Cancel,
        ArrayAction::Retry => BatchAction::RetryFailed,
    };
    let (_, client) = connect_to_batch(&name, settings).await?;
    operate(&client, &name, action, settings).await
}

/// Whether the command handles SIGTERM and SIGINT itself instead of being dropped.
pub fn handles_signals(typed: &Typed) -> bool {
    matches!(typed, Typed::Run(_) | Typed::Start(_) | Typed::Recover { .. })
}

async fn list(
    status: Option<BatchStatus>,
    page: &PageArgs,
    pool: &PoolTarget,
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
    let items: Vec<BatchSummary<'_>> = found.iter().map(BatchSummary::of).collect();
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
            cell(format_ago(batch.initiated_at, now)),
        ]);
    }
    table
}

async fn status(name: &BatchId, pool: &PoolTarget, settings: &Settings) -> anyhow::Result<ExitCode> {
    if let Some(folder) = &pool.dir {
        let array = arrays::apply(folder, name, None, settings).await?;
        settings.output.record(&BatchSummary::of(&array), || record(&array, None))?;
        return Ok(ExitCode::Good);
    }
    let (batch, parked) = load_with_parked(name, settings).await?;
    let summary = BatchSummary::of(&batch).with_parked(parked);
    settings.output.record(&summary, || record(&batch, parked))?;
    Ok(ExitCode::Good)
}

/// A batch, and its requests at a provider, which only the store itself knows.
async fn load_with_parked(
    name: &BatchId,
    settings: &Settings,
) -> anyhow::Result<(Batch, Option<PendingCounts>)> {
    if settings.server.is_some() {
        let (store, client) = connect_to_batch(name, settings).await?;
        return Ok((store.batch(client.scope(), name).await?, None));
    }
    let StoreHandles { store, ledger, client } = connect_to_batch_with_ledger(name, settings).await?;
    let batch = store.batch(client.scope(), name).await?;
    let (_, parked) = ledger.provider_batches(name).await?;
    Ok((batch, (parked.total() > 0).then_some(parked)))
}

fn record(batch: &Batch, parked: Option<PendingCounts>) -> Table {
    let now = now();
    let time = |time: Option<Timestamp>| time.map_or(String::new(), |time| format_ago(time, now));
    let counts = &batch.counts;
    let mut table = Table::record();
    table.field("batch", &batch.id);
    table.field("status", batch.status);
    table.field("reason", batch.reason.as_deref().unwrap_or_default());
    table.field("total", format!("{}{}", counts.total(), if batch.sealed { "" } else { " so far" }));
    for state in longshore::UnitState::ALL {
        if counts.of(state) > 0 {
            table.field(state.as_str(), counts.of(state));
        }
    }
    if let Some(PendingCounts { waiting, out, answered }) = parked {
        let words = format!("{out} out, {waiting} waiting to go, {answered} answered");
        table.field("with the provider", words);
    }
    table.field("type", &batch.kind);
    table.field("notes", &batch.notes);
    table.field("initiated", format!("{} {}", time(Some(batch.initiated_at)), initiated_by_text(batch)));
    table.field("started", time(batch.started_at));
    table.field("completed", time(batch.completed_at));
    if let (Some(start), Some(end)) = (batch.started_at, batch.completed_at) {
        table.field("took", duration::format(end.since(start)));
    }
    table.field("cost", summary::format_cost(batch));
    if batch.generation > 1 {
        table.field("generation", batch.generation);
    }
    table
}

fn initiated_by_text(batch: &Batch) -> String {
    if batch.initiated_by.is_empty() { String::new() } else { format!("by {}", batch.initiated_by) }
}

async fn operate(
    client: &Client,
    name: &BatchId,
    action: BatchAction,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let cancels = action == BatchAction::Cancel;
    let batch = client.store().apply_batch_action(client.scope(), name, action).await?;
    if cancels {
        // The worker cancels the provider's batch now, and not at its next poll.
        let woken = provider_batch::wake(&**client.store(), client.scope(), &HashSet::from([name])).await;
        woken.inspect_err(|error| tracing::debug!(%error, "cannot wake the units of provider batches")).ok();
    }
    print_status(&batch, settings)
}

fn print_status(batch: &Batch, settings: &Settings) -> anyhow::Result<ExitCode> {
    let words = || format!("batch `{}` is {}", batch.id, batch.status);
    settings.output.answer(&BatchSummary::of(batch), words)?;
    Ok(ExitCode::Good)
}
