//! `batch recover`: takes up unfinished batches, as after a reboot.

use anyhow::Context;
use longshore::{BatchId, BatchStatus};
use longshore_batch::initiator::definition_of;
use longshore_batch::{Initiation, Initiator};
use serde_json::Value;

use super::finish::{finish, worst};
use super::place::Place;
use crate::error;
use crate::exit::ExitCode;
use crate::settings::Settings;

/// Runs the command. A batch that cannot be taken up is no reason to leave the others.
pub async fn run(names: Vec<BatchId>, settings: &Settings) -> anyhow::Result<ExitCode> {
    let place = Place::existing(settings).await?;
    let (mut initiations, mut refused) = (Vec::new(), Vec::new());
    for id in unfinished(&place, names).await? {
        match take_up(&place, &id).await {
            Ok(initiation) => initiations.push(initiation),
            Err(error) => refused.push(error::report(&error)),
        }
    }
    if initiations.is_empty() {
        if refused.is_empty() {
            settings.output.answer(&Vec::<Value>::new(), || "nothing to recover".into())?;
        }
        return Ok(worst(refused));
    }
    let count = initiations.len();
    let batches = if count == 1 { "batch" } else { "batches" };
    settings.output.note(format!("taking up {count} {batches}"));
    let finished = finish(&place, initiations, None, settings).await?;
    Ok(worst(refused.into_iter().chain([finished])))
}

async fn take_up(place: &Place, id: &BatchId) -> anyhow::Result<Initiation> {
    let definition = definition_of(&place.client, id).await?;
    let cannot = || format!("batch `{id}` cannot be taken up");
    let source = place.sources.resolve(&definition.database).with_context(cannot)?;
    Initiator::new(place.client.clone(), source).resume(id).await.with_context(cannot)
}

/// The named batches, or every open one whose rows we know how to work on.
async fn unfinished(place: &Place, names: Vec<BatchId>) -> anyhow::Result<Vec<BatchId>> {
    if !names.is_empty() {
        return Ok(names);
    }
    let mut found = Vec::new();
    for batch in place.batches(&[BatchStatus::Queued, BatchStatus::Running]).await? {
        let definition = place.store.definition(place.client.scope(), &batch.id).await?;
        found.extend(definition.map(|_| batch.id));
    }
    Ok(found)
}
