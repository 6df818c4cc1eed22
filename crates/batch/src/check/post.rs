//! Checks POST: its rules and its statements.

use crate::definition::{RowStepSpec, SqlPost, SqlStatement};
use crate::file::FileError;
use crate::sql;
use crate::sql_post::RESERVED;
use crate::verdict_rules::{RULE_NAMES, RuleSet};

use super::CheckContext;
use super::ai::AnswerFields;
use super::query::Query;

/// The parameters of SQL in `[completion]`; see [`crate::completion`].
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

/// The parameters of SQL in `[alerts]`: the fields of an [`crate::alerts::Alert`].
pub const ALERT_PARAMETERS: [&str; 4] = ["batch", "batch_id", "code", "words"];

/// Checks that the rules compile and use only names that a reply can have.
pub(super) fn rules(
    context: &CheckContext<'_>,
    post: &SqlPost,
    fields: &AnswerFields,
) -> Result<(), FileError> {
    let rules = RuleSet::compile(&post.rules).and_then(|rules| rules.dry_run().map(|()| rules));
    let rules = rules.map_err(|error| {
        let lines = error.error.line.unwrap_or(1).saturating_sub(1);
        let key = format!("post.rules[{}].{}", error.index, error.part);
        context.error(&key, lines, error.to_string())
    })?;
    for index in 0..post.rules.len() {
        for (part, path) in rules.names(index) {
            let key = format!("post.rules[{index}].{part}");
            check_rule_name(&path, fields).map_err(|(message, name, known)| {
                context.error(&key, 0, message).suggest(&name, known.iter().map(String::as_str))
            })?;
        }
    }
    Ok(())
}

/// The message, the unknown name, and the names that exist.
type UnknownName = (String, String, Vec<String>);

fn check_rule_name(path: &str, fields: &AnswerFields) -> Result<(), UnknownName> {
    let mut parts = path.split('.');
    let (first, second) = (parts.next().unwrap_or_default(), parts.next());
    if !RULE_NAMES.contains(&first) {
        let known = RULE_NAMES.map(str::to_owned).to_vec();
        return Err((format!("a rule has no variable `{first}`"), first.to_owned(), known));
    }
    match (first, second, fields) {
        ("answer", Some(field), AnswerFields::Named(known)) if !known.iter().any(|k| k == field) => {
            let message = format!("the schema has no field `{field}`");
            Err((message, field.to_owned(), known.clone()))
        }
        _ => Ok(()),
    }
}

/// Checks the statements. Returns warnings about settings that are probably a mistake.
pub(super) async fn statements(
    context: &CheckContext<'_>,
    post: &SqlPost,
    fields: &AnswerFields,
) -> Result<Vec<String>, FileError> {
    let lists = [
        ("always", &post.always),
        ("success", &post.success),
        ("fail", &post.fail),
        ("retry", &post.retry),
        ("skip", &post.skip),
    ];
    let mut warnings = Vec::new();
    for (name, statements) in lists {
        for (index, statement) in statements.iter().enumerate() {
            let key = format!("post.{name}[{index}]");
            check_statement(context, &key, statement, fields).await?;
            warnings.extend(unbounded_change(context, &key, &statement.sql));
        }
    }
    let no_sql = lists.iter().all(|(_, statements)| statements.is_empty());
    let warning = "[post] has no SQL: answers are kept with the batch and written to no table";
    warnings.extend(no_sql.then(|| warning.to_owned()));
    Ok(warnings)
}

/// Parameters that limit a change to the row, or to what the batch itself wrote.
const ROW_PARAMETERS: [&str; 4] = ["key", "unit_key", "unit_id", "batch_id"];

/// The warning about an UPDATE or DELETE that is not limited to the row: each row would change all rows.
pub(super) fn unbounded_change(context: &CheckContext<'_>, key: &str, text: &str) -> Option<String> {
    let verb = sql::verb(text).filter(|verb| verb == "UPDATE" || verb == "DELETE")?;
    let condition = sql::condition(text);
    let parameters = sql::parameters(condition.unwrap_or_default());
    if parameters.iter().any(|name| ROW_PARAMETERS.contains(name)) {
        return None;
    }
    let lacks = match condition {
        Some(_) => "has no `:key` in its WHERE",
        None => "has no WHERE",
    };
    let error = context.error(
        key,
        0,
        format!("the {verb} {lacks}: every row of the batch would change all rows that it finds"),
    );
    Some(error.to_string())
}

async fn check_statement(
    context: &CheckContext<'_>,
    key: &str,
    statement: &SqlStatement,
    fields: &AnswerFields,
) -> Result<(), FileError> {
    let query = Query { context, key, sql: &statement.sql };
    query.require_write().await?;
    match fields {
        AnswerFields::Named(names) => {
            let prefixed: Vec<String> = names.iter().map(|name| format!("answer_{name}")).collect();
            let own = names.iter().chain(&prefixed).map(String::as_str);
            let of_steps = step_params(&statement.sql, &context.definition.steps);
            query.allow_params(RESERVED.into_iter().chain(own).chain(of_steps))
        }
        AnswerFields::Any => {
            let used = sql::parameters(&statement.sql).into_iter();
            let own = used.filter(|name| name.starts_with("answer_"));
            let of_steps = step_params(&statement.sql, &context.definition.steps);
            query.allow_params(RESERVED.into_iter().chain(own).chain(of_steps)).map_err(suggest_schema)
        }
    }
}

/// The parameters of a statement that name these steps: `:STEP` and `:STEP_FIELD`.
pub(super) fn step_params<'s>(sql: &'s str, steps: &[RowStepSpec]) -> Vec<&'s str> {
    let is_step = |name: &str, step: &RowStepSpec| {
        let rest = name.strip_prefix(step.name.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    };
    let used = sql::parameters(sql).into_iter();
    used.filter(|name| steps.iter().any(|step| is_step(name, step))).collect()
}

/// Hints that a schema would make the name a field of the answer.
fn suggest_schema(error: FileError) -> FileError {
    let has_suggestion = error.hint.as_ref().is_some_and(|hint| hint.starts_with("did you mean"));
    if has_suggestion {
        return error;
    }
    error.hint("a field of the answer needs a schema in [ai] that names it, or `:answer_<field>`")
}
