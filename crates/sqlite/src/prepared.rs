//! Statements that run once per unit, prepared once per operation.
//!
//! Even a cached statement is looked up by its text; for a thousand units that costs as much as
//! running it.

use std::sync::LazyLock;

use longshore_accounts::rows::CALL_COLUMNS;
use longshore_core::Result;
use rusqlite::{CachedStatement, Connection};

use crate::error::Translate;
use crate::ledger::call_row;
use crate::row::{PART_COLUMNS, UnitRow};

/// A statement that runs once per unit.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PreparedSql {
    /// Reads the columns for decisions: [`UnitRow`].
    Find,
    /// Reads all columns: [`UnitRow`] and [`PART_COLUMNS`].
    FindFull,
    /// Inserts a new unit.
    Insert,
    /// Leases a unit to a session.
    Lease,
    /// Counts an attempt.
    Start,
    /// Counts an attempt, if nothing prevents the start.
    StartFast,
    /// Finishes a successful run, if it has no further consequences.
    FinishFast,
    /// Writes a transition.
    Apply,
    /// Reads what is needed to settle a call.
    FindCall,
    /// Reads the call that a new one would duplicate: [`CALL_COLUMNS`].
    DuplicateCall,
    /// Inserts a call, if it does not exist.
    InsertCall,
    /// Inserts [`call_row::INSERT_BATCH`] calls that do not exist.
    InsertCalls,
    /// Updates an open call.
    UpdateCall,
}

const COUNT: usize = 13;

impl PreparedSql {
    fn sql(self) -> &'static str {
        static FIND: LazyLock<String> =
            LazyLock::new(|| format!("SELECT {} FROM longshore_unit u WHERE u.id = ?1", UnitRow::COLUMNS));
        static FIND_FULL: LazyLock<String> = LazyLock::new(|| {
            let row = UnitRow::COLUMNS;
            format!("SELECT {row}, {PART_COLUMNS} FROM longshore_unit u WHERE u.id = ?1")
        });
        static DUPLICATE_CALL: LazyLock<String> = LazyLock::new(|| {
            format!(
                "SELECT {CALL_COLUMNS} FROM longshore_call INDEXED BY longshore_call_request
                 WHERE request_id = ?1 AND tenant = ?2 AND status IN (0, 1) AND unit IS NOT ?3
                 ORDER BY opened_at DESC, id DESC LIMIT 1"
            )
        });
        static INSERT_CALL: LazyLock<String> =
            LazyLock::new(|| insert_calls(1) + " ON CONFLICT (id) DO NOTHING");
        static INSERT_CALLS: LazyLock<String> = LazyLock::new(|| insert_calls(call_row::INSERT_BATCH));
        match self {
            Self::FindCall => {
                "SELECT status, tenant, opened_at, reserve_tokens, reserve_picos
                 FROM longshore_call WHERE id = ?1"
            }
            Self::DuplicateCall => &DUPLICATE_CALL,
            Self::InsertCall => &INSERT_CALL,
            Self::InsertCalls => &INSERT_CALLS,
            // Changes no column of the other indexes, so that only the index of open calls is
            // updated.
            Self::UpdateCall => {
                "UPDATE longshore_call SET profile = ?2, provider = ?3, model = ?4, worker = ?5,
                 reserve_tokens = ?6, reserve_picos = ?7, status = ?8, logged_at = ?9, code = ?10,
                 answering_model = ?11, tokens_in = ?12, tokens_out = ?13, tokens_cached = ?14,
                 tokens_cache_write = ?15, latency_ms = ?16, attempts = ?17, cost_picos = ?18,
                 estimated = ?19, mode = ?20, tier = ?21, tokens_cache_write_long = ?22
                 WHERE id = ?1 AND status = 0"
            }
            Self::Find => &FIND,
            Self::FindFull => &FIND_FULL,
            Self::Insert => {
                "INSERT OR IGNORE INTO longshore_unit (id, stream, state, sort_key, priority,
                 created_at, deadline, flags, open_dependencies, bytes, dedup_key, cap_key, spec,
                 payload)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)"
            }
            Self::Lease => {
                "UPDATE longshore_unit SET state = 3, sort_key = ?2, session = ?3, fence = ?4,
                 attempt = ?5, started_at = ?6 WHERE id = ?1"
            }
            Self::Start => "UPDATE longshore_unit SET started_at = ?2, attempt = attempt + 1 WHERE id = ?1",
            Self::StartFast => {
                "UPDATE longshore_unit SET started_at = ?2, attempt = attempt + 1
                 WHERE id = ?1 AND session = ?3 AND fence = ?4 AND started_at IS NULL
                 AND flags & 4 = 0 AND (deadline IS NULL OR deadline > ?2)"
            }
            Self::FinishFast => {
                "UPDATE longshore_unit SET state = 4, sort_key = ?2, session = NULL,
                 started_at = NULL, attempt = attempt + (started_at IS NULL), lost = 0,
                 progress = NULL, failure = NULL, result = ?5
                 WHERE id = ?1 AND session = ?3 AND fence = ?4 AND flags & ~6144 = 0
                 AND cap_key IS NULL"
            }
            Self::Apply => {
                "UPDATE longshore_unit SET state = ?2, sort_key = ?3, attempt = ?4, lost = ?5,
                 fence = ?6, session = NULL, started_at = NULL, open_dependencies = ?10, progress =
                 NULL,
                 flags = ?7, failure = CASE WHEN ?2 = 4 THEN NULL ELSE coalesce(?8, failure) END,
                 spec = coalesce(?9, spec)
                 WHERE id = ?1"
            }
        }
    }
}

fn insert_calls(rows: usize) -> String {
    let columns = call_row::INSERT_COLUMNS;
    let row = format!("({})", vec!["?"; columns.len()].join(", "));
    let rows = vec![row; rows].join(", ");
    format!("INSERT INTO longshore_call ({}) VALUES {rows}", columns.join(", "))
}

/// The statements that an operation has used so far.
#[derive(Default)]
pub(crate) struct PreparedStatements<'c> {
    prepared: [Option<CachedStatement<'c>>; COUNT],
}

impl<'c> PreparedStatements<'c> {
    /// A statement, prepared on first use.
    pub(crate) fn get(&mut self, db: &'c Connection, sql: PreparedSql) -> Result<&mut CachedStatement<'c>> {
        let slot = &mut self.prepared[sql as usize];
        match slot {
            Some(statement) => Ok(statement),
            None => Ok(slot.insert(db.prepare_cached(sql.sql()).or_translate()?)),
        }
    }
}
