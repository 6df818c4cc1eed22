//! POST: its rules and its statements.

use crate::definition::{SqlPost, Statement};
use crate::file::FileError;
use crate::rules::{NAMES, Rules};
use crate::sql;
use crate::sql_post::RESERVED;

use super::Desk;
use super::ai::Fields;
use super::query::Query;

/// What SQL of `[completion]` may use; see [`crate::end`].
pub const COMPLETION_PARAMETERS: [&str; 14] = [
    "batch",
    "batch_id",
    "type",
    "tenant",
    "status",
    "generation",
    "total",
    "done",
    "failed",
    "cancelled",
    "reason",
    "seconds",
    "cost_usd",
    "simulated",
];

/// What SQL of `[alerts]` may use: an [`crate::alerts::Alert`].
pub const ALERT_PARAMETERS: [&str; 4] = ["batch", "batch_id", "code", "words"];

/// Checks the rules: they compile, and ask only for what a reply can have.
pub(super) fn rules(desk: &Desk<'_>, post: &SqlPost, fields: &Fields) -> Result<(), FileError> {
    let rules = Rules::compile(&post.rules).and_then(|rules| rules.rehearse().map(|()| rules));
    let rules = rules.map_err(|error| {
        let lines = error.error.line.unwrap_or(1).saturating_sub(1);
        let key = format!("post.rules[{}].{}", error.index, error.part);
        desk.error(&key, lines, error.to_string())
    })?;
    for index in 0..post.rules.len() {
        for (part, path) in rules.names(index) {
            let key = format!("post.rules[{index}].{part}");
            rule_name(&path, fields).map_err(|(message, name, known)| {
                desk.error(&key, 0, message).meant(&name, known.iter().map(String::as_str))
            })?;
        }
    }
    Ok(())
}

/// A message, the name it is about, and the names there are.
type Unknown = (String, String, Vec<String>);

fn rule_name(path: &str, fields: &Fields) -> Result<(), Unknown> {
    let mut parts = path.split('.');
    let (first, second) = (parts.next().unwrap_or_default(), parts.next());
    if !NAMES.contains(&first) {
        let known = NAMES.map(str::to_owned).to_vec();
        return Err((format!("a rule knows no `{first}`"), first.to_owned(), known));
    }
    match (first, second, fields) {
        ("answer", Some(field), Fields::Named(known)) if !known.iter().any(|k| k == field) => {
            let message = format!("the schema has no field `{field}`");
            Err((message, field.to_owned(), known.clone()))
        }
        _ => Ok(()),
    }
}

/// Checks the statements and says what is probably not meant.
pub(super) async fn statements(
    desk: &Desk<'_>,
    post: &SqlPost,
    fields: &Fields,
) -> Result<Vec<String>, FileError> {
    let lists = [
        ("always", &post.always),
        ("success", &post.success),
        ("fail", &post.fail),
        ("retry", &post.retry),
        ("skip", &post.skip),
    ];
    for (name, statements) in lists {
        for (index, statement) in statements.iter().enumerate() {
            one(desk, &format!("post.{name}[{index}]"), statement, fields).await?;
        }
    }
    let silent = lists.iter().all(|(_, statements)| statements.is_empty());
    let warning = "[post] has no SQL: answers are kept with the batch and written to no table";
    Ok(silent.then(|| warning.to_owned()).into_iter().collect())
}

async fn one(
    desk: &Desk<'_>,
    key: &str,
    statement: &Statement,
    fields: &Fields,
) -> Result<(), FileError> {
    let query = Query { desk, key, sql: &statement.sql };
    query.writes().await?;
    match fields {
        Fields::Named(names) => {
            let prefixed: Vec<String> = names.iter().map(|name| format!("answer_{name}")).collect();
            let own = names.iter().chain(&prefixed).map(String::as_str);
            query.only_params(RESERVED.into_iter().chain(own))
        }
        Fields::Unnamed => {
            let used = sql::parameters(&statement.sql).into_iter();
            let own = used.filter(|name| name.starts_with("answer_"));
            query.only_params(RESERVED.into_iter().chain(own)).map_err(unnamed)
        }
    }
}

/// A name that would be an answer's field, were there a schema to say so.
fn unnamed(error: FileError) -> FileError {
    let meant = error.hint.as_ref().is_some_and(|hint| hint.starts_with("did you mean"));
    if meant {
        return error;
    }
    error.hint("a field of the answer needs a schema in [ai] that names it, or `:answer_<field>`")
}
