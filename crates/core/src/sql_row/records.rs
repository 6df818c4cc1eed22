//! Rows of batches, sessions, schedules, tenants and failures.

use std::collections::BTreeMap;
use std::str::FromStr as _;
use std::time::Duration;

use super::{SqlRow, damaged};
use crate::batch::{Batch, BatchStatus, Sums};
use crate::counts::Counts;
use crate::error::Result;
use crate::name::{BatchId, Kind, QueueName, ScheduleName, SessionId, TenantId};
use crate::outcome::Failure;
use crate::retry::Policy;
use crate::schedule::{Schedule, SchedulePlan};
use crate::store::{Capacity, QueueInfo, Tenant, UnitFailure};
use crate::time::Timestamp;
use crate::unit::Payload;
use crate::worker_session::{Session, WorkerCommand};

/// The columns of [`read_batch`], of table `b`.
pub const BATCH_COLUMNS: &str = "b.num, b.name, b.tenant, b.kind, b.status, b.reason, \
    b.initiated_by, b.initiated_at, b.started_at, b.completed_at, b.workers, b.notes, b.cursor, \
    b.sealed, b.generation, b.threshold, b.forgiven, b.callback, b.announced, \
    b.expected, b.paused_at, b.paused_ms";

/// Reads [`BATCH_COLUMNS`]. No decision needs the sums.
pub fn read_batch(row: &impl SqlRow, counts: Counts) -> Result<Batch> {
    Ok(Batch {
        number: row.number(0)?,
        id: row.parsed(1, BatchId::new)?,
        tenant: row.parsed(2, TenantId::new)?,
        kind: row.string(3)?,
        status: row.parsed(4, BatchStatus::from_str)?,
        reason: row.optional_string(5)?,
        initiated_by: row.string(6)?,
        initiated_at: row.time(7)?,
        started_at: row.optional_time(8)?,
        completed_at: row.optional_time(9)?,
        workers: row.optional_number(10)?,
        notes: row.string(11)?,
        cursor: row.string(12)?,
        sealed: row.flag(13)?,
        generation: row.number(14)?,
        threshold: row.json(15)?,
        forgiven: row.number(16)?,
        callback: row.json(17)?,
        announced: row.number(18)?,
        expected: row.optional_number(19)?,
        paused_at: row.optional_time(20)?,
        paused_ms: row.number(21)?,
        counts,
        sums: Sums::new(),
    })
}

/// Reads the seven counters that start at column `at`.
pub fn read_counts(row: &impl SqlRow, at: usize) -> Result<Counts> {
    Ok(Counts {
        blocked: row.number(at)?,
        scheduled: row.number(at + 1)?,
        ready: row.number(at + 2)?,
        leased: row.number(at + 3)?,
        done: row.number(at + 4)?,
        failed: row.number(at + 5)?,
        cancelled: row.number(at + 6)?,
    })
}

/// The columns of [`read_session`], of table `s`. `leased` counts the units that it leases.
pub fn session_columns(leased: &str) -> String {
    format!(
        "s.id, s.label, s.version, s.kinds, s.slots, s.ttl, s.heartbeats, s.opened_at, s.heartbeat_at, s.command, \
         {leased}, s.cpu, s.process"
    )
}

/// How many units session `s` leases by their rows.
pub const LEASED_ROWS: &str = "(SELECT count(*) FROM longshore_unit u WHERE u.session = s.num)";

/// Reads [`session_columns`].
pub fn read_session(row: &impl SqlRow) -> Result<Session> {
    Ok(Session {
        id: SessionId::from_bytes(row.required_id(0)?),
        label: row.string(1)?,
        version: row.string(2)?,
        kinds: parse_kinds(&row.string(3)?)?.into_keys().collect(),
        slots: row.number(4)?,
        ttl: Duration::from_micros(row.number(5)?),
        beats: row.number(6)?,
        opened_at: row.time(7)?,
        beat_at: row.time(8)?,
        command: row.parsed(9, WorkerCommand::from_str)?,
        held: row.number(10)?,
        cpu: row.optional_number(11)?.map(Duration::from_micros),
        process: row.optional_string(12)?,
    })
}

/// Parses the kinds of a session, with their policies.
pub fn parse_kinds(text: &str) -> Result<BTreeMap<Kind, Policy>> {
    serde_json::from_str(text).map_err(|error| damaged(format!("bad session kinds: {error}")))
}

/// The columns of [`read_schedule`].
pub const SCHEDULE_COLUMNS: &str = "tenant, name, plan, payload, paused, revision, created_at, \
    last_fire, next_fire, fired, skipped, missed";

/// Reads [`SCHEDULE_COLUMNS`].
pub fn read_schedule(row: &impl SqlRow) -> Result<Schedule> {
    let payload = Payload::from(row.byte_vec(3)?);
    Ok(Schedule {
        tenant: row.parsed(0, TenantId::new)?,
        name: row.parsed(1, ScheduleName::new)?,
        plan: row.parsed(2, |text| SchedulePlan::from_parts(text, payload))?,
        paused: row.flag(4)?,
        revision: row.number(5)?,
        created_at: row.time(6)?,
        last_fire: row.optional_time(7)?,
        next_fire: row.optional_time(8)?,
        fired: row.number(9)?,
        skipped: row.number(10)?,
        missed_times: row.number(11)?,
    })
}

/// Reads a tenant's record (name, weight, cap, `max_units`, `max_bytes`, suspended, `created_at`),
/// its counts and its live bytes.
pub fn read_tenant(row: &impl SqlRow) -> Result<Tenant> {
    Ok(Tenant {
        id: row.parsed(0, TenantId::new)?,
        weight: row.number(1)?,
        cap: row.optional_number(2)?,
        capacity: Capacity { units: row.optional_number(3)?, bytes: row.optional_number(4)? },
        suspended: row.flag(5)?,
        created_at: row.time(6)?,
        counts: read_counts(row, 7)?,
        bytes: row.number(14)?,
        allowed_kinds: row.json(15)?.unwrap_or_default(),
    })
}

/// Reads a lane: `l.num`, `q.name`, `l.tenant`, `q.paused`, `l.weight`, `l.cap`, the capacities of
/// its queue and its own, whether its tenant is suspended, its counts, its live bytes, `l.paused`.
pub fn read_queue(row: &impl SqlRow, oldest_ready: Option<Timestamp>) -> Result<QueueInfo> {
    let capacity = |at: usize| -> Result<Capacity> {
        Ok(Capacity { units: row.optional_number(at)?, bytes: row.optional_number(at + 1)? })
    };
    let (queue_paused, lane_paused) = (row.flag(3)?, row.flag(19)?);
    Ok(QueueInfo {
        queue: row.parsed(1, QueueName::new)?,
        tenant: row.parsed(2, TenantId::new)?,
        paused: queue_paused || lane_paused,
        queue_paused,
        lane_paused,
        suspended: row.flag(10)?,
        weight: row.number(4)?,
        cap: row.optional_number(5)?,
        capacity: capacity(6)?,
        lane_capacity: capacity(8)?,
        counts: read_counts(row, 11)?,
        bytes: row.number(18)?,
        oldest_ready,
    })
}

/// The columns of [`read_failure`].
pub const FAILURE_COLUMNS: &str = "attempt, failed_at, session, code, message";

/// Reads [`FAILURE_COLUMNS`].
pub fn read_failure(row: &impl SqlRow) -> Result<UnitFailure> {
    Ok(UnitFailure {
        attempt: row.number(0)?,
        at: row.time(1)?,
        session: row.id(2)?.map(SessionId::from_bytes),
        failure: Failure { code: row.string(3)?, message: row.string(4)? },
    })
}
