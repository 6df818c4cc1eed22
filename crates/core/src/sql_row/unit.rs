//! Rows of `longshore_unit`.

use super::{SqlRow, damaged, parse_json};
use crate::error::Result;
use crate::name::{BatchId, Kind, QueueName, SessionId, TenantId, UnitId};
use crate::priority::Priority;
use crate::sql_encoding::{UnitAttributes, decode_rights, decode_state, flag, state_code};
use crate::time::Timestamp;
use crate::unit::{Payload, Unit, UnitState};
use crate::unit_state::{Transition, TransitionInput};

/// The columns of a unit that decisions need. `K` is [`SqlRow::Key`].
#[derive(Debug, Clone)]
pub struct UnitRow<K> {
    /// Its id.
    pub id: UnitId,
    /// The number of its stream.
    pub stream: i64,
    /// The code of its state: see [`crate::sql_encoding`].
    pub code: u8,
    /// Orders the units of a stream and state. Blocked: earliest start; scheduled: due time; ready:
    /// rank; leased: time of the claim; ended: time of the end.
    pub sort_key: i64,
    /// Its priority.
    pub priority: Priority,
    /// Counted runs.
    pub attempt: u32,
    /// Consecutive lost runs.
    pub lost: u32,
    /// Its fence.
    pub fence: u64,
    /// The number of the session that leases it.
    pub session: Option<i64>,
    /// When its run started.
    pub started_at: Option<i64>,
    /// When it was sent.
    pub created_at: i64,
    /// Its deadline.
    pub deadline: Option<i64>,
    /// Bits of [`crate::sql_encoding::flag`].
    pub flags: i64,
    /// Its [`crate::NewUnit::stored_bytes`].
    pub bytes: i64,
    /// Its cap key, unique to its lane.
    pub cap_key: Option<K>,
    /// Its [`UnitAttributes`].
    pub spec: Option<String>,
}

impl<K> UnitRow<K> {
    /// The columns of [`Self::read`], of table `u`.
    pub const COLUMNS: &'static str = "u.id, u.stream, u.state, u.sort_key, u.priority, \
        u.attempt, u.lost, u.fence, u.session, u.started_at, u.created_at, u.deadline, u.flags, \
        u.bytes, u.cap_key, u.spec";

    /// The number of columns in [`Self::COLUMNS`].
    pub const WIDTH: usize = 16;

    /// Reads [`Self::COLUMNS`], the first of the row.
    pub fn read(row: &impl SqlRow<Key = K>) -> Result<Self> {
        Ok(Self {
            id: UnitId::from_bytes(row.required_id(0)?),
            stream: row.number(1)?,
            code: row.number(2)?,
            sort_key: row.number(3)?,
            priority: Priority::new(row.number(4)?).map_err(damaged)?,
            attempt: row.number(5)?,
            lost: row.number(6)?,
            fence: row.number(7)?,
            session: row.int(8)?,
            started_at: row.int(9)?,
            created_at: row.number(10)?,
            deadline: row.int(11)?,
            flags: row.number(12)?,
            bytes: row.number(13)?,
            cap_key: row.key(14)?,
            spec: row.optional_string(15)?,
        })
    }

    /// The unit's state.
    pub fn state(&self) -> Result<UnitState> {
        decode_state(self.code)
    }

    /// Whether a flag is set.
    pub fn has(&self, flag: i64) -> bool {
        self.flags & flag != 0
    }

    /// Counts the attempt, if the run has not started yet.
    pub fn count_attempt(&mut self, now: Timestamp) {
        if self.started_at.is_none() {
            self.attempt += 1;
            self.started_at = Some(now.as_micros());
        }
    }

    /// The input of the state machine.
    pub fn transition_input(&self) -> Result<TransitionInput> {
        Ok(TransitionInput {
            id: self.id,
            state: self.state()?,
            priority: self.priority,
            attempt: self.attempt,
            lost: self.lost,
            started: self.started_at.is_some(),
            created_at: Timestamp::from_micros(self.created_at),
            ready_at: self.ready_at()?,
            deadline: self.deadline.map(Timestamp::from_micros),
            cancel_requested: self.has(flag::CANCEL_REQUESTED),
            checkpointed: self.has(flag::CHECKPOINTED),
            not_before: (self.code == state_code(UnitState::Blocked))
                .then_some(Timestamp::from_micros(self.sort_key)),
        })
    }

    /// When it last became ready.
    fn ready_at(&self) -> Result<Timestamp> {
        // Few units have it: the others need not be parsed.
        let spec = self.spec.as_deref().filter(|spec| spec.contains("\"ready_at\""));
        let ready_at = UnitAttributes::parse(spec)?.ready_at;
        Ok(Timestamp::from_micros(ready_at.unwrap_or(self.created_at)))
    }

    /// Records the generation of the batch that an operator's retry moves the unit into.
    pub fn enter_generation(&mut self, batch_generation: u32) -> Result<()> {
        let attributes = UnitAttributes::parse(self.spec.as_deref())?;
        let batch_generation = Some(batch_generation).filter(|generation| *generation > 1);
        self.spec = UnitAttributes { batch_generation, ..attributes }.to_column()?;
        Ok(())
    }

    /// The column `spec` after a transition, if it changes: it keeps when the unit became ready, because
    /// a claim overwrites the rank, and how often operators retried it.
    pub fn spec_after(&self, step: &Transition) -> Result<Option<String>> {
        let (is_ready, before) = (step.state == UnitState::Ready, self.ready_at()?);
        let ready_at = if is_ready { self.priority.ready_at(step.sort_key) } else { before };
        // A unit that is cancelled by itself, or ready, is not cancelled by a dependency any more.
        let is_cancelled = step.state == UnitState::Cancelled && step.failure.is_none();
        let has_after = self.spec.as_deref().is_some_and(|spec| spec.contains("\"after\""));
        let drops_after = is_ready || (is_cancelled && has_after);
        if ready_at == before && !step.retried && !(is_cancelled && has_after) {
            return Ok(None);
        }
        let attributes = UnitAttributes::parse(self.spec.as_deref())?;
        let next = || Some(attributes.generation.unwrap_or(1).saturating_add(1));
        let generation = if step.retried { next() } else { attributes.generation };
        let after = if drops_after { Vec::new() } else { attributes.after };
        let ready_at = if ready_at == before { attributes.ready_at } else { Some(ready_at.as_micros()) };
        UnitAttributes { ready_at, generation, after, ..attributes }.to_column()
    }

    /// Builds the unit.
    pub fn into_unit(
        self,
        parts: UnitParts,
        names: UnitNames<'_>,
        session: Option<SessionId>,
    ) -> Result<Unit> {
        let state = self.state()?;
        let spec = UnitAttributes::parse(self.spec.as_deref())?;
        let since = Timestamp::from_micros(self.sort_key);
        let created_at = Timestamp::from_micros(self.created_at);
        Ok(Unit {
            id: self.id,
            tenant: names.tenant.clone(),
            queue: names.queue.clone(),
            kind: names.kind.clone(),
            batch: names.batch.cloned(),
            state,
            priority: self.priority,
            attempt: self.attempt,
            lost: self.lost,
            generation: spec.generation.unwrap_or(1),
            batch_generation: spec.batch_generation.unwrap_or(1),
            fence: self.fence,
            session,
            created_at,
            since: match state {
                UnitState::Ready => self.priority.ready_at(since),
                UnitState::Blocked => created_at,
                _ => since,
            },
            started_at: self.started_at.map(Timestamp::from_micros),
            deadline: self.deadline.map(Timestamp::from_micros),
            weight: spec.weight(),
            key: spec.key,
            cap: spec.cap,
            policy: spec.policy,
            trace: spec.trace,
            rights: decode_rights(self.flags),
            progress: parts.progress.as_deref().map(parse_json).transpose()?,
            failure: parts.failure.as_deref().map(parse_json).transpose()?,
            cancel_requested: self.flags & flag::CANCEL_REQUESTED != 0,
            payload: parts.payload.unwrap_or_else(|| Payload::from(Vec::new())),
            checkpoint: parts.checkpoint.filter(|_| state != UnitState::Done),
            result: parts.result,
        })
    }
}

/// The names that all units of a stream share.
#[derive(Debug, Clone, Copy)]
pub struct UnitNames<'s> {
    /// The tenant.
    pub tenant: &'s TenantId,
    /// The queue.
    pub queue: &'s QueueName,
    /// The kind.
    pub kind: &'s Kind,
    /// The batch, if any.
    pub batch: Option<&'s BatchId>,
}

/// The columns of a unit that [`UnitRow`] lacks.
#[derive(Debug, Clone, Default)]
pub struct UnitParts {
    /// Its last failure, as JSON.
    pub failure: Option<String>,
    /// Its progress, as JSON.
    pub progress: Option<String>,
    /// Its payload.
    pub payload: Option<Payload>,
    /// Its checkpoint.
    pub checkpoint: Option<Payload>,
    /// Its result.
    pub result: Option<Payload>,
}

impl UnitParts {
    /// The columns of [`Self::read`], of table `u`.
    pub const COLUMNS: &'static str = "u.failure, u.progress, u.payload, u.checkpoint, u.result";

    /// The columns of [`Self::read_short`], of table `u`.
    pub const SHORT_COLUMNS: &'static str = "u.failure, u.progress";

    /// Reads [`Self::COLUMNS`], which start at column `at`.
    pub fn read(row: &impl SqlRow, at: usize) -> Result<Self> {
        Ok(Self {
            payload: row.payload(at + 2)?,
            checkpoint: row.payload(at + 3)?,
            result: row.payload(at + 4)?,
            ..Self::read_short(row, at)?
        })
    }

    /// Reads [`Self::SHORT_COLUMNS`], which start at column `at`.
    pub fn read_short(row: &impl SqlRow, at: usize) -> Result<Self> {
        let (failure, progress) = (row.optional_string(at)?, row.optional_string(at + 1)?);
        Ok(Self { failure, progress, ..Self::default() })
    }
}
