//! Stores a job: scripts and arrays that depend on each other, as one batch.

use longshore::batch::{BatchAction, NewBatch};
use longshore::unit::{Dependencies, MAX_DEPENDENCIES, MAX_SEND_DEPENDENCIES};
use longshore::{BatchWriter, NewUnit, Payload, Scope, UnitId};

use super::ClientApi;
use super::submit::{CHUNK, SubmitError, array_cap, failure_threshold, request_of, unit_items};
use crate::request::{
    ArrayItems, Items, JobSubmission, MAX_ARRAY, NewTask, ServerReply, SubmittedTask, first_unit_id,
    nth_unit_id,
};
use crate::script::{ArrayItem, BatchDefinition, KIND, StoredTask};

impl ClientApi {
    /// Stores a job. The whole request has arrived, so the client is not needed any more.
    pub(super) async fn submit_job(&self, job: JobSubmission) -> Result<ServerReply, String> {
        let units = job.tasks.iter().map(|task| items(task).map_or(1, ArrayItems::count)).collect::<Vec<_>>();
        let total = units.iter().fold(0, |sum: u64, units| sum.saturating_add(*units));
        if total > MAX_ARRAY {
            return Err(format!("the job has {total} runs, of {MAX_ARRAY} at most"));
        }
        let Some(first) = job.tasks.first() else { return Err("the job has no tasks".to_owned()) };
        for task in &job.tasks {
            let waits = task.after.iter().filter_map(|after| units.get(*after)).sum::<u64>();
            if waits > MAX_DEPENDENCIES as u64 {
                return Err(format!(
                    "task `{}` waits for {waits} scripts, of {MAX_DEPENDENCIES} at most",
                    task.id
                ));
            }
        }
        let requests = job.tasks.iter().map(|task| request_of(&task.submission)).collect();
        let definition = BatchDefinition::Job {
            tasks: job.tasks.iter().zip(&units).map(|(task, units)| definition_of(task, *units)).collect(),
        };
        let new = NewBatch {
            tenant: first.submission.tenant.clone(),
            kind: KIND.to_owned(),
            initiated_by: first.submission.initiated_by.clone(),
            threshold: failure_threshold(job.max_failures),
            expected: Some(total),
            definition: Some(Payload::json(&definition).map_err(|error| error.to_string())?),
            ..NewBatch::new(job.name.clone())
        };
        let writer = self.open_fresh(new).await.map_err(|error| error.to_string())?;
        let ids = UnitIds { first: first_unit_id(writer.batch()), units: &units };
        let opened = writer.batch().clone();
        let mut chunks = Chunks { writer, units: Vec::new(), edges: 0, sent: 0 };
        let stored = async {
            for (position, task) in job.tasks.iter().enumerate() {
                let after: Vec<UnitId> = task.after.iter().flat_map(|after| ids.of(*after)).collect();
                self.add_task(&mut chunks, task, position, &ids, after).await?;
            }
            chunks.flush().await?;
            Ok(chunks.writer.seal().await?)
        };
        let batch = match stored.await {
            Ok(batch) => batch,
            Err(error) => {
                // All of it or none.
                let scope = Scope::Tenant(opened.tenant);
                let store = self.client.store();
                if let Err(error) = store.apply_batch_action(&scope, &opened.id, BatchAction::Cancel).await {
                    tracing::warn!(batch = %opened.id, %error, "a job that could not be stored is not cancelled");
                }
                return Err(SubmitError::text(error));
            }
        };
        let unfit = self.find_unfit(requests).await;
        let tasks = job.tasks.into_iter().enumerate().map(|(position, task)| SubmittedTask {
            id: task.id,
            first: nth_unit_id(ids.first, ids.before(position)),
            units: units[position],
            unfit: unfit.get(position).cloned().unwrap_or_default(),
        });
        Ok(ServerReply::JobSubmitted { batch: batch.id, number: batch.number, tasks: tasks.collect() })
    }

    async fn add_task(
        &self,
        chunks: &mut Chunks,
        task: &NewTask,
        position: usize,
        ids: &UnitIds<'_>,
        after: Vec<UnitId>,
    ) -> Result<(), SubmitError> {
        let edges = after.len();
        let dependencies = Dependencies { units: after, ..Dependencies::default() };
        let template = self.unit_template(&task.submission, Payload::from(Vec::new())).await?;
        let template = NewUnit { dependencies, ..template };
        let mut own = ids.of(position);
        let (items, max_running) = match &task.submission.items {
            Items::Each { items, max_running, .. } => (items, *max_running),
            Items::Once(_) => {
                let payload = Payload::json(&task.submission.script).map_err(|error| error.to_string())?;
                let id = own.next().unwrap_or_else(UnitId::new);
                return chunks.add(NewUnit { id, payload, ..template }, edges).await;
            }
        };
        let cap = array_cap(&format!("{} {}", chunks.writer.batch().id, task.id), max_running);
        for (item, id) in unit_items(items).zip(own) {
            let item = ArrayItem(item.0, item.1, u32::try_from(position).ok());
            let payload = Payload::json(&item).map_err(|error| error.to_string())?;
            chunks.add(NewUnit { id, payload, cap: cap.clone(), ..template.clone() }, edges).await?;
        }
        Ok(())
    }
}

fn items(task: &NewTask) -> Option<&ArrayItems> {
    match &task.submission.items {
        Items::Once(_) => None,
        Items::Each { items, .. } => Some(items),
    }
}

fn definition_of(task: &NewTask, units: u64) -> StoredTask {
    let ranges = match items(task) {
        Some(ArrayItems::Ranges(ranges)) => ranges.clone(),
        _ => Vec::new(),
    };
    let script = items(task).map(|_| Box::new(task.submission.script.clone()));
    StoredTask { id: task.id.clone(), units, script, ranges }
}

/// The ids of a job's units, which follow each other task by task.
struct UnitIds<'j> {
    first: UnitId,
    units: &'j [u64],
}

impl UnitIds<'_> {
    /// Number of units before those of a task.
    fn before(&self, task: usize) -> u64 {
        self.units.iter().take(task).sum()
    }

    fn of(&self, task: usize) -> impl Iterator<Item = UnitId> + Send + use<> {
        let (first, before) = (self.first, self.before(task));
        let units = self.units.get(task).copied().unwrap_or_default();
        (0..units).map(move |index| nth_unit_id(first, before + index))
    }
}

/// Adds units to a batch in chunks that the store accepts.
struct Chunks {
    writer: BatchWriter,
    units: Vec<NewUnit>,
    /// Dependencies of `units`.
    edges: usize,
    sent: usize,
}

impl Chunks {
    async fn add(&mut self, unit: NewUnit, edges: usize) -> Result<(), SubmitError> {
        if self.units.len() >= CHUNK || self.edges + edges > MAX_SEND_DEPENDENCIES {
            self.flush().await?;
        }
        self.edges += edges;
        self.units.push(unit);
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), SubmitError> {
        if !self.units.is_empty() {
            self.sent += self.units.len();
            self.edges = 0;
            self.writer.add(std::mem::take(&mut self.units), self.sent.to_string()).await?;
        }
        Ok(())
    }
}
