//! Any database with an ODBC driver. Drivers differ: query timeouts are whole seconds and not
//! supported by all, and no statements are kept prepared.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use odbc_api::parameter::InputParameter;
use odbc_api::{ColumnDescription, Connection as Line, Cursor, ResultSetMetadata};

use super::deadline::Watch;
use super::driver::{Connection, Reply};
use super::error::{DbError, Reason};
use super::options::Habits;
use super::row::Table;
use super::row_collector::{Bounds, Gathering, Next, Want};
use super::statement::Statement;
use super::value::Value;
use dialect::Dialect;
use target::Target;
use value::Kind;

pub mod dialect;
mod error;
pub mod target;
pub mod value;
pub mod words;

/// Timeout of connecting to a server, where the driver supports it.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn connect(
    string: &str,
    habits: &Habits,
    watch: &Watch,
) -> Result<Box<dyn Connection>, DbError> {
    let target = Target::new(string);
    let patience = watch.left().map_or(PATIENCE, |left| left.min(PATIENCE));
    let line = target.connect(seconds(patience));
    let line = line.map_err(|error| target.without_secrets(error::of_connect(&error)))?;
    let mut connection = Odbc { line: Some(line), target, dialect: Dialect::Standard };
    connection.set_up(habits).map_err(|error| connection.target.without_secrets(error))?;
    Ok(Box::new(connection))
}

/// Whole seconds, at least one: zero would mean no limit.
fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX).max(1)
}

struct Odbc {
    /// `Some` until it is dropped.
    line: Option<Line<'static>>,
    target: Target,
    dialect: Dialect,
}

impl Odbc {
    fn line(&self) -> Result<&Line<'static>, DbError> {
        self.line.as_ref().ok_or_else(|| DbError::lost("the connection is closed").unsent())
    }

    fn set_up(&mut self, habits: &Habits) -> Result<(), DbError> {
        let name = self.line()?.database_management_system_name();
        self.dialect = Dialect::of(&name.map_err(|error| error::of(&error))?);
        let own = self.dialect.waits_for_locks(habits.busy);
        let forbid = self.dialect.forbids_writing().filter(|_| habits.read_only);
        let forbid = forbid.map(str::to_owned);
        for sql in own.into_iter().chain(habits.init.iter().cloned()).chain(forbid) {
            self.plain(&sql).map_err(|error| DbError {
                message: format!("{sql}: {}", error.message),
                ..error
            })?;
        }
        Ok(())
    }

    /// Runs a statement without parameters, and ignores its result.
    fn plain(&self, sql: &str) -> Result<(), DbError> {
        self.line()?.execute(sql, (), None).map(drop).map_err(|error| error::of(&error))
    }

    /// The first value that an internal statement returns.
    fn look_up(&self, sql: &str) -> Result<Option<Value>, DbError> {
        let bounds = Bounds { rows: 1, bytes: 1 << 20 };
        let reply = self.query(&Statement::new(sql, []), Want::First, bounds, None)?;
        Ok(reply.table.first_value())
    }

    fn query(
        &self,
        statement: &Statement,
        want: Want,
        bounds: Bounds,
        watch: Option<&Watch>,
    ) -> Result<Reply, DbError> {
        let failed = |error: odbc_api::Error| error::of(&error);
        let mut prepared = self.line()?.prepare(&statement.sql).map_err(failed)?;
        let wanted = usize::from(prepared.num_params().map_err(failed)?);
        if statement.params.len() != wanted {
            let words = format!("{} values for {wanted} parameters", statement.params.len());
            return Err(DbError::new(Reason::Sql, words).code("07001"));
        }
        if let Some(left) = watch.and_then(Watch::left) {
            // Not all drivers support it. Then the call times out without the statement being
            // stopped.
            let _ = prepared.set_query_timeout_sec(seconds(left) as usize);
        }
        let params: Vec<Box<dyn InputParameter>> = statement
            .params
            .iter()
            .cloned()
            .map(|value| value::bound(value, self.dialect))
            .collect();
        let gathered = match prepared.execute(params.as_slice()).map_err(failed)? {
            Some(cursor) => Some(gather(cursor, want, bounds, watch)?),
            None => None,
        };
        Ok(match gathered {
            Some((table, rows)) => Reply { returns: true, table, affected: rows, last_id: None },
            None => {
                let changed = prepared.row_count().map_err(failed)?.unwrap_or(0);
                Reply { affected: changed as u64, ..Reply::default() }
            }
        })
    }
}

fn gather(
    mut cursor: impl Cursor,
    want: Want,
    bounds: Bounds,
    watch: Option<&Watch>,
) -> Result<(Table, u64), DbError> {
    let failed = |error: odbc_api::Error| error::of(&error);
    let (names, kinds) = columns(&mut cursor).map_err(failed)?;
    let mut gathering = Gathering::new(want, bounds, names);
    while let Some(mut row) = cursor.next_row().map_err(failed)? {
        if let Some(why) = watch.and_then(Watch::over_because) {
            return Err(why);
        }
        let values = || {
            let values =
                kinds.iter().enumerate().map(|(at, kind)| value::read(&mut row, at, *kind));
            values.collect::<Result<_, _>>().map_err(failed)
        };
        if gathering.take(values)? == Next::Enough {
            break;
        }
    }
    let count = gathering.count();
    Ok((gathering.into_table(), count))
}

fn columns(
    result: &mut impl ResultSetMetadata,
) -> Result<(Vec<String>, Vec<Kind>), odbc_api::Error> {
    let count = u16::try_from(result.num_result_cols()?).unwrap_or(0);
    let mut description = ColumnDescription::default();
    let (mut names, mut kinds) = (Vec::new(), Vec::new());
    for at in 1..=count {
        result.describe_col(at, &mut description)?;
        // The description's own name is truncated by SQLite's driver.
        names.push(result.col_name(at)?);
        kinds.push(Kind::of(description.data_type));
    }
    Ok((names, kinds))
}

impl Connection for Odbc {
    fn is_closed(&self) -> bool {
        self.line.as_ref().is_none_or(|line| line.is_dead().unwrap_or(false))
    }

    fn ping(&mut self, _: &Watch) -> Result<(), DbError> {
        match self.look_up(self.dialect.ping()) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.blame(error)),
        }
    }

    fn run(
        &mut self,
        statement: &Statement,
        want: Want,
        bounds: Bounds,
        watch: &Watch,
    ) -> Result<Reply, DbError> {
        let reply = self.query(statement, want, bounds, Some(watch));
        let mut reply = reply.map_err(|error| match error::is_timeout(&error) {
            // The driver stopped it at the query timeout.
            true => Watch::too_slow(),
            false => self.blame(error),
        })?;
        let inserted = !reply.returns && want == Want::First && reply.affected > 0;
        if let Some(sql) = self.dialect.last_id().filter(|_| inserted) {
            reply.last_id = self.look_up(sql)?;
        }
        Ok(reply)
    }

    fn begin(&mut self, _: &Watch) -> Result<(), DbError> {
        let begun = self.line()?.set_autocommit(false);
        begun.map_err(|error| self.blame(error::of(&error)))
    }

    fn commit(&mut self, _: &Watch) -> Result<(), DbError> {
        self.line()?.commit().map_err(|error| self.blame(error::of(&error)))?;
        // The commit has succeeded, whatever happens to the connection now.
        if self.line()?.set_autocommit(true).is_err() {
            self.line = None;
        }
        Ok(())
    }

    fn rollback(&mut self) -> Result<(), DbError> {
        let line = self.line()?;
        let ended = line.rollback().and_then(|()| line.set_autocommit(true));
        ended.map_err(|error| self.blame(error::of(&error)))
    }
}

impl Odbc {
    /// Reports an error on a lost connection as `Lost`: it is not the statement's fault.
    fn blame(&self, error: DbError) -> DbError {
        let error = self.target.without_secrets(error);
        match self.is_closed() && error.reason == Reason::Sql {
            true => {
                DbError { code: error.code, native: error.native, ..DbError::lost(error.message) }
            }
            false => error,
        }
    }
}

impl Drop for Odbc {
    fn drop(&mut self) {
        // The library panics if it cannot disconnect, because the server is gone.
        let line = self.line.take();
        if catch_unwind(AssertUnwindSafe(|| drop(line))).is_err() {
            tracing::debug!("an ODBC connection could not be closed cleanly");
        }
    }
}
