//! Rejects SQL that MySQL tokenises differently from our tokeniser and other databases.
//!
//! Otherwise a value could be bound inside text or a comment, as one of the two sees it. The error
//! names a form that both read alike.

use crate::rows::SourceError;
use crate::sql::{self, Token, TokenKind};

/// Rejects SQL that MySQL tokenises differently.
pub(in crate::rows) fn reject_mysql_quirks(sql: &str) -> Result<(), SourceError> {
    for token in sql::tokens(sql) {
        if let Some(message) = quirk(&token) {
            return Err(SourceError::Statement { message: message.to_owned(), offset: Some(token.at) });
        }
    }
    Ok(())
}

fn quirk(token: &Token<'_>) -> Option<&'static str> {
    match token.kind {
        TokenKind::Text if has_escaped_quote(token.text, b'\'') => {
            Some("a quote after a backslash: write '' for a quote in text")
        }
        TokenKind::Quoted if has_escaped_quote(token.text, b'"') => {
            Some("a quote after a backslash: write \"\" for a quote in a name")
        }
        TokenKind::Comment if token.text.starts_with("/*!") => {
            Some("a comment that MySQL would run: write it without /*! and */")
        }
        TokenKind::Comment if lacks_space(token.text) => Some("MySQL wants a space after -- in a comment"),
        TokenKind::Other if token.text == "#" => Some("comments begin with `-- `, not with #"),
        _ => None,
    }
}

/// Whether an odd number of backslashes precedes a quote.
fn has_escaped_quote(text: &str, quote: u8) -> bool {
    let mut odd = false;
    for byte in text.bytes() {
        if odd && byte == quote {
            return true;
        }
        odd = byte == b'\\' && !odd;
    }
    false
}

/// `--` without a space: MySQL reads two minus signs.
fn lacks_space(comment: &str) -> bool {
    let after = comment.strip_prefix("--").and_then(|rest| rest.chars().next());
    after.is_some_and(|c| !c.is_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_mysql_would_read_differently_is_refused_at_its_place() {
        for (sql, at) in [
            (r"SELECT 'it\'s :x'", 7),
            (r"SELECT 'C:\', :x", 7),
            (r#"SELECT "a\" :x "#, 7),
            ("SELECT 5--3", 8),
            ("SELECT 1 # don't", 9),
            ("SELECT 1 /*! + 1 */", 9),
        ] {
            let SourceError::Statement { offset, .. } = reject_mysql_quirks(sql).unwrap_err() else {
                panic!("{sql}");
            };
            assert_eq!(offset, Some(at), "{sql}");
        }
        for sql in
            [r"SELECT 'a\\', 'b\n', '50\%' -- it's", "SELECT 'it''s' --", "SELECT /*+ hint */ 1 /* a */"]
        {
            assert!(reject_mysql_quirks(sql).is_ok(), "{sql}");
        }
    }
}
