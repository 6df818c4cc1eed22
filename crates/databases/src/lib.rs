//! One driver layer for SQLite, PostgreSQL, MySQL (MariaDB) and ODBC: connections, values, statements, transactions,
//! errors and cancellation. Used by the rows of batches and by the database workers of pools.
//!
//! A [`Connection`] blocks its thread. It stops a statement when its [`Deadline`] passes or its caller gives up. Which
//! connections there are, and what is repeated after an error, is the caller's business.

mod column;
mod deadline;
mod dialect;
#[cfg_attr(
    not(all(feature = "sqlite", feature = "postgres", feature = "mysql", feature = "odbc")),
    allow(dead_code, reason = "each driver uses its part")
)]
mod error;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "odbc")]
mod odbc;
mod options;
#[cfg(feature = "postgres")]
mod postgres;
mod row;
#[cfg_attr(
    not(all(feature = "sqlite", feature = "postgres", feature = "mysql", feature = "odbc")),
    allow(dead_code, reason = "each driver uses its part")
)]
mod row_collector;
pub mod sql;
#[cfg(feature = "sqlite")]
mod sqlite;
mod statement;
mod target;
mod value;

pub use column::{Column, ColumnKind};
pub use deadline::Deadline;
pub use dialect::Dialect;
pub use error::{DbError, ErrorClass, Reason};
pub use options::ConnectionConfig;
pub use row::{ResultRow, ResultTable, RowObject};
pub use row_collector::{ResultLimits, RowsWanted};
pub use statement::{Statement, StatementOutcome};
pub use target::DatabaseTarget;
pub use value::Value;

/// One connection. All methods block. After an error with [`DbError::is_broken`] it is not used again.
pub trait Connection: Send {
    /// The database's dialect of SQL.
    fn dialect(&self) -> Dialect;

    /// The quote character of identifiers.
    fn quote(&self) -> char {
        '"'
    }

    /// Whether parameters are written `$1`, `$2` and so on, and not `?`.
    fn numbers_parameters(&self) -> bool {
        false
    }

    /// Whether the connection is known to be lost, without a round trip.
    fn is_closed(&self) -> bool {
        false
    }

    /// Checks that the server responds.
    fn ping(&mut self, deadline: &Deadline) -> Result<(), DbError>;

    /// Checks a statement as far as the database does without running it, and returns its columns. `is_query` says that
    /// it changes nothing.
    fn describe(
        &mut self,
        statement: &Statement,
        is_query: bool,
        deadline: &Deadline,
    ) -> Result<Vec<Column>, DbError>;

    /// Runs one statement, and returns its outcome. Stops it when the deadline passes or the call
    /// is cancelled; then the connection is usable again, or lost.
    fn run(
        &mut self,
        statement: &Statement,
        want: RowsWanted,
        limits: ResultLimits,
        deadline: &Deadline,
    ) -> Result<StatementResult, DbError>;

    /// Runs a query that changes nothing, in a transaction of its own, and returns all rows. `kinds` overrides the types
    /// of the first columns, for drivers that infer them from the first row.
    fn read(
        &mut self,
        statement: &Statement,
        _kinds: &[ColumnKind],
        deadline: &Deadline,
    ) -> Result<StatementResult, DbError> {
        self.run(statement, RowsWanted::All, ResultLimits::NONE, deadline)
    }

    /// Why a statement is not allowed in a transaction, if it is not.
    fn refuses_in_transaction(&self, _: &str) -> Option<&'static str> {
        None
    }

    /// Begins a transaction.
    fn begin(&mut self, deadline: &Deadline) -> Result<(), DbError>;

    /// Begins a transaction that may write, whatever the session's default.
    fn begin_write(&mut self, deadline: &Deadline) -> Result<(), DbError> {
        self.begin(deadline)
    }

    /// Commits. After an error the state of the transaction is unknown; it is then rolled back.
    fn commit(&mut self, deadline: &Deadline) -> Result<(), DbError>;

    /// Rolls back. After an error the connection is not used again, and the database rolls back by
    /// itself.
    fn rollback(&mut self) -> Result<(), DbError>;

    /// Whether a transaction is open, where that is known without a round trip. Outside of our own
    /// transactions, a statement has left it open.
    fn in_transaction(&self) -> bool {
        false
    }
}

/// The outcome of a statement.
#[derive(Debug, Default)]
pub struct StatementResult {
    /// Whether the statement returns rows at all.
    pub returns: bool,
    /// The rows.
    pub table: ResultTable,
    /// Rows that it changed, or returned. `None` if the driver does not tell.
    pub affected: Option<u64>,
    /// The id of the row that it inserted, if the database reports it by itself.
    pub last_id: Option<Value>,
}
