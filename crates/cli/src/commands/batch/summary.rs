//! The last words on a batch that ran here: numbers, three of its answers, and where to read more.

use std::collections::BTreeSet;

use longshore::store::UnitFilter;
use longshore::{Batch, BatchId, BatchStatus, UnitState};
use longshore_ai::Cost;
use longshore_batch::checkpoint::Checkpoint;
use longshore_batch::handler::RowInput;
use longshore_batch::value::{from_json, show_key};
use serde::Serialize;
use serde_json::Value;

use super::conduct::Conducted;
use super::ends::Announcement;
use super::place::Place;
use super::run::Started;
use crate::output::{Output, Table, cell, right};
use crate::settings::Settings;
use crate::span::brief;
use crate::store::StoreUrl;

/// How many rows are looked through for samples that differ.
const LOOKED_AT: u32 = 200;
/// How many samples are shown.
const SAMPLES: usize = 3;

/// The last line for scripts: these keys are a contract.
#[derive(Serialize)]
struct Line<'a> {
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
pub async fn print(
    conducted: &Conducted,
    place: &Place,
    settings: &Settings,
) -> anyhow::Result<()> {
    let Conducted { batch, skipped, interrupted, end } = conducted;
    let completion = match end {
        Announcement::Failed(why) => Some(why.as_str()),
        Announcement::Made | Announcement::Waiting => None,
    };
    let counts = &batch.counts;
    let line = Line {
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
        return settings.output.json(&line);
    }
    settings.output.record(&line, || table(conducted, settings))?;
    if let Some(why) = completion {
        settings.output.note(format!("error: the completion did not work: {why}"));
    }
    if settings.output.is_quiet() {
        return Ok(());
    }
    samples(batch, place, settings).await?;
    for hint in hints(conducted, &place.url) {
        settings.output.note(hint);
    }
    Ok(())
}

/// An end without a row looks like a mistake: says what it is.
pub fn note_if_empty(batch: &Batch, skipped: u64, output: Output) {
    if batch.sealed && batch.counts.total() == 0 {
        output.note(match skipped {
            0 => "no candidates: nothing to do".to_owned(),
            _ => format!("all {skipped} candidates are another batch's: nothing to do"),
        });
    }
}

fn table(conducted: &Conducted, settings: &Settings) -> Table {
    let Conducted { batch, skipped, .. } = conducted;
    let counts = &batch.counts;
    let mut table = Table::record();
    table.field("batch", &batch.id);
    let status = match (conducted.interrupted, batch.status.is_final()) {
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
        table.field("skipped", format!("{skipped} (another batch has them)"));
    }
    let took = seconds(batch);
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = counts.finished() as f64 / took.max(1e-3);
    let took = brief(std::time::Duration::from_secs_f64(took));
    table.field("took", format!("{took} ({rate:.0} rows/s)"));
    table.field("cost", money(batch));
    table
}

/// What a batch cost so far, and whether it was real.
pub fn money(batch: &Batch) -> String {
    let answers = batch.sums.get("answers").copied().unwrap_or_default();
    if answers == 0 {
        return String::new();
    }
    let simulated = if is_simulated(batch) { " (simulated)" } else { "" };
    format!("{}{simulated}", cost(batch))
}

/// What a batch cost so far.
pub fn cost(batch: &Batch) -> Cost {
    Cost(batch.sums.get("cost_picos").copied().unwrap_or_default())
}

/// Whether any of its answers were made up.
pub fn is_simulated(batch: &Batch) -> bool {
    batch.sums.get("simulated").is_some_and(|count| *count > 0)
}

fn seconds(batch: &Batch) -> f64 {
    let began = batch.started_at.unwrap_or(batch.initiated_at);
    let ended = batch.completed_at.unwrap_or_else(crate::commands::now);
    ended.since(began).as_secs_f64()
}

/// Shows a few answers that differ.
async fn samples(batch: &Batch, place: &Place, settings: &Settings) -> anyhow::Result<()> {
    let found = pick(batch, place).await?;
    if found.is_empty() {
        return Ok(());
    }
    let title = if is_simulated(batch) { "answer (simulated)" } else { "answer" };
    let mut table = Table::new([right("row"), cell(title)], "");
    for (key, answer) in found {
        table.row([right(key), cell(answer)]);
    }
    settings.output.line("")?;
    settings.output.list::<Value>(&[], || table)
}

/// The keys and answers of some rows: one for each first word that an answer has, so that the
/// usual verdict does not hide the others.
async fn pick(batch: &Batch, place: &Place) -> anyhow::Result<Vec<(String, String)>> {
    let (state, id) = (Some(UnitState::Done), Some(batch.id.clone()));
    let filter = UnitFilter { state, batch: id, ..UnitFilter::default() };
    let scope = place.client.scope();
    let (mut found, mut spare, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
    for unit in place.store.units(scope, &filter, None, LOOKED_AT).await?.items {
        let Ok(unit) = place.store.unit(scope, unit.id).await else { continue };
        let Ok(input) = unit.payload.parse::<RowInput>() else { continue };
        let answer = Checkpoint::of(&unit).ok().and_then(|kept| kept.answer);
        let Some(answer) = answer else { continue };
        let sample = (show_key(&from_json(&input.key)), one_line(&answer.text));
        if seen.insert(sort(&answer.text)) {
            found.push(sample);
        } else {
            spare.push(sample);
        }
        if found.len() == SAMPLES {
            break;
        }
    }
    found.extend(spare);
    found.truncate(SAMPLES);
    Ok(found)
}

/// What sort of answer it is: its first short word, if it is JSON.
fn sort(text: &str) -> String {
    let Ok(Value::Object(fields)) = serde_json::from_str(text) else { return String::new() };
    let word = |value: &Value| value.as_str().is_some_and(|text| text.len() < 24);
    let truth = |value: &Value| value.is_boolean();
    let found =
        fields.values().find(|value| word(value)).or_else(|| fields.values().find(|v| truth(v)));
    found.map_or(String::new(), Value::to_string)
}

fn one_line(text: &str) -> String {
    const WIDTH: usize = 100;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(WIDTH) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

fn hints(conducted: &Conducted, url: &StoreUrl) -> Vec<String> {
    let id = &conducted.batch.id;
    let longshore = format!("longshore --store {url} batch");
    let mut hints = Vec::new();
    if !cfg!(feature = "standard") {
        hints.push("hint: cargo build --release builds these commands, too:".to_owned());
    }
    if conducted.batch.counts.failed > 0 {
        hints.push(format!("hint: {longshore} rows --failed {id}"));
    }
    if conducted.end == Announcement::Waiting {
        let worker = format!("longshore --store {url} worker --until-idle");
        hints.push(format!("hint: its end has not been announced yet; {worker} does that"));
    }
    match conducted.batch.status {
        BatchStatus::Paused => {
            hints.push(format!("hint: {longshore} resume {id}, then run it again"));
        }
        status if !status.is_final() => {
            hints.push("hint: run the same command again to take it up".to_owned());
        }
        _ => hints.push(format!("hint: {longshore} report {id}")),
    }
    hints
}

/// What is said of a batch that was started.
pub fn started(started: &Started<'_>, url: &StoreUrl) -> String {
    let Started { batch, sent, skipped, sealed, .. } = started;
    let skipped =
        if *skipped > 0 { format!(", {skipped} are another batch's") } else { String::new() };
    let so_far = if *sealed { "" } else { " so far" };
    format!(
        "batch `{batch}` has {sent} rows{so_far}{skipped}; workers: longshore --store {url} worker"
    )
}
