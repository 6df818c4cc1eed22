//! `batch report`: what became of a batch, to read or to pass on.

use std::path::Path;

use anyhow::Context;
use longshore::BatchId;
use longshore_batch::Report;

use super::place::connect_to;
use crate::commands::now;
use crate::exit::ExitCode;
use crate::settings::Settings;

/// Runs the command.
pub async fn run(
    batch: &BatchId,
    html: bool,
    file: Option<&Path>,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let (store, client) = connect_to(batch, settings).await?;
    let report = Report::gather(&*store, client.scope(), batch, now()).await?;
    if settings.output.is_json() {
        settings.output.json(&report)?;
        return Ok(ExitCode::Good);
    }
    let text = if html { report.html() } else { report.markdown() };
    match file {
        Some(path) => {
            std::fs::write(path, text)
                .with_context(|| format!("cannot write {}", path.display()))?;
            settings.output.note(format!("wrote {}", path.display()));
        }
        None => settings.output.line(text.trim_end())?,
    }
    Ok(ExitCode::Good)
}
