//! Rewrites statements for drivers with positional parameters: `:name` becomes `?` or `$1`.
//!
//! Our own tokeniser finds the parameters, so that text, quoted names and comments are left alone.
//! Comments are removed: drivers search for `?` themselves, and not all of them recognise comments.
//! The original offset of each token is kept, for errors.

mod mysql_quirks;
mod statement_rules;
#[cfg(test)]
mod tests;

pub(super) use mysql_quirks::reject_mysql_quirks;
pub(super) use statement_rules::{
    candidate_params, check_key, check_row_count, column_index, is_read, is_write, not_a_read_error,
    with_statement,
};

use longshore::SqlValue;
use longshore::outcome::Params;

use super::SourceError;
use crate::sql::{self, Token, TokenKind};

/// The placeholder syntax of a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlaceholderStyle {
    /// `?`; each use is a parameter of its own.
    QuestionMark,
    /// `$1`, one for all uses of a name: PostgreSQL infers its type from all of them. A `?` without
    /// a number is an operator there.
    DollarNumber,
}

/// A statement with placeholders.
#[derive(Debug)]
pub(super) struct PositionalStatement {
    /// The statement for the driver.
    pub(super) sql: String,
    style: PlaceholderStyle,
    placeholders: Vec<Placeholder>,
    /// Offsets of the user's tokens: in `sql`, and in the user's text.
    offsets: Vec<(usize, usize)>,
}

/// The value that a placeholder stands for.
#[derive(Debug, PartialEq, Eq)]
enum Placeholder {
    Named(String),
    /// An index from 0.
    Numbered(usize),
}

impl PositionalStatement {
    /// One statement of the user, without its semicolon, between `head` and `tail`, which are ours.
    pub(super) fn around(
        style: PlaceholderStyle,
        head: &str,
        sql: &str,
        tail: &str,
    ) -> Result<Self, SourceError> {
        if style == PlaceholderStyle::DollarNumber {
            reject_foreign_parameters(sql, &["$"], |c| c.is_ascii_digit())?;
        }
        let parts = sql::split(sql);
        let [part] = parts[..] else {
            let none = "there is no statement here";
            let message = if parts.is_empty() { none } else { "only one statement may stand here" };
            let offset = parts.get(1).map(|second| second.at);
            return Err(SourceError::Statement { message: message.to_owned(), offset });
        };
        let (placeholders, offsets) = (Vec::new(), Vec::new());
        let mut statement = Self { sql: String::new(), style, placeholders, offsets };
        statement.push(head, None);
        statement.push(part.sql, Some(part.at));
        statement.push(tail, None);
        Ok(statement)
    }

    fn push(&mut self, sql: &str, at: Option<usize>) {
        let mut tokens = sql::tokens(sql).peekable();
        while let Some(token) = tokens.next() {
            if let Some(at) = at {
                self.offsets.push((self.sql.len(), at + token.at));
            }
            match token.kind {
                TokenKind::Comment if !token.text.starts_with("/*+") => self.sql.push(' '),
                TokenKind::Parameter => {
                    let name = token.text.trim_start_matches(':').to_owned();
                    self.push_placeholder(Placeholder::Named(name));
                }
                TokenKind::Other if token.text == "?" => {
                    let number = tokens.next_if(|next| number(next).is_some());
                    if number.is_none() && self.style == PlaceholderStyle::DollarNumber {
                        self.sql.push('?');
                        continue;
                    }
                    let index = number.as_ref().and_then(index_of);
                    let index = index.unwrap_or(self.placeholders.len());
                    self.push_placeholder(Placeholder::Numbered(index));
                }
                _ => self.sql.push_str(token.text),
            }
        }
    }

    fn push_placeholder(&mut self, placeholder: Placeholder) {
        if self.style == PlaceholderStyle::QuestionMark {
            self.sql.push('?');
            self.placeholders.push(placeholder);
            return;
        }
        let known = self.placeholders.iter().position(|known| *known == placeholder);
        let at = known.unwrap_or(self.placeholders.len());
        self.sql.push_str(&format!("${}", at + 1));
        if known.is_none() {
            self.placeholders.push(placeholder);
        }
    }

    /// The number of values to bind.
    pub(super) fn parameter_count(&self) -> usize {
        self.placeholders.len()
    }

    /// The user's name of a placeholder, counted from 1.
    pub(super) fn placeholder_name(&self, number: usize) -> Option<String> {
        match self.placeholders.get(number.checked_sub(1)?)? {
            Placeholder::Named(name) => Some(format!(":{name}")),
            Placeholder::Numbered(at) => Some(format!("?{}", at + 1)),
        }
    }

    /// The names of the parameters, each once, in order.
    pub(super) fn names(&self) -> Result<Vec<String>, SourceError> {
        let mut names = Vec::new();
        for placeholder in &self.placeholders {
            let Placeholder::Named(name) = placeholder else {
                let message = "a parameter has no name: write `:name`, not `?`".to_owned();
                return Err(SourceError::Statement { message, offset: None });
            };
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        Ok(names)
    }

    /// A value for every placeholder. A missing value is an error here: drivers would report it in
    /// their own way, or bind NULL.
    pub(super) fn named<'v>(
        &self,
        values: &'v [(String, SqlValue)],
    ) -> Result<Vec<&'v SqlValue>, SourceError> {
        let value = |placeholder: &Placeholder| match placeholder {
            Placeholder::Named(name) => values
                .iter()
                .find_map(|(known, value)| (known == name).then_some(value))
                .ok_or_else(|| SourceError::Data(format!("parameter `:{name}` has no value"))),
            Placeholder::Numbered(at) => {
                Err(SourceError::Data(format!("parameter `{}` has no value", at + 1)))
            }
        };
        self.placeholders.iter().map(value).collect()
    }

    /// The values of an effect's placeholders.
    pub(super) fn values<'v>(&self, params: &'v Params) -> Result<Vec<&'v SqlValue>, SourceError> {
        let values = match params {
            Params::Named(values) => return self.named(values),
            Params::Ordered(values) => values,
        };
        let wanted = self.placeholders.iter().map(|placeholder| match placeholder {
            Placeholder::Numbered(at) => at + 1,
            Placeholder::Named(_) => 0,
        });
        let wanted = wanted.max().unwrap_or(0);
        if wanted != values.len() {
            let message = format!("{} values for {wanted} parameters", values.len());
            return Err(SourceError::Data(message));
        }
        let value = |placeholder: &Placeholder| match placeholder {
            Placeholder::Numbered(at) => values.get(*at),
            Placeholder::Named(_) => None,
        };
        let missing = || SourceError::Data("named and numbered parameters are mixed".to_owned());
        self.placeholders.iter().map(|placeholder| value(placeholder).ok_or_else(missing)).collect()
    }

    /// The offset in the user's text of the token at a byte of [`Self::sql`]; `None` for our own
    /// text.
    pub(super) fn original_offset(&self, at: usize) -> Option<usize> {
        let after = self.offsets.partition_point(|(here, _)| *here <= at);
        self.offsets.get(after.checked_sub(1)?).map(|(_, placeholder_name)| *placeholder_name)
    }

    /// The offset in the user's text of a name that the database does not find; of `a.b` the last
    /// part is searched for.
    pub(super) fn offset_of_name(&self, name: &str) -> Option<usize> {
        let last = |text: &str| {
            let text = text.rsplit('.').next().unwrap_or_default();
            text.trim_matches(['"', '`', '[', ']', '\'']).to_lowercase()
        };
        let wanted = last(name);
        let found = sql::significant_tokens(&self.sql).find(|token| last(token.text) == wanted)?;
        self.original_offset(found.at)
    }
}

/// Rejects parameters of the database's own form: one of these signs, and a name or number.
pub(super) fn reject_foreign_parameters(
    sql: &str,
    signs: &[&str],
    begins: fn(char) -> bool,
) -> Result<(), SourceError> {
    let mut tokens = sql::tokens(sql).peekable();
    while let Some(token) = tokens.next() {
        let next = tokens.peek().map_or("", |next| next.text);
        if signs.contains(&token.text) && next.starts_with(begins) {
            let message = format!("a parameter has no name: write `:name`, not `{}{next}`", token.text);
            return Err(SourceError::Statement { message, offset: Some(token.at) });
        }
    }
    Ok(())
}

fn number(token: &Token<'_>) -> Option<usize> {
    token.text.parse().ok()
}

/// The index of `?1` is 0.
fn index_of(token: &Token<'_>) -> Option<usize> {
    number(token)?.checked_sub(1)
}
