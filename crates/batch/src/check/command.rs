//! PRE and POST by commands: what is read for them, and whether they start at all.

use crate::command::{APPLY, CommandError, Commands, PREPARE};
use crate::definition::{Command, CommandPost, CommandPre, Definition, Post, Pre};
use crate::file::{FileError, Places};

use super::Desk;
use super::pre::{described, of_one_row};
use super::query::Query;

/// Checks what is read for PRE's command.
pub(super) async fn pre(desk: &Desk<'_>, pre: &CommandPre) -> Result<(), FileError> {
    let Some(sql) = &pre.sql else { return Ok(()) };
    of_one_row(&Query { desk, key: "pre.sql", sql }).await?;
    for (name, sql) in &pre.lists {
        described(&Query { desk, key: &format!("pre.lists.{name}"), sql }).await?;
    }
    Ok(())
}

/// Checks what is read for POST's command.
pub(super) async fn post(desk: &Desk<'_>, post: &CommandPost) -> Result<(), FileError> {
    let Some(sql) = &post.row_sql else { return Ok(()) };
    of_one_row(&Query { desk, key: "post.row_sql", sql }).await.map(drop)
}

/// Starts the commands of a definition, if it has any, and looks whether they can do what they are
/// for. They stay with `commands`.
pub async fn commands(
    definition: &Definition,
    places: &Places,
    commands: &Commands,
) -> Result<(), FileError> {
    let at = |key| move |(error, command)| explain(definition, places, key, &error, command);
    if let Pre::Command(pre) = &definition.pre {
        starts(&pre.command, PREPARE, commands).await.map_err(at("pre.command"))?;
    }
    if let Post::Command(post) = &definition.post {
        starts(&post.command, APPLY, commands).await.map_err(at("post.command"))?;
    }
    Ok(())
}

async fn starts<'c>(
    command: &'c Command,
    operation: &'static str,
    commands: &Commands,
) -> Result<(), (CommandError, &'c Command)> {
    commands.open(command, operation).await.map(drop).map_err(|error| (error, command))
}

fn explain(
    definition: &Definition,
    places: &Places,
    key: &str,
    error: &CommandError,
    command: &Command,
) -> FileError {
    let file = places.error(&definition.source, key, 0, format!("`{key}`: {error}"));
    match error {
        CommandError::NoOperation { operation, .. } => {
            file.hint(format!("give the worker an operation called `{operation}`"))
        }
        _ => file.hint(format!(
            "it must speak the worker protocol; to try it: python3 -m longshore.check -- {}",
            command.shown()
        )),
    }
}
