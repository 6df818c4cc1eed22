//! `batch rows --format`: all matching rows as CSV or NDJSON, page by page.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use longshore_batch::row_listing::ListedRow;
use longshore_batch::sql_json::{from_json, show_key};
use serde_json::Value;

use super::reader::RowReader;
use crate::args::batch::RowFormat;
use crate::csv;
use crate::exit::ExitCode;
use crate::output::private_file;
use crate::settings::Settings;

/// The columns of CSV, which are a contract: new ones come last.
const COLUMNS: [&str; 14] = [
    "key",
    "state",
    "attempt",
    "code",
    "reason",
    "unit",
    "verdict",
    "model",
    "tokens_in",
    "tokens_out",
    "cost_usd",
    "latency_ms",
    "simulated",
    "answer",
];

/// Writes the rows to the file or to stdout, `limit` of them or all.
pub(super) async fn run(
    mut reader: RowReader<'_>,
    format: RowFormat,
    limit: Option<usize>,
    file: Option<&Path>,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let mut out: Box<dyn Write> = match file {
        Some(path) => Box::new(std::io::BufWriter::new(private_file(path)?)),
        None => Box::new(settings.output.raw()),
    };
    let written = write_rows(&mut reader, format, limit, &mut out).await;
    let count = match (written, file) {
        (Ok(count), _) => count,
        (Err(error), Some(path)) => {
            return Err(error).with_context(|| format!("cannot write {}", path.display()));
        }
        (Err(error), None) => return Err(error),
    };
    if let Some(path) = file {
        settings.output.note(format!("wrote {count} rows to {}", path.display()));
    }
    Ok(ExitCode::Good)
}

async fn write_rows(
    reader: &mut RowReader<'_>,
    format: RowFormat,
    limit: Option<usize>,
    out: &mut dyn Write,
) -> anyhow::Result<usize> {
    if format == RowFormat::Csv {
        out.write_all(csv::line(COLUMNS).as_bytes())?;
    }
    let mut count = 0;
    while let Some(rows) = reader.read(limit.map_or(usize::MAX, |limit| limit - count)).await? {
        for row in &rows {
            let line = match format {
                RowFormat::Csv => csv::line(cells(row)),
                RowFormat::Ndjson => serde_json::to_string(row)? + "\n",
            };
            out.write_all(line.as_bytes())?;
        }
        count += rows.len();
    }
    out.flush()?;
    Ok(count)
}

fn cells(row: &ListedRow) -> [String; COLUMNS.len()] {
    let of_result = |name: &str| match row.result.as_ref().map(|result| &result[name]) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    [
        show_key(&from_json(&row.key)),
        row.state.to_string(),
        row.attempt.to_string(),
        text(&row.code),
        text(&row.reason),
        row.unit.to_string(),
        of_result("verdict"),
        of_result("model"),
        of_result("tokens_in"),
        of_result("tokens_out"),
        of_result("cost_usd"),
        of_result("latency_ms"),
        of_result("simulated"),
        text(&row.answer),
    ]
}
