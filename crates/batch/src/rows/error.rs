//! Maps a driver's errors to what the caller can do about them.

use longshore_databases::{Connection, DbError, Dialect, ErrorClass, Reason};

use super::SourceError;
use super::placeholders::{self, PositionalStatement};
use crate::sql;

/// Why a call failed, and what became of its connection.
pub(super) struct CallError {
    pub(super) error: SourceError,
    /// The connection was lost.
    pub(super) is_lost: bool,
    /// The connection was lost after a statement of the caller was sent.
    pub(super) is_sent: bool,
    /// The connection must not be used any more.
    pub(super) is_broken: bool,
}

impl From<SourceError> for CallError {
    fn from(error: SourceError) -> Self {
        Self { error, is_lost: false, is_sent: false, is_broken: false }
    }
}

impl CallError {
    /// No row caused that a server gives no usable session: the database is away.
    pub(super) fn of_connecting(self) -> Self {
        let error = match self.error {
            SourceError::TimedOut(why)
            | SourceError::Busy(why)
            | SourceError::Data(why)
            | SourceError::Statement { message: why, .. } => SourceError::Unavailable(why),
            error => error,
        };
        Self { error, ..self }
    }

    /// Adds the SQL of an effect.
    pub(super) fn with_statement(self, sql: &str) -> Self {
        Self { error: placeholders::with_statement(sql, self.error), ..self }
    }
}

/// An error of a connection, or in the middle of a transaction.
pub(super) fn of_call(error: DbError) -> CallError {
    let class = error.class();
    of_class(class, error, None)
}

/// An error of a statement.
pub(super) fn of_statement(
    db: &dyn Connection,
    statement: &PositionalStatement,
    mut error: DbError,
) -> CallError {
    let class = error.class();
    if class != ErrorClass::Statement {
        return of_class(class, error, None);
    }
    if db.numbers_parameters() {
        error.message = name_parameters(statement, error.message);
        let is_syntax = error.code.as_deref() == Some("42601");
        if is_syntax && sql::significant_tokens(&statement.sql).any(|token| token.text == "?") {
            return SourceError::statement("a parameter has no name: write `:name`, not `?`").into();
        }
    }
    let offset = match error.position {
        Some(at) => statement.original_offset(at),
        None => offset_in_message(db.dialect(), statement, &error.message),
    };
    of_class(class, error, offset)
}

/// An error of a statement that writes: after a failover the server may be a standby.
pub(super) fn of_write(db: &dyn Connection, statement: &PositionalStatement, error: DbError) -> CallError {
    if error.is_read_only() {
        return of_class(ErrorClass::Unavailable, error, None);
    }
    of_statement(db, statement, error)
}

/// A transaction that does not begin, as on a standby. No row caused that.
pub(super) fn of_begin(error: DbError) -> CallError {
    let class = match error.class() {
        ErrorClass::Statement | ErrorClass::Data => ErrorClass::Unavailable,
        class => class,
    };
    of_class(class, error.unsent(), None)
}

/// A transaction that is not committed.
pub(super) fn of_commit(error: DbError) -> CallError {
    let class = if error.is_read_only() { ErrorClass::Unavailable } else { error.class() };
    of_class(class, error, None)
}

fn of_class(class: ErrorClass, error: DbError, offset: Option<usize>) -> CallError {
    let (is_lost, is_sent, is_broken) = (error.reason == Reason::Lost, error.sent, error.is_broken());
    let message = error.message;
    let error = match class {
        ErrorClass::Unavailable => SourceError::Unavailable(message),
        ErrorClass::Busy => SourceError::Busy(message),
        ErrorClass::TimedOut => SourceError::TimedOut(message),
        ErrorClass::Statement => SourceError::Statement { message, offset },
        ErrorClass::Data => SourceError::Data(message),
    };
    CallError { error, is_lost, is_sent, is_broken }
}

/// The server's message with the user's names instead of placeholders, and a hint if the server
/// could not infer a type.
fn name_parameters(statement: &PositionalStatement, message: String) -> String {
    let Some((before, after)) = message.split_once("parameter $") else { return message };
    let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
    let name = after[..digits].parse().ok().and_then(|mark| statement.placeholder_name(mark));
    let Some(name) = name else { return message };
    let hint = format!("write its type, as in `{name}::text`");
    format!("{before}parameter {name}{}; {hint}", &after[digits..])
}

/// The offset of the mistake, for databases that only describe it.
fn offset_in_message(dialect: Dialect, statement: &PositionalStatement, message: &str) -> Option<usize> {
    // MySQL: `near '…'` begins with the mistake.
    if let Some((_, rest)) = message.split_once(" near '").filter(|_| dialect == Dialect::Mysql) {
        let near = rest.rsplit_once("' at line").map_or(rest, |(near, _)| near);
        return statement.original_offset(statement.sql.find(near).filter(|_| !near.is_empty())?);
    }
    statement.offset_of_name(missing_name(message)?)
}

/// The missing name in a message: in quotes, or after `no such …:`.
fn missing_name(message: &str) -> Option<&str> {
    if let Some((_, name)) = message.split_once("no such ").and_then(|(_, of)| of.split_once(": ")) {
        return name.split_whitespace().next();
    }
    message.split(['"', '\'', '`']).nth(1)
}
