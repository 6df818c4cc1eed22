//! SQL effects: the caller's statements, committed with a unit's finish or not at all.
//!
//! They come from outside. They may only change rows: a statement that would end the store's
//! transaction, or access anything outside the database, is rejected.
//!
//! A full disk, a failed read or write, a lock, a read-only file or a lack of memory is not the unit's failure: the finish fails
//! with a retryable error, and is tried again.
//!
//! SQLite interrupts effects that take too long, and rolls the whole transaction back with them. The
//! writer then runs the other operations again, and the finish without these effects.

use std::cell::Cell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use longshore_core::effect_budget::EffectBudget;
use longshore_core::outcome::Params;
use longshore_core::store::FinishRequest;
use longshore_core::worker_session::Lease;
use longshore_core::{Effect, Error, Failure, Result, SqlValue};
use rusqlite::{CachedStatement, Connection, ToSql};

use crate::error::{Translate, translate};
use crate::tx::Tx;

/// How many steps of SQLite's virtual machine pass between two checks of the deadline.
const STEPS_PER_CHECK: i32 = 10_000;

thread_local! {
    /// When the effects that this thread runs have taken too long.
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Lets effects on this connection be interrupted.
pub(crate) fn install_deadline(db: &mut Connection) -> Result<()> {
    let is_late = || DEADLINE.get().is_some_and(|deadline| Instant::now() >= deadline);
    db.progress_handler(STEPS_PER_CHECK, Some(is_late)).or_translate()
}

/// The effects of one finish, which may run several times.
pub(crate) struct EffectRuns {
    budget: EffectBudget,
    /// The failures of units with effects that took too long in an earlier run.
    timed_out: HashMap<Lease, Failure>,
}

impl EffectRuns {
    /// The effects of one unit may take `unit_limit`.
    pub(crate) fn new(unit_limit: Duration) -> Self {
        Self { budget: EffectBudget::new(unit_limit), timed_out: HashMap::new() }
    }

    /// Without a limit, in the caller's own transaction.
    pub(crate) fn unlimited() -> Self {
        Self { budget: EffectBudget::unlimited(), timed_out: HashMap::new() }
    }

    /// Begins a run of the finish.
    pub(crate) fn restart(&mut self) {
        self.budget.restart();
    }

    /// How many units had effects that took too long.
    pub(crate) fn timeouts(&self) -> usize {
        self.timed_out.len()
    }

    /// Whether this unit's effects are left to another finish.
    pub(crate) fn defers(&self, end: &FinishRequest) -> bool {
        !self.timed_out.contains_key(&end.lease) && self.budget.defers(&end.effects)
    }

    /// Runs a unit's effects in a savepoint; returns the failure if they were rolled back.
    pub(crate) fn run(&mut self, tx: &Tx<'_>, lease: Lease, effects: &[Effect]) -> Result<Option<Failure>> {
        if effects.is_empty() {
            return Ok(None);
        }
        if let Some(failure) = self.timed_out.get(&lease) {
            return Ok(Some(failure.clone()));
        }
        let began = Instant::now();
        let deadline = self.budget.unit_limit().map(|limit| began + limit);
        statement(tx, "SAVEPOINT effects")?;
        DEADLINE.set(deadline);
        let failed = effects.iter().find_map(|effect| Some((effect, run_one(tx, effect).err()?)));
        DEADLINE.set(None);
        let is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let failure = match failed {
            Some((_, EffectError::Store(error))) => {
                if !tx.db.is_autocommit() {
                    statement(tx, "ROLLBACK TO effects")?;
                    statement(tx, "RELEASE effects")?;
                }
                return Err(error);
            }
            Some((effect, EffectError::Unit(_))) if is_late => {
                let failure = self.budget.time_out(effect);
                self.timed_out.insert(lease, failure.clone());
                Some(failure)
            }
            Some((_, EffectError::Unit(failure))) => {
                self.budget.spend(began.elapsed());
                Some(failure)
            }
            None => {
                self.budget.spend(began.elapsed());
                None
            }
        };
        if tx.db.is_autocommit() {
            // An interrupt, `OR ROLLBACK`, or a trigger with RAISE(ROLLBACK): everything since BEGIN
            // is gone, including this operation. Its caller gets this error; the other operations of
            // the group are run again.
            return Err(Error::Invalid("an effect rolled back the store's transaction".to_owned()));
        }
        if failure.is_some() {
            statement(tx, "ROLLBACK TO effects")?;
        }
        statement(tx, "RELEASE effects")?;
        Ok(failure)
    }
}

/// Why an effect did not run.
enum EffectError {
    /// The unit fails.
    Unit(Failure),
    /// The store cannot write at the moment.
    Store(Error),
}

impl EffectError {
    fn new(error: rusqlite::Error, effect: &Effect) -> Self {
        use rusqlite::ErrorCode::{
            CannotOpen, DatabaseBusy, DatabaseLocked, DiskFull, FileLockingProtocolFailed, OutOfMemory,
            ReadOnly, SystemIoFailure,
        };
        match error.sqlite_error_code() {
            Some(
                DiskFull
                | SystemIoFailure
                | OutOfMemory
                | DatabaseBusy
                | DatabaseLocked
                | CannotOpen
                | ReadOnly
                | FileLockingProtocolFailed,
            ) => Self::Store(translate(error)),
            _ => Self::Unit(Failure::new("effect", format!("{error}: {}", effect.sql))),
        }
    }
}

impl From<Failure> for EffectError {
    fn from(failure: Failure) -> Self {
        Self::Unit(failure)
    }
}

/// Runs a cached statement: each unit with effects needs two of these.
fn statement(tx: &Tx<'_>, sql: &str) -> Result<()> {
    tx.db.prepare_cached(sql).or_translate()?.execute([]).or_translate()?;
    Ok(())
}

fn run_one(tx: &Tx<'_>, effect: &Effect) -> Result<(), EffectError> {
    let refused = |error: rusqlite::Error| EffectError::new(error, effect);
    if !changes_rows_only(&effect.sql) {
        let words = format!("an effect may only insert, update or delete: {}", effect.sql);
        return Err(Failure::new("effect", words).into());
    }
    let mut statement = tx.db.prepare_cached(&effect.sql).map_err(refused)?;
    bind(&mut statement, effect)?;
    let mut rows = statement.raw_query();
    let mut returned = 0;
    while rows.next().map_err(refused)?.is_some() {
        returned += 1;
    }
    drop(rows);
    // With RETURNING, the number of returned rows; else SQLite's count.
    let changed = if statement.column_count() > 0 { returned } else { tx.db.changes() };
    match effect.expected_rows {
        Some(expected) if expected != changed => Err(Failure::new(
            "effect-rows",
            format!("changed {changed} rows instead of {expected}: {}", effect.sql),
        )
        .into()),
        _ => Ok(()),
    }
}

/// Whether a statement starts as one that changes rows (after comments).
fn changes_rows_only(sql: &str) -> bool {
    let mut rest = sql.trim_start();
    loop {
        let after = match () {
            () if rest.starts_with("--") => rest.split_once('\n').map_or("", |(_, after)| after),
            () if rest.starts_with("/*") => rest.split_once("*/").map_or("", |(_, after)| after),
            () => break,
        };
        rest = after.trim_start();
    }
    let word: String = rest.chars().take_while(char::is_ascii_alphabetic).collect();
    ["INSERT", "UPDATE", "DELETE", "REPLACE", "WITH"].contains(&word.to_ascii_uppercase().as_str())
}

/// Binds every parameter: SQLite would treat an unbound one as NULL.
fn bind(statement: &mut CachedStatement<'_>, effect: &Effect) -> Result<(), Failure> {
    let refused = |error: rusqlite::Error| Failure::new("effect", format!("{error}: {}", effect.sql));
    let count = statement.parameter_count();
    if let Params::Ordered(values) = &effect.params
        && values.len() != count
    {
        let words = format!("{} values for {count} parameters: {}", values.len(), effect.sql);
        return Err(Failure::new("effect", words));
    }
    for at in 1..=count {
        let name = statement.parameter_name(at).map(|name| name[1..].to_owned());
        let value = match &effect.params {
            Params::Ordered(values) => values.get(at - 1),
            Params::Named(values) => {
                let own = |(candidate, _): &&(String, SqlValue)| Some(candidate) == name.as_ref();
                values.iter().find(own).map(|(_, value)| value)
            }
        };
        let Some(value) = value else {
            let name = name.unwrap_or_else(|| format!("number {at}"));
            let words = format!("parameter `{name}` has no value: {}", effect.sql);
            return Err(Failure::new("effect", words));
        };
        statement.raw_bind_parameter(at, BoundValue(value)).map_err(refused)?;
    }
    Ok(())
}

struct BoundValue<'v>(&'v SqlValue);

impl ToSql for BoundValue<'_> {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        match self.0 {
            SqlValue::Null => Ok(rusqlite::types::ToSqlOutput::Owned(rusqlite::types::Value::Null)),
            SqlValue::Bool(value) => value.to_sql(),
            SqlValue::Int(value) => value.to_sql(),
            SqlValue::Real(value) => value.to_sql(),
            SqlValue::Text(value) => value.to_sql(),
            SqlValue::Blob(value) => value.to_sql(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_statements_that_change_rows_are_effects() {
        for good in ["UPDATE t SET a = 1", " -- why\n /* how */ insert into t", "With x AS (SELECT 1)"] {
            assert!(changes_rows_only(good), "{good}");
        }
        for bad in ["COMMIT", "END", "/* UPDATE */ ROLLBACK", "PRAGMA x", "", "--", "ATTACH 'x' AS y"] {
            assert!(!changes_rows_only(bad), "{bad}");
        }
    }
}
