//! What a database could not do, as data: in a [`CallError`] it is the `data` of a handler's error.

use serde::{Deserialize, Serialize};

use crate::error::{CallError, ErrorKind, OperationError};

/// What a database could not do. Callers find it in their [`CallError`] by [`DbError::of`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct DbError {
    /// What sort of trouble it is.
    pub reason: Reason,
    /// SQLSTATE, as `23505`: the server's own; for SQLite the one that PostgreSQL would give.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The database's own number for it, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<i64>,
    /// In a transaction: which statement, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statement: Option<usize>,
    /// Nobody knows whether the statement was done: the connection was lost after it was sent.
    #[serde(default)]
    pub outcome_unknown: bool,
    /// Trying again later may help.
    #[serde(default)]
    pub retryable: bool,
    /// What the database says.
    #[serde(skip)]
    pub message: String,
    /// Something of the caller's had been sent when the connection was lost.
    #[serde(skip)]
    pub(super) sent: bool,
    /// The connection is of no more use, whatever the reason is.
    #[serde(skip)]
    pub(super) broken: bool,
}

/// What sort of trouble it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// The database said no: see its code.
    Sql,
    /// The connection was lost in the middle.
    Lost,
    /// No connection could be made.
    Unreachable,
    /// The statement took too long, and was stopped.
    TimeLimit,
    /// Nobody wants the answer any more; it was stopped.
    Cancelled,
    /// More rows than the limit.
    RowLimit,
    /// More bytes than the limit.
    SizeLimit,
    /// A statement changed another number of rows than it should have.
    ExpectedRows,
    /// We do not pass such a statement on.
    Refused,
}

impl DbError {
    /// What the database could not do, if that is what an error is about.
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
        self.retryable |= passes(&code);
        self.code = Some(code);
        self
    }

    pub(super) fn native(mut self, native: i64) -> Self {
        self.native = Some(native);
        self
    }

    /// The connection was lost before anything of the caller's was sent.
    pub(super) fn unsent(mut self) -> Self {
        (self.sent, self.outcome_unknown) = (false, false);
        self
    }

    /// It was in a transaction that was not committed: nothing has happened.
    pub(super) fn undone(mut self) -> Self {
        self.outcome_unknown = false;
        self
    }

    /// The statement did not end, and the connection is given up with it.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(super) fn stuck(mut self) -> Self {
        (self.broken, self.outcome_unknown) = (true, true);
        self
    }

    /// Says which statement of a transaction it is about.
    pub(super) fn at(mut self, statement: usize) -> Self {
        self.statement.get_or_insert(statement);
        self
    }
}

/// Whether what a SQLSTATE says passes by itself: connections, deadlocks and the like, no room, an
/// operator's word, a lock.
fn passes(code: &str) -> bool {
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
        let call =
            CallError { pool: "db".to_owned(), operation: "db.do".to_owned(), kind, worker: None };
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
