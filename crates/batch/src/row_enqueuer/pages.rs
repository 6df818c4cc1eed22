//! Reads candidates in the order of priority and key, a page at a time, each exactly once.
//!
//! A page begins with the last key of the page before. So a duplicate key is noticed even if a page
//! ends between the two rows, and a row that was deleted or is no candidate any more does no harm.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use longshore::SqlValue;
use longshore::text::truncate_chars;
use serde_json::Value;
use tokio::time::Instant;

use super::FillError;
use super::cursor::FillCursor;
use crate::definition::Candidates;
use crate::rows::{Candidate, PriorityPass, RowSource};
use crate::sql_json::{from_json, show_key};

/// How long a page is used. Rows read longer ago, because workers lag or the batch was paused, are
/// read again: some may be gone.
const PAGE_TTL: Duration = Duration::from_secs(60);

/// The candidates read ahead, and the position after which they begin.
pub(super) struct CandidatePages {
    source: Arc<dyn RowSource>,
    size: u32,
    /// Rows read but not taken.
    rows: VecDeque<Candidate>,
    /// The pass that they belong to. `None` if all rows are read in key order.
    pass: Option<PriorityPass>,
    /// The key before those rows, in this pass.
    after: Option<SqlValue>,
    /// The pass and key of the last row taken.
    position: (Option<PriorityPass>, Option<SqlValue>),
    read: Option<PageRead>,
}

/// The last read.
struct PageRead {
    at: Instant,
    /// Whether it reached the end of the candidates.
    is_last: bool,
}

impl CandidatePages {
    /// Pages of `size` rows, from the first on.
    pub(super) fn new(source: Arc<dyn RowSource>, size: u32) -> Self {
        Self {
            source,
            size,
            rows: VecDeque::new(),
            pass: None,
            after: None,
            position: (None, None),
            read: None,
        }
    }

    /// The pass of the rows that were taken last.
    pub(super) fn pass(&self) -> Option<PriorityPass> {
        self.position.0
    }

    /// Continues after the cursor; keeps the page if it contains that row.
    pub(super) fn seek(&mut self, candidates: &Candidates, cursor: &FillCursor) {
        let after = cursor.key.as_ref();
        let in_place = match (after, &self.position.1) {
            (Some(after), Some(own)) => cursor.pass == self.position.0 && same_key(after, own),
            // Not before the first pass was chosen.
            (after, own) => after.is_none() && own.is_none() && self.read.is_some(),
        };
        if in_place {
            return;
        }
        let has_key = |row: &Candidate| after.is_some_and(|after| same_key(&row.key, after));
        match self.rows.iter().position(has_key).filter(|_| cursor.pass == self.pass) {
            Some(at) => drop(self.rows.drain(..=at)),
            None => {
                self.clear();
                // A cursor of a version without passes continues in key order.
                let has_passes = candidates.keys.is_none()
                    && self.source.in_pass(candidates, PriorityPass::FIRST).is_some();
                let first = has_passes.then_some(PriorityPass::FIRST);
                self.pass = if after.is_some() { cursor.pass } else { first };
            }
        }
        self.after = after.cloned();
        self.position = (cursor.pass, after.cloned());
    }

    /// Drops the page: the next `take` reads again.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.read = None;
    }

    /// Takes up to `max` rows; none at the end. The position moves past them.
    pub(super) async fn take(
        &mut self,
        candidates: &Candidates,
        max: u64,
    ) -> Result<Vec<Candidate>, FillError> {
        if self.read.as_ref().is_some_and(|read| read.at.elapsed() >= PAGE_TTL) {
            self.clear();
        }
        while self.rows.is_empty() {
            if !self.read.as_ref().is_some_and(|read| read.is_last) {
                self.read_page(candidates).await?;
                continue;
            }
            let Some(next) = self.pass.and_then(PriorityPass::next) else { break };
            (self.pass, self.after) = (Some(next), None);
            self.clear();
        }
        let max = usize::try_from(max).unwrap_or(usize::MAX).min(self.rows.len());
        let taken: Vec<Candidate> = self.rows.drain(..max).collect();
        if let Some(last) = taken.last() {
            self.after = Some(last.key.clone());
            self.position = (self.pass, self.after.clone());
        }
        Ok(taken)
    }

    async fn read_page(&mut self, candidates: &Candidates) -> Result<(), FillError> {
        let at = Instant::now();
        // The first row may be the one passed last, so read one more.
        let limit = self.size.saturating_add(u32::from(self.after.is_some()));
        let in_pass = self.pass.and_then(|pass| self.source.in_pass(candidates, pass));
        let selected = in_pass.as_ref().unwrap_or(candidates);
        let rows = match &candidates.keys {
            Some(keys) => named_rows(keys, self.after.as_ref(), limit),
            None => self.source.candidates(selected, self.after.as_ref(), limit).await?,
        };
        let is_last = rows.len() < limit as usize;
        self.rows = rows.into();
        let first = self.rows.front().map(|row| &row.key);
        if let (Some(after), Some(first)) = (&self.after, first)
            && same_key(after, first)
        {
            self.rows.pop_front();
        }
        self.reject_duplicate_keys(candidates)?;
        self.read = Some(PageRead { at, is_last });
        Ok(())
    }

    fn reject_duplicate_keys(&self, candidates: &Candidates) -> Result<(), FillError> {
        let keys = || self.rows.iter().map(|row| &row.key);
        let before = self.after.iter().chain(keys());
        let mut pairs = before.zip(keys().skip(usize::from(self.after.is_none())));
        let Some((duplicate, _)) = pairs.find(|(before, key)| same_key(before, key)) else {
            return Ok(());
        };
        let (key, column) = (truncated(&show_key(duplicate)), &candidates.key);
        let message = format!("two candidates have the key `{key}` in `{column}`: keys must be unique");
        Err(FillError::Data(message))
    }
}

/// The candidates with these keys, in this order, `limit` of them from the key `from` on.
fn named_rows(keys: &[Value], from: Option<&SqlValue>, limit: u32) -> Vec<Candidate> {
    let keys = keys.iter().map(from_json);
    let keys = keys.skip_while(|key| from.is_some_and(|from| !same_key(key, from)));
    keys.take(limit as usize).map(|key| Candidate { key, priority: None }).collect()
}

/// The beginning of a key, for messages.
pub(super) fn truncated(key: &str) -> String {
    truncate_chars(key, 60)
}

/// Whether a database takes two keys for equal: 1 and 1.0 are.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "compared both ways")]
pub(super) fn same_key(one: &SqlValue, other: &SqlValue) -> bool {
    match (one, other) {
        (SqlValue::Int(whole), SqlValue::Real(real)) | (SqlValue::Real(real), SqlValue::Int(whole)) => {
            *real as i64 == *whole && *whole as f64 == *real
        }
        _ => one == other,
    }
}
