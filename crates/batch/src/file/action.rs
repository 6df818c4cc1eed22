//! `[completion]` and `[alerts]`: actions at the end of a batch and for alerts.

use std::time::Duration;

use crate::definition::{Action, Alerts, EndMail};

use super::error::FileError;
use super::section::{Field, Section};
use super::source_map::SourceMap;
use super::{ai, command, statements};

const ACTIONS: [&str; 3] = ["command", "http", "sql"];
const END_ACTIONS: [&str; 4] = ["command", "http", "sql", "mail"];

pub(super) fn completion(
    root: &Section<'_>,
    source_map: &mut SourceMap,
) -> Result<Option<Action>, FileError> {
    let Some(section) = root.section("completion", &END_ACTIONS)? else { return Ok(None) };
    let action = match section.exclusive(&END_ACTIONS)? {
        Some((3, field)) => Some(Action::Mail(mail(&field)?)),
        _ => action(&section, source_map)?,
    };
    let empty = || section.error("[completion] is empty");
    action.ok_or_else(|| empty().hint("give it `command`, `http`, `mail` or `sql`")).map(Some)
}

fn mail(field: &Field<'_>) -> Result<EndMail, FileError> {
    let section = field.section(&["from", "to"])?;
    let to = section.require("to")?;
    let to = match to.items() {
        None => vec![to.text()?.to_owned()],
        Some(items) if items.is_empty() => return Err(to.error(format!("`{}` is empty", to.name))),
        Some(items) => items.iter().map(|item| item.text().map(str::to_owned)).collect::<Result<_, _>>()?,
    };
    Ok(EndMail { from: section.require("from")?.text()?.to_owned(), to })
}

/// Default of `no_progress` with a provider batch, which may take a day.
const PROVIDER_BATCH_NO_PROGRESS: Duration = Duration::from_secs(25 * 60 * 60);

pub(super) fn alerts(root: &Section<'_>, source_map: &mut SourceMap) -> Result<Alerts, FileError> {
    let mut alerts = Alerts::default();
    if ai::uses_provider_batch(root) {
        alerts.no_progress = PROVIDER_BATCH_NO_PROGRESS;
    }
    let keys = ["no_progress", "command", "http", "sql"];
    let Some(section) = root.section("alerts", &keys)? else { return Ok(alerts) };
    if let Some(field) = section.field("no_progress") {
        alerts.no_progress = field.positive_duration()?;
    }
    alerts.action = action(&section, source_map)?;
    Ok(alerts)
}

fn action(section: &Section<'_>, source_map: &mut SourceMap) -> Result<Option<Action>, FileError> {
    Ok(match section.exclusive(&ACTIONS)? {
        None => None,
        Some((0, field)) => Some(Action::Command(command::argv(&field)?)),
        Some((1, field)) => Some(Action::Http(http(&field)?)),
        Some((_, field)) => Some(Action::Sql(statements::list(&field, source_map)?)),
    })
}

fn http(field: &Field<'_>) -> Result<String, FileError> {
    let url = field.text()?.trim();
    if !url.starts_with("http://") && !url.starts_with("https://") {
        let error = field.error(format!("`{}` is not a web address", field.name));
        return Err(error.hint("it begins with http:// or https://"));
    }
    Ok(url.to_owned())
}
