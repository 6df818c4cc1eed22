//! `[pre]`: how a row becomes a question.

use std::collections::BTreeMap;

use crate::definition::{Command, CommandPre, Pre, SqlPre};
use crate::prompt::WHOLE_ROW;

use super::error::FileError;
use super::places::Places;
use super::section::Section;
use super::{Written, command, mail, statements};

const KEYS: [&str; 11] = [
    "sql",
    "sql_file",
    "lists",
    "prompt",
    "prompt_file",
    "code",
    "command",
    "min",
    "max",
    "timeout",
    "start_timeout",
];

pub(super) fn read(root: &Section<'_>, places: &mut Places) -> Result<Pre, FileError> {
    let section = root.need_section("pre", &KEYS)?;
    if let Some(code) = section.field("code") {
        for key in KEYS.into_iter().filter(|key| *key != "code") {
            section.one_of(&[key, "code"])?;
        }
        return Ok(Pre::Code(code.text()?.to_owned()));
    }
    if let Some(command) = command::read(&section, &["prompt", "prompt_file"], places)? {
        return by_command(&section, command, places);
    }
    let sql = Written::either(&section, "sql", "sql_file")?;
    let sql = sql.ok_or_else(|| section.missing("sql"))?;
    let mut prompt = Written::either(&section, "prompt", "prompt_file")?;
    if let Some(page) = mail::template(root)? {
        for key in ["prompt", "prompt_file"] {
            if let Some(field) = section.field(key) {
                return Err(field.error("rows that are written to are not asked: `mail.template`"));
            }
        }
        prompt = Some(page);
    }
    let prompt = prompt.ok_or_else(|| {
        section.missing("prompt").hint("write the template there, or its file as `prompt_file`")
    })?;
    places.put("pre.prompt", prompt.place.clone());
    Ok(Pre::Sql(SqlPre {
        sql: statements::query(&sql, "pre.sql", places)?,
        lists: lists(&section, places)?,
        template_name: template_name(&prompt),
        template: prompt.text,
    }))
}

/// A command makes the prompt itself, from the row if there is SQL that reads it.
fn by_command(
    section: &Section<'_>,
    command: Command,
    places: &mut Places,
) -> Result<Pre, FileError> {
    let sql = Written::either(section, "sql", "sql_file")?;
    if let (None, Some(lists)) = (&sql, section.field("lists")) {
        return Err(lists.error("`pre.lists` without `pre.sql`"));
    }
    let sql = sql.map(|sql| statements::query(&sql, "pre.sql", places)).transpose()?;
    Ok(Pre::Command(CommandPre { command, sql, lists: lists(section, places)? }))
}

/// How the template is called in messages of a row's run.
fn template_name(prompt: &Written) -> String {
    let file = &prompt.place.file;
    if prompt.in_file { file.clone() } else { format!("{file}, the prompt of [pre]") }
}

fn lists(
    section: &Section<'_>,
    places: &mut Places,
) -> Result<BTreeMap<String, String>, FileError> {
    let Some(field) = section.field("lists") else { return Ok(BTreeMap::new()) };
    let mut lists = BTreeMap::new();
    for (name, field) in field.open_section()?.fields() {
        if name == WHOLE_ROW {
            return Err(field
                .error(format!("a list cannot be called `{WHOLE_ROW}`"))
                .hint("that is the row itself, in the prompt"));
        }
        let sql = statements::query(&Written::here(&field)?, &field.name, places)?;
        lists.insert(name.to_owned(), sql);
    }
    Ok(lists)
}
