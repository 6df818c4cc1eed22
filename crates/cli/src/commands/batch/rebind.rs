//! `batch rebind`: accepts that the rows' database of a batch has moved.

use anyhow::{Context, anyhow};
use longshore::{BatchId, Payload};
use longshore_batch::Definition;
use longshore_batch::definition::Database;
use longshore_batch::row_enqueuer::definition_of;
use longshore_batch::rows::DatabaseFingerprint;
use serde::Serialize;

use super::context::BatchContext;
use crate::error::WithHint;
use crate::exit::ExitCode;
use crate::settings::Settings;

/// The command's answer.
#[derive(Serialize)]
struct Rebound<'a> {
    batch: &'a BatchId,
    before: Option<DatabaseFingerprint>,
    after: DatabaseFingerprint,
}

/// Runs the command: the batch's rows are from now on in the database that its `database` names here.
pub async fn run(name: &BatchId, settings: &Settings) -> anyhow::Result<ExitCode> {
    let context = BatchContext::existing(settings).await?;
    let stored = definition_payload(&context, name).await?;
    let definition = definition_of(&context.client, name).await?;
    if definition.database == Database::Store {
        return Err(anyhow!("the rows of batch `{name}` are in the store's own database"))
            .hint("such a batch follows its store, and needs no rebind");
    }
    let source = context.sources.resolve(&definition.database)?;
    let Some(after) = source.fingerprint().await.context("the rows' database cannot be read")? else {
        return Err(anyhow!("the rows' database of batch `{name}` does not tell what identifies it"))
            .hint("batches in such databases are not bound to them");
    };
    let before = definition.fingerprint.clone();
    let rebound = Definition { fingerprint: Some(after.clone()), ..definition };
    context.store.change_definition(context.client.scope(), name, stored, Payload::json(&rebound)?).await?;
    settings.output.answer(&Rebound { batch: name, before: before.clone(), after: after.clone() }, || {
        let before = before.map_or_else(|| "no known database".to_owned(), |before| before.to_string());
        format!("batch `{name}` was in {before}; now it is in {after}")
    })?;
    Ok(ExitCode::Good)
}

async fn definition_payload(context: &BatchContext, name: &BatchId) -> anyhow::Result<Payload> {
    let stored = context.store.definition(context.client.scope(), name).await?;
    stored.ok_or_else(|| anyhow!("batch `{name}` has no definition"))
}
