//! Rules for all databases behind a driver: which statements may run, which keys are valid, how
//! errors of effects read.

use longshore::SqlValue;

use crate::definition::Candidates;
use crate::rows::SourceError;
use crate::sql::{self, TokenKind};
use crate::sql_json::from_json;

/// Whether a statement begins with a keyword that reads rows and has no keyword that changes them:
/// in PostgreSQL a WITH may.
pub(in crate::rows) fn is_read(sql: &str) -> bool {
    let changing = ["INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE"];
    match sql::verb(sql).as_deref() {
        Some("SELECT" | "VALUES") => true,
        Some("WITH") => {
            let mut tokens = sql::significant_tokens(sql).peekable();
            while let Some(token) = tokens.next() {
                let word = token.text.to_uppercase();
                let changes = token.kind == TokenKind::Word && changing.contains(&&*word);
                // `replace(…)` is also a function.
                let is_call = word == "REPLACE" && tokens.peek().is_some_and(|next| next.text == "(");
                if changes && !is_call {
                    return false;
                }
            }
            true
        }
        _ => false,
    }
}

/// Whether a statement begins with a keyword that changes rows.
pub(in crate::rows) fn is_write(sql: &str) -> bool {
    let verbs = ["INSERT", "UPDATE", "DELETE", "REPLACE", "MERGE", "WITH"];
    sql::verb(sql).is_some_and(|verb| verbs.contains(&verb.as_str()))
}

/// The error for a statement that is no query.
pub(in crate::rows) fn not_a_read_error() -> SourceError {
    SourceError::statement("only a SELECT may stand here")
}

/// The parameters of the candidates' SQL.
pub(in crate::rows) fn candidate_params(candidates: &Candidates) -> Vec<(String, SqlValue)> {
    candidates.params.iter().map(|(name, value)| (name.clone(), from_json(value))).collect()
}

/// The key, if it identifies a row.
pub(in crate::rows) fn check_key(value: SqlValue, column: &str) -> Result<SqlValue, SourceError> {
    let invalid_key = |what| Err(SourceError::Data(format!("the key column `{column}` {what}")));
    match value {
        SqlValue::Null => invalid_key("is NULL in a row: a key must name its row"),
        SqlValue::Blob(_) => invalid_key("holds bytes: a key must be a number or text"),
        key => Ok(key),
    }
}

/// The index, from 0, of the column `name` of the candidates' SQL.
pub(in crate::rows) fn column_index<'n>(
    mut names: impl Iterator<Item = &'n str>,
    name: &str,
) -> Result<usize, SourceError> {
    names
        .position(|known| known == name)
        .ok_or_else(|| SourceError::statement(&format!("the candidates have no column `{name}`")))
}

/// Adds the effect's SQL to its error: a row may have several effects.
pub(in crate::rows) fn with_statement(sql: &str, error: SourceError) -> SourceError {
    match error {
        SourceError::Data(message) => SourceError::Data(format!("{message}: {sql}")),
        SourceError::Statement { message, offset } => {
            SourceError::Statement { message: format!("{message}: {sql}"), offset }
        }
        error => error,
    }
}

/// Checks the number of rows that an effect changed.
pub(in crate::rows) fn check_row_count(expected: Option<u64>, changed: u64) -> Result<(), SourceError> {
    match expected {
        Some(expected) if expected != changed => {
            Err(SourceError::Data(format!("changed {changed} rows instead of {expected}")))
        }
        _ => Ok(()),
    }
}
