//! The summary of a batch that ran here: numbers, three of its answers, and commands that show
//! more.

use longshore::text::truncate_chars;
use longshore::{Batch, BatchId, BatchStatus, duration};
use longshore_ai::Cost;
use serde::Serialize;
use serde_json::Value;

use super::completion_wait::CompletionStatus;
use super::context::BatchContext;
use super::run::StartedBatch;
use super::runner::BatchRun;
use crate::output::{Output, Table, cell, right};
use crate::settings::Settings;
use crate::store::StoreUrl;

/// The summary as JSON: these keys are a contract.
#[derive(Serialize)]
struct RunSummary<'a> {
    batch: &'a BatchId,
    status: BatchStatus,
    total: u64,
    done: u64,
    failed: u64,
    cancelled: u64,
    seconds: f64,
    cost: f64,
    simulated: bool,
    skipped: u64,
    interrupted: bool,
    reason: Option<&'a str>,
    completion_error: Option<&'a str>,
}

/// Prints the summary of a batch.
pub fn print(batch_run: &BatchRun, context: &BatchContext, settings: &Settings) -> anyhow::Result<()> {
    let BatchRun { batch, skipped, interrupted, end } = batch_run;
    let completion = match end {
        CompletionStatus::Failed(why) => Some(why.as_str()),
        CompletionStatus::Done | CompletionStatus::Pending => None,
    };
    let counts = &batch.counts;
    let summary = RunSummary {
        batch: &batch.id,
        status: batch.status,
        total: counts.total(),
        done: counts.done,
        failed: counts.failed,
        cancelled: counts.cancelled,
        seconds: seconds(batch),
        cost: cost(batch).dollars(),
        simulated: is_simulated(batch),
        skipped: *skipped,
        interrupted: *interrupted,
        reason: batch.reason.as_deref(),
        completion_error: completion,
    };
    note_if_empty(batch, *skipped, settings.output);
    if settings.output.is_json() {
        return settings.output.json(&summary);
    }
    settings.output.record(&summary, || table(batch_run, settings))?;
    if let Some(why) = completion {
        settings.output.note(format!("error: the completion failed: {why}"));
    }
    if settings.output.is_quiet() {
        return Ok(());
    }
    samples(batch, context, settings)?;
    for hint in hints(batch_run, &context.url) {
        settings.output.note(hint);
    }
    Ok(())
}

/// Explains a batch that ended without a row.
pub fn note_if_empty(batch: &Batch, skipped: u64, output: Output) {
    if batch.sealed && batch.counts.total() == 0 {
        output.note(match skipped {
            0 => "no candidates: nothing to do".to_owned(),
            _ => format!("all {skipped} candidates belong to another batch: nothing to do"),
        });
    }
}

fn table(batch_run: &BatchRun, settings: &Settings) -> Table {
    let BatchRun { batch, skipped, .. } = batch_run;
    let counts = &batch.counts;
    let mut table = Table::record();
    table.field("batch", &batch.id);
    let status = match (batch_run.interrupted, batch.status.is_final()) {
        (true, false) => format!("{} (left before its end)", batch.status),
        _ => settings.output.paint(batch.status.as_str(), batch.status.as_str()),
    };
    table.field("status", status);
    table.field("reason", batch.reason.as_deref().unwrap_or_default());
    let of = if batch.sealed { "" } else { " so far" };
    table.field("rows", format!("{}{of}", counts.total()));
    let parts = [("done", counts.done), ("failed", counts.failed), ("cancelled", counts.cancelled)];
    for (name, count) in parts.into_iter().filter(|(name, count)| *count > 0 || *name == "done") {
        table.field(name, count);
    }
    if *skipped > 0 {
        table.field("skipped", format!("{skipped} (they belong to another batch)"));
    }
    let took = seconds(batch);
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = counts.finished() as f64 / took.max(1e-3);
    let took = duration::format(std::time::Duration::from_secs_f64(took));
    table.field("took", format!("{took} ({rate:.0} rows/s)"));
    table.field("cost", format_cost(batch));
    table
}

/// The cost of a batch so far, and whether it was simulated.
pub fn format_cost(batch: &Batch) -> String {
    let answers = batch.sums.get("answers").copied().unwrap_or_default();
    if answers == 0 {
        return String::new();
    }
    let simulated = if is_simulated(batch) { " (simulated)" } else { "" };
    format!("{}{simulated}", cost(batch))
}

/// The cost of a batch so far.
pub fn cost(batch: &Batch) -> Cost {
    Cost(batch.sums.get("cost_picos").copied().unwrap_or_default())
}

/// Whether any of its answers was simulated.
pub fn is_simulated(batch: &Batch) -> bool {
    batch.sums.get("simulated").is_some_and(|count| *count > 0)
}

fn seconds(batch: &Batch) -> f64 {
    let began = batch.started_at.unwrap_or(batch.initiated_at);
    let ended = batch.completed_at.unwrap_or_else(crate::commands::now);
    ended.since(began).as_secs_f64()
}

/// Prints a few answers that differ.
fn samples(batch: &Batch, context: &BatchContext, settings: &Settings) -> anyhow::Result<()> {
    let found = context.samples.of(&batch.id);
    if found.is_empty() {
        return Ok(());
    }
    let title = if is_simulated(batch) { "answer (simulated)" } else { "answer" };
    let mut table = Table::new([right("row"), cell(title)], "");
    for sample in found {
        table.row([right(sample.key), cell(one_line(&sample.text))]);
    }
    settings.output.line("")?;
    settings.output.list::<Value>(&[], || table)
}

fn one_line(text: &str) -> String {
    const WIDTH: usize = 100;
    let summary = text.split_whitespace().collect::<Vec<_>>().join(" ");
    truncate_chars(&summary, WIDTH)
}

fn hints(batch_run: &BatchRun, url: &StoreUrl) -> Vec<String> {
    let id = &batch_run.batch.id;
    let longshore = format!("longshore --store {url} batch");
    let mut hints = Vec::new();
    if !cfg!(feature = "standard") {
        hints.push("hint: cargo build --release also builds these commands:".to_owned());
    }
    if batch_run.batch.counts.failed > 0 {
        hints.push(format!("hint: {longshore} rows --failed {id}"));
    }
    if batch_run.end == CompletionStatus::Pending {
        let worker = format!("longshore --store {url} worker --until-idle");
        hints.push(format!("hint: its completion has not run yet; {worker} runs it"));
    }
    match batch_run.batch.status {
        BatchStatus::Paused => {
            hints.push(format!("hint: {longshore} resume {id}, then run it again"));
        }
        status if !status.is_final() => {
            hints.push("hint: run the same command again to resume".to_owned());
        }
        _ => hints.push(format!("hint: {longshore} report {id}")),
    }
    hints
}

/// The message for a batch that was started.
pub fn started_message(started: &StartedBatch<'_>, url: &StoreUrl) -> String {
    let StartedBatch { batch, sent, skipped, sealed, .. } = started;
    let skipped = if *skipped > 0 { format!(", {skipped} belong to another batch") } else { String::new() };
    let so_far = if *sealed { "" } else { " so far" };
    format!("batch `{batch}` has {sent} rows{so_far}{skipped}; workers: longshore --store {url} worker")
}
