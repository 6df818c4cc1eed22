//! Any database with an ODBC driver. Drivers differ: query timeouts are whole seconds and not
//! supported by all, and no statements are kept prepared.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use odbc_api::parameter::InputParameter;
use odbc_api::{ColumnDescription, Connection as OdbcConnection, Cursor, ResultSetMetadata};

use crate::column::{Column, ColumnKind};
use crate::deadline::Deadline;
use crate::dialect::Dialect;
use crate::error::{DbError, ErrorClass, Reason};
use crate::options::ConnectionConfig;
use crate::row::ResultTable;
use crate::row_collector::{Fetch, ResultLimits, RowCollector, RowsWanted};
use crate::statement::Statement;
use crate::value::Value;
use crate::{Connection, StatementResult};
use connection_string::ConnectionString;

mod connection_string;
mod diagnostics;
mod error;
mod value;

/// Timeout of connecting to a server, where the driver supports it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) fn connect(
    string: &str,
    config: &ConnectionConfig,
    deadline: &Deadline,
) -> Result<Box<dyn Connection>, DbError> {
    let connection_string = ConnectionString::new(string);
    let timeout = deadline.remaining().map_or(CONNECT_TIMEOUT, |left| left.min(CONNECT_TIMEOUT));
    let connection = connection_string.connect(seconds(timeout));
    let connection = connection.map_err(|error| connection_string.redact_error(error::of_connect(&error)))?;
    let (dialect, quote) = (Dialect::Standard, '"');
    let mut connection = Odbc { connection: Some(connection), connection_string, dialect, quote };
    connection.configure_session(config).map_err(|error| connection.connection_string.redact_error(error))?;
    Ok(Box::new(connection))
}

/// Whole seconds, at least one: zero would mean no limit.
fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX).max(1)
}

struct Odbc {
    /// `Some` until it is dropped.
    connection: Option<OdbcConnection<'static>>,
    connection_string: ConnectionString,
    dialect: Dialect,
    quote: char,
}

/// The attributes of a connection string that identify the database.
pub(crate) fn display_name(string: &str) -> String {
    ConnectionString::new(string).display_name()
}

impl Odbc {
    fn connection(&self) -> Result<&OdbcConnection<'static>, DbError> {
        self.connection.as_ref().ok_or_else(|| DbError::lost("the connection is closed").unsent())
    }

    fn configure_session(&mut self, config: &ConnectionConfig) -> Result<(), DbError> {
        let name = self.connection()?.database_management_system_name();
        self.dialect = Dialect::of(&name.map_err(|error| error::of(&error))?);
        self.quote = self.connection()?.identifier_quote_char().ok().flatten().unwrap_or('"');
        let own = config.busy.and_then(|limit| self.dialect.lock_timeout_statement(limit));
        let forbid = self.dialect.read_only_statement().filter(|_| config.read_only);
        let forbid = forbid.map(str::to_owned);
        for sql in own.into_iter().chain(config.init.iter().cloned()).chain(forbid) {
            self.execute_direct(&sql).map_err(|error| error.of_statement(&sql))?;
        }
        Ok(())
    }

    /// Runs a statement without parameters, and ignores its result.
    fn execute_direct(&self, sql: &str) -> Result<(), DbError> {
        self.connection()?.execute(sql, (), None).map(drop).map_err(|error| error::of(&error))
    }

    /// The first value that an internal statement returns.
    fn query_value(&self, sql: &str) -> Result<Option<Value>, DbError> {
        let limits = ResultLimits { rows: 1, bytes: 1 << 20 };
        let result = self.query(&Statement::new(sql, []), RowsWanted::First, limits, &[], None)?;
        Ok(result.table.first_value())
    }

    fn query(
        &self,
        statement: &Statement,
        want: RowsWanted,
        limits: ResultLimits,
        kinds: &[ColumnKind],
        deadline: Option<&Deadline>,
    ) -> Result<StatementResult, DbError> {
        let failed = |error: odbc_api::Error| error::of(&error);
        let rejected = |error: odbc_api::Error| error::of(&error).rejected();
        let mut prepared = self.connection()?.prepare(&statement.sql).map_err(rejected)?;
        let expected = usize::from(prepared.num_params().map_err(rejected)?);
        if statement.params.len() != expected {
            let message = format!("{} values for {expected} parameters", statement.params.len());
            return Err(DbError::new(Reason::Sql, message).code("07001"));
        }
        if let Some(left) = deadline.and_then(Deadline::remaining) {
            // Not all drivers support it. Then the call times out without the statement being
            // stopped.
            let _ = prepared.set_query_timeout_sec(seconds(left) as usize);
        }
        let params: Vec<Box<dyn InputParameter>> =
            statement.params.iter().cloned().map(|value| value::to_parameter(value, self.dialect)).collect();
        let collected = match prepared.execute(params.as_slice()).map_err(failed)? {
            Some(cursor) => Some(collect_rows(cursor, want, limits, kinds, deadline)?),
            None => None,
        };
        Ok(match collected {
            Some((table, rows)) => {
                StatementResult { returns: true, table, affected: Some(rows), last_id: None }
            }
            None => {
                let changed = prepared.row_count().map_err(failed)?.map(|rows| rows as u64);
                StatementResult { affected: changed, ..StatementResult::default() }
            }
        })
    }
}

fn collect_rows(
    mut cursor: impl Cursor,
    want: RowsWanted,
    limits: ResultLimits,
    given: &[ColumnKind],
    deadline: Option<&Deadline>,
) -> Result<(ResultTable, u64), DbError> {
    let failed = |error: odbc_api::Error| error::of(&error);
    let columns = columns(&mut cursor).map_err(failed)?;
    let kinds: Vec<ColumnKind> =
        columns.iter().enumerate().map(|(at, column)| *given.get(at).unwrap_or(&column.kind)).collect();
    let mut collector = RowCollector::new(want, limits, columns.into_iter().map(|column| column.name));
    while let Some(mut row) = cursor.next_row().map_err(failed)? {
        if let Some(reason) = deadline.and_then(Deadline::stop_reason) {
            return Err(reason);
        }
        let values = || {
            let values = kinds.iter().enumerate().map(|(at, kind)| value::read(&mut row, at, *kind));
            values.collect::<Result<_, _>>().map_err(failed)
        };
        if collector.take(values)? == Fetch::Enough {
            break;
        }
    }
    let count = collector.count();
    Ok((collector.into_table(), count))
}

fn columns(result: &mut impl ResultSetMetadata) -> Result<Vec<Column>, odbc_api::Error> {
    let count = u16::try_from(result.num_result_cols()?).unwrap_or(0);
    let mut description = ColumnDescription::default();
    let columns = (1..=count).map(|at| {
        result.describe_col(at, &mut description)?;
        // The description's own name is truncated by SQLite's driver.
        Ok(Column { name: result.col_name(at)?, kind: value::kind(description.data_type) })
    });
    columns.collect()
}

impl Connection for Odbc {
    fn dialect(&self) -> Dialect {
        self.dialect
    }

    fn quote(&self) -> char {
        self.quote
    }

    fn describe(
        &mut self,
        statement: &Statement,
        is_query: bool,
        deadline: &Deadline,
    ) -> Result<Vec<Column>, DbError> {
        if let Some(prefix) = self.dialect.explain_prefix().filter(|_| !is_query) {
            let explain = Statement::new(format!("{prefix}{}", statement.sql), statement.params.clone());
            let planned = self.query(&explain, RowsWanted::Count, ResultLimits::NONE, &[], Some(deadline));
            // Nothing was run, so the statement itself is wrong.
            planned.map_err(|error| self.classify(error.rejected()))?;
        }
        let prepared = self.connection()?.prepare(&statement.sql);
        let columns = prepared.and_then(|mut prepared| columns(&mut prepared));
        columns.map_err(|error| self.classify(error::of(&error).rejected()))
    }

    /// Drivers may find mistakes of a query only when it runs.
    fn read(
        &mut self,
        statement: &Statement,
        kinds: &[ColumnKind],
        deadline: &Deadline,
    ) -> Result<StatementResult, DbError> {
        let result = self.query(statement, RowsWanted::All, ResultLimits::NONE, kinds, Some(deadline));
        result.map_err(|error| self.classify(error.rejected()))
    }

    fn is_closed(&self) -> bool {
        self.connection.as_ref().is_none_or(|connection| connection.is_dead().unwrap_or(false))
    }

    fn ping(&mut self, _: &Deadline) -> Result<(), DbError> {
        match self.query_value(self.dialect.ping_statement()) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.classify(error)),
        }
    }

    fn run(
        &mut self,
        statement: &Statement,
        want: RowsWanted,
        limits: ResultLimits,
        deadline: &Deadline,
    ) -> Result<StatementResult, DbError> {
        let result = self.query(statement, want, limits, &[], Some(deadline));
        let is_limited = deadline.remaining().is_some();
        let mut result = result.map_err(|error| match is_limited && error::is_timeout(&error) {
            // The driver stopped it at the query timeout.
            true => DbError::timeout(),
            false => self.classify(error),
        })?;
        let inserted = !result.returns && want == RowsWanted::First && result.affected > Some(0);
        if let Some(sql) = self.dialect.last_id_statement().filter(|_| inserted) {
            result.last_id = self.query_value(sql)?;
        }
        Ok(result)
    }

    fn begin(&mut self, _: &Deadline) -> Result<(), DbError> {
        let result = self.connection()?.set_autocommit(false);
        result.map_err(|error| self.classify(error::of(&error)))
    }

    fn commit(&mut self, _: &Deadline) -> Result<(), DbError> {
        self.connection()?.commit().map_err(|error| self.classify(error::of(&error)))?;
        // The commit has succeeded, whatever happens to the connection now.
        if self.connection()?.set_autocommit(true).is_err() {
            self.connection = None;
        }
        Ok(())
    }

    fn rollback(&mut self) -> Result<(), DbError> {
        let connection = self.connection()?;
        let ended = connection.rollback().and_then(|()| connection.set_autocommit(true));
        ended.map_err(|error| self.classify(error::of(&error)))
    }
}

impl Odbc {
    /// Reports an error on a lost connection as `Lost`: it is not the statement's fault.
    fn classify(&self, error: DbError) -> DbError {
        let error = self.connection_string.redact_error(error);
        match self.is_closed() && error.reason == Reason::Sql {
            true => {
                let (code, native, class) = (error.code, error.native, Some(ErrorClass::Unavailable));
                DbError { code, native, class, ..DbError::lost(error.message) }
            }
            false => error,
        }
    }
}

impl Drop for Odbc {
    fn drop(&mut self) {
        // The library panics if it cannot disconnect, because the server is gone.
        let connection = self.connection.take();
        if catch_unwind(AssertUnwindSafe(|| drop(connection))).is_err() {
            tracing::debug!("an ODBC connection could not be closed cleanly");
        }
    }
}
