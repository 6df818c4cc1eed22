//! A definition against its database, before any row is touched.
//!
//! Everything that can be wrong without looking at a row is found here: SQL that the database does
//! not accept, columns that are not there, parameters that nobody would bind, templates, rules and
//! schemas that do not compile. One mistake at a time, at the place where it was written. Nothing
//! is run and nothing is read but the database's own description; only [`commands`] starts what a
//! definition names.

mod ai;
mod command;
mod mail;
mod post;
mod pre;
mod query;

use crate::definition::{Action, Candidates, Definition, Post, Pre};
use crate::file::{FileError, Places};
use crate::rows::RowSource;
use crate::sql::{self, Clause};

pub use command::commands;
pub use post::{ALERT_PARAMETERS, COMPLETION_PARAMETERS};
use query::Query;

/// A definition that can be worked with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checked {
    /// What is probably not meant.
    pub warnings: Vec<String>,
}

/// Checks `definition`; `places` says where its texts were written.
pub async fn check(
    definition: &Definition,
    places: &Places,
    source: &dyn RowSource,
) -> Result<Checked, FileError> {
    let desk = Desk { definition, places, source };
    let mut warnings = Vec::new();
    let fields = ai::fields(&desk)?;
    ai::provider(&desk)?;
    if let Post::Sql(post) = &definition.post {
        post::rules(&desk, post, &fields)?;
    }
    candidates(&desk, &definition.candidates).await?;
    match &definition.pre {
        Pre::Sql(pre) => warnings.extend(pre::check(&desk, pre).await?),
        Pre::Command(pre) => command::pre(&desk, pre).await?,
        Pre::Code(_) => {}
    }
    if let Some(mail) = &definition.mail {
        warnings.extend(mail::check(&desk, mail).await?);
    }
    match &definition.post {
        Post::Sql(post) => warnings.extend(post::statements(&desk, post, &fields).await?),
        Post::Command(post) => command::post(&desk, post).await?,
        Post::Code(_) => {}
    }
    let (completion, alerts) = (&definition.completion, &definition.alerts.action);
    action(&desk, "completion", completion.as_ref(), &COMPLETION_PARAMETERS).await?;
    action(&desk, "alerts", alerts.as_ref(), &ALERT_PARAMETERS).await?;
    Ok(Checked { warnings })
}

/// What every part of the check needs.
struct Desk<'a> {
    definition: &'a Definition,
    places: &'a Places,
    source: &'a dyn RowSource,
}

impl Desk<'_> {
    /// A mistake `lines` lines into the text under `key`.
    fn error(&self, key: &str, lines: usize, message: impl Into<String>) -> FileError {
        self.places.error(&self.definition.source, key, lines, message)
    }
}

async fn candidates(desk: &Desk<'_>, candidates: &Candidates) -> Result<(), FileError> {
    let query = Query { desk, key: "candidates.sql", sql: &candidates.sql };
    if let Some((clause, at)) = sql::closing_clause(&candidates.sql) {
        return Err(closed(&query, clause, at));
    }
    let columns = query.columns().await?;
    query.only_params(candidates.params.keys().map(String::as_str))?;
    has_column(desk, "candidates.key", &candidates.key, &columns)?;
    match &candidates.priority {
        Some(priority) => has_column(desk, "candidates.priority", priority, &columns),
        None => Ok(()),
    }
}

/// An ORDER BY or LIMIT, which ours would clash with: rows are read page by page in key order.
fn closed(query: &Query<'_>, clause: Clause, at: usize) -> FileError {
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

fn has_column(
    desk: &Desk<'_>,
    key: &str,
    column: &str,
    columns: &[String],
) -> Result<(), FileError> {
    if columns.iter().any(|known| known == column) {
        return Ok(());
    }
    let error = desk.error(key, 0, format!("the candidates have no column `{column}`"));
    Err(error.meant(column, columns.iter().map(String::as_str)))
}

async fn action(
    desk: &Desk<'_>,
    section: &str,
    action: Option<&Action>,
    known: &[&str],
) -> Result<(), FileError> {
    let Some(Action::Sql(statements)) = action else { return Ok(()) };
    for (index, statement) in statements.iter().enumerate() {
        let key = format!("{section}.sql[{index}]");
        let query = Query { desk, key: &key, sql: &statement.sql };
        query.writes().await?;
        query.only_params(known.iter().copied())?;
    }
    Ok(())
}
