//! `batch recover`: resumes unfinished batches, as after a reboot.

use anyhow::Context;
use longshore::{BatchId, BatchStatus};
use longshore_batch::row_enqueuer::definition_of;
use longshore_batch::{BatchFill, RowEnqueuer};
use serde_json::Value;

use super::context::{BatchContext, fill_error};
use super::run_all::{most_severe, run_batches};
use crate::error;
use crate::exit::ExitCode;
use crate::settings::Settings;

/// Runs the command. A batch that cannot be resumed does not stop the others.
pub async fn run(names: Vec<BatchId>, settings: &Settings) -> anyhow::Result<ExitCode> {
    let context = BatchContext::existing(settings).await?;
    let (mut initiations, mut refused) = (Vec::new(), Vec::new());
    for id in unfinished(&context, names).await? {
        match resume_unfinished(&context, &id).await {
            Ok(initiation) => initiations.push(initiation),
            Err(error) => refused.push(error::report(&error)),
        }
    }
    if initiations.is_empty() {
        if refused.is_empty() {
            settings.output.answer(&Vec::<Value>::new(), || "nothing to recover".into())?;
        }
        return Ok(most_severe(refused));
    }
    let count = initiations.len();
    let batches = if count == 1 { "batch" } else { "batches" };
    settings.output.note(format!("resuming {count} {batches}"));
    let finished = run_batches(&context, initiations, None, settings).await?;
    Ok(most_severe(refused.into_iter().chain([finished])))
}

async fn resume_unfinished(context: &BatchContext, id: &BatchId) -> anyhow::Result<BatchFill> {
    let definition = definition_of(&context.client, id).await?;
    let cannot = || format!("batch `{id}` cannot be resumed");
    let source = context.sources.resolve(&definition.database).with_context(cannot)?;
    let resumed = RowEnqueuer::new(context.client.clone(), source).resume(id).await;
    resumed.map_err(|error| fill_error(id, error)).with_context(cannot)
}

/// The named batches, or every open one that has a definition.
async fn unfinished(context: &BatchContext, names: Vec<BatchId>) -> anyhow::Result<Vec<BatchId>> {
    if !names.is_empty() {
        return Ok(names);
    }
    let mut found = Vec::new();
    for batch in context.batches(&[BatchStatus::Queued, BatchStatus::Running]).await? {
        let definition = context.store.definition(context.client.scope(), &batch.id).await?;
        found.extend(definition.map(|_| batch.id));
    }
    Ok(found)
}
