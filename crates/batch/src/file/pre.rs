//! `[pre]`: how a row becomes a prompt.

use std::collections::BTreeMap;

use crate::definition::{CommandPre, CommandSpec, Pre, SqlPre};
use crate::prompt::WHOLE_ROW;

use super::error::FileError;
use super::section::Section;
use super::source_map::SourceMap;
use super::{SourceText, command, mail, statements};

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

pub(super) fn read(root: &Section<'_>, source_map: &mut SourceMap) -> Result<Pre, FileError> {
    let section = root.require_section("pre", &KEYS)?;
    if let Some(code) = section.field("code") {
        for key in KEYS.into_iter().filter(|key| *key != "code") {
            section.exclusive(&[key, "code"])?;
        }
        return Ok(Pre::Code(code.text()?.to_owned()));
    }
    if let Some(command) = command::read(&section, &["prompt", "prompt_file"], source_map)? {
        return read_command(&section, command, source_map);
    }
    let sql = SourceText::inline_or_file(&section, "sql", "sql_file")?;
    let sql = sql.ok_or_else(|| section.missing("sql"))?;
    let mut prompt = SourceText::inline_or_file(&section, "prompt", "prompt_file")?;
    if let Some(page) = mail::template(root)? {
        for key in ["prompt", "prompt_file"] {
            if let Some(field) = section.field(key) {
                return Err(
                    field.error("a batch with [mail] has no prompt: write the message in `mail.template`")
                );
            }
        }
        prompt = Some(page);
    }
    let prompt = prompt.ok_or_else(|| {
        section.missing("prompt").hint("write the template there, or its file as `prompt_file`")
    })?;
    source_map.put("pre.prompt", prompt.location.clone());
    Ok(Pre::Sql(SqlPre {
        sql: statements::query(&sql, "pre.sql", source_map)?,
        lists: lists(&section, source_map)?,
        template_name: template_name(&prompt),
        template: prompt.text,
    }))
}

/// PRE by a command, which makes the prompt; SQL that reads the row for it is optional.
fn read_command(
    section: &Section<'_>,
    command: CommandSpec,
    source_map: &mut SourceMap,
) -> Result<Pre, FileError> {
    let sql = SourceText::inline_or_file(section, "sql", "sql_file")?;
    if let (None, Some(lists)) = (&sql, section.field("lists")) {
        return Err(lists.error("`pre.lists` without `pre.sql`"));
    }
    let sql = sql.map(|sql| statements::query(&sql, "pre.sql", source_map)).transpose()?;
    Ok(Pre::Command(CommandPre { command, sql, lists: lists(section, source_map)? }))
}

/// The template's name in messages of a row's run.
fn template_name(prompt: &SourceText) -> String {
    let file = &prompt.location.file;
    if prompt.is_file { file.clone() } else { format!("{file}, the prompt of [pre]") }
}

fn lists(section: &Section<'_>, source_map: &mut SourceMap) -> Result<BTreeMap<String, String>, FileError> {
    let Some(field) = section.field("lists") else { return Ok(BTreeMap::new()) };
    let mut lists = BTreeMap::new();
    for (name, field) in field.section_with_any_keys()?.fields() {
        if name == WHOLE_ROW {
            return Err(field
                .error(format!("a list cannot be called `{WHOLE_ROW}`"))
                .hint("that is the row itself, in the prompt"));
        }
        let sql = statements::query(&SourceText::inline(&field)?, &field.name, source_map)?;
        lists.insert(name.to_owned(), sql);
    }
    Ok(lists)
}
