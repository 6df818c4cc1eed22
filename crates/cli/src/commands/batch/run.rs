//! `batch run` and `batch start`: create a batch from a file, or resume its unfinished one.

use std::collections::BTreeMap;
use std::path::Path;

use longshore::{Batch, BatchId, BatchStatus};
use longshore_batch::definition::{Candidates, RowStep};
use longshore_batch::row_enqueuer::{FillEnd, StartOptions, definition_of};
use longshore_batch::{BatchFill, Definition, RowEnqueuer};
use serde::Serialize;
use serde_json::Value;

use super::context::{BatchContext, CheckedBatch, ReadPurpose, fill_error};
use super::run_all::{SHUTDOWN_TIMEOUT, run_batches};
use super::signals::Shutdown;
use super::{golden_check, summary, tenant_profile, trial};
use crate::args::batch::{BatchFileArgs, BatchRunArgs};
use crate::commands::now;
use crate::error::WithHint;
use crate::exit::ExitCode;
use crate::host_identity;
use crate::settings::Settings;

/// `batch run`
pub async fn run_file(typed: BatchRunArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    if typed.dry_run {
        return show_dry_run(&typed.file, settings).await;
    }
    let mut checked = CheckedBatch::read(&typed.file, ReadPurpose::Run, settings).await?;
    let context = checked.open(settings).await?;
    tenant_profile::find(&checked.definition, &context, settings).await?;
    if typed.check
        && let Some(code) = golden_check::run(&checked, &context, &typed.file, settings).await?
    {
        return Ok(code);
    }
    trial::prepare(&mut checked.definition, &typed, &*checked.source, &context).await?;
    let initiation = initiation(&checked, &context, &typed.file, settings).await?;
    run_batches(&context, vec![initiation], Some(checked.definition.workers), settings).await
}

/// `ai estimate` of a batch file: a dry run.
pub async fn estimate(file: &Path, settings: &Settings) -> anyhow::Result<ExitCode> {
    show_dry_run(&BatchFileArgs::of(file.to_owned(), Vec::new()), settings).await
}

/// Shows what a run would do.
pub async fn show_dry_run(file: &BatchFileArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let checked = CheckedBatch::read(file, ReadPurpose::DryRun, settings).await?;
    let shown = super::dry_run::show(&checked, settings).await;
    checked.commands.close(SHUTDOWN_TIMEOUT).await;
    shown
}

/// `batch start`
pub async fn start(typed: BatchFileArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let checked = CheckedBatch::read(&typed, ReadPurpose::Run, settings).await?;
    // The check has started them; other processes will run them.
    checked.commands.close(SHUTDOWN_TIMEOUT).await;
    let context = checked.open(settings).await?;
    tenant_profile::require_here(&checked.definition, &context, settings).await?;
    let mut initiation = initiation(&checked, &context, &typed, settings).await?;
    // An unfinished batch continues with the rows it began with, whatever the file says now.
    let source = context.sources.resolve(&initiation.definition().database)?;
    let initiator = RowEnqueuer::new(context.client.clone(), source);
    let id = initiation.batch().id.clone();
    let (shutdown, bar) = (Shutdown::new(), settings.output.bar("{prefix}  {pos} rows in {msg}"));
    bar.set_prefix(id.to_string());
    let filling = initiator.fill(&mut initiation, shutdown.drain_requested(), |filling| {
        bar.set_position(filling.sent);
        if filling.skipped > 0 {
            bar.set_message(format!("({} belong to another batch)", filling.skipped));
        }
    });
    let filled = tokio::select! {
        filled = filling => filled?,
        listened = shutdown.listen(settings.worker.drain_timeout, |_| {}) => return listened.map(|()| ExitCode::Error),
    };
    bar.finish_and_clear();
    let batch = context.store.batch(context.client.scope(), &id).await?;
    let (sent, skipped) = (filled.progress.sent, filled.progress.skipped);
    let started = StartedBatch { batch: &id, status: batch.status, sent, skipped, sealed: batch.sealed };
    settings.output.answer(&started, || summary::started_message(&started, &context.url))?;
    summary::note_if_empty(&batch, skipped, settings.output);
    if skipped > 0 {
        settings.output.note(summary::taken_text(skipped, initiation.taken()));
    }
    Ok(match filled.end {
        FillEnd::Sealed => ExitCode::Good,
        FillEnd::Stopped => ExitCode::Interrupted,
        FillEnd::GivenUp(_) => ExitCode::Cancelled,
    })
}

/// A started batch as JSON.
#[derive(Serialize)]
pub struct StartedBatch<'a> {
    pub batch: &'a BatchId,
    pub status: BatchStatus,
    pub sent: u64,
    pub skipped: u64,
    pub sealed: bool,
}

/// Resumes the unfinished batch of this file, or else creates a new one.
async fn initiation(
    checked: &CheckedBatch,
    context: &BatchContext,
    file: &BatchFileArgs,
    settings: &Settings,
) -> anyhow::Result<BatchFill> {
    if !file.new
        && let Some((batch, stored)) = unfinished(&checked.definition, context).await?.first()
    {
        return resume_unfinished(checked, context, batch, stored, settings).await;
    }
    create_batch(checked, context, file).await
}

/// Creates a batch.
pub(super) async fn create_batch(
    checked: &CheckedBatch,
    context: &BatchContext,
    file: &BatchFileArgs,
) -> anyhow::Result<BatchFill> {
    open_batch(checked.definition.clone(), checked, context, &file.notes).await
}

/// Creates a batch of this definition, with the rows of `checked`.
pub(super) async fn open_batch(
    definition: Definition,
    checked: &CheckedBatch,
    context: &BatchContext,
    notes: &str,
) -> anyhow::Result<BatchFill> {
    let initiator = RowEnqueuer::new(context.client.clone(), checked.source.clone());
    let (initiated_by, notes) = (host_identity::initiator(), notes.to_owned());
    let options = StartOptions { now: now(), initiated_by, notes };
    Ok(initiator.start(definition, options).await?)
}

/// Resumes an unfinished batch.
pub(super) async fn resume_unfinished(
    checked: &CheckedBatch,
    context: &BatchContext,
    batch: &Batch,
    stored: &Definition,
    settings: &Settings,
) -> anyhow::Result<BatchFill> {
    let id = &batch.id;
    if batch.status == BatchStatus::Paused {
        let why = batch.reason.as_deref().unwrap_or("by hand");
        return Err(anyhow::anyhow!("batch `{id}` of this file is paused: {why}"))
            .hint(format!("`longshore batch resume {id}` and run again, or start another with --new"));
    }
    let (ended, total) = (batch.counts.finished(), batch.counts.total());
    settings.output.note(format!("resuming batch `{id}`: {ended} of {total} rows so far have ended"));
    if !same_definition(&checked.definition, stored) {
        settings.output.note(
            "warning: the batch file has changed since; the batch continues as it was started \
             (--new starts another)",
        );
    }
    let initiator = RowEnqueuer::new(context.client.clone(), checked.source.clone());
    initiator.resume(id).await.map_err(|error| fill_error(id, error))
}

/// The unfinished batches of the same file with the same parameters, the newest first.
pub(super) async fn unfinished(
    definition: &Definition,
    context: &BatchContext,
) -> anyhow::Result<Vec<(Batch, Definition)>> {
    let statuses = [BatchStatus::Queued, BatchStatus::Running, BatchStatus::Paused];
    let mut open = context.batches(&statuses).await?;
    open.retain(|batch| batch.kind == definition.kind && batch.tenant == definition.tenant);
    open.sort_by_key(|batch| std::cmp::Reverse(batch.initiated_at));
    let mut found = Vec::new();
    for batch in open {
        // A batch without a readable definition was not created by `batch run`.
        let Ok(stored) = definition_of(&context.client, &batch.id).await else { continue };
        let (mine, its) = (&definition.candidates, &stored.candidates);
        let sampled = |candidates: &Candidates| candidates.sample.map(|sample| sample.rows);
        let same_rows = params(definition) == params(&stored)
            && mine.limit == its.limit
            && sampled(mine) == sampled(its)
            && (stored.trial, &its.keys) == (definition.trial, &mine.keys);
        // A digest's file may be in another folder after each deployment.
        let both_write = definition.mail().is_some() && stored.mail().is_some();
        if (stored.source == definition.source || both_write) && same_rows {
            found.push((batch, stored));
        }
    }
    Ok(found)
}

/// The parameters that select rows, without the day on which a digest began.
pub(super) fn params(definition: &Definition) -> BTreeMap<&str, &Value> {
    let params = definition.candidates.params.iter();
    let is_day = |name: &str| definition.mail().is_some() && name == "day";
    params.map(|(name, value)| (name.as_str(), value)).filter(|(name, _)| !is_day(name)).collect()
}

/// Whether two definitions are equal, apart from their start times and numbers of workers.
fn same_definition(one: &Definition, other: &Definition) -> bool {
    let mut like = other.clone();
    (like.deadline, like.workers) = (one.deadline, one.workers);
    (like.candidates.sample, like.candidates.skip_since) = (one.candidates.sample, one.candidates.skip_since);
    (like.revision, like.revisions) = (one.revision, one.revisions.clone());
    like.fingerprint.clone_from(&one.fingerprint);
    if let (RowStep::Mail(mail), RowStep::Mail(like_mail)) = (&one.step, &mut like.step) {
        like_mail.day.clone_from(&mail.day);
        like.candidates.params.clone_from(&one.candidates.params);
    }
    *one == like
}
