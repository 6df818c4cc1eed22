//! Checks a definition against its database before any row is touched.
//!
//! Finds every mistake that does not depend on a row: SQL that the database rejects, missing
//! columns, parameters without a value, and templates, rules and schemas that do not compile.
//! Reports one mistake at a time, at the line where it was written. Runs nothing and reads only the
//! database's own description; only [`commands`] starts the programs that a definition names.

mod ai;
mod command;
mod keys;
mod mail;
mod post;
mod pre;
mod query;
mod steps;

use crate::definition::{Action, Candidates, Definition, Post, Pre};
use crate::file::{FileError, SourceMap};
use crate::rows::RowSource;
use crate::sql::{self, Clause};

pub use command::commands;
pub use keys::candidate_keys;
pub use post::{ALERT_PARAMETERS, COMPLETION_PARAMETERS};
use query::Query;

/// The result of a successful check.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckReport {
    /// Settings that are valid but probably a mistake.
    pub warnings: Vec<String>,
}

/// Checks `definition`; `source_map` has the lines where its texts were written.
pub async fn check(
    definition: &Definition,
    source_map: &SourceMap,
    source: &dyn RowSource,
) -> Result<CheckReport, FileError> {
    let context = CheckContext { definition, source_map, source };
    let mut warnings = Vec::new();
    let fields = ai::fields(&context)?;
    ai::provider(&context)?;
    if let Post::Sql(post) = &definition.post {
        post::rules(&context, post, &fields)?;
    }
    candidates(&context, &definition.candidates).await?;
    warnings.extend(steps::check(&context).await?);
    match &definition.pre {
        Pre::Sql(pre) => warnings.extend(pre::check(&context, pre).await?),
        Pre::Command(pre) => command::pre(&context, pre).await?,
        Pre::Code(_) => {}
    }
    if let Some(mail) = definition.mail() {
        warnings.extend(mail::check(&context, mail).await?);
    }
    match &definition.post {
        Post::Sql(post) => warnings.extend(post::statements(&context, post, &fields).await?),
        Post::Command(post) => command::post(&context, post).await?,
        Post::Code(_) => {}
    }
    let (completion, alerts) = (&definition.completion, &definition.alerts.action);
    check_action(&context, "completion", completion.as_ref(), &COMPLETION_PARAMETERS).await?;
    check_action(&context, "alerts", alerts.as_ref(), &ALERT_PARAMETERS).await?;
    Ok(CheckReport { warnings })
}

/// The input of every part of the check.
struct CheckContext<'a> {
    definition: &'a Definition,
    source_map: &'a SourceMap,
    source: &'a dyn RowSource,
}

impl CheckContext<'_> {
    /// An error `lines` lines into the text under `key`.
    fn error(&self, key: &str, lines: usize, message: impl Into<String>) -> FileError {
        self.source_map.error(&self.definition.source, key, lines, message)
    }
}

async fn candidates(context: &CheckContext<'_>, candidates: &Candidates) -> Result<(), FileError> {
    let query = Query { context, key: "candidates.sql", sql: &candidates.sql };
    if let Some((clause, at)) = sql::closing_clause(&candidates.sql) {
        return Err(forbidden_clause(&query, clause, at));
    }
    let columns = query.columns().await?;
    query.allow_params(candidates.params.keys().map(String::as_str))?;
    require_column(context, "candidates.key", &candidates.key, &columns)?;
    match &candidates.priority {
        Some(priority) => require_column(context, "candidates.priority", priority, &columns),
        None => Ok(()),
    }
}

/// The error for an ORDER BY or LIMIT: the candidates are read page by page in key order, with
/// clauses of our own.
fn forbidden_clause(query: &Query<'_>, clause: Clause, at: usize) -> FileError {
    match clause {
        Clause::Order => {
            let error = query.error_at(at, "the candidates' SQL must not have an ORDER BY");
            error.hint("rows come in the order of their keys; for another, name a `priority`")
        }
        Clause::Limit => {
            let error = query.error_at(at, "the candidates' SQL must not limit its rows");
            error.hint("write `limit = …` under [candidates]")
        }
    }
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
    let error = context.error(key, 0, format!("the candidates have no column `{column}`"));
    Err(error.suggest(column, columns.iter().map(String::as_str)))
}

async fn check_action(
    context: &CheckContext<'_>,
    section: &str,
    action: Option<&Action>,
    known: &[&str],
) -> Result<(), FileError> {
    let Some(Action::Sql(statements)) = action else { return Ok(()) };
    for (index, statement) in statements.iter().enumerate() {
        let key = format!("{section}.sql[{index}]");
        let query = Query { context, key: &key, sql: &statement.sql };
        query.require_write().await?;
        query.allow_params(known.iter().copied())?;
    }
    Ok(())
}
