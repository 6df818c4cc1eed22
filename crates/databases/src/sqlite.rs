//! SQLite, with rusqlite. A statement is stopped by SQLite's progress handler, which checks
//! regularly whether to continue.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{OpenFlags, Statement as Prepared, ToSql};

use crate::column::{Column, ColumnKind};
use crate::deadline::Deadline;
use crate::dialect::Dialect;
use crate::error::{DbError, Reason};
use crate::options::ConnectionConfig;
use crate::row_collector::{Fetch, ResultLimits, RowCollector, RowsWanted};
use crate::statement::Statement;
use crate::value::Value;
use crate::{Connection, StatementResult};

mod error;

/// SQLite instructions between two checks of the deadline: some tenths of a millisecond.
const PROGRESS_INTERVAL: i32 = 10_000;

/// Checks a path.
pub(crate) fn check(path: &Path) -> Result<(), DbError> {
    match path.to_str() {
        Some(":memory:" | "") => {
            let message = "an in-memory database would be private to each worker: name a file";
            Err(DbError::new(Reason::Refused, message))
        }
        _ => Ok(()),
    }
}

pub(crate) fn connect(path: &Path, config: &ConnectionConfig) -> Result<Box<dyn Connection>, DbError> {
    let connection = open(path, config).map_err(|error| error::of_file(path, &error))?;
    for sql in &config.init {
        connection.db.execute_batch(sql).map_err(|error| error::of(error).of_statement(sql))?;
    }
    if config.read_only {
        let forbidden = connection.db.pragma_update(None, "query_only", true);
        forbidden.map_err(error::of)?;
    }
    Ok(Box::new(connection))
}

/// A read-only connection is also opened for writing, and then restricted: only so can it recover
/// the journal of a program that crashed during a commit. If writing is impossible, SQLite opens
/// the file read-only.
fn open(path: &Path, config: &ConnectionConfig) -> rusqlite::Result<Sqlite> {
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    flags.set(OpenFlags::SQLITE_OPEN_CREATE, config.create && !config.read_only);
    let mut db = rusqlite::Connection::open_with_flags(path, flags)?;
    db.set_prepared_statement_cache_capacity(config.statements);
    // Otherwise a statement is recompiled whenever a bound value could change the plan.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    let busy = config.busy.unwrap_or_default();
    db.busy_timeout(busy)?;
    // Opening reads nothing. This checks that the file is a database.
    db.query_row("PRAGMA schema_version", [], |_| Ok(()))?;
    let interrupt = InterruptState::default();
    let handler = interrupt.clone();
    db.progress_handler(PROGRESS_INTERVAL, Some(move || handler.should_stop()))?;
    let (cached, read_only) = (config.statements > 0, config.read_only);
    Ok(Sqlite { db, interrupt, busy, cached, read_only })
}

/// The deadline of the running statement, and why it was stopped.
#[derive(Clone, Default)]
struct InterruptState(Arc<Mutex<(Option<Deadline>, Option<DbError>)>>);

impl InterruptState {
    fn should_stop(&self) -> bool {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let reason = inner.0.as_ref().and_then(Deadline::stop_reason);
        let should_stop = reason.is_some();
        inner.1 = inner.1.take().or(reason);
        should_stop
    }

    fn set(&self, deadline: Option<Deadline>) -> Option<DbError> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.0 = deadline;
        inner.1.take()
    }
}

struct Sqlite {
    db: rusqlite::Connection,
    interrupt: InterruptState,
    busy: Duration,
    cached: bool,
    read_only: bool,
}

impl Sqlite {
    /// Runs `work`, and stops it when the deadline passes or the call is cancelled.
    fn run_with_deadline<T>(
        &self,
        deadline: &Deadline,
        work: impl FnOnce(&rusqlite::Connection) -> Result<T, DbError>,
    ) -> Result<T, DbError> {
        if let Some(reason) = deadline.stop_reason() {
            return Err(reason);
        }
        // SQLite does not call the progress handler while it waits for a lock.
        let timeout = deadline.remaining().map_or(self.busy, |left| left.min(self.busy));
        self.db.busy_timeout(timeout).map_err(error::of)?;
        self.interrupt.set(Some(deadline.clone()));
        let answer = work(&self.db);
        let stopped = self.interrupt.set(None);
        answer.map_err(|error| match stopped {
            Some(reason) if error.code.as_deref() == Some(error::INTERRUPTED) => reason,
            _ => error,
        })
    }

    fn batch(&self, sql: &str, deadline: &Deadline) -> Result<(), DbError> {
        self.run_with_deadline(deadline, |db| db.execute_batch(sql).map_err(error::of))
    }
}

impl Connection for Sqlite {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn describe(&mut self, statement: &Statement, _: bool, _: &Deadline) -> Result<Vec<Column>, DbError> {
        let sql = &statement.sql;
        let prepared = self.db.prepare(sql).map_err(|error| error::of_prepare(sql, error))?;
        let names = prepared.column_names();
        Ok(names.map(|name| Column { name: name.to_owned(), kind: ColumnKind::Inferred }).collect())
    }

    fn ping(&mut self, deadline: &Deadline) -> Result<(), DbError> {
        self.run_with_deadline(deadline, |db| db.query_row("SELECT 1", [], |_| Ok(())).map_err(error::of))
    }

    fn run(
        &mut self,
        statement: &Statement,
        want: RowsWanted,
        limits: ResultLimits,
        deadline: &Deadline,
    ) -> Result<StatementResult, DbError> {
        let in_transaction = !self.db.is_autocommit();
        let result = self.run_with_deadline(deadline, |db| match self.cached {
            true => {
                let prepared = db.prepare_cached(&statement.sql);
                let mut prepared = prepared.map_err(|error| error::of_prepare(&statement.sql, error))?;
                run(db, &mut prepared, &statement.params, want, limits)
            }
            false => {
                let prepared = db.prepare(&statement.sql);
                let mut prepared = prepared.map_err(|error| error::of_prepare(&statement.sql, error))?;
                run(db, &mut prepared, &statement.params, want, limits)
            }
        });
        if in_transaction && self.db.is_autocommit() {
            // `OR ROLLBACK`, or a trigger that does so: the earlier statements are rolled back too,
            // and later ones would run outside of any transaction.
            let message = result.err().map_or_else(String::new, |error| format!(": {error}"));
            return Err(DbError::new(
                Reason::Sql,
                format!("the statement rolled back the transaction{message}"),
            ));
        }
        result
    }

    fn begin(&mut self, deadline: &Deadline) -> Result<(), DbError> {
        // A transaction that reads first and writes later would fail if another one wrote in
        // between.
        let how = if self.read_only { "BEGIN" } else { "BEGIN IMMEDIATE" };
        self.batch(how, deadline)
    }

    fn commit(&mut self, deadline: &Deadline) -> Result<(), DbError> {
        self.batch("COMMIT", deadline)
    }

    fn rollback(&mut self) -> Result<(), DbError> {
        if self.db.is_autocommit() {
            return Ok(());
        }
        self.db.execute_batch("ROLLBACK").map_err(error::of)
    }

    fn in_transaction(&self) -> bool {
        !self.db.is_autocommit()
    }
}

fn run(
    db: &rusqlite::Connection,
    prepared: &mut Prepared<'_>,
    params: &[Value],
    want: RowsWanted,
    limits: ResultLimits,
) -> Result<StatementResult, DbError> {
    bind(prepared, params)?;
    let names: Vec<String> = prepared.column_names().map(str::to_owned).collect();
    let (returns, reads_only) = (!names.is_empty(), prepared.readonly());
    let before = db.total_changes();
    let mut collector = RowCollector::new(want, limits, names.iter().cloned());
    let mut rows = prepared.raw_query();
    while let Some(row) = rows.next().map_err(error::of)? {
        if collector.take(|| values(row, &names))? == Fetch::Enough {
            break;
        }
    }
    drop(rows);
    let changes = db.changes();
    let affected = match (returns, reads_only) {
        (true, _) => collector.count(),
        // `changes()` would still report an earlier statement.
        (false, true) => 0,
        (false, false) if db.total_changes() == before => 0,
        (false, false) => changes,
    };
    let last_id = (!returns && affected > 0).then(|| Value::Int(db.last_insert_rowid()));
    Ok(StatementResult { returns, table: collector.into_table(), affected: Some(affected), last_id })
}

fn bind(prepared: &mut Prepared<'_>, params: &[Value]) -> Result<(), DbError> {
    let expected = prepared.parameter_count();
    if params.len() != expected {
        let message = format!("{} values for {expected} parameters", params.len());
        return Err(DbError::new(Reason::Sql, message).code("07001"));
    }
    for (at, value) in params.iter().enumerate() {
        prepared.raw_bind_parameter(at + 1, Bound(value)).map_err(error::of)?;
    }
    Ok(())
}

struct Bound<'v>(&'v Value);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Value::Null => ValueRef::Null,
            Value::Bool(value) => ValueRef::Integer(i64::from(*value)),
            Value::Int(value) => ValueRef::Integer(*value),
            Value::Real(value) => ValueRef::Real(*value),
            Value::Text(value) => ValueRef::Text(value.as_bytes()),
            Value::Bytes(value) => ValueRef::Blob(value),
        }))
    }
}

fn values(row: &rusqlite::Row<'_>, names: &[String]) -> Result<Vec<Value>, DbError> {
    names.iter().enumerate().map(|(at, name)| value(row, at, name)).collect()
}

fn value(row: &rusqlite::Row<'_>, at: usize, name: &str) -> Result<Value, DbError> {
    Ok(match row.get_ref(at).map_err(error::of)? {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(value) => Value::Int(value),
        ValueRef::Real(value) => Value::Real(value),
        ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Value::Text(text.to_owned()),
            Err(_) => {
                let message = format!("column `{name}` holds text that is not UTF-8");
                return Err(DbError::new(Reason::Sql, message).code("22021"));
            }
        },
        ValueRef::Blob(bytes) => Value::Bytes(bytes.to_owned()),
    })
}
