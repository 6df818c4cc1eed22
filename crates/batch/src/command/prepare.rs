//! PRE by a command: its operation `prepare` gets what is known of a row and makes the prompt.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value, json};

use super::said::{self, Prepared};
use super::{CommandError, CommandPool, Commands, PREPARE};
use crate::definition::CommandPre;
use crate::reading::{Known, Reading};
use crate::rows::Row;
use crate::step::{Prepare, PrepareError, RowRun};
use crate::value::to_json;

/// PRE by a command that was started.
#[derive(Debug)]
pub struct CommandPrepare {
    command: Arc<CommandPool>,
    reading: Option<Reading>,
}

impl CommandPrepare {
    /// Starts the command, unless another batch has.
    pub async fn open(pre: &CommandPre, commands: &Commands) -> Result<Self, CommandError> {
        let command = commands.open(&pre.command, PREPARE).await?;
        let reading = |sql: &String| Reading {
            sql: sql.clone(),
            lists: pre.lists.clone(),
            facts: Vec::new(),
        };
        Ok(Self { command, reading: pre.sql.as_ref().map(reading) })
    }
}

#[async_trait]
impl Prepare for CommandPrepare {
    async fn prepare(&self, run: &RowRun<'_>) -> Result<String, PrepareError> {
        let mut told = about(run);
        if let Some(reading) = &self.reading {
            tell_known(&mut told, &reading.read(run).await?);
        }
        let answer = self.command.call(PREPARE, &Value::Object(told)).await?;
        match said::prepared(answer) {
            Ok(Prepared::Prompt(prompt)) => Ok(prompt),
            Ok(Prepared::Skip(reason)) => Err(PrepareError::Skip(reason)),
            Err(why) => Err(PrepareError::hopeless(self.command.nonsense(why))),
        }
    }
}

/// What every call is told of its row.
pub(super) fn about(run: &RowRun<'_>) -> Map<String, Value> {
    Map::from_iter([
        ("key".to_owned(), to_json(run.key)),
        ("batch".to_owned(), json!(run.batch)),
        ("unit".to_owned(), json!(run.unit)),
        ("attempt".to_owned(), json!(run.attempt)),
        ("last_attempt".to_owned(), json!(run.is_last_attempt)),
        ("worker".to_owned(), json!(run.worker)),
    ])
}

/// What was read of it.
pub(super) fn tell_known(told: &mut Map<String, Value>, known: &Known) {
    told.insert("row".to_owned(), object(&known.row));
    if !known.lists.is_empty() {
        let list = |rows: &Vec<Row>| Value::Array(rows.iter().map(object).collect());
        let lists: BTreeMap<&String, Value> =
            known.lists.iter().map(|(name, rows)| (name, list(rows))).collect();
        told.insert("lists".to_owned(), json!(lists));
    }
}

fn object(row: &Row) -> Value {
    row.columns.iter().map(|(name, value)| (name.clone(), to_json(value))).collect()
}
