//! A batch's record: what is written when it is started, and read when it is taken up.

use longshore::{Batch, BatchId, Callback, Client, Kind, NewBatch, Payload, QueueName};
use serde_json::Value;

use super::{InitiateError, StartOptions, bad_name, watch};
use crate::definition::{Definition, END_KIND, QUEUE, Workers};

/// The form of definitions that this program knows.
const VERSION: u32 = 1;

/// What a batch is to do, as the store keeps it: what one needs to know before it is resumed.
pub async fn definition_of(client: &Client, id: &BatchId) -> Result<Definition, InitiateError> {
    let (store, scope) = (client.store(), client.scope());
    let kept = watch::patiently(|| store.definition(scope, id)).await?;
    let Some(kept) = kept else {
        return Err(InitiateError::Data(format!(
            "batch `{id}` has no rows of a database to fill it"
        )));
    };
    let bad = |why| InitiateError::Data(format!("batch `{id}` has a definition that {why}"));
    let definition: Definition =
        kept.parse().map_err(|error| bad(format!("cannot be read: {error}")))?;
    match definition.version {
        VERSION => Ok(definition),
        newer => Err(bad(format!("is of version {newer}, this program knows {VERSION}"))),
    }
}

/// The record of a batch. Its callback carries `mark`.
pub(super) fn new_batch(
    id: BatchId,
    definition: &Definition,
    options: &StartOptions,
    mark: Value,
) -> Result<NewBatch, InitiateError> {
    let kept = Payload::json(definition).map_err(|error| InitiateError::Data(error.to_string()))?;
    let (queue, kind) = (QueueName::new(QUEUE).map_err(bad_name)?, Kind::new(END_KIND));
    Ok(NewBatch {
        tenant: definition.tenant.clone(),
        kind: definition.kind.clone(),
        initiated_by: options.initiated_by.clone(),
        workers: match definition.workers {
            Workers::Fixed(workers) => Some(workers),
            Workers::Auto => None,
        },
        notes: options.notes.clone(),
        threshold: definition.threshold,
        callback: Some(Callback { queue, kind: kind.map_err(bad_name)?, data: mark }),
        definition: Some(kept),
        ..NewBatch::new(id)
    })
}

/// Whether a batch is the one that was opened with this mark.
pub(super) fn carries(batch: &Batch, mark: &Value) -> bool {
    batch.callback.as_ref().is_some_and(|callback| callback.data == *mark)
}
