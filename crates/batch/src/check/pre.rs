//! PRE: its queries and its template.

use std::collections::{BTreeMap, BTreeSet};

use longshore::SqlValue;

use crate::definition::SqlPre;
use crate::file::FileError;
use crate::prompt::{Prompt, WHOLE_ROW};
use crate::rows::Row;
use crate::sql;
use crate::template::TemplateError;

use super::query::Query;
use super::{Desk, mail};

/// What PRE's SQL may use.
const PARAMETERS: [&str; 2] = ["key", "batch_id"];

/// Checks PRE and says what is probably not meant.
pub(super) async fn check(desk: &Desk<'_>, pre: &SqlPre) -> Result<Vec<String>, FileError> {
    let prompt = Prompt::compile(&pre.template, &pre.template_name);
    let prompt = prompt.map_err(|error| in_template(desk, error))?;
    let query = Query { desk, key: "pre.sql", sql: &pre.sql };
    let mut columns = of_one_row(&query).await?;
    columns.extend(mail::facts(desk.definition).into_iter().map(str::to_owned));
    let mut lists = BTreeMap::new();
    for (name, sql) in &pre.lists {
        let key = format!("pre.lists.{name}");
        if columns.contains(name) {
            return Err(desk.error(&key, 0, format!("`{name}` is also a column of `pre.sql`")));
        }
        lists.insert(name.clone(), described(&Query { desk, key: &key, sql }).await?);
    }
    names(desk, pre, &prompt, &columns)?;
    rehearse(desk, &prompt, &columns, &lists)?;
    Ok(warnings(&columns))
}

/// The columns of a query that reads one row by its key.
pub(super) async fn of_one_row(query: &Query<'_>) -> Result<Vec<String>, FileError> {
    let columns = described(query).await?;
    if !sql::parameters(query.sql).contains(&"key") {
        let words = format!("`{}` does not use `:key`: every row would be the same", query.key);
        return Err(query.error(words).hint("WHERE … = :key"));
    }
    Ok(columns)
}

/// The columns of a query about a row.
pub(super) async fn described(query: &Query<'_>) -> Result<Vec<String>, FileError> {
    let columns = query.columns().await?;
    let facts = mail::facts(query.desk.definition);
    query.only_params(PARAMETERS.into_iter().chain(facts))?;
    Ok(columns)
}

/// Makes sure that the template asks only for what there is.
fn names(
    desk: &Desk<'_>,
    pre: &SqlPre,
    prompt: &Prompt,
    columns: &[String],
) -> Result<(), FileError> {
    let lists = pre.lists.keys().map(String::as_str);
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let top: Vec<&str> = columns.iter().copied().chain(lists).chain([WHOLE_ROW]).collect();
    for path in prompt.names() {
        let mut parts = path.split('.');
        let (first, second) = (parts.next().unwrap_or_default(), parts.next());
        let (name, known) = match second {
            Some(column) if first == WHOLE_ROW => (column, &columns),
            _ => (first, &top),
        };
        if !known.contains(&name) {
            let lines = line_of(&pre.template, name);
            let error = desk.error(
                "pre.prompt",
                lines,
                format!("the prompt uses `{name}`, which is not there"),
            );
            return Err(error.meant(name, known.iter().copied()));
        }
    }
    Ok(())
}

/// The line, from 0, on which a name is used first.
fn line_of(template: &str, name: &str) -> usize {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let uses = |line: &str| line.split(|c| !is_part(c)).any(|word| word == name);
    let in_code = |line: &&str| line.contains("{{") || line.contains("{%");
    let lines = || template.lines().enumerate();
    let best = lines().find(|(_, line)| in_code(line) && uses(line));
    best.or_else(|| lines().find(|(_, line)| uses(line))).map_or(0, |(index, _)| index)
}

/// Renders the template over a row of NULLs: what fails then for want of a name or a filter fails
/// for every row. What fails for the values' sake may be right for real ones.
fn rehearse(
    desk: &Desk<'_>,
    prompt: &Prompt,
    columns: &[String],
    lists: &BTreeMap<String, Vec<String>>,
) -> Result<(), FileError> {
    let nulls = |columns: &[String]| Row {
        columns: columns.iter().map(|name| (name.clone(), SqlValue::Null)).collect(),
    };
    let lists = lists.iter().map(|(name, columns)| (name.clone(), nulls(columns))).collect();
    prompt.rehearse(&nulls(columns), &lists).map_err(|error| in_template(desk, error))
}

fn in_template(desk: &Desk<'_>, error: TemplateError) -> FileError {
    let lines = error.line.unwrap_or(1).saturating_sub(1);
    desk.error("pre.prompt", lines, format!("the prompt: {}", error.message))
}

fn warnings(columns: &[String]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let twice = columns.iter().filter(|name| !seen.insert(name.as_str()));
    let mut warnings: Vec<String> = twice
        .map(|name| format!("`pre.sql` has two columns `{name}`; the prompt sees the last"))
        .collect();
    if columns.iter().any(|name| name == WHOLE_ROW) {
        warnings.push(format!(
            "`pre.sql` has a column `{WHOLE_ROW}`; the prompt sees it as `{WHOLE_ROW}.{WHOLE_ROW}`"
        ));
    }
    warnings
}
