//! Sources of rows: the interface to operational tables.
//!
//! A source reads candidates in key order, runs PRE's queries, and runs POST's SQL if that cannot
//! commit with the row's finish. It knows nothing of batches, and no driver: those are `longshore-databases`'.

mod database_rows;
mod dialect;
mod error;
mod fingerprint;
mod job_queue;
mod open;
mod outage;
mod placeholders;
mod priority_pass;
mod read;
pub mod seed;
mod sqlite_file;
mod value_convert;
mod write;

use std::time::Duration;

use async_trait::async_trait;
use longshore::{Effect, SqlValue};

use crate::definition::Candidates;

pub use database_rows::{DatabaseRows, OpenMode};
pub(crate) use fingerprint::require_database;
pub use fingerprint::{DatabaseFingerprint, is_same_database};
pub use open::{Sources, has_password, open};
pub use priority_pass::PriorityPass;

/// A database that contains the rows of a batch.
#[async_trait]
pub trait RowSource: Send + Sync + 'static {
    /// The columns and parameters of a statement, without running it.
    async fn describe(&self, sql: &str) -> Result<StatementInfo, SourceError>;

    /// The number of candidates.
    async fn count(&self, candidates: &Candidates) -> Result<u64, SourceError>;

    /// The next candidates in key order, starting at the key `from` *inclusive* (so that a
    /// duplicate key is noticed across pages), or at the first.
    async fn candidates(
        &self,
        candidates: &Candidates,
        from: Option<&SqlValue>,
        limit: u32,
    ) -> Result<Vec<Candidate>, SourceError>;

    /// The candidates of one priority level, for [`Self::candidates`]. `None` if the source cannot
    /// select them: then all rows are read in key order.
    fn in_pass(&self, _candidates: &Candidates, _pass: PriorityPass) -> Option<Candidates> {
        None
    }

    /// Runs a query.
    async fn fetch(&self, sql: &str, params: &[(String, SqlValue)]) -> Result<Vec<Row>, SourceError>;

    /// Runs the effects in one transaction.
    async fn apply(&self, effects: &[Effect]) -> Result<(), SourceError>;

    /// What identifies the database; `None` if it does not tell.
    async fn fingerprint(&self) -> Result<Option<DatabaseFingerprint>, SourceError> {
        Ok(None)
    }

    /// How long to wait before a call that failed with a retryable error is repeated.
    fn retry_delay(&self) -> Duration {
        RETRY_DELAY
    }
}

/// The delay after a lock or a deadlock, and the shortest one after an outage.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The description of a statement.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StatementInfo {
    /// Its columns' names.
    pub columns: Vec<String>,
    /// Its parameters' names, without the colon.
    pub params: Vec<String>,
    /// Whether it changes nothing.
    pub read_only: bool,
}

/// A row of the candidates' query.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Its key.
    pub key: SqlValue,
    /// Its priority as in the database, if the definition names a column.
    pub priority: Option<SqlValue>,
}

/// One row of a query.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Row {
    /// Names and values in order.
    pub columns: Vec<(String, SqlValue)>,
}

/// An error of the rows' database.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The database is unreachable, shuts down, has no free connection or disk space, or is read-only.
    #[error("the database cannot be reached: {0}")]
    Unavailable(String),
    /// Another transaction holds a lock for too long, or a deadlock ended the statement.
    #[error("the database is busy: {0}")]
    Busy(String),
    /// The statement reached a time limit of the database, or an operator cancelled it.
    #[error("the statement took too long: {0}")]
    TimedOut(String),
    /// The database rejects the statement.
    #[error("{message}")]
    Statement {
        /// The database's message.
        message: String,
        /// The byte offset in the statement, if the database reports one.
        offset: Option<usize>,
    },
    /// The URL names another database than that of the batch.
    #[error("the batch's rows are in {expected}, but `database` names {found} here")]
    WrongDatabase {
        /// The batch's database.
        expected: String,
        /// The URL's database.
        found: String,
    },
    /// A row or parameter is invalid: a constraint, a type, a row count.
    #[error("{0}")]
    Data(String),
}

impl SourceError {
    /// A statement that is rejected, without a place.
    fn statement(message: &str) -> Self {
        Self::Statement { message: message.to_owned(), offset: None }
    }

    /// Whether rows wait, without an attempt: neither the row nor its statement failed.
    pub fn puts_rows_off(&self) -> bool {
        self.is_retryable() || matches!(self, Self::WrongDatabase { .. })
    }

    /// Whether the database and not the row or statement failed, so that a retry may help.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unavailable(_) | Self::Busy(_) | Self::TimedOut(_) => true,
            Self::Statement { .. } | Self::WrongDatabase { .. } | Self::Data(_) => false,
        }
    }
}
