//! Runs a digest in rounds: first the unfinished batches of the file, then a new batch for the rows
//! that are due. A batch that is paused or cannot be run keeps only its own rows; all others
//! continue.

use std::collections::HashSet;
use std::time::Duration;

use longshore::{Batch, BatchId, BatchStatus};
use longshore_batch::{BatchFill, Definition, mail};
use tokio::time::Instant;

use super::context::{BatchContext, CheckedBatch, ReadPurpose};
use super::run::{create_batch, resume_unfinished, unfinished};
use super::run_all::{SHUTDOWN_TIMEOUT, most_severe, run_batches};
use crate::args::batch::BatchFileArgs;
use crate::error::{self, WithHint, usage};
use crate::exit::ExitCode;
use crate::settings::Settings;

/// After this long a new batch is tried again although all due rows belonged to other batches.
const RECHECK_INTERVAL: Duration = Duration::from_secs(3600);

/// The result of a round.
pub struct DigestRound {
    /// The exit code; `None` if no row was due.
    pub code: Option<ExitCode>,
    /// The key prefix of its messages.
    pub keys: String,
}

/// State kept from round to round.
#[derive(Default)]
pub struct DigestLoop {
    /// Paused batches for which a warning was printed.
    warned: HashSet<BatchId>,
    /// The last new batch found all due rows in other batches.
    last_empty: Option<EmptyBatch>,
}

/// A new batch that got no rows: how many rows were due, how many other batches held, and when.
struct EmptyBatch {
    due: u64,
    held: u64,
    at: Instant,
}

impl DigestLoop {
    /// Runs the unfinished batches of this file, then a new batch for the rows that are due.
    pub async fn run_round(
        &mut self,
        file: &BatchFileArgs,
        settings: &Settings,
    ) -> anyhow::Result<DigestRound> {
        let (mut codes, mut skipped) = (Vec::new(), HashSet::new());
        loop {
            let checked = CheckedBatch::read(file, ReadPurpose::Run, settings).await?;
            let keys = key_prefix(&checked.definition, settings)?;
            let context = checked.open(settings).await?;
            let open = unfinished(&checked.definition, &context).await?;
            let (stopped, open): (Vec<_>, Vec<_>) =
                open.into_iter().partition(|(batch, _)| batch.status == BatchStatus::Paused);
            self.warn_paused(&stopped, settings);
            let left = open.iter().find(|(batch, _)| !file.new && !skipped.contains(&batch.id));
            if let Some((batch, stored)) = left {
                let code = resume_batch(&checked, &context, batch, stored, settings).await;
                if code == ExitCode::Interrupted {
                    return Ok(DigestRound { code: Some(code), keys });
                }
                // A batch of yesterday belongs to yesterday, so another follows. A batch that
                // cannot end is not resumed again.
                if !matches!(code, ExitCode::Good | ExitCode::Failures) {
                    skipped.insert(batch.id.clone());
                }
                codes.push(code);
                continue;
            }
            codes.extend(stopped.first().map(|_| ExitCode::Cancelled));
            let held = stopped.iter().chain(&open).map(|(batch, _)| batch.counts.live()).sum();
            codes.extend(self.run_due(&checked, &context, held, file, settings).await?);
            return Ok(DigestRound { code: (!codes.is_empty()).then(|| most_severe(codes)), keys });
        }
    }

    /// Runs a new batch for the rows that are due, unless there are none or other batches hold them
    /// all.
    async fn run_due(
        &mut self,
        checked: &CheckedBatch,
        context: &BatchContext,
        held: u64,
        file: &BatchFileArgs,
        settings: &Settings,
    ) -> anyhow::Result<Option<ExitCode>> {
        let due = checked.source.count(&checked.definition.candidates).await?;
        let is_repeat = |last_empty: &EmptyBatch| {
            last_empty.due == due
                && last_empty.held == held
                && held > 0
                && last_empty.at.elapsed() < RECHECK_INTERVAL
        };
        if due == 0 || self.last_empty.as_ref().is_some_and(is_repeat) {
            checked.commands.close(SHUTDOWN_TIMEOUT).await;
            return Ok(None);
        }
        let initiation = create_batch(checked, context, file).await?;
        let id = initiation.batch().id.clone();
        let code = run_batch(context, initiation, checked, settings).await?;
        let batch = context.store.batch(context.client.scope(), &id).await?;
        let empty = batch.sealed && batch.counts.total() == 0;
        self.last_empty = empty.then(|| EmptyBatch { due, held, at: Instant::now() });
        Ok(Some(code))
    }

    /// Warns once about each paused batch.
    fn warn_paused(&mut self, stopped: &[(Batch, Definition)], settings: &Settings) {
        self.warned.retain(|id| stopped.iter().any(|(batch, _)| batch.id == *id));
        for (batch, _) in stopped {
            let (id, rows) = (&batch.id, batch.counts.live());
            if self.warned.insert(id.clone()) {
                let why = batch.reason.as_deref().unwrap_or("by hand");
                settings.output.note(format!(
                    "warning: batch `{id}` of this file is paused: {why}; its {rows} rows wait; all others \
                     are written to"
                ));
                settings.output.note(format!(
                    "hint: `longshore batch resume {id}` lets it go on, `batch cancel {id}` releases its rows"
                ));
            }
        }
    }
}

/// The key prefix of the digest's messages. An error if the file is no digest that can run here.
fn key_prefix(definition: &Definition, settings: &Settings) -> anyhow::Result<String> {
    let Some(mail) = definition.mail() else {
        return Err(usage("the batch file has no section [mail]"))
            .hint("`longshore batch run` is for batches that ask");
    };
    if let Some(pool) = &mail.pool {
        // Without this check, rows would wait for another worker, and there is none.
        settings.bounded.shape(pool, None)?;
    }
    Ok(mail::key_prefix(&definition.tenant, &definition.kind, mail.mode))
}

/// Runs an unfinished batch to its end. Its error is reported and does not stop the others.
async fn resume_batch(
    checked: &CheckedBatch,
    context: &BatchContext,
    batch: &Batch,
    stored: &Definition,
    settings: &Settings,
) -> ExitCode {
    let ended = async {
        let initiation = resume_unfinished(checked, context, batch, stored, settings).await?;
        run_batch(context, initiation, checked, settings).await
    };
    ended.await.unwrap_or_else(|error| error::report(&error))
}

async fn run_batch(
    context: &BatchContext,
    initiation: BatchFill,
    checked: &CheckedBatch,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    run_batches(context, vec![initiation], Some(checked.definition.workers), settings).await
}
