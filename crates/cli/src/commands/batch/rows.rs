//! `batch rows`: the rows of a batch, with what became of them.

use std::path::Path;

use longshore::store::UnitFilter;
use longshore::{BatchId, Unit, UnitId, UnitState};
use longshore_batch::handler::RowInput;
use longshore_batch::value::{from_json, show_key};
use longshore_dispatch::request::Listed;
use serde::Serialize;
use serde_json::Value;

use super::place::connect_to;
use crate::args::operate::{InPool, PageArgs};
use crate::commands::dispatch::arrays::Watched;
use crate::exit::ExitCode;
use crate::output::{Table, cell, right};
use crate::settings::Settings;

/// A row as scripts read it.
#[derive(Serialize)]
struct Row {
    key: Value,
    state: UnitState,
    attempt: u32,
    code: Option<String>,
    reason: Option<String>,
    unit: UnitId,
    result: Option<Value>,
}

impl Row {
    fn of(unit: Unit) -> Self {
        let input = unit.payload.parse::<RowInput>();
        let (code, reason) = unit.failure.map(|why| (why.code, why.message)).unzip();
        Self {
            // A batch of other units has no rows; their payload says what they are.
            key: input.map_or_else(|_| unit.payload.parse().unwrap_or_default(), |input| input.key),
            state: unit.state,
            attempt: unit.attempt,
            code,
            reason,
            unit: unit.id,
            result: unit.result.and_then(|result| result.parse().ok()),
        }
    }
}

impl From<Listed> for Row {
    /// A script of an array is known by its number. What it said is for `unit show`.
    fn from(script: Listed) -> Self {
        let (code, reason) = script.failure.map(|why| (why.code, why.message)).unzip();
        Self {
            key: script.index.into(),
            state: script.state,
            attempt: script.attempt,
            code,
            reason,
            unit: script.unit,
            result: None,
        }
    }
}

/// Runs the command.
pub async fn run(
    batch: &BatchId,
    pool: &InPool,
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
) -> anyhow::Result<(Vec<Row>, Option<String>)> {
    let mut watched = Watched::of(folder, array, settings).await?;
    // An unknown array is an error, not an empty list.
    watched.steer(None).await?;
    let (scripts, next) = watched.scripts(state, page.after.clone(), page.limit).await?;
    Ok((scripts.into_iter().map(Row::from).collect(), next))
}

async fn in_store(
    batch: &BatchId,
    state: Option<UnitState>,
    page: &PageArgs,
    settings: &Settings,
) -> anyhow::Result<(Vec<Row>, Option<String>)> {
    let (store, client) = connect_to(batch, settings).await?;
    let scope = client.scope();
    // An unknown batch is an error, not an empty list.
    store.batch(scope, batch).await?;
    let filter = UnitFilter { state, batch: Some(batch.clone()), ..UnitFilter::default() };
    let found = store.units(scope, &filter, page.after.as_deref(), page.limit).await?;
    let mut rows = Vec::with_capacity(found.items.len());
    for unit in found.items {
        // Lists leave out what rows are known by.
        if let Ok(unit) = store.unit(scope, unit.id).await {
            rows.push(Row::of(unit));
        }
    }
    Ok((rows, found.next))
}

fn table(rows: &[Row]) -> Table {
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
