//! Database errors as data: in a [`CallError`] they are the `data` of a handler's error.

use serde::{Deserialize, Serialize};

use crate::error::{CallError, ErrorKind, OperationError};

/// A database error. Callers get it from their [`CallError`] by [`DbError::of`].
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
    /// A statement of the caller had been sent when the connection was lost.
    #[serde(skip)]
    pub(super) sent: bool,
    /// The connection cannot be used any more, whatever the reason is.
    #[serde(skip)]
    pub(super) broken: bool,
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
    /// The database error in a call's error, if it contains one.
    pub fn of(error: &CallError) -> Option<Self> {
        let ErrorKind::Handler { message, data: Some(data), .. } = &error.kind else { return None };
        let found = Self::deserialize(data).ok()?;
        Some(Self { message: message.clone(), ..found })
    }

    pub(super) fn new(reason: Reason, message: impl Into<String>) -> Self {
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
            sent: false,
            broken,
        }
    }

    /// The connection was lost after a statement was sent.
    pub(super) fn lost(message: impl Into<String>) -> Self {
        Self { sent: true, outcome_unknown: true, ..Self::new(Reason::Lost, message) }
    }

    pub(super) fn code(mut self, code: impl Into<String>) -> Self {
        let code = code.into();
        self.retryable |= is_transient(&code);
        self.code = Some(code);
        self
    }

    pub(super) fn native(mut self, native: i64) -> Self {
        self.native = Some(native);
        self
    }

    /// Marks that the connection was lost before a statement of the caller was sent.
    pub(super) fn unsent(mut self) -> Self {
        (self.sent, self.outcome_unknown) = (false, false);
        self
    }

    /// Marks that the transaction was not committed, so nothing took effect.
    pub(super) fn undone(mut self) -> Self {
        self.outcome_unknown = false;
        self
    }

    /// Marks that the statement did not stop, and that the connection is dropped with it.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(super) fn stuck(mut self) -> Self {
        (self.broken, self.outcome_unknown) = (true, true);
        self
    }

    /// Sets the index of the statement in a transaction.
    pub(super) fn at(mut self, statement: usize) -> Self {
        self.statement.get_or_insert(statement);
        self
    }
}

/// Whether the condition of a SQLSTATE is transient: connections, deadlocks, missing resources, an
/// operator's intervention, a lock.
fn is_transient(code: &str) -> bool {
    let class = code.get(..2).unwrap_or_default();
    ["08", "40", "53", "57", "58"].contains(&class) || code == "55P03"
}

impl From<DbError> for OperationError {
    fn from(error: DbError) -> Self {
        let data = serde_json::to_value(&error).ok();
        Self(ErrorKind::Handler { message: error.message, chain: Vec::new(), data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_comes_through_a_call_as_it_was() {
        let error = DbError::new(Reason::Sql, "twice").code("23505").native(2067).at(1);
        let OperationError(kind) = error.clone().into();
        let call = CallError { pool: "db".to_owned(), operation: "db.do".to_owned(), kind, worker: None };
        assert_eq!(DbError::of(&call), Some(error));
        let other = CallError { kind: ErrorKind::ShuttingDown, ..call };
        assert_eq!(DbError::of(&other), None);
    }

    #[test]
    fn what_passes_may_be_tried_again() {
        let sql = |code| DbError::new(Reason::Sql, "").code(code).retryable;
        assert!(["40001", "40P01", "55P03", "08006", "53300"].into_iter().all(sql));
        assert!(!["23505", "42601", "", "é"].into_iter().any(sql));
    }
}
