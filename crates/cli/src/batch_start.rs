//! The built-in kind `batch.start`: starts a batch as `batch start` does, once per unit. Schedules
//! send it.
//!
//! The payload names the batch, so a repeated run continues the batch that the first run created.
//! Sending rows pauses while enough are queued; a run that waits gives its slot back, because the
//! rows may need it.
//!
//! A unit with the operator's rights names any file. A tenant's unit starts files in the folders of
//! `worker.batch_dirs` only, and its failure names no path: the worker's log does.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longshore::{
    BatchId, Client, Context, Handler, HandlerReply, HandlerResult, Rights, Store, Unit, Verdict,
};
use longshore_batch::row_enqueuer::{BatchFill, FillEnd, StartOptions};
use longshore_batch::{FileError, RowEnqueuer};
use longshore_trusted_path::{check_parents, open_unwritable};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::args::batch::BatchFileArgs;
use crate::commands::batch::context::{CheckedBatch, ReadPurpose};
use crate::commands::now;
use crate::settings::Settings;

/// The kind's name.
pub const KIND: &str = "batch.start";

/// A run that has sent nothing for this long snoozes for as long and frees its slot.
const IDLE_SNOOZE: Duration = Duration::from_secs(2);
/// How long a start waits for the rows' database.
const DATABASE_SNOOZE: Duration = Duration::from_secs(5);

/// The payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchStart {
    /// The batch file as it was named.
    pub file: PathBuf,
    /// The folder in which it was named.
    pub folder: PathBuf,
    /// Parameters of the candidates' SQL.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<(String, String)>,
    /// The batch's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// The time for which the schedule fired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fired_for: Option<String>,
}

impl BatchStart {
    /// For a file named in `folder`.
    pub fn new(file: &Path, folder: &Path, params: Vec<(String, String)>) -> anyhow::Result<Self> {
        let text = |path: &Path| path.to_str().map(PathBuf::from);
        let (Some(file), Some(folder)) = (text(file), text(folder)) else {
            anyhow::bail!("{}: the path is not valid UTF-8", file.display());
        };
        Ok(Self { file, folder, params, batch: None, fired_for: None })
    }
}

/// The unit's result.
#[derive(Debug, Serialize)]
pub struct BatchStartResult {
    batch: BatchId,
    sent: u64,
    skipped: u64,
}

/// Starts batch files in the worker's own store.
pub struct BatchStartHandler {
    store: Arc<dyn Store>,
    settings: Settings,
}

impl BatchStartHandler {
    /// Starts batches in `store`, which is the one that `settings` name.
    pub fn new(store: Arc<dyn Store>, settings: &Settings) -> Self {
        // The batch belongs into the worker's store, even if no option named that store.
        Self { store, settings: Settings { store_named: true, ..settings.clone() } }
    }

    /// The batch, created now or by an earlier run.
    async fn open(
        &self,
        context: &Context,
        path: PathBuf,
        input: BatchStart,
    ) -> anyhow::Result<(RowEnqueuer, BatchFill)> {
        let unit = context.unit();
        let settings = Settings { tenant: Some(unit.tenant.clone()), ..self.settings.clone() };
        let file = BatchFileArgs::of(path, input.params);
        let checked = CheckedBatch::read(&file, ReadPurpose::Run, &settings).await?;
        let scope = longshore::Scope::Tenant(unit.tenant.clone());
        let client = Client::scoped(Arc::clone(&self.store), scope);
        let initiator = RowEnqueuer::new(client, checked.source.clone());
        let id = match input.batch {
            Some(id) => id,
            None => BatchId::new(format!("start-{}", unit.id))?,
        };
        let initiated_by = unit.key.clone().unwrap_or_else(|| format!("unit {}", unit.id));
        let options = StartOptions { now: now(), initiated_by, notes: String::new() };
        let initiation = initiator.start_named(&id, checked.definition.clone(), options).await?;
        Ok((initiator, initiation))
    }

    /// The path of the batch file; for a tenant its real path, if that is in an offered folder.
    fn permitted_path(&self, unit: &Unit, input: &BatchStart) -> Option<PathBuf> {
        let path = input.folder.join(&input.file);
        if unit.rights == Rights::Operator {
            return Some(path);
        }
        let path = path.canonicalize().ok()?;
        let mut dirs = self.settings.worker.batch_dirs.iter().filter_map(|dir| dir.canonicalize().ok());
        if !dirs.any(|dir| path.starts_with(dir)) {
            return None;
        }
        // A batch file runs commands: no other user may have written it.
        let trusted = open_unwritable(&path).and_then(|_| check_parents(&path));
        trusted
            .inspect_err(|error| tracing::warn!("a batch file is not offered to tenants: {error}"))
            .ok()?;
        Some(path)
    }
}

/// The verdict on a batch that could not be started or filled. Errors may quote files of the operator.
fn not_started(unit: &Unit, error: &anyhow::Error) -> Verdict {
    let is_unavailable = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<FileError>().is_some_and(|error| error.is_retryable)
    };
    if error.chain().any(is_unavailable) {
        // The rows' database is away: that uses no attempt.
        tracing::warn!(unit = %unit.id, "a batch waits for its rows' database: {error:#}");
        return Verdict::Snooze(DATABASE_SNOOZE);
    }
    if unit.rights == Rights::Operator {
        return Verdict::retry("batch_start", format!("{error:#}"));
    }
    tracing::warn!(unit = %unit.id, tenant = %unit.tenant, "cannot start a tenant's batch: {error:#}");
    Verdict::retry("batch_start", "the batch file has an error, which the worker's log names")
}

impl Handler for BatchStartHandler {
    type Input = BatchStart;
    type Output = BatchStartResult;

    async fn run(&self, context: Context, input: BatchStart) -> HandlerResult<BatchStartResult> {
        let path = self.permitted_path(context.unit(), &input).ok_or_else(|| {
            Verdict::fail("batch_start", "this worker does not offer that batch file to tenants (batch_dirs)")
        })?;
        let opened = self.open(&context, path, input).await;
        let (initiator, mut initiation) = opened.map_err(|error| not_started(context.unit(), &error))?;
        let (moved, cancelled) = (Notify::new(), context.cancelled());
        let stop = async {
            tokio::select! {
                () = wait_until_idle(&moved) => {}
                () = cancelled.cancelled() => {}
            }
        };
        let filled = initiator.fill(&mut initiation, stop, |_| moved.notify_one()).await;
        let filled = filled.map_err(|error| not_started(context.unit(), &error.into()))?;
        let batch = initiation.batch().id.clone();
        match filled.end {
            FillEnd::Sealed => {
                let (sent, skipped) = (filled.progress.sent, filled.progress.skipped);
                Ok(HandlerReply::new(BatchStartResult { batch, sent, skipped }))
            }
            FillEnd::Stopped if cancelled.is_cancelled() => Err(Verdict::Cancel),
            FillEnd::Stopped => Err(Verdict::Snooze(IDLE_SNOOZE)),
            FillEnd::GivenUp(status) => {
                Err(Verdict::fail("given_up", format!("batch `{batch}` is {status}")))
            }
        }
    }
}

/// Returns once nothing was sent for a while.
async fn wait_until_idle(moved: &Notify) {
    while tokio::time::timeout(IDLE_SNOOZE, moved.notified()).await.is_ok() {}
}
