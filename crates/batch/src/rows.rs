//! Where rows come from: the seam to operational tables.
//!
//! A source reads candidates in key order, reads what PRE asks for, and runs POST's SQL where that
//! cannot commit with the row's end. It knows nothing of batches. One file per database.

#[cfg(any(feature = "mysql", feature = "odbc"))]
mod foreign;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "odbc")]
mod odbc;
mod open;
#[cfg(any(feature = "mysql", feature = "odbc", feature = "postgres"))]
#[cfg_attr(
    not(all(feature = "mysql", feature = "odbc", feature = "postgres")),
    allow(dead_code, unused_imports, reason = "each driver uses its part")
)]
mod positional;
#[cfg(feature = "postgres")]
mod postgres;
pub mod seed;
mod sqlite;

use async_trait::async_trait;
use longshore::{Effect, SqlValue};

use crate::definition::Candidates;

#[cfg(feature = "mysql")]
pub use mysql::MysqlRows;
#[cfg(feature = "odbc")]
pub use odbc::OdbcRows;
pub use open::{Sources, open};
#[cfg(feature = "postgres")]
pub use postgres::PostgresRows;
pub use sqlite::{OpenMode, SqliteRows};

/// A database with the rows of a batch.
#[async_trait]
pub trait RowSource: Send + Sync + 'static {
    /// What a statement would return and wants bound, without running it.
    async fn describe(&self, sql: &str) -> Result<Described, SourceError>;

    /// How many candidates there are.
    async fn count(&self, candidates: &Candidates) -> Result<u64, SourceError>;

    /// The next candidates in key order: from `from` on (that key *included*, so that a key that
    /// comes twice is noticed across pages), or from the first.
    async fn candidates(
        &self,
        candidates: &Candidates,
        from: Option<&SqlValue>,
        limit: u32,
    ) -> Result<Vec<Candidate>, SourceError>;

    /// All rows of a query.
    async fn fetch(
        &self,
        sql: &str,
        params: &[(String, SqlValue)],
    ) -> Result<Vec<Row>, SourceError>;

    /// Runs all effects in one transaction, or none.
    async fn apply(&self, effects: &[Effect]) -> Result<(), SourceError>;
}

/// What a statement is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Described {
    /// Its columns' names.
    pub columns: Vec<String>,
    /// Its parameters' names, without the colon.
    pub params: Vec<String>,
    /// Whether it only reads.
    pub reads_only: bool,
}

/// A row that is to be worked on.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Its key.
    pub key: SqlValue,
    /// Its priority as the database has it, if a column is named.
    pub priority: Option<SqlValue>,
}

/// One row of a query.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Names and values in order.
    pub columns: Vec<(String, SqlValue)>,
}

/// What a database could not do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// It cannot be reached, or is busy: later may be better.
    #[error("the database cannot be reached: {0}")]
    Away(String),
    /// It does not accept the statement.
    #[error("{message}")]
    Statement {
        /// What the database says.
        message: String,
        /// Where in the statement, as a byte offset, if it says.
        offset: Option<usize>,
    },
    /// A row or parameter is not as it should be: a constraint, a type, a number of rows.
    #[error("{0}")]
    Data(String),
}

impl SourceError {
    /// Whether trying again may help.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Away(_) => true,
            Self::Statement { .. } | Self::Data(_) => false,
        }
    }
}
