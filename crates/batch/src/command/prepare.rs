//! PRE by a command: its operation `prepare` receives the row's data and makes the prompt.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value, json};

use super::response::{self, PrepareResponse};
use super::{CommandError, CommandPool, Commands, PREPARE};
use crate::definition::CommandPre;
use crate::pre_post::{Prepare, PrepareError, RowRun};
use crate::row_loader::{LoadedRow, RowLoader};
use crate::rows::Row;
use crate::sql_json::to_json;

/// PRE by a running command.
#[derive(Debug)]
pub struct CommandPrepare {
    command: Arc<CommandPool>,
    row_loader: Option<RowLoader>,
}

impl CommandPrepare {
    /// Starts the command unless it is running.
    pub async fn open(pre: &CommandPre, commands: &Commands) -> Result<Self, CommandError> {
        let command = commands.open(&pre.command, PREPARE).await?;
        let row_loader =
            |sql: &String| RowLoader { sql: sql.clone(), lists: pre.lists.clone(), facts: Vec::new() };
        Ok(Self { command, row_loader: pre.sql.as_ref().map(row_loader) })
    }
}

#[async_trait]
impl Prepare for CommandPrepare {
    async fn prepare(&self, run: &RowRun<'_>) -> Result<String, PrepareError> {
        let mut arguments = row_arguments(run);
        if let Some(row_loader) = &self.row_loader {
            add_row_data(&mut arguments, &row_loader.read(run).await?);
        }
        let answer = self.command.call(PREPARE, &Value::Object(arguments)).await?;
        match response::parse_prepare(answer) {
            Ok(PrepareResponse::Prompt(prompt)) => Ok(prompt),
            Ok(PrepareResponse::Skip(reason)) => Err(PrepareError::Skip(reason)),
            Err(why) => Err(PrepareError::permanent(self.command.invalid_response(why))),
        }
    }
}

/// The arguments of every call about a row.
pub(super) fn row_arguments(run: &RowRun<'_>) -> Map<String, Value> {
    Map::from_iter([
        ("key".to_owned(), to_json(run.key)),
        ("batch".to_owned(), json!(run.batch)),
        ("unit".to_owned(), json!(run.unit)),
        ("attempt".to_owned(), json!(run.attempt)),
        ("generation".to_owned(), json!(run.generation)),
        ("run_key".to_owned(), json!(run.run_key)),
        ("ended".to_owned(), json!(run.has_ended)),
        ("last_attempt".to_owned(), json!(run.is_last_attempt)),
        ("worker".to_owned(), json!(run.worker)),
        ("steps".to_owned(), json!(run.answers)),
    ])
}

/// Adds the row and its lists.
pub(super) fn add_row_data(arguments: &mut Map<String, Value>, loaded: &LoadedRow) {
    arguments.insert("row".to_owned(), object(&loaded.row));
    if !loaded.lists.is_empty() {
        let list = |rows: &Vec<Row>| Value::Array(rows.iter().map(object).collect());
        let lists: BTreeMap<&String, Value> =
            loaded.lists.iter().map(|(name, rows)| (name, list(rows))).collect();
        arguments.insert("lists".to_owned(), json!(lists));
    }
}

pub(crate) fn object(row: &Row) -> Value {
    row.columns.iter().map(|(name, value)| (name.clone(), to_json(value))).collect()
}
