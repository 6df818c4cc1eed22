//! PRE by SQL and a template: reads the row and its lists, renders the prompt.

use std::collections::BTreeMap;

use async_trait::async_trait;
use longshore::SqlValue;

use crate::definition::SqlPre;
use crate::prompt::Prompt;
use crate::rows::{Row, SourceError};
use crate::step::{Prepare, PrepareError, RowRun};
use crate::value::show_key;

/// A compiled [`SqlPre`].
#[derive(Debug)]
pub struct SqlPrepare {
    sql: String,
    lists: BTreeMap<String, String>,
    prompt: Prompt,
}

impl SqlPrepare {
    /// Compiles the template. The SQL is the database's to understand.
    pub fn compile(pre: &SqlPre) -> Result<Self, String> {
        let prompt = Prompt::compile(&pre.template, &pre.template_name)
            .map_err(|error| format!("{}: {error}", pre.template_name))?;
        Ok(Self { sql: pre.sql.clone(), lists: pre.lists.clone(), prompt })
    }

    async fn lists(
        &self,
        run: &RowRun<'_>,
        params: &[(String, SqlValue)],
    ) -> Result<BTreeMap<String, Vec<Row>>, PrepareError> {
        let mut lists = BTreeMap::new();
        for (name, sql) in &self.lists {
            let rows = run.source.fetch(sql, params).await;
            let rows = rows.map_err(|error| refused(&format!("list `{name}`"), &error))?;
            lists.insert(name.clone(), rows);
        }
        Ok(lists)
    }
}

#[async_trait]
impl Prepare for SqlPrepare {
    async fn prepare(&self, run: &RowRun<'_>) -> Result<String, PrepareError> {
        let params = params(run);
        let rows = run.source.fetch(&self.sql, &params).await;
        let row = the_one(rows.map_err(|error| refused("the row", &error))?, run.key)?;
        let lists = self.lists(run, &params).await?;
        self.prompt.render(&row, &lists).map_err(hopeless)
    }
}

/// What PRE's SQL may use.
fn params(run: &RowRun<'_>) -> [(String, SqlValue); 2] {
    let batch = SqlValue::Text(run.batch.to_string());
    [("key".to_owned(), run.key.clone()), ("batch_id".to_owned(), batch)]
}

fn the_one(rows: Vec<Row>, key: &SqlValue) -> Result<Row, PrepareError> {
    let count = rows.len();
    let mut rows = rows.into_iter();
    match (rows.next(), rows.next()) {
        (Some(row), None) => Ok(row),
        (None, _) => Err(hopeless(format!("the row is gone: no row has the key {}", shown(key)))),
        (Some(_), Some(_)) => {
            Err(hopeless(format!("{count} rows have the key {}, not one", shown(key))))
        }
    }
}

fn shown(key: &SqlValue) -> String {
    format!("`{}`", show_key(key))
}

fn refused(what: &str, error: &SourceError) -> PrepareError {
    PrepareError { message: format!("{what}: {error}"), retryable: error.is_retryable() }
}

fn hopeless(message: String) -> PrepareError {
    PrepareError { message, retryable: false }
}
