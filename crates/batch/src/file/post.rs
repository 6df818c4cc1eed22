//! `[post]`: what becomes of the answer.

use crate::definition::{CommandPost, Post, Rule, SqlPost, Statement, Verdict};

use super::error::FileError;
use super::places::Places;
use super::section::{Field, Section};
use super::{Written, command, statements};

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
/// What a command decides by itself.
const SQL_KEYS: [&str; 6] = ["always", "success", "fail", "retry", "skip", "rules"];
const RULE_KEYS: [&str; 4] = ["when", "then", "reason", "after"];
const VERDICTS: [(&str, Verdict); 3] =
    [("SUCCESS", Verdict::Success), ("FAIL", Verdict::Fail), ("RETRY", Verdict::Retry)];

pub(super) fn read(root: &Section<'_>, places: &mut Places) -> Result<Post, FileError> {
    let Some(section) = root.section("post", &KEYS)? else {
        return Ok(Post::Sql(SqlPost::default()));
    };
    if let Some(code) = section.field("code") {
        for key in KEYS.into_iter().filter(|key| *key != "code") {
            section.one_of(&[key, "code"])?;
        }
        return Ok(Post::Code(code.text()?.to_owned()));
    }
    let row_sql = section.field("row_sql");
    if let Some(command) = command::read(&section, &SQL_KEYS, places)? {
        let query =
            |field: Field<'_>| statements::query(&Written::here(&field)?, "post.row_sql", places);
        let row_sql = row_sql.map(query).transpose()?;
        return Ok(Post::Command(CommandPost { command, row_sql }));
    }
    if let Some(row_sql) = row_sql {
        return Err(row_sql.error("`post.row_sql` is for a `command`"));
    }
    let mut list = |key| listed(&section, key, places);
    let (always, success) = (list("always")?, list("success")?);
    let (fail, retry, skip) = (list("fail")?, list("retry")?, list("skip")?);
    Ok(Post::Sql(SqlPost { rules: rules(&section, places)?, always, success, fail, retry, skip }))
}

fn listed(
    section: &Section<'_>,
    key: &str,
    places: &mut Places,
) -> Result<Vec<Statement>, FileError> {
    section.field(key).map_or(Ok(Vec::new()), |field| statements::list(&field, places))
}

fn rules(section: &Section<'_>, places: &mut Places) -> Result<Vec<Rule>, FileError> {
    let Some(field) = section.field("rules") else { return Ok(Vec::new()) };
    let items = field.items();
    let items = items.ok_or_else(|| field.wrong("a list of sections, each [[post.rules]]"))?;
    items.iter().map(|item| rule(item, places)).collect()
}

fn rule(item: &Field<'_>, places: &mut Places) -> Result<Rule, FileError> {
    let section = item.section(&RULE_KEYS)?;
    let mut text = |field: Field<'_>| {
        places.put(&field.name, field.text_place());
        field.text().map(str::to_owned)
    };
    let when = text(section.need("when")?)?;
    let reason = section.field("reason").map(text).transpose()?;
    let then = section.need("then")?.choice(&VERDICTS)?;
    let after = section.field("after");
    if let (Some(after), true) = (&after, then != Verdict::Retry) {
        return Err(after.error("`after` is for a rule with then = \"RETRY\""));
    }
    let after = after.map(|after| after.any_span()).transpose()?;
    Ok(Rule { when, then, reason, after })
}
