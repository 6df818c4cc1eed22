//! Finds what clients name, and shows a single script or a task as a batch of one.
//!
//! A script that was submitted alone has a batch record with its number and name, which is written once
//! and has no units: the unit stays in the pool's common stream, and its state is the batch's state. A
//! batch with a unit of its own would need a stream with counters, and a million of those would slow down
//! every claim.

use longshore::batch::{BatchAction, advance};
use longshore::unit_state::DEPENDENCY_FAILURE;
use longshore::{
    Batch, BatchId, BatchStatus, Counts, Error, NewBatch, Scope, SendError, Unit, UnitId, UnitState,
};

use super::admin::{error_text, unit_view};
use super::{ClientApi, Event};
use crate::request::{ArrayAction, Submission, UnitOperation, first_unit_id, nth_unit_id};
use crate::script::{ArrayItem, BatchDefinition, KIND, StoredTask};

/// The type of the record of a script that was submitted alone. Its notes name the unit.
const SINGLE: &str = "single script";
/// What the notes of such a record begin with.
const UNIT_NOTE: &str = "unit ";

/// What a client names.
pub(super) enum Target {
    /// An array or a job.
    Batch(Box<Batch>),
    /// A unit, with its batch's record if it was submitted alone.
    Unit(Box<Unit>, Option<Box<Batch>>),
}

impl Target {
    /// The batch; a unit is a batch of one.
    pub(super) fn into_batch(self) -> Result<Batch, String> {
        match self {
            Self::Batch(batch) => Ok(*batch),
            Self::Unit(unit, record) => batch_of_one(&unit, record.map(|record| *record)),
        }
    }
}

/// The unit of a record of a single script.
fn single_unit(record: &Batch) -> Option<UnitId> {
    if record.kind != SINGLE {
        return None;
    }
    record.notes.strip_prefix(UNIT_NOTE)?.parse().ok()
}

fn batch_of_one(unit: &Unit, record: Option<Batch>) -> Result<Batch, String> {
    let mut counts = Counts::default();
    *counts.counter_mut(unit.state) += 1;
    let mut batch = match record {
        Some(record) => record,
        None => empty_record(unit)?,
    };
    let report = unit_view(unit).report;
    batch.kind = KIND.to_owned();
    batch.notes = String::new();
    batch.status = BatchStatus::Queued;
    batch.reason = unit.failure.as_ref().map(ToString::to_string);
    batch.started_at =
        report.map(|report| longshore::Timestamp::from_micros(report.started)).or(unit.started_at);
    batch.completed_at = None;
    (batch.announced, batch.generation) = (0, unit.generation);
    batch.counts = counts;
    let reason = batch.reason.clone();
    advance(&mut batch, unit.since);
    batch.reason = reason;
    if unit.state == UnitState::Cancelled {
        batch.status = BatchStatus::Cancelled;
    }
    Ok(batch)
}

/// The record of a unit that has none: a task of an array or a job.
fn empty_record(unit: &Unit) -> Result<Batch, String> {
    let id = BatchId::new(unit.id.to_string()).map_err(|error| error.to_string())?;
    Ok(Batch {
        id,
        number: 0,
        tenant: unit.tenant.clone(),
        kind: String::new(),
        status: BatchStatus::Queued,
        reason: None,
        initiated_by: String::new(),
        initiated_at: unit.created_at,
        started_at: None,
        completed_at: None,
        paused_at: None,
        paused_ms: 0,
        workers: None,
        expected: None,
        notes: String::new(),
        cursor: String::new(),
        sealed: true,
        generation: 1,
        threshold: None,
        forgiven: 0,
        callback: None,
        announced: 0,
        counts: Counts::default(),
        sums: longshore::batch::Sums::new(),
    })
}

impl ClientApi {
    /// What is named: a batch by its name or number, a unit by its id, or a task of a batch.
    pub(super) async fn target(&self, scope: &Scope, name: &BatchId) -> Result<Target, String> {
        let store = self.client.store();
        let not_found = match store.batch(scope, name).await {
            Ok(batch) => return self.with_unit(scope, batch).await,
            Err(error @ Error::NotFound { .. }) => error_text(error),
            Err(error) => return Err(error_text(error)),
        };
        if let Ok(id) = name.as_str().parse::<UnitId>() {
            let unit = store.unit(scope, id).await.map_err(error_text)?;
            return Ok(Target::Unit(Box::new(unit), None));
        }
        for (at, _) in name.as_str().rmatch_indices('.') {
            let (batch, task) = (&name.as_str()[..at], &name.as_str()[at + 1..]);
            let Ok(batch) = BatchId::new(batch) else { continue };
            if let Ok(batch) = store.batch(scope, &batch).await {
                let unit = self.task(scope, &batch, task).await?;
                return Ok(Target::Unit(Box::new(unit), None));
            }
        }
        Err(not_found)
    }

    async fn with_unit(&self, scope: &Scope, batch: Batch) -> Result<Target, String> {
        let Some(id) = single_unit(&batch) else { return Ok(Target::Batch(Box::new(batch))) };
        match self.client.store().unit(scope, id).await {
            Ok(unit) => Ok(Target::Unit(Box::new(unit), Some(Box::new(batch)))),
            // The unit's record is pruned before the batch's.
            Err(Error::NotFound { .. }) => Ok(Target::Batch(Box::new(batch))),
            Err(error) => Err(error_text(error)),
        }
    }

    /// A batch as clients see it.
    pub(super) async fn shown(&self, scope: &Scope, batch: Batch) -> Result<Batch, String> {
        self.with_unit(scope, batch).await?.into_batch()
    }

    /// The unit of a task: `3` of an array, `clean` or `fetch.3` of a job.
    async fn task(&self, scope: &Scope, batch: &Batch, task: &str) -> Result<Unit, String> {
        let definition = self.client.store().definition(scope, &batch.id).await.map_err(error_text)?;
        let definition = definition.and_then(|definition| definition.parse::<BatchDefinition>().ok());
        let found = match &definition {
            Some(BatchDefinition::Job { tasks }) => self.task_of_job(scope, batch, tasks, task).await?,
            _ => match task.parse() {
                Ok(index) => self.task_of_array(scope, batch, index).await?,
                Err(_) => None,
            },
        };
        found.ok_or_else(|| match definition {
            Some(BatchDefinition::Job { tasks }) => {
                let names: Vec<&str> = tasks.iter().take(20).map(|task| task.id.as_str()).collect();
                format!("job `{}` has no task {task}; it has {}", batch.id, names.join(", "))
            }
            _ => format!("array `{}` has no task {task}", batch.id),
        })
    }

    async fn task_of_job(
        &self,
        scope: &Scope,
        batch: &Batch,
        tasks: &[StoredTask],
        name: &str,
    ) -> Result<Option<Unit>, String> {
        // A task may have a number as its name.
        let number: Option<usize> = name.parse().ok().filter(|_| !tasks.iter().any(|task| task.id == name));
        let mut before = 0;
        for (position, task) in tasks.iter().enumerate() {
            let index = name.strip_prefix(task.id.as_str()).and_then(|rest| rest.strip_prefix('.'));
            // The index is enough in a job of one array; single scripts have their position, too.
            let index = index.or((tasks.len() == 1 && task.script.is_some()).then_some(name));
            let is_single = task.script.is_none() && (task.id == name || number == Some(position + 1));
            let found = match index.and_then(|index| index.parse().ok()) {
                Some(index) if task.script.is_some() => task.position(index),
                _ => is_single.then_some(0),
            };
            if let Some(found) = found {
                let id = nth_unit_id(first_unit_id(batch), before + found);
                return self.client.store().unit(scope, id).await.map(Some).map_err(error_text);
            }
            if task.id == name {
                return Err(format!(
                    "task `{name}` is an array; its scripts are `{}.{name}.1` and so on",
                    batch.id
                ));
            }
            before += task.units;
        }
        Ok(None)
    }

    async fn task_of_array(&self, scope: &Scope, array: &Batch, index: u64) -> Result<Option<Unit>, String> {
        let store = self.client.store();
        let is_task = |unit: &Unit| {
            let item: Option<ArrayItem> = unit.payload.parse().ok();
            unit.batch.as_ref() == Some(&array.id) && item.is_some_and(|item| item.0 == index)
        };
        let usual = store.unit(scope, nth_unit_id(first_unit_id(array), index)).await;
        if let Some(unit) = usual.ok().filter(is_task) {
            return Ok(Some(unit));
        }
        // An array with an index twice, or of an earlier version.
        let filter = longshore::store::UnitFilter { batch: Some(array.id.clone()), ..Default::default() };
        let mut after = None;
        loop {
            let page = store.units(scope, &filter, after.as_deref(), FIND_PAGE).await.map_err(error_text)?;
            for unit in page.items {
                let with_payload = store.unit(scope, unit.id).await.map_err(error_text)?;
                if is_task(&with_payload) {
                    return Ok(Some(with_payload));
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(None);
            }
        }
    }

    /// The unit of a task or of a script that was submitted alone.
    pub(super) async fn find_task(&self, scope: &Scope, name: &BatchId) -> Result<UnitId, String> {
        match self.target(scope, name).await? {
            Target::Unit(unit, _) => Ok(unit.id),
            Target::Batch(batch) if batch.kind == SINGLE => {
                Err(format!("the script of `{name}` is no longer kept"))
            }
            Target::Batch(batch) => Err(format!(
                "`{name}` is a batch of {}; its tasks are `{name}.1` and so on",
                batch.counts.total()
            )),
        }
    }

    /// Pauses, resumes, cancels or retries; without an action, only reads.
    pub(super) async fn steer(
        &self,
        scope: &Scope,
        name: &BatchId,
        action: Option<ArrayAction>,
    ) -> Result<Batch, String> {
        let target = self.target(scope, name).await?;
        let Some(action) = action else { return target.into_batch() };
        let batch = match target {
            Target::Batch(batch) => batch,
            Target::Unit(unit, record) => {
                self.steer_unit(scope, &unit, &action).await?;
                let unit = self.client.store().unit(scope, unit.id).await.map_err(error_text)?;
                return batch_of_one(&unit, record.map(|record| *record));
            }
        };
        let event = match action {
            ArrayAction::Cancel => Some(Event::HeartbeatNow),
            ArrayAction::Pause { .. } => Some(Event::ArrayPaused(batch.id.clone())),
            ArrayAction::Resume | ArrayAction::Retry => None,
        };
        let action = match action {
            ArrayAction::Pause { reason } => BatchAction::Pause { reason },
            ArrayAction::Resume => BatchAction::Resume,
            ArrayAction::Cancel => BatchAction::Cancel,
            ArrayAction::Retry => BatchAction::RetryFailed,
        };
        let batch =
            self.client.store().apply_batch_action(scope, &batch.id, action).await.map_err(error_text)?;
        self.notify_core(event).await;
        Ok(batch)
    }

    async fn steer_unit(&self, scope: &Scope, unit: &Unit, action: &ArrayAction) -> Result<(), String> {
        let cause = unit.failure.as_ref().filter(|failure| failure.code == DEPENDENCY_FAILURE);
        if let (ArrayAction::Retry, UnitState::Cancelled, Some(cause)) = (action, unit.state, cause) {
            let retry = match &unit.batch {
                Some(batch) => format!("`batch retry {batch}` retries both"),
                None => format!("`unit retry {}` runs it all the same", unit.id),
            };
            return Err(format!("unit {} was cancelled: {}; {retry}", unit.id, cause.message));
        }
        let (operation, participle) = match action {
            ArrayAction::Cancel => (UnitOperation::Cancel, "cancelled"),
            ArrayAction::Retry => (UnitOperation::Retry, "retried"),
            ArrayAction::Pause { .. } | ArrayAction::Resume => {
                return Err(format!("unit {} is one script: only arrays and jobs are paused", unit.id));
            }
        };
        let report = self.operate(scope, vec![unit.id], operation).await?;
        match report.changed + report.requested {
            0 => Err(format!("unit {} is {} and cannot be {participle}", unit.id, unit.state)),
            _ => Ok(()),
        }
    }

    /// Opens a batch. If its name is taken, it gets a suffix.
    pub(super) async fn open_fresh(&self, new: NewBatch) -> Result<longshore::BatchWriter, SendError> {
        let mut named = new.clone();
        loop {
            let writer = self.client.open_batch(named.clone()).await?;
            if !writer.is_resumed() {
                return Ok(writer);
            }
            let id = UnitId::new().to_string();
            let suffix = id.get(id.len().saturating_sub(8)..).unwrap_or_default();
            let name: String = new.id.as_str().chars().take(100).collect();
            named.id = BatchId::new(format!("{name}-{suffix}")).unwrap_or_else(|_| new.id.clone());
        }
    }

    /// Records a script that was submitted alone as a batch of one. A repeat finds the record. Without a record, which
    /// the store may refuse, the script runs all the same.
    pub(super) async fn record_single(&self, unit: UnitId, submission: &Submission) -> Option<Batch> {
        let recorded = self.open_single(unit, submission).await;
        let logged = recorded.inspect_err(|error| {
            tracing::warn!(%unit, %error, "the script is stored, but has no number and no name");
        });
        logged.ok()
    }

    async fn open_single(&self, unit: UnitId, submission: &Submission) -> Result<Batch, SendError> {
        let notes = format!("{UNIT_NOTE}{unit}");
        let name = submission.script.name.as_deref().and_then(|name| BatchId::new(name).ok());
        // A name with an owner is that of a tenant's batch.
        let name = name.filter(|name| name.owner().is_none());
        let id = match name {
            Some(name) => name,
            None => BatchId::new(unit.to_string()).map_err(|error| Error::Invalid(error.to_string()))?,
        };
        let new = NewBatch {
            tenant: submission.tenant.clone(),
            initiated_by: submission.initiated_by.clone(),
            kind: SINGLE.to_owned(),
            notes: notes.clone(),
            ..NewBatch::new(id)
        };
        let mut writer = self.client.open_batch(new.clone()).await?;
        if writer.batch().notes != notes {
            writer = self.open_fresh(new).await?;
        }
        writer.seal().await
    }
}

/// Units per page in a search for a task.
const FIND_PAGE: u32 = 1000;
