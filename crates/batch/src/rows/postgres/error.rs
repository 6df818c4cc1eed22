//! Maps PostgreSQL's errors to what the caller can do about them.

use std::error::Error as _;
use std::io;
use std::time::Duration;

use longshore_postgres_url::UrlError;
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, ErrorPosition, SqlState};

use crate::rows::SourceError;
use crate::rows::placeholders::PositionalStatement;
use crate::sql;

/// SQLSTATE classes of an unavailable server: connection errors, lack of resources, operator
/// intervention, system errors.
const UNAVAILABLE_CLASSES: [&str; 4] = ["08", "53", "57", "58"];
/// The SQLSTATE class of transactions that are rolled back by a deadlock or a conflict.
const ROLLBACK_CLASS: &str = "40";

/// An invalid URL, or one that names a missing file. The message has no password.
pub(super) fn of_url(error: UrlError) -> SourceError {
    SourceError::Data(error.to_string())
}

/// A failed connection attempt. Retryable: the server may be started or its password corrected.
pub(super) fn of_connect(server: &str, error: &Error) -> SourceError {
    SourceError::Unavailable(format!("{server}: {}", message(error)))
}

/// A connection on which the server does not answer: it hangs, or the network lost the connection.
pub(super) fn no_answer(server: &str, timeout: Duration) -> SourceError {
    SourceError::Unavailable(format!("{server} did not answer within {} s", timeout.as_secs()))
}

/// A transaction that takes too long, as when another one holds its locks.
pub(super) fn too_slow(limit: Duration) -> SourceError {
    SourceError::Busy(format!("the transaction did not end within {} s", limit.as_secs()))
}

/// Whether the server closed the connection, with or without an error message.
pub(super) fn was_closed(error: &Error) -> bool {
    match error.as_db_error() {
        Some(db_error) => *db_error.code() == SqlState::ADMIN_SHUTDOWN,
        None => {
            let io = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
            error.is_closed() || io.is_some()
        }
    }
}

/// A statement that the server rejects, or that failed when it ran.
pub(super) fn of_statement(statement: &PositionalStatement, error: &Error) -> SourceError {
    let Some(db_error) = error.as_db_error().filter(|db_error| transient(db_error).is_none()) else {
        return of_run(error);
    };
    if *db_error.code() == SqlState::SYNTAX_ERROR && has_question_mark(&statement.sql) {
        let message = "a parameter has no name: write `:name`, not `?`".to_owned();
        return SourceError::Statement { message, offset: None };
    }
    if db_error.code().code().starts_with("42") {
        let message = name_parameters(statement, db_error);
        return SourceError::Statement { message, offset: offset(statement, db_error) };
    }
    of_run(error)
}

/// An error outside of a statement, or in the middle of one.
pub(super) fn of_run(error: &Error) -> SourceError {
    let message = message(error);
    match error.as_db_error().map(transient) {
        None => SourceError::Unavailable(message),
        Some(Some(transient)) => transient(message),
        Some(None) => SourceError::Data(message),
    }
}

/// A transaction that does not begin, as on a standby. No row caused that.
pub(super) fn of_begin(error: &Error) -> SourceError {
    SourceError::Unavailable(message(error))
}

/// An error of a statement that writes: after a failover the server may be a standby.
pub(super) fn of_write(statement: &PositionalStatement, error: &Error) -> SourceError {
    match error.code() {
        Some(code) if *code == SqlState::READ_ONLY_SQL_TRANSACTION => {
            SourceError::Unavailable(message(error))
        }
        _ => of_statement(statement, error),
    }
}

/// A value that cannot be read as the requested type.
pub(super) fn of_value(error: Error) -> SourceError {
    SourceError::Data(message(&error))
}

/// The error for the caller if the server and not the statement failed.
fn transient(error: &DbError) -> Option<fn(String) -> SourceError> {
    let code = error.code();
    if *code == SqlState::QUERY_CANCELED {
        return Some(SourceError::TimedOut);
    }
    let busy = [SqlState::LOCK_NOT_AVAILABLE, SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT];
    if busy.contains(code) || code.code().starts_with(ROLLBACK_CLASS) {
        return Some(SourceError::Busy);
    }
    let is_unavailable = UNAVAILABLE_CLASSES.iter().any(|class| code.code().starts_with(class));
    is_unavailable.then_some(SourceError::Unavailable)
}

fn message(error: &Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(db_error), _) => db_message(db_error),
        (None, Some(cause)) => cause.to_string(),
        (None, None) => error.to_string(),
    }
}

/// Whether the statement has a `?`, as a parameter or an operator.
fn has_question_mark(sql: &str) -> bool {
    sql::significant_tokens(sql).any(|token| token.text == "?")
}

/// The server's message with the user's names instead of placeholders, and a hint if the server
/// could not infer a type.
fn name_parameters(statement: &PositionalStatement, error: &DbError) -> String {
    let message = db_message(error);
    let Some((before, after)) = message.split_once("parameter $") else { return message };
    let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
    let name = after[..digits].parse().ok().and_then(|mark| statement.placeholder_name(mark));
    let Some(name) = name else { return message };
    let hint = format!("write its type, as in `{name}::text`");
    format!("{before}parameter {name}{}; {hint}", &after[digits..])
}

fn db_message(error: &DbError) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.message()),
        None => error.message().to_owned(),
    }
}

/// The offset of the mistake in the user's text. The server counts characters, from 1.
fn offset(statement: &PositionalStatement, error: &DbError) -> Option<usize> {
    let Some(ErrorPosition::Original(at)) = error.position() else { return None };
    let at = usize::try_from(*at).ok()?.checked_sub(1)?;
    let (at, _) = statement.sql.char_indices().nth(at)?;
    statement.original_offset(at)
}
