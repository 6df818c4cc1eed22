//! `batch run` and `start`: from a batch file to a batch, a new one or the unfinished one.

use std::collections::BTreeMap;
use std::path::Path;

use longshore::{Batch, BatchId, BatchStatus};
use longshore_batch::initiator::{FillEnd, StartOptions, definition_of};
use longshore_batch::{Definition, Initiation, Initiator};
use serde::Serialize;
use serde_json::Value;

use super::finish::{CLOSING, finish};
use super::halt::Halt;
use super::place::{Checked, Place, Purpose};
use super::summary;
use crate::args::batch::{File, Run};
use crate::commands::now;
use crate::error::WithHint;
use crate::exit::ExitCode;
use crate::settings::Settings;
use crate::whoami;

/// `batch run`
pub async fn run_file(typed: Run, settings: &Settings) -> anyhow::Result<ExitCode> {
    if typed.dry_run {
        return dry(&typed.file, settings).await;
    }
    let checked = Checked::read(&typed.file, Purpose::Run, settings).await?;
    let place = checked.open(settings).await?;
    let initiation = initiation(&checked, &place, &typed.file, settings).await?;
    finish(&place, vec![initiation], Some(checked.definition.workers), settings).await
}

/// `ai estimate` of a batch file: a dry run.
pub async fn estimate(file: &Path, settings: &Settings) -> anyhow::Result<ExitCode> {
    dry(&File::of(file.to_owned(), Vec::new()), settings).await
}

/// What would be done.
pub async fn dry(file: &File, settings: &Settings) -> anyhow::Result<ExitCode> {
    let checked = Checked::read(file, Purpose::DryRun, settings).await?;
    let shown = super::dry_run::show(&checked, settings).await;
    checked.commands.close(CLOSING).await;
    shown
}

/// `batch start`
pub async fn start(typed: File, settings: &Settings) -> anyhow::Result<ExitCode> {
    let checked = Checked::read(&typed, Purpose::Run, settings).await?;
    // They work; others will call them.
    checked.commands.close(CLOSING).await;
    let place = checked.open(settings).await?;
    let mut initiation = initiation(&checked, &place, &typed, settings).await?;
    // An unfinished batch goes on with the rows it began with, whatever the file says now.
    let source = place.sources.resolve(&initiation.definition().database)?;
    let initiator = Initiator::new(place.client.clone(), source);
    let id = initiation.batch().id.clone();
    let (halt, bar) = (Halt::new(), settings.output.bar("{prefix}  {pos} rows in {msg}"));
    bar.set_prefix(id.to_string());
    let filling = initiator.fill(&mut initiation, halt.drain(), |filling| {
        bar.set_position(filling.sent);
        if filling.skipped > 0 {
            bar.set_message(format!("({} are another batch's)", filling.skipped));
        }
    });
    let filled = tokio::select! {
        filled = filling => filled?,
        listened = halt.listen(settings.worker.drain_timeout, |_| {}) => return listened.map(|()| ExitCode::Error),
    };
    bar.finish_and_clear();
    let batch = place.store.batch(place.client.scope(), &id).await?;
    let (sent, skipped) = (filled.progress.sent, filled.progress.skipped);
    let started = Started { batch: &id, status: batch.status, sent, skipped, sealed: batch.sealed };
    settings.output.answer(&started, || summary::started(&started, &place.url))?;
    summary::note_if_empty(&batch, skipped, settings.output);
    Ok(match filled.end {
        FillEnd::Sealed => ExitCode::Good,
        FillEnd::Stopped => ExitCode::Interrupted,
        FillEnd::GivenUp(_) => ExitCode::Cancelled,
    })
}

/// What scripts see of a batch that was started.
#[derive(Serialize)]
pub struct Started<'a> {
    pub batch: &'a BatchId,
    pub status: BatchStatus,
    pub sent: u64,
    pub skipped: u64,
    pub sealed: bool,
}

/// The unfinished batch of this file, taken up where it stopped; or else a new one.
async fn initiation(
    checked: &Checked,
    place: &Place,
    file: &File,
    settings: &Settings,
) -> anyhow::Result<Initiation> {
    if !file.new
        && let Some((batch, kept)) = unfinished(&checked.definition, place).await?.first()
    {
        return take_up(checked, place, batch, kept, settings).await;
    }
    begin(checked, place, file).await
}

/// A new batch.
pub(super) async fn begin(
    checked: &Checked,
    place: &Place,
    file: &File,
) -> anyhow::Result<Initiation> {
    let initiator = Initiator::new(place.client.clone(), checked.source.clone());
    let (initiated_by, notes) = (whoami::initiator(), file.notes.clone());
    let options = StartOptions { now: now(), initiated_by, notes };
    Ok(initiator.start(checked.definition.clone(), options).await?)
}

/// An unfinished one, where it stopped.
pub(super) async fn take_up(
    checked: &Checked,
    place: &Place,
    batch: &Batch,
    kept: &Definition,
    settings: &Settings,
) -> anyhow::Result<Initiation> {
    let id = &batch.id;
    if batch.status == BatchStatus::Paused {
        let why = batch.reason.as_deref().unwrap_or("by hand");
        return Err(anyhow::anyhow!("batch `{id}` of this file is paused: {why}")).hint(format!(
            "`longshore batch resume {id}` and run again, or start another with --new"
        ));
    }
    let (ended, total) = (batch.counts.finished(), batch.counts.total());
    settings
        .output
        .note(format!("taking up batch `{id}`: {ended} of {total} rows so far have ended"));
    if !is_same(&checked.definition, kept) {
        settings.output.note(
            "warning: the batch file has changed since; the batch goes on as it was started \
             (--new starts another)",
        );
    }
    let initiator = Initiator::new(place.client.clone(), checked.source.clone());
    Ok(initiator.resume(id).await?)
}

/// The unfinished batches of the same file with the same parameters, the newest first.
pub(super) async fn unfinished(
    definition: &Definition,
    place: &Place,
) -> anyhow::Result<Vec<(Batch, Definition)>> {
    let statuses = [BatchStatus::Queued, BatchStatus::Running, BatchStatus::Paused];
    let mut open = place.batches(&statuses).await?;
    open.retain(|batch| batch.kind == definition.kind && batch.tenant == definition.tenant);
    open.sort_by_key(|batch| std::cmp::Reverse(batch.initiated_at));
    let mut found = Vec::new();
    for batch in open {
        // One that cannot be read is somebody else's.
        let Ok(kept) = definition_of(&place.client, &batch.id).await else { continue };
        let (mine, its) = (&definition.candidates, &kept.candidates);
        let same_rows = params(definition) == params(&kept) && mine.limit == its.limit;
        // A digest's file may be in another folder after each deployment.
        let both_write = definition.mail.is_some() && kept.mail.is_some();
        if (kept.source == definition.source || both_write) && same_rows {
            found.push((batch, kept));
        }
    }
    Ok(found)
}

/// What rows are chosen by, the day on which a digest was begun aside.
fn params(definition: &Definition) -> BTreeMap<&str, &Value> {
    let params = definition.candidates.params.iter();
    let is_day = |name: &str| definition.mail.is_some() && name == "day";
    params.map(|(name, value)| (name.as_str(), value)).filter(|(name, _)| !is_day(name)).collect()
}

/// Whether two definitions do the same; when each began, and with how many workers, aside.
fn is_same(one: &Definition, other: &Definition) -> bool {
    let mut like = other.clone();
    (like.deadline, like.workers) = (one.deadline, one.workers);
    if let (Some(mail), Some(like_mail)) = (&one.mail, &mut like.mail) {
        like_mail.day.clone_from(&mail.day);
        like.candidates.params.clone_from(&one.candidates.params);
    }
    *one == like
}
