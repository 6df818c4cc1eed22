//! Checks `[mail]`: its columns and templates.

use crate::definition::{Definition, Mail, Post, Pre, SqlPre};
use crate::file::FileError;
use crate::prompt::{PromptTemplate, WHOLE_ROW};

use super::CheckContext;
use super::pre::row_query_columns;
use super::query::Query;

/// The parameters of a definition's SQL and templates that `[mail]` adds.
pub(super) fn facts(definition: &Definition) -> Vec<&'static str> {
    let facts = definition.mail().into_iter().flat_map(|mail| mail.facts().map(|(name, _)| name));
    facts.collect()
}

/// Without `fail`, a row stays due if its message cannot be sent.
const NO_FAIL_STATEMENTS: &str = "[post] has no `fail`: rows whose message cannot be sent stay due, and \
                                 are retried in every round";

/// Checks the parts of `[mail]` that PRE's check does not cover. Returns a warning if a setting is
/// probably a mistake.
pub(super) async fn check(context: &CheckContext<'_>, mail: &Mail) -> Result<Option<String>, FileError> {
    let Pre::Sql(pre) = &context.definition.pre else {
        return Err(context.error("mail.to", 0, "[mail] needs SQL in [pre]"));
    };
    let Some(items) = pre.lists.get(&mail.items) else {
        let message = format!("`pre.lists` has no list `{}`, the list of new items", mail.items);
        let error = context.error("mail.items", 0, message);
        return Err(error.suggest(&mail.items, pre.lists.keys().map(String::as_str)));
    };
    let key = format!("pre.lists.{}", mail.items);
    let columns = row_query_columns(&Query { context, key: &key, sql: items }).await?;
    require_column(context, "mail.last", &mail.last, &columns)?;
    for column in mail.same.iter().flatten() {
        require_column(context, "mail.same", column, &columns)?;
    }
    let columns = row_query_columns(&Query { context, key: "pre.sql", sql: &pre.sql }).await?;
    if let Some(since) = &mail.since {
        require_column(context, "mail.since", since, &columns)?;
    }
    let lines = [("mail.from", &mail.from), ("mail.to", &mail.to), ("mail.subject", &mail.subject)];
    let headers = mail.headers.iter().map(|(name, text)| (format!("mail.headers.{name}"), text));
    let lines = lines.into_iter().map(|(key, text)| (key.to_owned(), text));
    lines.chain(headers).try_for_each(|(key, text)| check_line(context, &key, text, pre, &columns))?;
    let unmarked = matches!(&context.definition.post, Post::Sql(post)
        if post.fail.is_empty() && post.always.is_empty() && post.rules.is_empty());
    Ok(unmarked.then(|| NO_FAIL_STATEMENTS.to_owned()))
}

fn require_column(
    context: &CheckContext<'_>,
    key: &str,
    column: &str,
    columns: &[String],
) -> Result<(), FileError> {
    if columns.iter().any(|known| known == column) {
        return Ok(());
    }
    let error = context.error(key, 0, format!("`{key}`: there is no column `{column}`"));
    Err(error.suggest(column, columns.iter().map(String::as_str)))
}

fn check_line(
    context: &CheckContext<'_>,
    key: &str,
    text: &str,
    pre: &SqlPre,
    columns: &[String],
) -> Result<(), FileError> {
    let prompt = PromptTemplate::compile(text, key)
        .map_err(|error| context.error(key, 0, format!("`{key}`: {}", error.message)))?;
    let facts = facts(context.definition);
    let known = columns.iter().map(String::as_str).chain(pre.lists.keys().map(String::as_str));
    let known: Vec<&str> = known.chain(facts).chain([WHOLE_ROW]).collect();
    let names = prompt.names();
    let mut firsts = names.iter().filter_map(|path| path.split('.').next());
    match firsts.find(|name| !known.contains(name)) {
        None => Ok(()),
        Some(name) => {
            let message = format!("`{key}` uses `{name}`, which is not there");
            Err(context.error(key, 0, message).suggest(name, known.iter().copied()))
        }
    }
}
