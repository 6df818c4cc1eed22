//! The summary of a batch that ran here: numbers, three of its answers, and commands that show
//! more.

use longshore::text::truncate_chars;
use longshore::{Batch, BatchId, BatchStatus, UnitState, duration};
use longshore_ai::Cost;
use longshore_batch::row_enqueuer::TakenRow;
use longshore_batch::row_listing::ListedRow;
use longshore_batch::sql_json::{from_json, show_key};
use serde::Serialize;
use serde_json::Value;

use super::completion_wait::CompletionStatus;
use super::context::BatchContext;
use super::run::StartedBatch;
use super::runner::BatchRun;
use super::trial::TrialResult;
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
    /// All answers of a trial.
    #[serde(skip_serializing_if = "Option::is_none")]
    answers: Option<Vec<TrialAnswer<'a>>>,
    /// What all candidates of a trial would cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_of_all: Option<f64>,
}

/// One answer of a trial.
#[derive(Serialize)]
struct TrialAnswer<'a> {
    key: &'a Value,
    state: UnitState,
    answer: Option<&'a str>,
    reason: Option<&'a str>,
}

/// Prints the summary of a batch.
pub async fn print(batch_run: &BatchRun, context: &BatchContext, settings: &Settings) -> anyhow::Result<()> {
    let BatchRun { batch, skipped, interrupted, end, .. } = batch_run;
    let completion = match end {
        CompletionStatus::Failed(why) => Some(why.as_str()),
        CompletionStatus::Done | CompletionStatus::Pending => None,
    };
    let counts = &batch.counts;
    let trial = TrialResult::of(batch, context).await?;
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
        answers: trial.as_ref().map(|trial| trial.rows.iter().map(trial_answer).collect()),
        cost_of_all: trial.as_ref().and_then(|trial| trial.all).map(|(_, cost)| cost.dollars()),
    };
    note_if_empty(batch, *skipped, settings.output);
    if *skipped > 0 && batch.counts.total() == 0 {
        settings.output.note(taken_text(*skipped, &batch_run.taken));
    }
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
    match &trial {
        Some(trial) => print_trial(trial, batch, settings)?,
        None => samples(batch, context, settings)?,
    }
    for hint in hints(batch_run, &context.url) {
        settings.output.note(hint);
    }
    if let Some(TrialResult { hint, .. }) = trial.filter(|_| batch.status.is_final()) {
        settings.output.note(format!("hint: {hint}"));
    }
    Ok(())
}

/// Names some of the candidates that other batches have: `3 (row 17 of batch `a`, row 18 of batch `b`, …)`.
pub fn taken_text(skipped: u64, taken: &[TakenRow]) -> String {
    let name = |row: &TakenRow| match &row.batch {
        Some(batch) => format!("row {} is in batch `{batch}`", row.key),
        None => format!("row {} is a unit of no batch", row.key),
    };
    let mut names: Vec<String> = taken.iter().map(name).collect();
    if skipped > taken.len() as u64 && !names.is_empty() {
        names.push("…".to_owned());
    }
    match names.is_empty() {
        true => format!("{skipped} (they belong to another batch)"),
        false => format!("{skipped} candidates: {}", names.join(", ")),
    }
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
    let BatchRun { batch, skipped, taken, .. } = batch_run;
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
        table.field("skipped", taken_text(*skipped, taken));
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

fn trial_answer(row: &ListedRow) -> TrialAnswer<'_> {
    TrialAnswer {
        key: &row.key,
        state: row.state,
        answer: row.answer.as_deref(),
        reason: row.reason.as_deref(),
    }
}

/// Prints all answers of a trial, and what the rest would cost.
fn print_trial(trial: &TrialResult, batch: &Batch, settings: &Settings) -> anyhow::Result<()> {
    let title = if is_simulated(batch) { "answer (simulated)" } else { "answer" };
    let mut table = Table::new([right("row"), cell("state"), cell(title)], "");
    for row in &trial.rows {
        let text = match (&row.answer, &row.reason) {
            (Some(answer), None) => answer.clone(),
            (Some(answer), Some(reason)) => format!("{answer} ({reason})"),
            (None, reason) => format!("({})", reason.as_deref().unwrap_or("no answer")),
        };
        table.row([
            right(show_key(&from_json(&row.key))),
            cell(row.state),
            cell(one_line(&text, SAMPLE_WIDTH)),
        ]);
    }
    settings.output.line("")?;
    settings.output.list::<Value>(&[], || table)?;
    if let Some((all, cost)) = trial.all.filter(|(_, cost)| cost.0 > 0) {
        let simulated = if is_simulated(batch) { " (simulated)" } else { "" };
        settings.output.line(format!("\nall {all} candidates would cost about {cost}{simulated}"))?;
    }
    Ok(())
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
        table.row([right(sample.key), cell(one_line(&sample.text, SAMPLE_WIDTH))]);
    }
    settings.output.line("")?;
    settings.output.list::<Value>(&[], || table)
}

/// Characters of an answer.
const SAMPLE_WIDTH: usize = 100;

/// The beginning of a text, on one line.
pub fn one_line(text: &str, width: usize) -> String {
    let summary = text.split_whitespace().collect::<Vec<_>>().join(" ");
    truncate_chars(&summary, width)
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
