//! `batch report`: writes a report of a batch.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use longshore::{BatchId, UnitState};
use longshore_batch::Report;
use longshore_batch::report::FailureGroups;

use super::context::connect_to_batch;
use crate::args::unit_worker::PoolTarget;
use crate::commands::dispatch::arrays::ArrayClient;
use crate::commands::now;
use crate::exit::ExitCode;
use crate::output::private_file;
use crate::settings::Settings;

/// Runs the command.
pub async fn run(
    batch: &BatchId,
    pool: &PoolTarget,
    html: bool,
    file: Option<&Path>,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let report = match &pool.dir {
        Some(folder) => in_pool(folder, batch, settings).await?,
        None => {
            let (store, client) = connect_to_batch(batch, settings).await?;
            Report::gather(&*store, client.scope(), batch, now()).await?
        }
    };
    if settings.output.is_json() {
        settings.output.json(&report)?;
        return Ok(ExitCode::Good);
    }
    let text = if html { report.html() } else { report.markdown() };
    match file {
        Some(path) => {
            let written = private_file(path)?.write_all(text.as_bytes());
            written.with_context(|| format!("cannot write {}", path.display()))?;
            settings.output.note(format!("wrote {}", path.display()));
        }
        None => settings.output.line(text.trim_end())?,
    }
    Ok(ExitCode::Good)
}

/// The report of an array. Its failures are read page by page.
async fn in_pool(folder: &Path, array: &BatchId, settings: &Settings) -> anyhow::Result<Report> {
    const PAGE: u32 = 500;
    let mut array_client = ArrayClient::of(folder, array, settings).await?;
    let batch = array_client.apply(None).await?;
    let mut failures = FailureGroups::default();
    let mut after = None;
    loop {
        let (scripts, next) = array_client.scripts(Some(UnitState::Failed), after, PAGE).await?;
        for script in scripts {
            let number = script.index.map(|index| index.to_string());
            failures.add(script.failure, || number.unwrap_or_else(|| script.unit.to_string()));
        }
        after = next;
        if after.is_none() {
            return Ok(Report::of(batch, failures.sorted(), now()));
        }
    }
}
