//! `[completion]` and `[alerts]`: what is done at the end, and when somebody should look.

use std::time::Duration;

use crate::definition::{Action, Alerts};

use super::error::FileError;
use super::places::Places;
use super::section::{Field, Section};
use super::{ai, command, statements};

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

/// How long a batch may stand still whose questions are with a provider, which may take a day.
const A_DAY_AND_MORE: Duration = Duration::from_secs(25 * 60 * 60);

pub(super) fn alerts(root: &Section<'_>, places: &mut Places) -> Result<Alerts, FileError> {
    let mut alerts = Alerts::default();
    if ai::is_bulk(root) {
        alerts.no_progress = A_DAY_AND_MORE;
    }
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
        Some((0, field)) => Some(Action::Command(command::words(&field)?)),
        Some((1, field)) => Some(Action::Http(http(&field)?)),
        Some((_, field)) => Some(Action::Sql(statements::list(&field, places)?)),
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
