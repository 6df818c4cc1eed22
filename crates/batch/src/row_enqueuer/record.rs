//! A batch's record: written when the batch is started, read when it is resumed.

use longshore::{Batch, BatchId, Callback, Client, Kind, NewBatch, Payload, QueueName};
use serde_json::Value;

use super::{FillError, StartOptions, bad_name, watcher};
use crate::definition::{COMPLETION_KIND, Definition, QUEUE, RowConcurrency};

/// The version of definitions that this program reads.
const VERSION: u32 = 1;

/// Reads a batch's definition from the store, for example before the batch is resumed.
pub async fn definition_of(client: &Client, id: &BatchId) -> Result<Definition, FillError> {
    let (store, scope) = (client.store(), client.scope());
    let payload = watcher::with_store_retry(|| store.definition(scope, id)).await?;
    let Some(payload) = payload else {
        return Err(FillError::Data(format!("batch `{id}` has no definition and cannot be filled")));
    };
    let definition_error = |why| FillError::Data(format!("batch `{id}` has a definition that {why}"));
    let definition: Definition =
        payload.parse().map_err(|error| definition_error(format!("cannot be read: {error}")))?;
    match definition.version {
        VERSION => Ok(definition),
        newer => Err(definition_error(format!("has version {newer}, this program reads version {VERSION}"))),
    }
}

/// The record of a new batch. Its callback carries `mark`.
pub(super) fn new_batch(
    id: BatchId,
    definition: &Definition,
    options: &StartOptions,
    expected: Option<u64>,
    mark: Value,
) -> Result<NewBatch, FillError> {
    let payload = Payload::json(definition).map_err(|error| FillError::Data(error.to_string()))?;
    let (queue, kind) = (QueueName::new(QUEUE).map_err(bad_name)?, Kind::new(COMPLETION_KIND));
    Ok(NewBatch {
        tenant: definition.tenant.clone(),
        kind: definition.kind.clone(),
        initiated_by: options.initiated_by.clone(),
        expected,
        workers: match definition.workers {
            RowConcurrency::Fixed(workers) => Some(workers),
            RowConcurrency::Auto => None,
        },
        notes: options.notes.clone(),
        threshold: definition.threshold,
        callback: Some(Callback::new(queue, kind.map_err(bad_name)?, mark)),
        definition: Some(payload),
        ..NewBatch::new(id)
    })
}

/// Whether a batch was opened with this mark.
pub(super) fn has_mark(batch: &Batch, mark: &Value) -> bool {
    batch.callback.as_ref().is_some_and(|callback| callback.data == *mark)
}
