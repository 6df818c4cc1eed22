//! `batch list` and `batch status`.

use longshore::accounts::PendingCounts;
use longshore::duration::{self, format_ago};
use longshore::{Batch, BatchId, BatchStatus, TenantId, Timestamp, UnitState};
use longshore_batch::report::ProgressEstimate;

use super::batch_json::BatchSummary;
use super::context::{connect_to_batch, connect_to_batch_with_ledger};
use super::summary;
use crate::args::unit_worker::{PageArgs, PoolTarget};
use crate::commands::dispatch::arrays;
use crate::commands::{StoreHandles, connect, now};
use crate::exit::ExitCode;
use crate::output::{Table, cell, right};
use crate::settings::Settings;

/// Lists batches.
pub async fn list(
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

/// Columns that have no value in any row are left out.
fn table(batches: &[Batch]) -> Table {
    let heading = [
        right("number"),
        cell("batch"),
        cell("tenant"),
        cell("type"),
        cell("status"),
        right("%"),
        right("total"),
        right("done"),
        right("failed"),
        right("cancelled"),
        right("rate"),
        right("time left"),
        right("paused"),
        right("cost"),
        right("projected"),
        cell("initiated"),
    ];
    let mut table = Table::new(heading, "no batches").without_empty_columns();
    let (now, default) = (now(), TenantId::default());
    for batch in batches {
        let (counts, progress) = (&batch.counts, ProgressEstimate::of(batch, now));
        let tenant = if batch.tenant == default { "" } else { batch.tenant.as_str() };
        table.row([
            right(number_text(batch)),
            cell(&batch.id),
            cell(tenant),
            cell(&batch.kind),
            cell(batch.status),
            right(progress.percent().map_or(String::new(), |percent| percent.to_string())),
            right(total_text(batch, &progress)),
            right(counts.done),
            right(count_text(counts.failed)),
            right(count_text(counts.cancelled)),
            right(rate_text(&progress)),
            right(progress.left.map_or(String::new(), duration::format)),
            right(paused_text(&progress)),
            right(summary::format_cost(batch)),
            right(projected_text(&progress)),
            cell(format_ago(batch.initiated_at, now)),
        ]);
    }
    table
}

/// The total; with `~` while it is only expected.
fn total_text(batch: &Batch, progress: &ProgressEstimate) -> String {
    let guess = if progress.total > batch.counts.total() { "~" } else { "" };
    format!("{guess}{}", progress.total)
}

/// The number; a task, which is a batch of one, has none of its own.
fn number_text(batch: &Batch) -> String {
    if batch.number == 0 { String::new() } else { batch.number.to_string() }
}

fn count_text(count: u64) -> String {
    if count == 0 { String::new() } else { count.to_string() }
}

fn rate_text(progress: &ProgressEstimate) -> String {
    match progress.rate {
        None => String::new(),
        Some(rate) if rate >= 10.0 => format!("{rate:.0}/s"),
        Some(rate) if rate >= 0.1 => format!("{rate:.1}/s"),
        Some(rate) => format!("{:.1}/min", rate * 60.0),
    }
}

fn paused_text(progress: &ProgressEstimate) -> String {
    if progress.paused.as_secs() == 0 { String::new() } else { duration::format(progress.paused) }
}

fn projected_text(progress: &ProgressEstimate) -> String {
    let cost = progress.projected.filter(|cost| cost.0 > 0);
    cost.map_or(String::new(), |cost| cost.to_string())
}

/// Shows one batch.
pub async fn show(name: &BatchId, pool: &PoolTarget, settings: &Settings) -> anyhow::Result<ExitCode> {
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
    let (counts, progress) = (&batch.counts, ProgressEstimate::of(batch, now));
    let mut table = Table::record();
    table.field("batch", &batch.id);
    table.field("number", number_text(batch));
    table.field("status", batch.status);
    table.field("reason", batch.reason.as_deref().unwrap_or_default());
    table.field("type", &batch.kind);
    table.field("tenant", &batch.tenant);
    table.field("total", format!("{}{}", counts.total(), if batch.sealed { "" } else { " so far" }));
    if progress.total > counts.total() {
        table.field("expected", progress.total);
    }
    table.field("ended", progress.percent().map_or(String::new(), |percent| format!("{percent} %")));
    for state in UnitState::ALL {
        if counts.of(state) > 0 {
            table.field(state.as_str(), counts.of(state));
        }
    }
    if let Some(PendingCounts { waiting, out, answered }) = parked {
        let words = format!("{out} out, {waiting} waiting to go, {answered} answered");
        table.field("with the provider", words);
    }
    table.field("notes", &batch.notes);
    table.field("initiated", format!("{} {}", time(Some(batch.initiated_at)), initiated_by_text(batch)));
    table.field("started", time(batch.started_at));
    table.field("completed", time(batch.completed_at));
    let took = if batch.completed_at.is_some() { "took" } else { "ran" };
    table.field(took, progress.running.map_or(String::new(), duration::format));
    table.field("paused", paused_text(&progress));
    table.field("rate", rate_text(&progress));
    table.field("time left", progress.left.map_or(String::new(), duration::format));
    table.field("cost", summary::format_cost(batch));
    table.field("projected cost", projected_text(&progress));
    if batch.generation > 1 {
        table.field("generation", batch.generation);
    }
    table
}

fn initiated_by_text(batch: &Batch) -> String {
    if batch.initiated_by.is_empty() { String::new() } else { format!("by {}", batch.initiated_by) }
}
