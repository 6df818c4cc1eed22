//! Rows of `longshore_unit`: what is in them and how they become [`Unit`]s.

use std::collections::BTreeMap;
use std::sync::Arc;

use longshore_core::machine::{Head, runs_alone};
use longshore_core::unit::{Cap, Weight};
use longshore_core::{
    BatchId, Kind, NewUnit, Payload, Policy, Priority, QueueName, Result, SessionId, TenantId,
    Timestamp, Unit, UnitId, UnitState,
};
use rusqlite::Row;
use serde::{Deserialize, Serialize};

use crate::error::{Translate, damaged};

/// Ready, but its cap is reached: out of the way of claims until another unit of its key leaves.
pub(crate) const PARKED: u8 = 7;
/// Ready, but must run alone: out of the way of claims that cannot take it.
pub(crate) const ALONE: u8 = 8;

/// The code under which a state is stored.
pub(crate) fn code(state: UnitState) -> u8 {
    match state {
        UnitState::Blocked => 0,
        UnitState::Scheduled => 1,
        UnitState::Ready => 2,
        UnitState::Leased => 3,
        UnitState::Done => 4,
        UnitState::Failed => 5,
        UnitState::Cancelled => 6,
    }
}

/// The code for a unit that enters `state` after `lost` losses.
pub(crate) fn entry_code(state: UnitState, lost: u32) -> u8 {
    if state == UnitState::Ready && runs_alone(lost) { ALONE } else { code(state) }
}

/// The state behind a code.
pub(crate) fn state(code: u8) -> Result<UnitState> {
    match code {
        PARKED | ALONE => Ok(UnitState::Ready),
        _ => UnitState::ALL
            .get(usize::from(code))
            .copied()
            .ok_or_else(|| damaged(format!("unit state {code}"))),
    }
}

/// All codes of a state.
pub(crate) fn codes(state: UnitState) -> &'static [u8] {
    match state {
        UnitState::Blocked => &[0],
        UnitState::Scheduled => &[1],
        UnitState::Ready => &[2, PARKED, ALONE],
        UnitState::Leased => &[3],
        UnitState::Done => &[4],
        UnitState::Failed => &[5],
        UnitState::Cancelled => &[6],
    }
}

/// Bits of the `flags` column: what a verb must look at besides the plain columns.
pub(crate) mod flag {
    /// A claim must look closer: weight, resources, cap or deadline.
    pub(crate) const SPECIAL: i64 = 1;
    /// Other units wait for it.
    pub(crate) const WAITED_ON: i64 = 2;
    /// Someone wants it cancelled.
    pub(crate) const CANCEL: i64 = 4;
    /// Its dedup key is free again once it has ended.
    pub(crate) const KEY_WHILE_LIVE: i64 = 8;
    /// Its payload, checkpoint or result is in `longshore_body`: bits 4, 5 and 6.
    pub(crate) const BODY: [i64; 3] = [16, 32, 64];
    /// A failed dependency releases it instead of cancelling it.
    pub(crate) const RELEASED_BY_FAILURE: i64 = 128;
    /// A run left a checkpoint.
    pub(crate) const CHECKPOINTED: i64 = 256;
    /// Someone waits for its end.
    pub(crate) const AWAITED: i64 = 512;
    /// Its dedup key stays its own after its end, until one takes it that looks less far back.
    pub(crate) const KEY_SINCE: i64 = 1024;
}

/// What few units have, in one column of JSON so that most rows have none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Spec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) slots: Option<u32>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) resources: BTreeMap<String, u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cap: Option<Cap>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<Policy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trace: Option<String>,
}

impl Spec {
    /// The column's text for a new unit; `None` for a plain one.
    pub(crate) fn text(unit: &NewUnit) -> Result<Option<String>> {
        let spec = Self {
            key: unit.dedup.as_ref().map(|dedup| dedup.key.clone()),
            slots: (unit.weight.slots != 1).then_some(unit.weight.slots),
            resources: unit.weight.resources.clone(),
            cap: unit.cap.clone(),
            policy: unit.policy.clone(),
            trace: unit.trace.clone(),
        };
        if spec == Self::default() {
            return Ok(None);
        }
        serde_json::to_string(&spec).map(Some).map_err(|error| damaged(error.to_string()))
    }

    /// Reads the column.
    pub(crate) fn parse(text: Option<&str>) -> Result<Self> {
        let Some(text) = text else { return Ok(Self::default()) };
        serde_json::from_str(text).map_err(|error| damaged(format!("a bad unit spec: {error}")))
    }

    /// What the unit takes up.
    pub(crate) fn weight(&self) -> Weight {
        Weight { slots: self.slots.unwrap_or(1), resources: self.resources.clone() }
    }
}

/// The columns that decisions need.
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
    /// The columns that [`UnitRow::read`] reads, in its order.
    pub(crate) const COLUMNS: &'static str = "u.id, u.stream, u.state, u.place, u.priority, \
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

    /// Where the unit stands.
    pub(crate) fn state(&self) -> Result<UnitState> {
        state(self.code)
    }

    /// Whether a flag is set.
    pub(crate) fn has(&self, flag: i64) -> bool {
        self.flags & flag != 0
    }

    /// What the state machine looks at.
    pub(crate) fn head(&self) -> Result<Head> {
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

/// What a stream's units have in common. Shared, so that a claim of thousands copies no names.
#[derive(Debug, Clone)]
pub(crate) struct StreamNames {
    pub(crate) tenant: TenantId,
    pub(crate) queue: QueueName,
    pub(crate) kind: Kind,
    pub(crate) batch: Option<BatchId>,
}

/// The columns that make a whole [`Unit`] beside [`UnitRow`].
pub(crate) struct UnitParts {
    pub(crate) failure: Option<String>,
    pub(crate) progress: Option<String>,
    pub(crate) payload: Option<Payload>,
    pub(crate) checkpoint: Option<Payload>,
    pub(crate) result: Option<Payload>,
}

impl UnitParts {
    /// The columns that [`UnitParts::read`] reads after [`UnitRow::COLUMNS`].
    pub(crate) const COLUMNS: &'static str =
        "u.failure, u.progress, u.payload, u.checkpoint, u.result";

    /// Reads [`Self::COLUMNS`], which begin at column `at`.
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

/// Puts a unit together. `place` is the row's present place.
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

/// Reads a column of JSON.
pub(crate) fn json<T: for<'de> Deserialize<'de>>(text: Option<&str>) -> Result<Option<T>> {
    text.map(|text| {
        serde_json::from_str(text).map_err(|error| damaged(format!("bad JSON: {error}")))
    })
    .transpose()
}

/// Writes a column of JSON.
pub(crate) fn to_json<T: Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| damaged(error.to_string()))
}
