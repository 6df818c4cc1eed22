//! Errors of the configuration: the TOML parser's messages with the key, a suggestion and a hint.

use anyhow::anyhow;
use longshore_batch::file::toml_key;
use toml::Table;

use crate::error::{did_you_mean, hint, hinted, usage};

/// Separates a value's error from its hint: the parser passes on nothing but text.
const HINT: &str = "\nhint: ";

/// The text of a value's error, with its hint.
pub(super) fn message(error: &anyhow::Error) -> String {
    let hint = hint(error).map_or(String::new(), |hint| format!("{HINT}{hint}"));
    format!("{error:#}{hint}")
}

/// Whether the value has another type than the key.
pub(super) fn is_type_error(error: &toml::de::Error) -> bool {
    error.message().starts_with("invalid type")
}

/// An error of the parser.
pub(super) fn explain(error: &toml::de::Error) -> anyhow::Error {
    explain_at(&toml_key(error).unwrap_or_default(), error.message())
}

/// An error of the parser at a key. Without a key the file is no TOML.
pub(super) fn explain_at(key: &str, message: &str) -> anyhow::Error {
    let (message, hint) = match message.trim().split_once(HINT) {
        Some((message, hint)) => (message, hint),
        None => (message.trim(), type_hint(message)),
    };
    let words: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    match words.as_slice() {
        [given, known @ ..] if message.starts_with("unknown field") => hinted(
            anyhow!("unknown key `{given}`{}", suggestion(given, known)),
            "longshore.reference.toml lists every key",
        ),
        [given, known @ ..] if message.starts_with("unknown variant") => {
            let (known, suggestion) = (known.join(", "), suggestion(given, known));
            let problem = format!("`{given}` is not a value of `{key}` ({known}){suggestion}");
            hinted(usage(problem), hint)
        }
        _ if key.is_empty() => hinted(anyhow!("{message}"), hint),
        _ => hinted(usage(format!("`{key}`: {message}")), hint),
    }
}

fn suggestion(given: &str, known: &[&str]) -> String {
    let suggestion = did_you_mean(given, known.iter().copied());
    suggestion.map_or(String::new(), |suggestion| format!(", did you mean `{suggestion}`?"))
}

/// The hint for a value of the wrong type.
fn type_hint(message: &str) -> &'static str {
    match message.rsplit_once("expected ") {
        Some((_, "a sequence")) => "a list is written as [\"one\", \"two\"]",
        Some((_, "a string" | "path string")) => "text is written in quotes",
        _ => "longshore.reference.toml shows every key with its default",
    }
}

/// Keys in a section that has none, of which the parser would only report the type.
pub(super) fn misplaced(text: &str) -> Option<anyhow::Error> {
    let table = text.parse::<Table>().ok()?;
    unnamed_section_error(&table).or_else(|| worker_list_error(&table))
}

/// A key directly in `[workers]` or `[pools]` belongs into a named section.
fn unnamed_section_error(table: &Table) -> Option<anyhow::Error> {
    ["workers", "pools"].into_iter().find_map(|name| {
        let section = table.get(name)?.as_table()?;
        let (key, _) = section.iter().find(|(_, value)| !value.is_table())?;
        let error = anyhow!("`{key}` stands in [{name}], which has sections only");
        Some(hinted(error, format!("write [{name}.NAME] above it")))
    })
}

/// `[[worker]]` is how other programs list supervised processes.
fn worker_list_error(table: &Table) -> Option<anyhow::Error> {
    table.get("worker")?.as_array()?;
    let error = anyhow!("[[worker]] is a list, but [worker] is one section with the workers' defaults");
    Some(hinted(error, "supervised processes are sections [supervise.workers.NAME]"))
}
