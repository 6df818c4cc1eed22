//! Rows of `longshore_unit`, and how they become [`Unit`]s.

use longshore_core::machine::Head;
use longshore_core::{Payload, Priority, Result, SessionId, Timestamp, Unit, UnitId, UnitState};
use serde::{Deserialize, Serialize};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use uuid::Uuid;

use crate::error::{Translate, damaged};
use crate::streams::Stream;
use crate::typed_params::unit_id;

pub(crate) use longshore_core::columns::{ALONE, PARKED, Spec, codes, entry_code, flag};

/// The code under which a state is stored.
pub(crate) fn code(state: UnitState) -> i16 {
    i16::from(longshore_core::columns::code(state))
}

/// The state behind a code.
pub(crate) fn state(code: i16) -> Result<UnitState> {
    longshore_core::columns::state(u8::try_from(code).map_err(damaged)?)
}

/// A column's value.
pub(crate) fn value<'r, T: FromSql<'r>>(row: &'r Row, at: usize) -> Result<T> {
    row.try_get(at).or_translate()
}

/// Logs and drops a row that cannot be read. A row that a newer version wrote must not hide all
/// others.
pub(crate) fn readable<T>(what: &str, read: Result<T>) -> Option<T> {
    read.inspect_err(|error| tracing::error!(%error, "cannot read {what}: skipped")).ok()
}

/// A column that holds a count: stored signed, never negative.
pub(crate) fn count<N: TryFrom<i64>>(row: &Row, at: usize) -> Result<N> {
    let number: i64 = value(row, at)?;
    N::try_from(number).map_err(|_| damaged(format!("the count {number}")))
}

/// A four-byte column that holds a count.
pub(crate) fn small<N: TryFrom<i32>>(row: &Row, at: usize) -> Result<N> {
    let number: i32 = value(row, at)?;
    N::try_from(number).map_err(|_| damaged(format!("the number {number}")))
}

/// The columns that decisions need.
#[derive(Debug, Clone)]
pub(crate) struct UnitRow {
    pub(crate) id: UnitId,
    pub(crate) stream: i64,
    pub(crate) code: i16,
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
    pub(crate) cap_key: Option<Vec<u8>>,
    pub(crate) spec: Option<String>,
}

impl UnitRow {
    /// The columns that [`UnitRow::read`] reads, in its order.
    pub(crate) const COLUMNS: &'static str = "u.id, u.stream, u.state, u.sort_key, u.priority, \
        u.attempt, u.lost, u.fence, u.session, u.started_at, u.created_at, u.deadline, u.flags, \
        u.bytes, u.cap_key, u.spec";

    /// Reads [`Self::COLUMNS`], the first of the row.
    pub(crate) fn read(row: &Row) -> Result<Self> {
        let priority = u8::try_from(value::<i16>(row, 4)?).map_err(damaged)?;
        Ok(Self {
            id: unit_id(value::<Uuid>(row, 0)?),
            stream: value(row, 1)?,
            code: value(row, 2)?,
            place: value(row, 3)?,
            priority: Priority::new(priority).map_err(damaged)?,
            attempt: small(row, 5)?,
            lost: small(row, 6)?,
            fence: count(row, 7)?,
            session: value(row, 8)?,
            started_at: value(row, 9)?,
            created_at: value(row, 10)?,
            deadline: value(row, 11)?,
            flags: value(row, 12)?,
            bytes: i64::from(value::<i32>(row, 13)?),
            cap_key: value(row, 14)?,
            spec: value(row, 15)?,
        })
    }

    /// How many columns [`Self::COLUMNS`] has.
    pub(crate) const WIDTH: usize = 16;

    /// The unit's state.
    pub(crate) fn state(&self) -> Result<UnitState> {
        state(self.code)
    }

    /// Whether a flag is set.
    pub(crate) fn has(&self, flag: i64) -> bool {
        self.flags & flag != 0
    }

    /// Counts the attempt, if the run has not started yet.
    pub(crate) fn begin(&mut self, now: Timestamp) {
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

/// The columns that a whole [`Unit`] needs beside [`UnitRow`].
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
    pub(crate) fn read(row: &Row, at: usize) -> Result<Self> {
        let bytes = |at: usize| -> Result<Option<Payload>> {
            Ok(value::<Option<&[u8]>>(row, at)?.map(Payload::from))
        };
        Ok(Self {
            failure: value(row, at)?,
            progress: value(row, at + 1)?,
            payload: bytes(at + 2)?,
            checkpoint: bytes(at + 3)?,
            result: bytes(at + 4)?,
        })
    }
}

/// Assembles a unit.
pub(crate) fn unit(
    row: UnitRow,
    parts: UnitParts,
    names: &Stream,
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
