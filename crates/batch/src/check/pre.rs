//! Checks PRE: its queries and its template.

use std::collections::{BTreeMap, BTreeSet};

use longshore::SqlValue;

use crate::definition::SqlPre;
use crate::file::FileError;
use crate::prompt::{PromptTemplate, WHOLE_ROW};
use crate::rows::Row;
use crate::sql;
use crate::template::TemplateError;

use super::query::Query;
use super::{CheckContext, mail};

/// The parameters of PRE's SQL.
const PARAMETERS: [&str; 2] = ["key", "batch_id"];

/// Checks PRE. Returns warnings about settings that are probably a mistake.
pub(super) async fn check(context: &CheckContext<'_>, pre: &SqlPre) -> Result<Vec<String>, FileError> {
    let prompt = PromptTemplate::compile(&pre.template, &pre.template_name);
    let prompt = prompt.map_err(|error| template_error(context, "pre.prompt", error))?;
    let query = Query { context, key: "pre.sql", sql: &pre.sql };
    let mut columns = single_row_columns(&query).await?;
    columns.extend(mail::facts(context.definition).into_iter().map(str::to_owned));
    let mut lists = BTreeMap::new();
    for (name, sql) in &pre.lists {
        let key = format!("pre.lists.{name}");
        if columns.contains(name) {
            return Err(context.error(&key, 0, format!("`{name}` is also a column of `pre.sql`")));
        }
        lists.insert(name.clone(), row_query_columns(&Query { context, key: &key, sql }).await?);
    }
    let steps: Vec<&str> = context.definition.steps.iter().map(|step| step.name.as_str()).collect();
    let names = PromptNames { columns: &columns, lists: &lists, steps: &steps };
    check_prompt(context, "pre.prompt", &pre.template, &prompt, &names)?;
    Ok(warnings(&columns))
}

/// The names that a prompt may use.
pub(super) struct PromptNames<'a> {
    pub(super) columns: &'a [String],
    pub(super) lists: &'a BTreeMap<String, Vec<String>>,
    pub(super) steps: &'a [&'a str],
}

/// Checks a prompt that was written under `key`.
pub(super) fn check_prompt(
    context: &CheckContext<'_>,
    key: &str,
    template: &str,
    prompt: &PromptTemplate,
    names: &PromptNames<'_>,
) -> Result<(), FileError> {
    check_names(context, key, template, prompt, names)?;
    dry_run(context, key, prompt, names)
}

/// The columns of a query that reads one row by its key.
pub(super) async fn single_row_columns(query: &Query<'_>) -> Result<Vec<String>, FileError> {
    let columns = row_query_columns(query).await?;
    if !sql::parameters(query.sql).contains(&"key") {
        let message = format!("`{}` does not use `:key`: every row would be the same", query.key);
        return Err(query.error(message).hint("WHERE … = :key"));
    }
    Ok(columns)
}

/// The columns of a query about a row.
pub(super) async fn row_query_columns(query: &Query<'_>) -> Result<Vec<String>, FileError> {
    let columns = query.columns().await?;
    let facts = mail::facts(query.context.definition);
    query.allow_params(PARAMETERS.into_iter().chain(facts))?;
    Ok(columns)
}

/// Checks that the template uses only names that exist.
fn check_names(
    context: &CheckContext<'_>,
    key: &str,
    template: &str,
    prompt: &PromptTemplate,
    names: &PromptNames<'_>,
) -> Result<(), FileError> {
    let lists = names.lists.keys().map(String::as_str).chain(names.steps.iter().copied());
    let columns: Vec<&str> = names.columns.iter().map(String::as_str).collect();
    let top: Vec<&str> = columns.iter().copied().chain(lists).chain([WHOLE_ROW]).collect();
    for path in prompt.names() {
        let mut parts = path.split('.');
        let (first, second) = (parts.next().unwrap_or_default(), parts.next());
        let (name, known) = match second {
            Some(column) if first == WHOLE_ROW => (column, &columns),
            _ => (first, &top),
        };
        if !known.contains(&name) {
            let lines = line_of(template, name);
            let error = context.error(key, lines, format!("the prompt uses `{name}`, which is not there"));
            return Err(error.suggest(name, known.iter().copied()));
        }
    }
    Ok(())
}

/// The line, from 0, of the first use of a name.
fn line_of(template: &str, name: &str) -> usize {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let uses = |line: &str| line.split(|c| !is_part(c)).any(|word| word == name);
    let in_code = |line: &&str| line.contains("{{") || line.contains("{%");
    let lines = || template.lines().enumerate();
    let best = lines().find(|(_, line)| in_code(line) && uses(line));
    best.or_else(|| lines().find(|(_, line)| uses(line))).map_or(0, |(index, _)| index)
}

/// Renders the template over a row of NULLs. An unknown name or filter fails for every row, so it
/// is an error. Other failures depend on the values and are ignored.
fn dry_run(
    context: &CheckContext<'_>,
    key: &str,
    prompt: &PromptTemplate,
    names: &PromptNames<'_>,
) -> Result<(), FileError> {
    let PromptNames { columns, lists, steps } = names;
    let nulls = |columns: &[String]| Row {
        columns: columns.iter().map(|name| (name.clone(), SqlValue::Null)).collect(),
    };
    let lists = lists.iter().map(|(name, columns)| (name.clone(), nulls(columns))).collect();
    prompt.dry_run(&nulls(columns), &lists, steps).map_err(|error| template_error(context, key, error))
}

pub(super) fn template_error(context: &CheckContext<'_>, key: &str, error: TemplateError) -> FileError {
    let lines = error.line.unwrap_or(1).saturating_sub(1);
    context.error(key, lines, format!("the prompt: {}", error.message))
}

fn warnings(columns: &[String]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let duplicates = columns.iter().filter(|name| !seen.insert(name.as_str()));
    let mut warnings: Vec<String> = duplicates
        .map(|name| format!("`pre.sql` has two columns `{name}`; the prompt sees the last"))
        .collect();
    if columns.iter().any(|name| name == WHOLE_ROW) {
        warnings.push(format!(
            "`pre.sql` has a column `{WHOLE_ROW}`; the prompt sees it as `{WHOLE_ROW}.{WHOLE_ROW}`"
        ));
    }
    warnings
}
