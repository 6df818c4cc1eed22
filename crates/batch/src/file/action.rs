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
        None => vec![address(&to)?],
        Some(items) if items.is_empty() => return Err(to.error(format!("`{}` is empty", to.name))),
        Some(items) => items.iter().map(address).collect::<Result<_, _>>()?,
    };
    Ok(EndMail { from: address(&section.require("from")?)?, to })
}

/// A mail address, with or without a name. A wrong one would be noticed only when the batch has ended, at night.
fn address(field: &Field<'_>) -> Result<String, FileError> {
    let text = field.text()?.trim();
    if is_address(text) {
        return Ok(text.to_owned());
    }
    let error = field.error(format!("`{}`: `{text}` is not a mail address", field.name));
    Err(match text.matches('@').count() {
        0 | 1 => error.hint("write name@example.com, or `Name <name@example.com>`"),
        _ => error.hint("write several addresses as a list: [\"a@example.com\", \"b@example.com\"]"),
    })
}

/// Whether the text is `local@domain` or `Name <local@domain>`.
fn is_address(text: &str) -> bool {
    let (name, address) = match text.strip_suffix('>').map(|text| text.rsplit_once('<')) {
        None => ("", text),
        Some(None) => return false,
        Some(Some((name, address))) => (name.trim(), address),
    };
    let quoted = name.len() > 1 && name.starts_with('"') && name.ends_with('"');
    let inner = if quoted { &name[1..name.len() - 1] } else { name };
    let special = if quoted { "\"\\" } else { "()<>[]:;@\\,\"" };
    if inner.chars().any(|c| c.is_control() || special.contains(c)) {
        return false;
    }
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let is_local = |c: char| c.is_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c);
    let is_domain = |c: char| c.is_alphanumeric() || c == '-';
    let parts = |text: &str, is_part: &dyn Fn(char) -> bool| {
        text.split('.').all(|part| !part.is_empty() && part.chars().all(is_part))
    };
    let no_hyphen = domain.split('.').all(|part| !part.starts_with('-') && !part.ends_with('-'));
    local.len() <= 64
        && domain.len() <= 253
        && parts(local, &is_local)
        && parts(domain, &is_domain)
        && no_hyphen
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

#[cfg(test)]
mod tests {
    use super::is_address;

    #[test]
    fn addresses_with_and_without_a_name_are_told_from_what_no_server_accepts() {
        let good =
            ["a@b", "night.run+x@example.com", "Night run <night@example.com>", "\"Run, night\" <n@x.de>"];
        for text in good {
            assert!(is_address(text), "{text}");
        }
        let bad = [
            "",
            "ops",
            "@example.com",
            "ops@",
            "ops@example..com",
            "ops@example.com.",
            "a b@example.com",
            "a@x.de, b@x.de",
            "a@b@c",
            "Run, night <n@x.de>",
            "<n@x.de",
            "n@x.de>",
            "a@x.de\nBcc: b@x.de",
            "a@-x.de",
            "{{ mail }}@x.de y",
        ];
        for text in bad {
            assert!(!is_address(text), "{text}");
        }
    }
}
