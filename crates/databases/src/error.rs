//! Database errors: what happened, what may help, and whether the connection survived.

use serde::{Deserialize, Serialize};

/// A database error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct DbError {
    /// The category of the error.
    pub reason: Reason,
    /// SQLSTATE, such as `23505`: the server's own; for SQLite the one that PostgreSQL would
    /// report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The database's own error number, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<i64>,
    /// In a transaction: the index of the statement, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statement: Option<usize>,
    /// It is unknown whether the statement took effect: the connection was lost after it was sent.
    #[serde(default)]
    pub outcome_unknown: bool,
    /// A later retry may succeed.
    #[serde(default)]
    pub retryable: bool,
    /// The database's message.
    #[serde(skip)]
    pub message: String,
    /// The byte offset of the mistake in the statement, if the database reports one.
    #[serde(skip)]
    pub position: Option<usize>,
    /// A statement of the caller had been sent when the connection was lost.
    #[serde(skip)]
    pub sent: bool,
    /// The database rejected the statement before it ran.
    #[serde(skip)]
    pub(crate) rejected: bool,
    /// The class, where the code does not tell it.
    #[serde(skip)]
    pub(crate) class: Option<ErrorClass>,
    /// The connection cannot be used any more, whatever the reason is.
    #[serde(skip)]
    pub(crate) broken: bool,
}

/// What failed, and so what may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// The database is unreachable, shuts down, or lacks a resource.
    Unavailable,
    /// Another transaction holds a lock for too long, or a deadlock ended the statement.
    Busy,
    /// The statement reached a time limit, or was cancelled.
    TimedOut,
    /// The database rejects the statement, whatever the values are.
    Statement,
    /// The values or the rows are at fault.
    Data,
}

/// The category of a database error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// The database rejected the statement: see the code.
    Sql,
    /// The connection was lost during the statement.
    Lost,
    /// No connection could be made.
    Unreachable,
    /// The statement took too long, and was stopped.
    TimeLimit,
    /// The caller cancelled the call, and the statement was stopped.
    Cancelled,
    /// More rows than the limit.
    RowLimit,
    /// More bytes than the limit.
    SizeLimit,
    /// A statement changed another number of rows than expected.
    ExpectedRows,
    /// The pool does not allow such a statement.
    Refused,
}

impl DbError {
    /// An error. Whether it is retryable depends on the reason, and on the code that is added.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        let retryable = match reason {
            Reason::Unreachable | Reason::Lost | Reason::TimeLimit => true,
            Reason::Sql
            | Reason::Cancelled
            | Reason::RowLimit
            | Reason::SizeLimit
            | Reason::ExpectedRows
            | Reason::Refused => false,
        };
        let broken = reason == Reason::Lost;
        Self {
            reason,
            code: None,
            native: None,
            statement: None,
            outcome_unknown: false,
            retryable,
            message: message.into(),
            position: None,
            sent: false,
            rejected: false,
            class: None,
            broken,
        }
    }

    /// What failed.
    pub fn class(&self) -> ErrorClass {
        if let Some(class) = self.class {
            return class;
        }
        let code = self.code.as_deref().unwrap_or_default();
        match (code, self.reason) {
            (QUERY_CANCELLED, _) | (_, Reason::TimeLimit | Reason::Cancelled) => ErrorClass::TimedOut,
            _ if BUSY_CODES.contains(&code) || code.starts_with("40") => ErrorClass::Busy,
            (_, Reason::Lost | Reason::Unreachable) => ErrorClass::Unavailable,
            (_, Reason::Sql) if is_outage(code) => ErrorClass::Unavailable,
            (_, Reason::Sql) if self.rejected || code.starts_with("42") => ErrorClass::Statement,
            _ => ErrorClass::Data,
        }
    }

    /// Whether the database refuses to write: it is a standby, or the file is read-only.
    pub fn is_read_only(&self) -> bool {
        self.code.as_deref() == Some("25006")
    }

    /// Whether the connection must not be used any more.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Marks that the connection must not be used any more.
    #[must_use]
    pub fn on_broken_connection(mut self) -> Self {
        self.broken = true;
        self
    }

    /// The error of a statement that exceeded its deadline.
    pub fn timeout() -> Self {
        Self::new(Reason::TimeLimit, "stopped: the statement exceeded its time limit").code(QUERY_CANCELLED)
    }

    /// The connection was lost after a statement was sent.
    pub(crate) fn lost(message: impl Into<String>) -> Self {
        Self { sent: true, outcome_unknown: true, ..Self::new(Reason::Lost, message) }
    }

    pub(crate) fn code(mut self, code: impl Into<String>) -> Self {
        let code = code.into();
        self.retryable |= is_transient(&code);
        self.code = Some(code);
        self
    }

    pub(crate) fn native(mut self, native: i64) -> Self {
        self.native = Some(native);
        self
    }

    pub(crate) fn with_class(mut self, class: Option<ErrorClass>) -> Self {
        self.class = class;
        self
    }

    /// Marks that the database rejected the statement before it ran.
    pub(crate) fn rejected(mut self) -> Self {
        self.rejected = true;
        self
    }

    /// Marks that the connection was lost before a statement of the caller was sent.
    #[must_use]
    pub fn unsent(mut self) -> Self {
        (self.sent, self.outcome_unknown) = (false, false);
        self
    }

    /// Marks that the transaction was not committed, so nothing took effect.
    #[must_use]
    pub fn undone(mut self) -> Self {
        self.outcome_unknown = false;
        self
    }

    /// Marks that the statement did not stop, and that the connection is dropped with it.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) fn stuck(mut self) -> Self {
        (self.broken, self.outcome_unknown) = (true, true);
        self
    }

    /// Sets the index of the statement in a transaction.
    #[must_use]
    pub fn at(mut self, statement: usize) -> Self {
        self.statement.get_or_insert(statement);
        self
    }

    /// Names the statement that failed, when it is not the caller's.
    pub(crate) fn of_statement(self, sql: &str) -> Self {
        Self { message: format!("{sql}: {}", self.message), ..self }
    }
}

/// The SQLSTATE of a statement that reached a time limit of the server, or was cancelled.
const QUERY_CANCELLED: &str = "57014";
/// SQLSTATEs of locks, beside class 40, rollback by deadlock: not available; Db2's; a transaction that was idle too long.
const BUSY_CODES: [&str; 3] = ["55P03", "57033", "25P03"];

/// Whether a SQLSTATE is of a class of outages: connections, missing resources, an operator's intervention, system errors.
fn is_outage(code: &str) -> bool {
    ["08", "53", "57", "58"].contains(&code.get(..2).unwrap_or_default())
}

/// Whether the condition of a SQLSTATE is transient: connections, deadlocks, missing resources, an
/// operator's intervention, a lock.
fn is_transient(code: &str) -> bool {
    is_outage(code) || code.starts_with("40") || code == "55P03"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_may_be_tried_again() {
        let sql = |code| DbError::new(Reason::Sql, "").code(code).retryable;
        assert!(["40001", "40P01", "55P03", "08006", "53300"].into_iter().all(sql));
        assert!(!["23505", "42601", "", "é"].into_iter().any(sql));
    }
}
