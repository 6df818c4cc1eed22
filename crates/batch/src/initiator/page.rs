//! Candidates in key order, a page at a time, each exactly once.
//!
//! A page begins with the key that the one before ended with. So a key that two rows have is
//! noticed even where a page ends between them; and a row that is gone, or no candidate any more,
//! does no harm.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use longshore::SqlValue;
use tokio::time::Instant;

use super::InitiateError;
use crate::definition::Candidates;
use crate::rows::{Candidate, RowSource};
use crate::value::show_key;

/// How long a page is believed. Rows read longer ago, because workers lag or the batch was paused,
/// are read again: some may be gone.
const FRESH: Duration = Duration::from_secs(60);

/// Where the reading of candidates stands.
pub(super) struct Pages {
    source: Arc<dyn RowSource>,
    size: u32,
    /// Read and not yet taken.
    rows: VecDeque<Candidate>,
    /// The key before them.
    after: Option<SqlValue>,
    read: Option<Read>,
}

/// What the last read brought.
struct Read {
    at: Instant,
    /// Whether there was no more.
    all: bool,
}

impl Pages {
    /// Pages of `size` rows, from the first on.
    pub(super) fn new(source: Arc<dyn RowSource>, size: u32) -> Self {
        Self { source, size, rows: VecDeque::new(), after: None, read: None }
    }

    /// Goes on behind `after`, wherever that is: with the same page if it has that key.
    pub(super) fn go_to(&mut self, after: Option<&SqlValue>) {
        let here = match (after, &self.after) {
            (Some(after), Some(own)) => same(after, own),
            (after, own) => after.is_none() && own.is_none(),
        };
        if here {
            return;
        }
        let own = |row: &Candidate| after.is_some_and(|after| same(&row.key, after));
        match self.rows.iter().position(own) {
            Some(at) => drop(self.rows.drain(..=at)),
            None => self.forget(),
        }
        self.after = after.cloned();
    }

    /// Drops what was read: the next take reads anew.
    pub(super) fn forget(&mut self) {
        self.rows.clear();
        self.read = None;
    }

    /// The next rows, up to `most`; none at the end. They count as passed.
    pub(super) async fn take(
        &mut self,
        candidates: &Candidates,
        most: u64,
    ) -> Result<Vec<Candidate>, InitiateError> {
        if self.read.as_ref().is_some_and(|read| read.at.elapsed() >= FRESH) {
            self.forget();
        }
        if self.rows.is_empty() && !self.read.as_ref().is_some_and(|read| read.all) {
            self.turn(candidates).await?;
        }
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(self.rows.len());
        let taken: Vec<Candidate> = self.rows.drain(..most).collect();
        if let Some(last) = taken.last() {
            self.after = Some(last.key.clone());
        }
        Ok(taken)
    }

    /// Reads the next page.
    async fn turn(&mut self, candidates: &Candidates) -> Result<(), InitiateError> {
        let at = Instant::now();
        // One more if the first may be the one that was passed last.
        let limit = self.size.saturating_add(u32::from(self.after.is_some()));
        let rows = self.source.candidates(candidates, self.after.as_ref(), limit).await?;
        let all = rows.len() < limit as usize;
        self.rows = rows.into();
        let first = self.rows.front().map(|row| &row.key);
        if let (Some(after), Some(first)) = (&self.after, first)
            && same(after, first)
        {
            self.rows.pop_front();
        }
        self.refuse_doubles(candidates)?;
        self.read = Some(Read { at, all });
        Ok(())
    }

    fn refuse_doubles(&self, candidates: &Candidates) -> Result<(), InitiateError> {
        let keys = || self.rows.iter().map(|row| &row.key);
        let before = self.after.iter().chain(keys());
        let mut pairs = before.zip(keys().skip(usize::from(self.after.is_none())));
        let Some((double, _)) = pairs.find(|(before, key)| same(before, key)) else {
            return Ok(());
        };
        let (key, column) = (cut(&show_key(double)), &candidates.key);
        let words =
            format!("two candidates have the key `{key}` in `{column}`: keys must be unique");
        Err(InitiateError::Data(words))
    }
}

/// The beginning of a key, for people.
pub(super) fn cut(key: &str) -> String {
    match key.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &key[..end]),
        None => key.to_owned(),
    }
}

/// Whether two keys are the same to a database: 1 and 1.0 are.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "compared both ways"
)]
pub(super) fn same(one: &SqlValue, other: &SqlValue) -> bool {
    match (one, other) {
        (SqlValue::Int(whole), SqlValue::Real(real))
        | (SqlValue::Real(real), SqlValue::Int(whole)) => {
            *real as i64 == *whole && *whole as f64 == *real
        }
        _ => one == other,
    }
}
