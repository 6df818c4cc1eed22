//! A table in memory that yields at each read, so that a test can drop an initiator there, and that
//! can fail a given read.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use longshore::{Effect, SqlValue};
use longshore_batch::definition::Candidates;
use longshore_batch::rows::{Candidate, Row, RowSource, SourceError, StatementInfo};

/// Rows in key order, each with a priority.
#[derive(Default)]
pub(super) struct FakeTable {
    pub(super) rows: Mutex<Vec<Candidate>>,
    pub(super) reads: AtomicU32,
    /// The number of the read that fails, from 1.
    pub(super) fails_at: Option<u32>,
}

impl FakeTable {
    pub(super) fn of(keys: impl IntoIterator<Item = SqlValue>) -> Self {
        let rows = keys.into_iter().map(|key| Candidate { key, priority: None }).collect();
        Self { rows: Mutex::new(rows), ..Self::default() }
    }

    pub(super) fn numbered(rows: i64) -> Self {
        Self::of((1..=rows).map(SqlValue::Int))
    }
}

#[async_trait]
impl RowSource for FakeTable {
    async fn candidates(
        &self,
        _: &Candidates,
        from: Option<&SqlValue>,
        limit: u32,
    ) -> Result<Vec<Candidate>, SourceError> {
        tokio::task::yield_now().await;
        let read = self.reads.fetch_add(1, Ordering::Relaxed) + 1;
        if self.fails_at == Some(read) {
            return Err(SourceError::Unavailable("it was made to fail".to_owned()));
        }
        let rows = self.rows.lock().unwrap().clone();
        tokio::task::yield_now().await;
        let behind = |row: &Candidate| from.is_some_and(|from| is_less(&row.key, from));
        Ok(rows.into_iter().skip_while(behind).take(limit as usize).collect())
    }

    async fn count(&self, _: &Candidates) -> Result<u64, SourceError> {
        Ok(self.rows.lock().unwrap().len() as u64)
    }

    async fn describe(&self, _: &str) -> Result<StatementInfo, SourceError> {
        Ok(StatementInfo::default())
    }

    async fn fetch(&self, _: &str, _: &[(String, SqlValue)]) -> Result<Vec<Row>, SourceError> {
        Ok(Vec::new())
    }

    async fn apply(&self, _: &[Effect]) -> Result<(), SourceError> {
        Ok(())
    }
}

fn is_less(one: &SqlValue, other: &SqlValue) -> bool {
    match (one, other) {
        (SqlValue::Int(one), SqlValue::Int(other)) => one < other,
        (SqlValue::Text(one), SqlValue::Text(other)) => one < other,
        _ => panic!("a table of numbers or of text"),
    }
}
