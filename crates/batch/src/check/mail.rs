//! What is written to rows: its columns and its lines.

use crate::definition::{Definition, Mail, Post, Pre, SqlPre};
use crate::file::FileError;
use crate::prompt::{Prompt, WHOLE_ROW};

use super::Desk;
use super::pre::described;
use super::query::Query;

/// What SQL and templates of a definition know beside the row.
pub(super) fn facts(definition: &Definition) -> Vec<&'static str> {
    let facts = definition.mail.iter().flat_map(|mail| mail.facts().map(|(name, _)| name));
    facts.collect()
}

/// Whoever cannot be written to is due again at once.
const NOTHING_IS_MARKED: &str = "[post] has no `fail`: rows that cannot be written to stay due, and \
                                 are tried again in every round";

/// Checks what PRE's own check does not see, and says what is probably not meant.
pub(super) async fn check(desk: &Desk<'_>, mail: &Mail) -> Result<Option<String>, FileError> {
    let Pre::Sql(pre) = &desk.definition.pre else {
        return Err(desk.error("mail.to", 0, "[mail] needs SQL in [pre]"));
    };
    let Some(items) = pre.lists.get(&mail.items) else {
        let words = format!("`pre.lists` has no list `{}`, which says what is new", mail.items);
        let error = desk.error("mail.items", 0, words);
        return Err(error.meant(&mail.items, pre.lists.keys().map(String::as_str)));
    };
    let key = format!("pre.lists.{}", mail.items);
    let columns = described(&Query { desk, key: &key, sql: items }).await?;
    has(desk, "mail.last", &mail.last, &columns)?;
    for column in mail.same.iter().flatten() {
        has(desk, "mail.same", column, &columns)?;
    }
    let columns = described(&Query { desk, key: "pre.sql", sql: &pre.sql }).await?;
    if let Some(since) = &mail.since {
        has(desk, "mail.since", since, &columns)?;
    }
    let lines = [("mail.from", &mail.from), ("mail.to", &mail.to), ("mail.subject", &mail.subject)];
    let headers = mail.headers.iter().map(|(name, text)| (format!("mail.headers.{name}"), text));
    let lines = lines.into_iter().map(|(key, text)| (key.to_owned(), text));
    lines.chain(headers).try_for_each(|(key, text)| line(desk, &key, text, pre, &columns))?;
    let unmarked = matches!(&desk.definition.post, Post::Sql(post)
        if post.fail.is_empty() && post.always.is_empty() && post.rules.is_empty());
    Ok(unmarked.then(|| NOTHING_IS_MARKED.to_owned()))
}

fn has(desk: &Desk<'_>, key: &str, column: &str, columns: &[String]) -> Result<(), FileError> {
    if columns.iter().any(|known| known == column) {
        return Ok(());
    }
    let error = desk.error(key, 0, format!("`{key}`: there is no column `{column}`"));
    Err(error.meant(column, columns.iter().map(String::as_str)))
}

fn line(
    desk: &Desk<'_>,
    key: &str,
    text: &str,
    pre: &SqlPre,
    columns: &[String],
) -> Result<(), FileError> {
    let prompt = Prompt::compile(text, key)
        .map_err(|error| desk.error(key, 0, format!("`{key}`: {}", error.message)))?;
    let facts = facts(desk.definition);
    let known = columns.iter().map(String::as_str).chain(pre.lists.keys().map(String::as_str));
    let known: Vec<&str> = known.chain(facts).chain([WHOLE_ROW]).collect();
    let names = prompt.names();
    let mut firsts = names.iter().filter_map(|path| path.split('.').next());
    match firsts.find(|name| !known.contains(name)) {
        None => Ok(()),
        Some(name) => {
            let words = format!("`{key}` uses `{name}`, which is not there");
            Err(desk.error(key, 0, words).meant(name, known.iter().copied()))
        }
    }
}
