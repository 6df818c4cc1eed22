//! A batch: units that are counted together, from the first unit to the callback after the last.
//!
//! [`advance`] is the whole state machine: stores call it, in the same transaction, whenever a
//! batch's counters or its seal changed. [`apply_action`] applies operators' actions.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::access::Rights;
use crate::counts::Counts;
use crate::name::{BatchId, Kind, QueueName, TenantId};
use crate::store::{AddChunkResult, BatchChunk};
use crate::text::truncate_bytes;
use crate::time::Timestamp;
use crate::unit::{NewUnit, Payload, check_text};

/// The status of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum BatchStatus {
    /// No unit has been leased yet.
    Queued,
    /// Units are being worked on.
    Running,
    /// Not claimed until it is resumed.
    Paused,
    /// All units have ended.
    Complete,
    /// Failed by its failure threshold or by an operator.
    Failed,
    /// Cancelled by an operator.
    Cancelled,
}

impl BatchStatus {
    /// Every status.
    pub const ALL: [Self; 6] =
        [Self::Queued, Self::Running, Self::Paused, Self::Complete, Self::Failed, Self::Cancelled];

    /// Whether units of such a batch may be claimed.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Queued | Self::Running)
    }

    /// Whether the batch's remaining units must be cancelled.
    pub fn is_aborted(self) -> bool {
        matches!(self, Self::Failed | Self::Cancelled)
    }

    /// Whether the batch has ended.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Complete | Self::Failed | Self::Cancelled)
    }

    /// The status' name, as in JSON and SQL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Complete => "complete",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl std::fmt::Display for BatchStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for BatchStatus {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|status| status.as_str() == text);
        found.ok_or_else(|| format!("`{text}` is not a batch status"))
    }
}

/// How many failures are too many, and what the batch does then.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailureThreshold {
    /// The limit.
    pub limit: FailureLimit,
    /// What the batch does at the limit.
    pub then: OnThreshold,
}

/// How failures are counted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FailureLimit {
    /// A number of units.
    Units(#[cfg_attr(feature = "schema", schemars(range(max = 0xffff_ffff_u32)))] u64),
    /// A percentage of the batch; until it is sealed, of the ended units, and only after a hundred
    /// have ended.
    Percent(#[cfg_attr(feature = "schema", schemars(range(min = 0, max = 100)))] f64),
}

/// What a batch does at its failure threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnThreshold {
    /// It pauses, for an operator to look.
    #[default]
    Pause,
    /// It fails, and its remaining units are cancelled.
    Fail,
}

/// The unit that is sent when the batch has ended, once per generation. Its payload is an object
/// `{"batch", "status", "generation", "counts", "data"}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Callback {
    /// The queue it is sent to. Exempt from the queue's capacity.
    pub queue: QueueName,
    /// The kind of the unit.
    pub kind: Kind,
    /// The initiator's own part of the payload.
    #[serde(default)]
    pub data: serde_json::Value,
    /// The rights that the unit is sent with: the rights of the batch's initiator.
    #[serde(default, skip_serializing_if = "Rights::is_operator")]
    pub rights: Rights,
}

impl Callback {
    /// A callback with the operator's rights.
    pub fn new(queue: QueueName, kind: Kind, data: serde_json::Value) -> Self {
        Self { queue, kind, data, rights: Rights::Operator }
    }

    /// The payload for a batch that has ended.
    pub fn payload(&self, batch: &Batch) -> Payload {
        Payload::from(serde_json::json!({
            "batch": batch.id, "status": batch.status, "generation": batch.generation,
            "counts": batch.counts, "data": self.data,
        }))
    }
}

/// The largest [`Callback::data`]. It is part of the batch's record, which lists return.
pub const MAX_CALLBACK_DATA: usize = 64 * 1024;

/// Most bytes of a batch's notes, cursor, or reason of a pause or failure.
pub const MAX_BATCH_TEXT: usize = 4096;

/// Most bytes of a batch's type and of the name of its initiator.
pub const MAX_BATCH_LABEL: usize = 256;

/// A batch as its initiator describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct NewBatch {
    /// Its name; the tenant may be omitted ([`BatchId::of_tenant`]).
    pub id: BatchId,
    /// Its tenant.
    pub tenant: TenantId,
    /// A label for people and reports.
    pub kind: String,
    /// The user or program that started it.
    pub initiated_by: String,
    /// How many workers it asks for.
    pub workers: Option<u32>,
    /// How many units its initiator expects to send.
    pub expected: Option<u64>,
    /// Notes for people.
    pub notes: String,
    /// The failure threshold.
    pub threshold: Option<FailureThreshold>,
    /// The unit to send at the end.
    pub callback: Option<Callback>,
    /// Opaque data for its workers; see [`crate::store::Queries::definition`].
    pub definition: Option<Payload>,
}

impl NewBatch {
    /// Rejects a batch that could not be completed.
    pub fn check(&self) -> Result<(), crate::Error> {
        if self.id.owner().is_some_and(|owner| owner != self.tenant.as_str()) {
            return Err(crate::Error::not_found("batch", &self.id));
        }
        if let Some(definition) = &self.definition {
            crate::unit::check_size("definition", definition)?;
        }
        check_text("batch's type", &self.kind, MAX_BATCH_LABEL)?;
        check_text("name of the initiator", &self.initiated_by, MAX_BATCH_LABEL)?;
        check_text("notes of the batch", &self.notes, MAX_BATCH_TEXT)?;
        let Some(callback) = &self.callback else { return Ok(()) };
        if !callback.queue.admits(&self.tenant) {
            let (queue, tenant) = (&callback.queue, &self.tenant);
            let message = format!("the callback's queue `{queue}` does not belong to tenant `{tenant}`");
            return Err(crate::Error::Invalid(message));
        }
        check_text("callback's data", &callback.data.to_string(), MAX_CALLBACK_DATA)
    }

    /// Its full name.
    pub fn full_id(&self) -> BatchId {
        self.id.of_tenant(&self.tenant)
    }

    /// A batch of the default tenant.
    pub fn new(id: BatchId) -> Self {
        Self {
            id,
            tenant: TenantId::default(),
            kind: String::new(),
            initiated_by: String::new(),
            workers: None,
            expected: None,
            notes: String::new(),
            threshold: None,
            callback: None,
            definition: None,
        }
    }
}

/// Named amounts that a run adds to its batch's [`Batch::sums`].
pub type Sums = BTreeMap<String, i64>;

/// A batch as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Batch {
    /// Its name.
    pub id: BatchId,
    /// Its number: small, and unique in its store. Queries take it in place of the name.
    #[serde(default)]
    pub number: u64,
    /// Its tenant.
    pub tenant: TenantId,
    /// A label for people and reports.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its status.
    pub status: BatchStatus,
    /// Why it was paused, failed or cancelled.
    pub reason: Option<String>,
    /// The user or program that started it.
    pub initiated_by: String,
    /// When its record was written.
    pub initiated_at: Timestamp,
    /// When its first unit was leased.
    pub started_at: Option<Timestamp>,
    /// When its last unit ended.
    pub completed_at: Option<Timestamp>,
    /// Since when it is paused.
    #[serde(default)]
    pub paused_at: Option<Timestamp>,
    /// How long it was paused before that, in milliseconds.
    #[serde(default)]
    pub paused_ms: u64,
    /// How many workers it asks for.
    pub workers: Option<u32>,
    /// How many units its initiator expected to send.
    #[serde(default)]
    pub expected: Option<u64>,
    /// Notes for people.
    pub notes: String,
    /// The initiator's position in its source: opaque, moved with each chunk.
    pub cursor: String,
    /// Whether all its units have been sent.
    pub sealed: bool,
    /// 1, plus one each time its failures are retried after the end.
    pub generation: u32,
    /// The failure threshold.
    pub threshold: Option<FailureThreshold>,
    /// Failures at the last resume: the threshold does not count them.
    pub forgiven: u64,
    /// The unit to send at the end.
    pub callback: Option<Callback>,
    /// The last generation with a sent callback.
    pub announced: u32,
    /// Its units by state.
    pub counts: Counts,
    /// Sums over its runs, such as tokens or money. Each checkpoint is counted once.
    #[serde(default)]
    pub sums: Sums,
}

/// What a store must write after [`advance`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BatchUpdate {
    /// The callback is due: send it in the same transaction.
    pub callback_due: bool,
    /// Whether the record changed.
    pub changed: bool,
}

/// Updates `batch` after its counters or seal changed. Idempotent.
pub fn advance(batch: &mut Batch, now: Timestamp) -> BatchUpdate {
    let before = batch.clone();
    let started = batch.counts.leased + batch.counts.finished() > 0;
    if batch.status == BatchStatus::Queued && started {
        batch.status = BatchStatus::Running;
    }
    if batch.started_at.is_none() && started {
        batch.started_at = Some(now);
    }
    apply_threshold(batch);
    let ended = batch.counts.live() == 0 && (batch.sealed || batch.status.is_aborted());
    if ended && !batch.status.is_aborted() {
        batch.status = BatchStatus::Complete;
        batch.reason = None;
    }
    let announce = ended && batch.announced < batch.generation;
    if announce {
        batch.announced = batch.generation;
        batch.completed_at = Some(now);
    }
    measure_pause(batch, now);
    BatchUpdate { callback_due: announce, changed: before != *batch }
}

/// Adds up the time in which the batch is paused.
fn measure_pause(batch: &mut Batch, now: Timestamp) {
    if batch.status == BatchStatus::Paused {
        batch.paused_at.get_or_insert(now);
    } else if let Some(since) = batch.paused_at.take() {
        let paused = u64::try_from(now.since(since).as_millis()).unwrap_or(u64::MAX);
        batch.paused_ms = batch.paused_ms.saturating_add(paused);
    }
}

fn apply_threshold(batch: &mut Batch) {
    // Failures that were retried are no longer failed; their forgiveness must not hide new ones.
    batch.forgiven = batch.forgiven.min(batch.counts.failed);
    let Some(threshold) = batch.threshold.filter(|_| batch.status.is_open()) else { return };
    let failed = batch.counts.failed.saturating_sub(batch.forgiven);
    let Some(why) = threshold_exceeded(threshold.limit, failed, batch) else { return };
    batch.reason = Some(why);
    batch.status = match threshold.then {
        OnThreshold::Pause => BatchStatus::Paused,
        OnThreshold::Fail => BatchStatus::Failed,
    };
}

/// Whether the failure threshold stopped this batch. Units that were running then may have
/// succeeded since, so that the share is below the threshold now; therefore the record's reason
/// decides.
pub fn stopped_by_threshold(batch: &Batch) -> bool {
    let stopped = matches!(batch.status, BatchStatus::Paused | BatchStatus::Failed);
    let by_threshold = |reason: &String| reason.contains(THRESHOLD_MARKER);
    stopped && batch.threshold.is_some() && batch.reason.as_ref().is_some_and(by_threshold)
}

/// Part of the reason of every batch that its threshold stopped.
const THRESHOLD_MARKER: &str = ", the threshold is ";

#[expect(clippy::cast_precision_loss, reason = "a percentage of a count")]
fn threshold_exceeded(limit: FailureLimit, failed: u64, batch: &Batch) -> Option<String> {
    match limit {
        FailureLimit::Units(most) => {
            (failed >= most.max(1)).then(|| format!("{failed} units failed{THRESHOLD_MARKER}{most}"))
        }
        FailureLimit::Percent(most) => {
            let counts = &batch.counts;
            let base = if batch.sealed { counts.total() } else { counts.finished().max(100) };
            let share = failed as f64 * 100.0 / base.max(1) as f64;
            (failed > 0 && share >= most)
                .then(|| format!("{failed} of {base} units failed ({share:.1} %){THRESHOLD_MARKER}{most} %"))
        }
    }
}

/// A corrected definition of a batch, for the units that have not ended.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchRevision {
    /// The definition that was corrected. If the batch has another one now, nothing changes.
    pub expected: Payload,
    /// The new definition.
    pub definition: Payload,
    /// The new failure threshold.
    pub threshold: Option<FailureThreshold>,
    /// How many workers it asks for.
    pub workers: Option<u32>,
}

impl BatchRevision {
    /// The error of a revision of a definition that another client has replaced.
    pub fn conflict(batch: &BatchId) -> crate::Error {
        crate::Error::Invalid(format!("batch `{batch}` was updated meanwhile: read it again"))
    }
}

/// An operator's action on a batch.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum BatchAction {
    /// Mark that all its units are sent, so that it can end. Sealing twice has no effect.
    Seal,
    /// Stop claiming its units.
    Pause {
        /// Why, for people.
        reason: String,
    },
    /// Claim its units again; failures so far are forgiven.
    Resume,
    /// Cancel its waiting units, and ask its running ones to stop.
    Cancel,
    /// Like `Cancel`, but the batch ends as failed.
    Fail {
        /// Why, for people.
        reason: String,
    },
    /// Run its failed units again; after the end this opens a new generation. Units that were cancelled
    /// because one of these failed wait for it again. Failures that were pruned, or that lost their
    /// dedup key to another unit, stay as they are.
    RetryFailed,
    /// Replace the definition, for the units that have not ended.
    Revise(Box<BatchRevision>),
}

/// The batch's status does not permit the action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("batch `{batch}` is {status} and cannot be {action}")]
pub struct InvalidBatchAction {
    /// The batch.
    pub batch: BatchId,
    /// Its status.
    pub status: BatchStatus,
    /// The action, as a participle.
    pub action: &'static str,
}

impl Batch {
    /// How many units it has, or will have as far as its initiator knows.
    pub fn expected_total(&self) -> u64 {
        let expected = self.expected.filter(|_| !self.sealed && !self.status.is_final());
        self.counts.total().max(expected.unwrap_or_default())
    }

    /// How long it was paused until `now`.
    pub fn paused(&self, now: Timestamp) -> Duration {
        let current = self.paused_at.map_or(Duration::ZERO, |since| now.since(since));
        Duration::from_millis(self.paused_ms) + current
    }

    /// How long it ran until its end or `now`, without its pauses.
    pub fn running(&self, now: Timestamp) -> Option<Duration> {
        let end = self.completed_at.unwrap_or(now);
        Some(end.since(self.started_at?).saturating_sub(self.paused(end)))
    }

    fn refuse(&self, wanted: &'static str) -> Result<(), InvalidBatchAction> {
        Err(InvalidBatchAction { batch: self.id.clone(), status: self.status, action: wanted })
    }

    /// Rejects a new generation in which no unit would run: the failed units were pruned, or lost
    /// their dedup keys to other units. `self` is the batch before the retry, `retried` the number
    /// of its units that run again.
    pub fn check_retried(&self, retried: usize) -> Result<(), InvalidBatchAction> {
        if retried == 0 && self.status.is_final() && self.counts.failed > 0 {
            return self.refuse("retried: none of its failed units can run again");
        }
        Ok(())
    }

    /// The answer to a chunk that cannot be added: the cursor has moved. An error if the batch takes
    /// no more units, or not these.
    pub fn check_chunk(&self, chunk: &BatchChunk) -> Result<Option<AddChunkResult>, crate::Error> {
        check_text("cursor", &chunk.next, MAX_BATCH_TEXT)?;
        if self.cursor != chunk.expected {
            return Ok(Some(AddChunkResult::CursorMoved(self.cursor.clone())));
        }
        if self.sealed {
            self.refuse("added to: it is sealed")?;
        }
        if self.status.is_final() {
            self.refuse("added to")?;
        }
        match chunk.units.iter().find(|unit| unit.tenant != self.tenant) {
            Some(unit) => Err(crate::Error::Invalid(format!(
                "unit {} belongs to tenant `{}`, batch `{}` to tenant `{}`",
                unit.id, unit.tenant, self.id, self.tenant
            ))),
            None => Ok(None),
        }
    }

    /// The unit to send when it has ended, if it has a callback.
    pub fn callback_unit(&self) -> Option<NewUnit> {
        let callback = self.callback.as_ref()?;
        let mut unit = NewUnit::new(callback.kind.clone(), callback.payload(self));
        unit.tenant = self.tenant.clone();
        unit.queue = callback.queue.clone();
        unit.rights = callback.rights;
        Some(unit)
    }
}

/// Applies an operator's action to the record. The store moves the units, and then calls
/// [`advance`].
pub fn apply_action(batch: &mut Batch, action: &BatchAction) -> Result<(), InvalidBatchAction> {
    use BatchStatus::{Cancelled, Complete, Failed, Paused, Running};
    match action {
        BatchAction::Seal => batch.sealed = true,
        BatchAction::Pause { reason } => match batch.status {
            status if status.is_open() => {
                batch.status = Paused;
                batch.reason = Some(truncate_bytes(reason, MAX_BATCH_TEXT));
            }
            Paused => {}
            _ => return batch.refuse("paused"),
        },
        BatchAction::Resume => match batch.status {
            Paused => resume(batch),
            status if status.is_open() => {}
            _ => return batch.refuse("resumed"),
        },
        BatchAction::Cancel | BatchAction::Fail { .. } => {
            let (status, reason, wanted) = match action {
                BatchAction::Fail { reason } => {
                    (Failed, Some(truncate_bytes(reason, MAX_BATCH_TEXT)), "failed")
                }
                _ => (Cancelled, None, "cancelled"),
            };
            if batch.status == Complete {
                return batch.refuse(wanted);
            }
            batch.status = status;
            batch.reason = reason;
        }
        BatchAction::Revise(revision) => {
            if batch.status.is_final() {
                return batch.refuse("updated");
            }
            batch.threshold = revision.threshold;
            batch.workers = revision.workers;
        }
        BatchAction::RetryFailed => {
            let ended = batch.status.is_final();
            if ended && batch.counts.live() + batch.counts.failed > 0 {
                reopen(batch)?;
            } else if batch.counts.failed > 0 {
                batch.status = Running;
                batch.reason = None;
                batch.forgiven = batch.counts.failed;
            }
        }
    }
    Ok(())
}

/// Opens a new generation of an ended batch, because some of its units run again.
pub fn reopen(batch: &mut Batch) -> Result<(), InvalidBatchAction> {
    if batch.counts.live() > 0 {
        return batch.refuse("retried before its last units have stopped");
    }
    batch.generation += 1;
    batch.completed_at = None;
    batch.status = BatchStatus::Running;
    batch.reason = None;
    // Earlier failures do not count against the new generation.
    batch.forgiven = batch.counts.failed;
    // A batch that was stopped before its initiator had sent everything takes no more units.
    batch.sealed = true;
    Ok(())
}

fn resume(batch: &mut Batch) {
    let started = batch.started_at.is_some();
    batch.status = if started { BatchStatus::Running } else { BatchStatus::Queued };
    batch.forgiven = batch.counts.failed;
    batch.reason = None;
}
