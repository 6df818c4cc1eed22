//! Rows of `longshore_unit`, and their conversion to [`Unit`]s.

use std::sync::Arc;

use longshore_core::machine::Head;
use longshore_core::{
    BatchId, Kind, Payload, Priority, QueueName, Result, SessionId, TenantId, Timestamp, Unit,
    UnitId, UnitState,
};
use rusqlite::Row;
use serde::{Deserialize, Serialize};

use crate::error::{Translate, damaged};

pub(crate) use longshore_core::columns::{
    ALONE, PARKED, Spec, code, codes, entry_code, flag, flags, state,
};

/// The columns for decisions.
#[derive(Debug, Clone)]
pub(crate) struct UnitRow {
    pub(crate) id: UnitId,
    pub(crate) stream: i64,
    pub(crate) code: u8,
    pub(crate) place: i64,
    pub(crate) priority: Priority,
    pub(crate) attempt: u32,
    pub(crate) lost: u32,
    pub(crate) fence: u64,
    pub(crate) session: Option<i64>,
    pub(crate) started_at: Option<i64>,
    pub(crate) created_at: i64,
    pub(crate) deadline: Option<i64>,
    pub(crate) flags: i64,
    pub(crate) bytes: i64,
    pub(crate) cap_key: Option<String>,
    pub(crate) spec: Option<String>,
}

impl UnitRow {
    /// The columns for [`UnitRow::read`], in order.
    pub(crate) const COLUMNS: &'static str = "u.id, u.stream, u.state, u.sort_key, u.priority, \
        u.attempt, u.lost, u.fence, u.session, u.started_at, u.created_at, u.deadline, u.flags, \
        u.bytes, u.cap_key, u.spec";

    /// Reads [`Self::COLUMNS`].
    pub(crate) fn read(row: &Row<'_>) -> Result<Self> {
        let get = |at: usize| row.get::<_, i64>(at).or_translate();
        Ok(Self {
            id: UnitId::from_bytes(row.get(0).or_translate()?),
            stream: get(1)?,
            code: row.get(2).or_translate()?,
            place: get(3)?,
            priority: Priority::new(row.get(4).or_translate()?).map_err(damaged)?,
            attempt: row.get(5).or_translate()?,
            lost: row.get(6).or_translate()?,
            fence: row.get(7).or_translate()?,
            session: row.get(8).or_translate()?,
            started_at: row.get(9).or_translate()?,
            created_at: get(10)?,
            deadline: row.get(11).or_translate()?,
            flags: get(12)?,
            bytes: get(13)?,
            cap_key: row.get(14).or_translate()?,
            spec: row.get(15).or_translate()?,
        })
    }

    /// The unit's state.
    pub(crate) fn state(&self) -> Result<UnitState> {
        state(self.code)
    }

    /// Whether a flag is set.
    pub(crate) fn has(&self, flag: i64) -> bool {
        self.flags & flag != 0
    }

    /// Counts the attempt, if it is not counted yet.
    pub(crate) fn count_attempt(&mut self, now: Timestamp) {
        if self.started_at.is_none() {
            self.attempt += 1;
            self.started_at = Some(now.as_micros());
        }
    }

    /// The input of the state machine.
    pub(crate) fn transition_input(&self) -> Result<Head> {
        Ok(Head {
            id: self.id,
            state: self.state()?,
            priority: self.priority,
            attempt: self.attempt,
            lost: self.lost,
            started: self.started_at.is_some(),
            created_at: Timestamp::from_micros(self.created_at),
            deadline: self.deadline.map(Timestamp::from_micros),
            cancel_requested: self.has(flag::CANCEL),
            checkpointed: self.has(flag::CHECKPOINTED),
            not_before: (self.code == code(UnitState::Blocked))
                .then_some(Timestamp::from_micros(self.place)),
        })
    }
}

/// The names that a stream's units share. Shared by `Arc`, so that a claim of thousands copies no
/// names.
#[derive(Debug, Clone)]
pub(crate) struct StreamNames {
    pub(crate) tenant: TenantId,
    pub(crate) queue: QueueName,
    pub(crate) kind: Kind,
    pub(crate) batch: Option<BatchId>,
}

/// The columns of a [`Unit`] that [`UnitRow`] lacks.
pub(crate) struct UnitParts {
    pub(crate) failure: Option<String>,
    pub(crate) progress: Option<String>,
    pub(crate) payload: Option<Payload>,
    pub(crate) checkpoint: Option<Payload>,
    pub(crate) result: Option<Payload>,
}

impl UnitParts {
    /// The columns for [`UnitParts::read`], after [`UnitRow::COLUMNS`].
    pub(crate) const COLUMNS: &'static str =
        "u.failure, u.progress, u.payload, u.checkpoint, u.result";

    /// Reads [`Self::COLUMNS`], which start at column `at`.
    pub(crate) fn read(row: &Row<'_>, at: usize) -> Result<Self> {
        let blob = |at: usize| -> Result<Option<Payload>> {
            let value = row.get_ref(at).or_translate()?;
            let bytes = value.as_blob_or_null().map_err(|error| damaged(error.to_string()))?;
            Ok(bytes.map(Payload::from))
        };
        Ok(Self {
            failure: row.get(at).or_translate()?,
            progress: row.get(at + 1).or_translate()?,
            payload: blob(at + 2)?,
            checkpoint: blob(at + 3)?,
            result: blob(at + 4)?,
        })
    }
}

/// Builds a unit from its columns.
pub(crate) fn unit(
    row: UnitRow,
    parts: UnitParts,
    names: &Arc<StreamNames>,
    session: Option<SessionId>,
) -> Result<Unit> {
    let state = row.state()?;
    let spec = Spec::parse(row.spec.as_deref())?;
    let place = Timestamp::from_micros(row.place);
    Ok(Unit {
        id: row.id,
        tenant: names.tenant.clone(),
        queue: names.queue.clone(),
        kind: names.kind.clone(),
        batch: names.batch.clone(),
        state,
        priority: row.priority,
        attempt: row.attempt,
        lost: row.lost,
        fence: row.fence,
        session,
        created_at: Timestamp::from_micros(row.created_at),
        since: match state {
            UnitState::Ready => row.priority.ready_at(place),
            UnitState::Blocked => Timestamp::from_micros(row.created_at),
            _ => place,
        },
        started_at: row.started_at.map(Timestamp::from_micros),
        deadline: row.deadline.map(Timestamp::from_micros),
        weight: spec.weight(),
        key: spec.key,
        cap: spec.cap,
        policy: spec.policy,
        trace: spec.trace,
        progress: json(parts.progress.as_deref())?,
        failure: json(parts.failure.as_deref())?,
        cancel_requested: row.flags & flag::CANCEL != 0,
        payload: parts.payload.unwrap_or_else(|| Payload::from(Vec::new())),
        checkpoint: parts.checkpoint,
        result: parts.result,
    })
}

/// Parses a JSON column.
pub(crate) fn json<T: for<'de> Deserialize<'de>>(text: Option<&str>) -> Result<Option<T>> {
    text.map(|text| {
        serde_json::from_str(text).map_err(|error| damaged(format!("bad JSON: {error}")))
    })
    .transpose()
}

/// Serialises a JSON column.
pub(crate) fn to_json<T: Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| damaged(error.to_string()))
}
