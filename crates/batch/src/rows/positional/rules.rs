//! Rules that hold for every database that is reached through a driver: what may be read and
//! written at all, what a key is, how errors of effects read.

use longshore::SqlValue;

use crate::definition::Candidates;
use crate::rows::SourceError;
use crate::sql::{self, TokenKind};
use crate::value::from_json;

/// Whether a statement begins as one that reads rows, and says nothing of changing any: in
/// PostgreSQL a WITH may.
pub(in crate::rows) fn reads(sql: &str) -> bool {
    let changing = ["INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE"];
    match sql::verb(sql).as_deref() {
        Some("SELECT" | "VALUES") => true,
        Some("WITH") => !sql::significant(sql).any(|token| {
            token.kind == TokenKind::Word && changing.contains(&&*token.text.to_uppercase())
        }),
        _ => false,
    }
}

/// Whether a statement begins as one that changes rows.
pub(in crate::rows) fn changes(sql: &str) -> bool {
    let verbs = ["INSERT", "UPDATE", "DELETE", "REPLACE", "MERGE", "WITH"];
    sql::verb(sql).is_some_and(|verb| verbs.contains(&verb.as_str()))
}

/// The error of a read that would change something.
pub(in crate::rows) fn not_a_read() -> SourceError {
    let message = "only a SELECT may stand here".to_owned();
    SourceError::Statement { message, offset: None }
}

/// The values of a candidates' SQL.
pub(in crate::rows) fn params(candidates: &Candidates) -> Vec<(String, SqlValue)> {
    candidates.params.iter().map(|(name, value)| (name.clone(), from_json(value))).collect()
}

/// A candidate's key, if it names a row.
pub(in crate::rows) fn key(value: SqlValue, column: &str) -> Result<SqlValue, SourceError> {
    let refuse = |what| Err(SourceError::Data(format!("the key column `{column}` {what}")));
    match value {
        SqlValue::Null => refuse("is NULL in a row: a key must name its row"),
        SqlValue::Blob(_) => refuse("holds bytes: a key must be a number or text"),
        key => Ok(key),
    }
}

/// The number of the column that a candidates' SQL calls `name`, from 0.
pub(in crate::rows) fn column<'n>(
    mut names: impl Iterator<Item = &'n str>,
    name: &str,
) -> Result<usize, SourceError> {
    names.position(|known| known == name).ok_or_else(|| {
        let message = format!("the candidates have no column `{name}`");
        SourceError::Statement { message, offset: None }
    })
}

/// Says which effect an error is about: people have several.
pub(in crate::rows) fn about(sql: &str, error: SourceError) -> SourceError {
    match error {
        SourceError::Data(words) => SourceError::Data(format!("{words}: {sql}")),
        SourceError::Statement { message, offset } => {
            SourceError::Statement { message: format!("{message}: {sql}"), offset }
        }
        SourceError::Away(_) => error,
    }
}

/// Whether an effect changed as many rows as it must.
pub(in crate::rows) fn expect(expected: Option<u64>, changed: u64) -> Result<(), SourceError> {
    match expected {
        Some(expected) if expected != changed => {
            Err(SourceError::Data(format!("changed {changed} rows instead of {expected}")))
        }
        _ => Ok(()),
    }
}
