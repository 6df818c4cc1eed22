//! Rewrites the placeholders of effects: `?1` and `:name` become `$1`.
//!
//! Quotes, comments and casts are skipped. A `?` without a number is an operator of PostgreSQL and
//! stays.

use longshore_core::outcome::Params;
use longshore_core::{Effect, SqlValue};

/// The statement with PostgreSQL's placeholders, and its values in order.
pub(super) fn translate(effect: &Effect) -> Result<(String, Vec<&SqlValue>), String> {
    if effect.sql.contains('\0') {
        return Err("an effect cannot hold a zero character".to_owned());
    }
    let mut rewriter =
        PlaceholderRewriter { effect, sql: String::with_capacity(effect.sql.len()), used: vec![] };
    let mut rest = effect.sql.as_str();
    let mut first_word = None;
    while let Some(character) = rest.chars().next() {
        let length = token_len(rest, rewriter.sql.chars().next_back());
        let (token, after) = rest.split_at(length);
        let is_code = !character.is_whitespace() && !is_comment(token);
        if is_code && first_word.is_none() {
            first_word = Some(token);
        }
        rewriter.push(token)?;
        rest = after;
    }
    if !first_word.is_some_and(changes_rows) {
        return Err("an effect may only insert, update or delete".to_owned());
    }
    rewriter.finish()
}

fn changes_rows(word: &str) -> bool {
    let known = ["INSERT", "UPDATE", "DELETE", "MERGE", "WITH"];
    known.iter().any(|known| known.eq_ignore_ascii_case(word))
}

fn is_comment(token: &str) -> bool {
    token.starts_with("--") || token.starts_with("/*")
}

/// The length of the first token of `text` in bytes. Never 0 unless `text` is empty.
fn token_len(text: &str, before: Option<char>) -> usize {
    let mut characters = text.chars();
    let first = characters.next();
    let second = characters.next();
    match (first, second) {
        (Some('\''), _) => quoted_len(text, '\'', false),
        (Some('"'), _) => quoted_len(text, '"', false),
        (Some('e' | 'E'), Some('\'')) => 1 + quoted_len(&text[1..], '\'', true),
        (Some('-'), Some('-')) => text.find('\n').unwrap_or(text.len()),
        (Some('/'), Some('*')) => comment_len(text),
        (Some(':'), Some(':')) => 2,
        (Some(':'), Some(next)) if starts_name(next) => 1 + name_len(&text[1..]),
        (Some('?'), Some('0'..='9')) => 1 + digits_len(&text[1..]),
        (Some('$'), _) if !before.is_some_and(continues_name) => dollar_len(text),
        (Some(first), _) if starts_name(first) => name_len(text),
        (Some(first), _) => first.len_utf8(),
        (None, _) => 0,
    }
}

fn starts_name(character: char) -> bool {
    character.is_alphabetic() || character == '_'
}

fn continues_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn name_len(text: &str) -> usize {
    text.find(|character| !continues_name(character)).unwrap_or(text.len())
}

fn digits_len(text: &str) -> usize {
    text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len())
}

/// The length of a quoted string. A doubled quotation mark ends it, and the next token is then a
/// string again.
fn quoted_len(text: &str, mark: char, escapes: bool) -> usize {
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' if escapes => escaped = true,
            _ if character == mark => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a comment; comments nest.
fn comment_len(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        match &text.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// The length of `$tag$ … $tag$`, of `$1`, or of a single `$`.
fn dollar_len(text: &str) -> usize {
    let rest = &text[1..];
    if rest.starts_with(|next: char| next.is_ascii_digit()) {
        return 1 + digits_len(rest);
    }
    let tag = 1 + name_len(rest);
    if !text[tag..].starts_with('$') {
        return 1;
    }
    let mark = &text[..=tag];
    text[mark.len()..].find(mark).map_or(text.len(), |at| at + 2 * mark.len())
}

/// A statement that is being rewritten.
struct PlaceholderRewriter<'e> {
    effect: &'e Effect,
    sql: String,
    /// The indexes of the given values that became `$1`, `$2`, ….
    used: Vec<usize>,
}

impl<'e> PlaceholderRewriter<'e> {
    fn push(&mut self, token: &str) -> Result<(), String> {
        let parameter = match token.as_bytes() {
            [b'?', _, ..] | [b'$', b'0'..=b'9', ..] => Some(self.numbered_index(&token[1..])?),
            [b':', next, ..] if *next != b':' => Some(self.named_index(&token[1..])?),
            _ => None,
        };
        match parameter {
            None => self.sql.push_str(token),
            Some(value) => {
                let known = self.used.iter().position(|used| *used == value);
                let at = known.unwrap_or_else(|| {
                    self.used.push(value);
                    self.used.len() - 1
                });
                self.sql.push_str(&format!("${}", at + 1));
            }
        }
        Ok(())
    }

    fn numbered_index(&self, digits: &str) -> Result<usize, String> {
        let number = digits.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        match (&self.effect.params, number) {
            (Params::Ordered(values), Some(at)) if at < values.len() => Ok(at),
            _ => Err(format!("parameter `{digits}` has no value")),
        }
    }

    fn named_index(&self, name: &str) -> Result<usize, String> {
        let found = match &self.effect.params {
            Params::Named(values) => values.iter().position(|(known, _)| known == name),
            Params::Ordered(_) => None,
        };
        found.ok_or_else(|| format!("parameter `{name}` has no value"))
    }

    /// Ordered values must all have a placeholder: a missing one is a mistake.
    fn finish(self) -> Result<(String, Vec<&'e SqlValue>), String> {
        let value = |at: &usize| match &self.effect.params {
            Params::Ordered(values) => &values[*at],
            Params::Named(values) => &values[*at].1,
        };
        let values: Vec<&SqlValue> = self.used.iter().map(value).collect();
        match &self.effect.params {
            Params::Ordered(given) if given.len() != values.len() => {
                Err(format!("{} values for {} parameters", given.len(), values.len()))
            }
            _ => Ok((self.sql, values)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(sql: &str, count: i64) -> Effect {
        let values = (1..=count).map(SqlValue::Int).collect();
        Effect { sql: sql.to_owned(), params: Params::Ordered(values), expected_rows: None }
    }

    fn named(sql: &str) -> Effect {
        let values = ["a", "b", "unused"].map(|name| (name.to_owned(), SqlValue::Null));
        Effect { params: Params::Named(values.to_vec()), ..ordered(sql, 0) }
    }

    fn rewritten(effect: &Effect) -> String {
        translate(effect).unwrap().0
    }

    #[test]
    fn numbered_parameters_become_dollars() {
        let effect = ordered("UPDATE t SET a = ?2, b = ?1 WHERE c = ?2", 2);
        let (sql, values) = translate(&effect).unwrap();
        assert_eq!(sql, "UPDATE t SET a = $1, b = $2 WHERE c = $1");
        assert_eq!(values, [&SqlValue::Int(2), &SqlValue::Int(1)]);
        assert_eq!(rewritten(&ordered("DELETE FROM t WHERE a = $1", 1)), "DELETE FROM t WHERE a = $1");
    }

    #[test]
    fn named_parameters_become_dollars_and_casts_stay() {
        let sql = "INSERT INTO t VALUES (:a::int, :b, :a, '1'::text)";
        assert_eq!(rewritten(&named(sql)), "INSERT INTO t VALUES ($1::int, $2, $1, '1'::text)");
    }

    #[test]
    fn what_is_quoted_is_not_touched() {
        for quoted in [
            "UPDATE t SET a = ':a ?1 it''s :b'",
            r"UPDATE t SET a = E':a \' :b'",
            r#"UPDATE t SET ":a" = 1"#,
            "UPDATE t SET a = $$ :a ?1 $$",
            "UPDATE t SET a = $x$ :a $$ ?1 $x$",
            "UPDATE t SET a = 1 -- :a ?1",
            "UPDATE t /* :a /* ?1 */ :b */ SET a = 1",
            "UPDATE t SET a = a ? 'key', b$1 = 2",
            "UPDATE täter SET ä = 'ü:a'",
        ] {
            assert_eq!(rewritten(&named(quoted)), quoted);
        }
    }

    #[test]
    fn every_parameter_has_a_value_and_every_value_a_parameter() {
        assert!(translate(&ordered("UPDATE t SET a = ?2", 1)).is_err());
        assert!(translate(&ordered("UPDATE t SET a = ?0", 1)).is_err());
        assert!(translate(&ordered("UPDATE t SET a = ?1", 2)).is_err());
        assert!(translate(&named("UPDATE t SET a = :c")).is_err());
    }

    #[test]
    fn only_statements_that_change_rows_are_effects() {
        for good in ["UPDATE t SET a = 1", " -- why\n /* how */ insert into t", "With x AS (SELECT 1)"] {
            assert!(translate(&named(good)).is_ok(), "{good}");
        }
        for bad in ["COMMIT", "END", "/* UPDATE */ ROLLBACK", "SET x = 1", "", "--", "UPDATED", "'UPDATE'"] {
            assert!(translate(&named(bad)).is_err(), "{bad}");
        }
    }
}
