//! Statements for drivers that know parameters only by their place: `:name` becomes `?`, or `$1`.
//!
//! Our own tokens decide what is a parameter, so that nothing inside of text, quoted names or
//! comments is one. Comments are left out: drivers look for `?` themselves, and not all of them
//! know a comment when they see one. Where a token came from is remembered, for errors.

mod quirks;
mod rules;
#[cfg(test)]
mod tests;

pub(super) use quirks::refuse_mysql_quirks;
pub(super) use rules::{about, changes, column, expect, key, not_a_read, params, reads};

use longshore::SqlValue;
use longshore::outcome::Params;

use super::SourceError;
use crate::sql::{self, Token, TokenKind};

/// How a driver wants parameters written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Marks {
    /// `?`, each a parameter of its own.
    Questions,
    /// `$1`, the same for all uses of a name: PostgreSQL finds out its type from all of them. A `?`
    /// without a number is an operator there.
    Dollars,
}

/// A statement with marks for its parameters.
#[derive(Debug)]
pub(super) struct Positional {
    /// The statement as the driver gets it.
    pub(super) sql: String,
    marks: Marks,
    slots: Vec<Slot>,
    /// Where tokens of the user's begin: here, and as they were written.
    places: Vec<(usize, usize)>,
}

/// Which value a mark stands for.
#[derive(Debug, PartialEq, Eq)]
enum Slot {
    Named(String),
    /// From 0.
    Numbered(usize),
}

impl Positional {
    /// One statement of the user's, without the semicolon after it.
    pub(super) fn of(marks: Marks, sql: &str) -> Result<Self, SourceError> {
        Self::around(marks, "", sql, "")
    }

    /// One statement of the user's between two pieces of our own.
    pub(super) fn around(
        marks: Marks,
        head: &str,
        sql: &str,
        tail: &str,
    ) -> Result<Self, SourceError> {
        let parts = sql::split(sql);
        let [part] = parts[..] else {
            let none = "there is no statement here";
            let message = if parts.is_empty() { none } else { "only one statement may stand here" };
            let offset = parts.get(1).map(|second| second.at);
            return Err(SourceError::Statement { message: message.to_owned(), offset });
        };
        let (slots, places) = (Vec::new(), Vec::new());
        let mut statement = Self { sql: String::new(), marks, slots, places };
        statement.push(head, None);
        statement.push(part.sql, Some(part.at));
        statement.push(tail, None);
        Ok(statement)
    }

    fn push(&mut self, sql: &str, at: Option<usize>) {
        let mut tokens = sql::tokens(sql).peekable();
        while let Some(token) = tokens.next() {
            if let Some(at) = at {
                self.places.push((self.sql.len(), at + token.at));
            }
            match token.kind {
                TokenKind::Comment if !token.text.starts_with("/*+") => self.sql.push(' '),
                TokenKind::Parameter => {
                    self.slot(Slot::Named(token.text.trim_start_matches(':').to_owned()));
                }
                TokenKind::Other if token.text == "?" => {
                    let number = tokens.next_if(|next| number(next).is_some());
                    if number.is_none() && self.marks == Marks::Dollars {
                        self.sql.push('?');
                        continue;
                    }
                    let number = number.as_ref().and_then(number_before);
                    self.slot(Slot::Numbered(number.unwrap_or(self.slots.len())));
                }
                _ => self.sql.push_str(token.text),
            }
        }
    }

    fn slot(&mut self, slot: Slot) {
        if self.marks == Marks::Questions {
            self.sql.push('?');
            self.slots.push(slot);
            return;
        }
        let known = self.slots.iter().position(|known| *known == slot);
        let at = known.unwrap_or(self.slots.len());
        self.sql.push_str(&format!("${}", at + 1));
        if known.is_none() {
            self.slots.push(slot);
        }
    }

    /// How many values it wants.
    pub(super) fn width(&self) -> usize {
        self.slots.len()
    }

    /// What the user wrote for a mark, counted from 1.
    pub(super) fn written(&self, mark: usize) -> Option<String> {
        match self.slots.get(mark.checked_sub(1)?)? {
            Slot::Named(name) => Some(format!(":{name}")),
            Slot::Numbered(at) => Some(format!("?{}", at + 1)),
        }
    }

    /// The parameters' names, each once, in order.
    pub(super) fn names(&self) -> Result<Vec<String>, SourceError> {
        let mut names = Vec::new();
        for slot in &self.slots {
            let Slot::Named(name) = slot else {
                let message = "a parameter has no name: write `:name`, not `?`".to_owned();
                return Err(SourceError::Statement { message, offset: None });
            };
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        Ok(names)
    }

    /// A value for every mark; one without would be an error of the driver's, or NULL.
    pub(super) fn named<'v>(
        &self,
        values: &'v [(String, SqlValue)],
    ) -> Result<Vec<&'v SqlValue>, SourceError> {
        let value = |slot: &Slot| match slot {
            Slot::Named(name) => values
                .iter()
                .find_map(|(known, value)| (known == name).then_some(value))
                .ok_or_else(|| SourceError::Data(format!("parameter `:{name}` has no value"))),
            Slot::Numbered(at) => {
                Err(SourceError::Data(format!("parameter `{}` has no value", at + 1)))
            }
        };
        self.slots.iter().map(value).collect()
    }

    /// The values of an effect.
    pub(super) fn values<'v>(&self, params: &'v Params) -> Result<Vec<&'v SqlValue>, SourceError> {
        let values = match params {
            Params::Named(values) => return self.named(values),
            Params::Ordered(values) => values,
        };
        let wanted = self.slots.iter().map(|slot| match slot {
            Slot::Numbered(at) => at + 1,
            Slot::Named(_) => 0,
        });
        let wanted = wanted.max().unwrap_or(0);
        if wanted != values.len() {
            let words = format!("{} values for {wanted} parameters", values.len());
            return Err(SourceError::Data(words));
        }
        let value = |slot: &Slot| match slot {
            Slot::Numbered(at) => values.get(*at),
            Slot::Named(_) => None,
        };
        let missing = || SourceError::Data("named and numbered parameters are mixed".to_owned());
        self.slots.iter().map(|slot| value(slot).ok_or_else(missing)).collect()
    }

    /// Where the token at a byte of [`Self::sql`] was written, if the user wrote it.
    pub(super) fn place(&self, at: usize) -> Option<usize> {
        let after = self.places.partition_point(|(here, _)| *here <= at);
        self.places.get(after.checked_sub(1)?).map(|(_, written)| *written)
    }

    /// Where a name that the database misses was written first; of `a.b` the last part counts.
    pub(super) fn place_of(&self, name: &str) -> Option<usize> {
        let last = |text: &str| {
            let text = text.rsplit('.').next().unwrap_or_default();
            text.trim_matches(['"', '`', '[', ']', '\'']).to_lowercase()
        };
        let wanted = last(name);
        let found = sql::significant(&self.sql).find(|token| last(token.text) == wanted)?;
        self.place(found.at)
    }
}

fn number(token: &Token<'_>) -> Option<usize> {
    token.text.parse().ok()
}

/// `?1` is the first: 0.
fn number_before(token: &Token<'_>) -> Option<usize> {
    number(token)?.checked_sub(1)
}
