//! Rewrites statements that PostgreSQL and our tokeniser read alike.

use crate::rows::SourceError;
use crate::rows::placeholders::{PlaceholderStyle, PositionalStatement};
use crate::sql;

/// One statement of the user.
pub(super) fn of(sql: &str) -> Result<PositionalStatement, SourceError> {
    around("", sql, "")
}

/// One statement of the user between `head` and `tail`, which are ours.
pub(super) fn around(head: &str, sql: &str, tail: &str) -> Result<PositionalStatement, SourceError> {
    reject_dollar_parameters(sql)?;
    PositionalStatement::around(PlaceholderStyle::DollarNumber, head, sql, tail)
}

/// A quoted identifier.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Rejects `$1`, which would clash with our own placeholders.
fn reject_dollar_parameters(sql: &str) -> Result<(), SourceError> {
    let mut tokens = sql::tokens(sql).peekable();
    while let Some(token) = tokens.next() {
        let next = tokens.peek().map_or("", |next| next.text);
        if token.text == "$" && next.starts_with(|c: char| c.is_ascii_digit()) {
            let message = format!("a parameter has no name: write `:name`, not `${next}`");
            return Err(SourceError::Statement { message, offset: Some(token.at) });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use longshore::SqlValue;

    use super::*;

    #[test]
    fn uses_of_one_name_are_one_parameter() {
        let sql = "SELECT :a::text, b ? 'x', $$ :c $1 $$, E'it\\'s :d' WHERE :b = :a";
        let statement = of(sql).unwrap();
        let expected = "SELECT $1::text, b ? 'x', $$ :c $1 $$, E'it\\'s :d' WHERE $2 = $1";
        assert_eq!(statement.sql, expected);
        assert_eq!(statement.names().unwrap(), ["a", "b"]);
        let values = [("b".to_owned(), SqlValue::Int(2)), ("a".to_owned(), SqlValue::Int(1))];
        assert_eq!(statement.named(&values).unwrap(), [&SqlValue::Int(1), &SqlValue::Int(2)]);
        assert_eq!(statement.placeholder_name(2).as_deref(), Some(":b"));
    }

    #[test]
    fn marks_that_look_like_ours_are_refused_at_their_place() {
        let SourceError::Statement { message, offset } = of("SELECT $1").unwrap_err() else {
            panic!("another error");
        };
        assert_eq!((message.contains("not `$1`"), offset), (true, Some(7)));
    }
}
