//! `[completion]` and `[alerts]`: what is done at the end, and when somebody should look.

use crate::definition::{Action, Alerts};

use super::error::FileError;
use super::places::Places;
use super::section::{Field, Section};
use super::statements;

const ACTIONS: [&str; 3] = ["command", "http", "sql"];

pub(super) fn completion(
    root: &Section<'_>,
    places: &mut Places,
) -> Result<Option<Action>, FileError> {
    let Some(section) = root.section("completion", &ACTIONS)? else { return Ok(None) };
    let action = action(&section, places)?;
    let nothing = || section.error("[completion] says nothing");
    action.ok_or_else(|| nothing().hint("give it `command`, `http` or `sql`")).map(Some)
}

pub(super) fn alerts(root: &Section<'_>, places: &mut Places) -> Result<Alerts, FileError> {
    let mut alerts = Alerts::default();
    let keys = ["no_progress", "command", "http", "sql"];
    let Some(section) = root.section("alerts", &keys)? else { return Ok(alerts) };
    if let Some(field) = section.field("no_progress") {
        alerts.no_progress = field.span()?;
    }
    alerts.action = action(&section, places)?;
    Ok(alerts)
}

fn action(section: &Section<'_>, places: &mut Places) -> Result<Option<Action>, FileError> {
    Ok(match section.one_of(&ACTIONS)? {
        None => None,
        Some((0, field)) => Some(Action::Command(command(&field)?)),
        Some((1, field)) => Some(Action::Http(http(&field)?)),
        Some((_, field)) => Some(Action::Sql(statements::list(&field, places)?)),
    })
}

/// A program and its arguments. A program with a slash is meant from the batch file's folder.
fn command(field: &Field<'_>) -> Result<Vec<String>, FileError> {
    let form = || field.wrong("a list of words").hint("as command = [\"./notify.sh\", \"--now\"]");
    let words = field.items().ok_or_else(form)?;
    let words: Result<Vec<&str>, FileError> = words
        .iter()
        .map(|word| word.value().as_str().ok_or_else(|| word.wrong("text in quotes")))
        .collect();
    let mut words: Vec<String> = words?.into_iter().map(str::to_owned).collect();
    let Some(program) = words.first_mut().filter(|program| !program.trim().is_empty()) else {
        return Err(field.error(format!("`{}` names no program", field.name)));
    };
    if program.contains('/') {
        let path = field.file.dir.join(program.as_str());
        if !path.is_file() {
            return Err(field.error(format!("`{}`: there is no file {program}", field.name)));
        }
        *program = path.display().to_string();
    }
    Ok(words)
}

fn http(field: &Field<'_>) -> Result<String, FileError> {
    let url = field.text()?.trim();
    if !url.starts_with("http://") && !url.starts_with("https://") {
        let error = field.error(format!("`{}` is not a web address", field.name));
        return Err(error.hint("it begins with http:// or https://"));
    }
    Ok(url.to_owned())
}
