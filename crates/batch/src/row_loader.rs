//! Reads a row and the lists that belong to it.

use std::collections::BTreeMap;

use longshore::SqlValue;
use tokio::time::{Instant, timeout_at};

use crate::definition::Pre;
use crate::jitter::with_jitter;
use crate::pre_post::{PrepareError, RowRun};
use crate::rows::{Row, SourceError};
use crate::sql_json::show_key;

/// The queries that read a row.
#[derive(Debug, Clone)]
pub(crate) struct RowLoader {
    pub(crate) sql: String,
    pub(crate) lists: BTreeMap<String, String>,
    /// Further parameters of the SQL, beside key and batch.
    pub(crate) facts: Vec<(String, String)>,
}

/// A row and its lists.
#[derive(Default)]
pub(crate) struct LoadedRow {
    pub(crate) row: Row,
    pub(crate) lists: BTreeMap<String, Vec<Row>>,
}

impl RowLoader {
    /// The queries of PRE, if it reads the row.
    pub(crate) fn of(pre: &Pre) -> Option<Self> {
        let (sql, lists) = match pre {
            Pre::Sql(pre) => (&pre.sql, &pre.lists),
            Pre::Command(pre) => (pre.sql.as_ref()?, &pre.lists),
            Pre::Code(_) => return None,
        };
        Some(Self { sql: sql.clone(), lists: lists.clone(), facts: Vec::new() })
    }

    /// Reads the row; an error unless exactly one row has the key.
    pub(crate) async fn read(&self, run: &RowRun<'_>) -> Result<LoadedRow, PrepareError> {
        let Some(until) = run.read_until else { return self.read_all(run).await };
        let late = || PrepareError::LateRead("the rows' database did not return the row in time".to_owned());
        let loaded = timeout_at(until, self.read_all(run)).await.map_err(|_| late())??;
        if Instant::now() < until { Ok(loaded) } else { Err(late()) }
    }

    async fn read_all(&self, run: &RowRun<'_>) -> Result<LoadedRow, PrepareError> {
        let params = self.params(run);
        let rows = run.source.fetch(&self.sql, &params).await;
        let row = single_row(rows.map_err(|error| query_error("the row", &error, run))?, run.key)?;
        let mut lists = BTreeMap::new();
        for (name, sql) in &self.lists {
            let rows = run.source.fetch(sql, &params).await;
            let rows = rows.map_err(|error| query_error(&format!("list `{name}`"), &error, run))?;
            lists.insert(name.clone(), rows);
        }
        Ok(LoadedRow { row, lists })
    }

    /// The parameters of the SQL.
    fn params(&self, run: &RowRun<'_>) -> Vec<(String, SqlValue)> {
        let batch = SqlValue::Text(run.batch.to_string());
        let own = [("key".to_owned(), run.key.clone()), ("batch_id".to_owned(), batch)];
        let facts = self.facts.iter().map(|(name, value)| (name.clone(), SqlValue::Text(value.clone())));
        own.into_iter().chain(facts).collect()
    }
}

fn single_row(rows: Vec<Row>, key: &SqlValue) -> Result<Row, PrepareError> {
    let count = rows.len();
    let mut rows = rows.into_iter();
    match (rows.next(), rows.next()) {
        (Some(row), None) => Ok(row),
        (None, _) => {
            let message = format!("the row is gone: no row has the key {}", quoted_key(key));
            Err(PrepareError::permanent(message))
        }
        (Some(_), Some(_)) => {
            let message = format!("{count} rows have the key {}, not one", quoted_key(key));
            Err(PrepareError::permanent(message))
        }
    }
}

fn quoted_key(key: &SqlValue) -> String {
    format!("`{}`", show_key(key))
}

/// If the database failed, the row waits for it. A statement that took too long may do so for this row alone.
fn query_error(what: &str, error: &SourceError, run: &RowRun<'_>) -> PrepareError {
    let message = format!("{what}: {error}");
    match error {
        SourceError::TimedOut(_) => PrepareError::LateRead(message),
        error if error.puts_rows_off() => {
            PrepareError::Snooze { message, after: with_jitter(run.source.retry_delay(), run.unit) }
        }
        _ => PrepareError::permanent(message),
    }
}
