//! `batch rows`: lists the rows of a batch with their outcomes.

use std::path::Path;

use longshore::{BatchId, UnitState};
use longshore_batch::row_listing::{self, ListedRow};
use longshore_batch::sql_json::{from_json, show_key};
use longshore_dispatch::request::UnitSummary;

use super::context::connect_to_batch;
use crate::args::unit_worker::{PageArgs, PoolTarget};
use crate::commands::dispatch::arrays::ArrayClient;
use crate::exit::ExitCode;
use crate::output::{Table, cell, right};
use crate::settings::Settings;

/// An array's script as a row; its key is the index. Its output is shown by `unit show`.
fn of_script(script: UnitSummary) -> ListedRow {
    let (code, reason) = script.failure.map(|why| (why.code, why.message)).unzip();
    ListedRow {
        key: script.index.into(),
        state: script.state,
        attempt: script.attempt,
        code,
        reason,
        unit: script.unit,
        result: None,
    }
}

/// Runs the command.
pub async fn run(
    batch: &BatchId,
    pool: &PoolTarget,
    state: Option<UnitState>,
    page: &PageArgs,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let (rows, next) = match &pool.dir {
        Some(folder) => in_pool(folder, batch, state, page, settings).await?,
        None => in_store(batch, state, page, settings).await?,
    };
    settings.output.list(&rows, || table(&rows))?;
    if let Some(next) = next {
        settings.output.note(format!("more with --after {next}"));
    }
    Ok(ExitCode::Good)
}

async fn in_pool(
    folder: &Path,
    array: &BatchId,
    state: Option<UnitState>,
    page: &PageArgs,
    settings: &Settings,
) -> anyhow::Result<(Vec<ListedRow>, Option<String>)> {
    let mut array_client = ArrayClient::of(folder, array, settings).await?;
    // An unknown array is an error, not an empty list.
    array_client.apply(None).await?;
    let (scripts, next) = array_client.scripts(state, page.after.clone(), page.limit).await?;
    Ok((scripts.into_iter().map(of_script).collect(), next))
}

async fn in_store(
    batch: &BatchId,
    state: Option<UnitState>,
    page: &PageArgs,
    settings: &Settings,
) -> anyhow::Result<(Vec<ListedRow>, Option<String>)> {
    let (store, client) = connect_to_batch(batch, settings).await?;
    let scope = client.scope();
    if let Some(server) = &settings.server {
        // Few requests; through the store's trait it would be one for each row.
        store.batch(scope, batch).await?;
        let found = server.rows(batch, state, page.after.as_deref(), page.limit).await?;
        return Ok((found.items, found.next));
    }
    let page = row_listing::rows(&*store, scope, batch, state, page.after.as_deref(), page.limit).await?;
    Ok((page.items, page.next))
}

fn table(rows: &[ListedRow]) -> Table {
    let heading = [right("row"), cell("state"), right("attempt"), cell("code"), cell("reason")];
    let mut table = Table::new(heading, "no such rows");
    for row in rows {
        table.row([
            right(show_key(&from_json(&row.key))),
            cell(row.state),
            right(row.attempt),
            cell(row.code.as_deref().unwrap_or_default()),
            cell(row.reason.as_deref().unwrap_or_default().replace('\n', " ")),
        ]);
    }
    table
}
