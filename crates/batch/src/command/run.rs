//! A step by a command: its operation `run` receives the row's data and the answers of earlier steps.

use std::sync::Arc;

use longshore::Effect;
use serde_json::{Value, json};

use super::prepare::{add_row_data, row_arguments};
use super::{CommandError, CommandPool, Commands, RUN, response};
use crate::definition::{CommandSpec, Pre};
use crate::pre_post::{PrepareError, RowRun};
use crate::row_loader::RowLoader;

/// A step by a running command.
#[derive(Debug)]
pub struct CommandStep {
    command: Arc<CommandPool>,
    row_loader: Option<RowLoader>,
}

impl CommandStep {
    /// Starts the command unless it is running.
    pub async fn open(command: &CommandSpec, pre: &Pre, commands: &Commands) -> Result<Self, CommandError> {
        let command = commands.open(command, RUN).await?;
        Ok(Self { command, row_loader: RowLoader::of(pre) })
    }

    /// The step's answer, and the statements that commit with it.
    pub async fn run(&self, step: &str, row: &RowRun<'_>) -> Result<(Value, Vec<Effect>), PrepareError> {
        let mut arguments = row_arguments(row);
        arguments.insert("step".to_owned(), json!(step));
        if let Some(row_loader) = &self.row_loader {
            add_row_data(&mut arguments, &row_loader.read(row).await?);
        }
        let invalid = |why: String| PrepareError::permanent(self.command.invalid_response(why));
        let answer = self.command.call(RUN, &Value::Object(arguments)).await?;
        let response = response::parse_run(answer).map_err(invalid)?;
        let effects = response.effects(row).map_err(invalid)?;
        Ok((response.answer, effects))
    }
}
