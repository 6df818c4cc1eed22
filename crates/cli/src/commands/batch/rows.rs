//! `batch rows`: lists the rows of a batch with their outcomes, or exports them.

mod export;
mod reader;

use longshore::UnitState;
use longshore_batch::row_listing::{ListedRow, RowFilter};
use longshore_batch::sql_json::{from_json, show_key};

use self::reader::RowReader;
use crate::args::batch::BatchRowsArgs;
use crate::exit::ExitCode;
use crate::output::{Table, cell, right};
use crate::settings::Settings;

/// Rows of a list, unless the arguments say otherwise.
const DEFAULT_ROWS: usize = 50;

/// Runs the command.
pub async fn run(typed: BatchRowsArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let state = if typed.failed { Some(UnitState::Failed) } else { typed.state };
    let filter = RowFilter { state, codes: typed.code, keys: typed.key, attempt: typed.attempt };
    let mut reader = RowReader::open(&typed.batch, filter, typed.after, settings).await?;
    let limit = typed.limit.map(|limit| limit as usize);
    if let Some(format) = typed.format {
        return export::run(reader, format, limit, typed.output.as_deref(), settings).await;
    }
    let limit = limit.unwrap_or(DEFAULT_ROWS);
    let mut rows = Vec::new();
    while let Some(more) = reader.read(limit - rows.len()).await? {
        rows.extend(more);
    }
    settings.output.list(&rows, || table(&rows))?;
    if let Some(next) = reader.cursor() {
        settings.output.note(format!("more with --after {next}"));
    }
    Ok(ExitCode::Good)
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
