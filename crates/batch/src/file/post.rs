//! `[post]`: how an answer is applied.

use crate::definition::{CommandPost, Post, PostVerdict, Rule, SqlPost, SqlStatement};

use super::error::FileError;
use super::section::{Field, Section};
use super::source_map::SourceMap;
use super::{SourceText, command, statements};

const KEYS: [&str; 13] = [
    "always",
    "success",
    "fail",
    "retry",
    "skip",
    "rules",
    "code",
    "command",
    "row_sql",
    "min",
    "max",
    "timeout",
    "start_timeout",
];
/// Keys that a command excludes, because it decides itself.
const SQL_KEYS: [&str; 6] = ["always", "success", "fail", "retry", "skip", "rules"];
const RULE_KEYS: [&str; 4] = ["when", "then", "reason", "after"];
const VERDICTS: [(&str, PostVerdict); 3] =
    [("SUCCESS", PostVerdict::Success), ("FAIL", PostVerdict::Fail), ("RETRY", PostVerdict::Retry)];

pub(super) fn read(root: &Section<'_>, source_map: &mut SourceMap) -> Result<Post, FileError> {
    let Some(section) = root.section("post", &KEYS)? else {
        return Ok(Post::Sql(SqlPost::default()));
    };
    if let Some(code) = section.field("code") {
        for key in KEYS.into_iter().filter(|key| *key != "code") {
            section.exclusive(&[key, "code"])?;
        }
        return Ok(Post::Code(code.text()?.to_owned()));
    }
    let row_sql = section.field("row_sql");
    if let Some(command) = command::read(&section, &SQL_KEYS, source_map)? {
        let query =
            |field: Field<'_>| statements::query(&SourceText::inline(&field)?, "post.row_sql", source_map);
        let row_sql = row_sql.map(query).transpose()?;
        return Ok(Post::Command(CommandPost { command, row_sql }));
    }
    if let Some(row_sql) = row_sql {
        return Err(row_sql.error("`post.row_sql` is for a `command`"));
    }
    let mut list = |key| statement_list(&section, key, source_map);
    let (always, success) = (list("always")?, list("success")?);
    let (fail, retry, skip) = (list("fail")?, list("retry")?, list("skip")?);
    Ok(Post::Sql(SqlPost { rules: rules(&section, source_map)?, always, success, fail, retry, skip }))
}

fn statement_list(
    section: &Section<'_>,
    key: &str,
    source_map: &mut SourceMap,
) -> Result<Vec<SqlStatement>, FileError> {
    section.field(key).map_or(Ok(Vec::new()), |field| statements::list(&field, source_map))
}

fn rules(section: &Section<'_>, source_map: &mut SourceMap) -> Result<Vec<Rule>, FileError> {
    let Some(field) = section.field("rules") else { return Ok(Vec::new()) };
    let items = field.items();
    let items = items.ok_or_else(|| field.type_error("a list of sections, each [[post.rules]]"))?;
    items.iter().map(|item| rule(item, source_map)).collect()
}

fn rule(item: &Field<'_>, source_map: &mut SourceMap) -> Result<Rule, FileError> {
    let section = item.section(&RULE_KEYS)?;
    let mut text = |field: Field<'_>| {
        source_map.put(&field.name, field.text_location());
        field.text().map(str::to_owned)
    };
    let when = text(section.require("when")?)?;
    let reason = section.field("reason").map(text).transpose()?;
    let then = section.require("then")?.choice(&VERDICTS)?;
    let after = section.field("after");
    if let (Some(after), true) = (&after, then != PostVerdict::Retry) {
        return Err(after.error("`after` is for a rule with then = \"RETRY\""));
    }
    let after = after.map(|after| after.duration_or_zero()).transpose()?;
    Ok(Rule { when, then, reason, after })
}
