//! What PostgreSQL says, as what the caller can do about it.

use std::error::Error as _;
use std::io;
use std::time::Duration;

use longshore_postgres_address::AddressError;
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, ErrorPosition, SqlState};

use crate::rows::SourceError;
use crate::rows::positional::Positional;
use crate::sql;

/// Classes of SQLSTATE that pass: connections, rollbacks by deadlock, no room, an operator's word,
/// trouble with the machine.
const PASSING: [&str; 5] = ["08", "40", "53", "57", "58"];

/// A URL that is none, or that names what is not there. It says so without the password.
pub(super) fn of_address(error: AddressError) -> SourceError {
    SourceError::Data(error.to_string())
}

/// A server that does not let us in. Somebody may start it, or put the password right.
pub(super) fn of_connect(server: &str, error: &Error) -> SourceError {
    SourceError::Away(format!("{server}: {}", words(error)))
}

/// A server that does not answer at all.
pub(super) fn silent(server: &str, patience: Duration) -> SourceError {
    SourceError::Away(format!("{server} did not answer within {} s", patience.as_secs()))
}

/// Whether a connection was closed by the other side: by a word of farewell or without one.
pub(super) fn was_closed(error: &Error) -> bool {
    match error.as_db_error() {
        Some(told) => *told.code() == SqlState::ADMIN_SHUTDOWN,
        None => {
            let io = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
            error.is_closed() || io.is_some()
        }
    }
}

/// A statement that the server does not accept, or that failed while it ran.
pub(super) fn of_statement(statement: &Positional, error: &Error) -> SourceError {
    let Some(told) = error.as_db_error().filter(|told| !passes(told)) else { return of_run(error) };
    if *told.code() == SqlState::SYNTAX_ERROR && asks(&statement.sql) {
        let message = "a parameter has no name: write `:name`, not `?`".to_owned();
        return SourceError::Statement { message, offset: None };
    }
    if told.code().code().starts_with("42") {
        let message = about_parameters(statement, told);
        return SourceError::Statement { message, offset: place(statement, told) };
    }
    of_run(error)
}

/// What failed beside any statement, or in the middle of one.
pub(super) fn of_run(error: &Error) -> SourceError {
    match error.as_db_error() {
        Some(told) if !passes(told) => SourceError::Data(words(error)),
        _ => SourceError::Away(words(error)),
    }
}

/// A value that is not what was asked for.
pub(super) fn of_value(error: Error) -> SourceError {
    SourceError::Data(words(&error))
}

/// Whether the server, not the statement, is to blame, and later may be better.
fn passes(error: &DbError) -> bool {
    let code = error.code();
    PASSING.iter().any(|class| code.code().starts_with(class))
        || *code == SqlState::LOCK_NOT_AVAILABLE
}

fn words(error: &Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(told), _) => words_of(told),
        (None, Some(cause)) => cause.to_string(),
        (None, None) => error.to_string(),
    }
}

/// Whether somebody wrote `?` for a parameter, or for an operator.
fn asks(sql: &str) -> bool {
    sql::significant(sql).any(|token| token.text == "?")
}

/// The server's words, with the user's names for our marks, and a way out where the server could not
/// find out a type.
fn about_parameters(statement: &Positional, error: &DbError) -> String {
    let message = words_of(error);
    let Some((before, after)) = message.split_once("parameter $") else { return message };
    let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
    let name = after[..digits].parse().ok().and_then(|mark| statement.written(mark));
    let Some(name) = name else { return message };
    let way = format!("write its type, as in `{name}::text`");
    format!("{before}parameter {name}{}; {way}", &after[digits..])
}

fn words_of(error: &DbError) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.message()),
        None => error.message().to_owned(),
    }
}

/// Where the mistake is, in the user's text. The server counts characters, from 1.
fn place(statement: &Positional, error: &DbError) -> Option<usize> {
    let Some(ErrorPosition::Original(at)) = error.position() else { return None };
    let at = usize::try_from(*at).ok()?.checked_sub(1)?;
    let (at, _) = statement.sql.char_indices().nth(at)?;
    statement.place(at)
}
