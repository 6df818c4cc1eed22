//! PRE and POST by commands: checks the SQL that reads their rows, and that the commands start.

use crate::command::{APPLY, CommandError, Commands, PREPARE, RUN};
use crate::definition::{CommandPost, CommandPre, CommandSpec, Definition, Post, Pre, StepAction};
use crate::file::{FileError, SourceMap};

use super::CheckContext;
use super::pre::{row_query_columns, single_row_columns};
use super::query::Query;

/// Checks the SQL that reads rows for PRE's command.
pub(super) async fn pre(context: &CheckContext<'_>, pre: &CommandPre) -> Result<(), FileError> {
    let Some(sql) = &pre.sql else { return Ok(()) };
    single_row_columns(&Query { context, key: "pre.sql", sql }).await?;
    for (name, sql) in &pre.lists {
        row_query_columns(&Query { context, key: &format!("pre.lists.{name}"), sql }).await?;
    }
    Ok(())
}

/// Checks the SQL that reads rows for POST's command.
pub(super) async fn post(context: &CheckContext<'_>, post: &CommandPost) -> Result<(), FileError> {
    let Some(sql) = &post.row_sql else { return Ok(()) };
    single_row_columns(&Query { context, key: "post.row_sql", sql }).await.map(drop)
}

/// Starts the commands of a definition and checks that each has the operation it needs. `commands`
/// keeps them running.
pub async fn commands(
    definition: &Definition,
    source_map: &SourceMap,
    commands: &Commands,
) -> Result<(), FileError> {
    let at = |key| move |(error, command)| explain(definition, source_map, key, &error, command);
    if let Pre::Command(pre) = &definition.pre {
        start(&pre.command, PREPARE, commands).await.map_err(at("pre.command"))?;
    }
    for (index, step) in definition.steps.iter().enumerate() {
        if let StepAction::Command(command) = &step.action {
            let key = format!("step[{index}].command");
            let started = start(command, RUN, commands).await;
            started.map_err(|(error, command)| explain(definition, source_map, &key, &error, command))?;
        }
    }
    if let Post::Command(post) = &definition.post {
        start(&post.command, APPLY, commands).await.map_err(at("post.command"))?;
    }
    Ok(())
}

async fn start<'c>(
    command: &'c CommandSpec,
    operation: &'static str,
    commands: &Commands,
) -> Result<(), (CommandError, &'c CommandSpec)> {
    commands.open(command, operation).await.map(drop).map_err(|error| (error, command))
}

fn explain(
    definition: &Definition,
    source_map: &SourceMap,
    key: &str,
    error: &CommandError,
    command: &CommandSpec,
) -> FileError {
    let file = source_map.error(&definition.source, key, 0, format!("`{key}`: {error}"));
    match error {
        CommandError::NoOperation { operation, .. } => {
            file.hint(format!("give the worker an operation called `{operation}`"))
        }
        _ => file.hint(format!(
            "it must speak the worker protocol; to try it: python3 -m longshore.check -- {}",
            command.command_line()
        )),
    }
}
