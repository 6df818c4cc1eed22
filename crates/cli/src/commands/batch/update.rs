//! `batch update`: corrects a running batch for the rows that have not ended.

use anyhow::{Context, anyhow};
use longshore::batch::{BatchAction, BatchRevision};
use longshore::{BatchId, Payload};
use longshore_batch::Definition;
use longshore_batch::definition::{RevisionError, RowConcurrency};
use longshore_batch::file::Overrides;
use longshore_batch::row_enqueuer::definition_of;
use serde::Serialize;
use serde_json::Value;

use super::context::{CheckedBatch, ReadPurpose, connect_to_batch};
use super::run_all::SHUTDOWN_TIMEOUT;
use super::tenant_profile;
use crate::args::batch::BatchUpdateArgs;
use crate::commands::now;
use crate::error::{WithHint, hinted};
use crate::exit::ExitCode;
use crate::host_identity;
use crate::settings::Settings;

/// The new revision as JSON.
#[derive(Serialize)]
struct UpdatedBatch<'a> {
    batch: &'a BatchId,
    revision: u32,
    changed: &'a [String],
    dry_run: bool,
}

/// Runs the command.
pub async fn run(typed: &BatchUpdateArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let name = &typed.batch.name;
    let (store, client) = connect_to_batch(name, settings).await?;
    let batch = store.batch(client.scope(), name).await?;
    if batch.status.is_final() {
        return Err(anyhow!("batch `{name}` is {}: it has no rows left to correct", batch.status)).hint(
            format!("`longshore batch retry {name}` opens it again; start another with `batch run --new`"),
        );
    }
    let expected = store.definition(client.scope(), name).await?;
    let expected = expected
        .with_context(|| format!("batch `{name}` has no definition: it has no rows of a database"))?;
    let stored = definition_of(&client, name).await?;
    let overrides = overrides(&stored, batch.initiated_at);
    let checked = CheckedBatch::read_with(&typed.path, &overrides, ReadPurpose::Run, settings).await?;
    checked.commands.close(SHUTDOWN_TIMEOUT).await;
    let context = checked.open(settings).await?;
    tenant_profile::require_here(&checked.definition, &context, settings).await?;
    let mut new = checked.definition;
    new.candidates.params.clone_from(&stored.candidates.params);
    let revised =
        stored.revised(new, now(), &host_identity::initiator()).map_err(|error| explain(name, error))?;
    let changed = revised.revisions.last().map(|last| last.changed.clone()).unwrap_or_default();
    if !typed.dry_run {
        let revision = BatchRevision {
            expected,
            definition: Payload::json(&revised)?,
            threshold: revised.threshold,
            workers: match revised.workers {
                RowConcurrency::Fixed(workers) => Some(workers),
                RowConcurrency::Auto => None,
            },
        };
        client
            .store()
            .apply_batch_action(client.scope(), name, BatchAction::Revise(Box::new(revision)))
            .await?;
    }
    let dry_run = typed.dry_run;
    let updated = UpdatedBatch { batch: name, revision: revised.revision, changed: &changed, dry_run };
    settings.output.answer(&updated, || {
        let verb = if dry_run { "would run" } else { "runs" };
        format!("batch `{name}` {verb} revision {}: {} changed", revised.revision, changed.join(", "))
    })?;
    Ok(ExitCode::Good)
}

/// What the batch was started with, in place of the command line.
fn overrides(stored: &Definition, initiated_at: longshore::Timestamp) -> Overrides {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let params = stored.candidates.params.iter().map(|(name, value)| (name.clone(), text(value)));
    Overrides {
        tenant: Some(stored.tenant.clone()),
        kind: Some(stored.kind.clone()),
        params: params.collect(),
        limit: stored.candidates.limit,
        mode: stored.mail().map(|mail| mail.mode),
        allow_duplicates: stored.candidates.claim.is_none(),
        now: Some(initiated_at),
        ..Overrides::default()
    }
}

fn explain(name: &BatchId, error: RevisionError) -> anyhow::Error {
    let is_fixed = matches!(error, RevisionError::Fixed(_));
    let error = anyhow::Error::from(error).context(format!("batch `{name}` is not updated"));
    match is_fixed {
        true => hinted(error, "start another batch with `longshore batch run --new`"),
        false => error,
    }
}
