//! Checks one statement against the database.

use longshore::did_you_mean;

use crate::file::FileError;
use crate::rows::{SourceError, StatementInfo};
use crate::sql;

use super::CheckContext;

/// First keywords of statements that change rows.
const WRITE_KEYWORDS: [&str; 6] = ["INSERT", "UPDATE", "DELETE", "REPLACE", "MERGE", "WITH"];

/// Queries that list tables: SQLite's, and the SQL standard's.
const TABLES: [&str; 2] = [
    "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')",
    "SELECT table_name FROM information_schema.tables
     WHERE table_schema NOT IN ('information_schema', 'pg_catalog')",
];

/// A statement and where it was written.
pub(super) struct Query<'a> {
    pub(super) context: &'a CheckContext<'a>,
    pub(super) key: &'a str,
    pub(super) sql: &'a str,
}

impl Query<'_> {
    /// The columns of the query; an error if it can change anything.
    pub(super) async fn columns(&self) -> Result<Vec<String>, FileError> {
        let info = self.describe().await?;
        if !info.read_only || info.columns.is_empty() {
            let error = self.error(format!("`{}` must be a query", self.key));
            return Err(error.hint("a SELECT that changes nothing"));
        }
        Ok(info.columns)
    }

    /// Checks that the statement changes rows and does nothing else.
    pub(super) async fn require_write(&self) -> Result<(), FileError> {
        let not_a_write = || {
            let error = self.error(format!("`{}` must change rows", self.key));
            error.hint("an INSERT, UPDATE or DELETE")
        };
        if !sql::verb(self.sql).is_some_and(|verb| WRITE_KEYWORDS.contains(&verb.as_str())) {
            return Err(not_a_write());
        }
        if self.describe().await?.read_only { Err(not_a_write()) } else { Ok(()) }
    }

    /// Checks that every parameter is one of `known`.
    pub(super) fn allow_params<'k>(&self, known: impl IntoIterator<Item = &'k str>) -> Result<(), FileError> {
        let known: Vec<&str> = known.into_iter().collect();
        let unknown = sql::parameters(self.sql).into_iter().find(|name| !known.contains(name));
        match unknown {
            None => Ok(()),
            Some(name) => {
                let error = self.error_at(self.offset_of(name), format!("unknown parameter `:{name}`"));
                Err(error.suggest(name, known))
            }
        }
    }

    /// An error about the whole statement.
    pub(super) fn error(&self, message: impl Into<String>) -> FileError {
        self.error_at(0, message)
    }

    /// An error at a byte offset of the statement.
    pub(super) fn error_at(&self, at: usize, message: impl Into<String>) -> FileError {
        self.context.error(self.key, sql::lines_before(self.sql, at), message)
    }

    /// The byte offset of a parameter's first use.
    pub(super) fn offset_of(&self, param: &str) -> usize {
        let mut found = sql::tokens(self.sql).filter(|token| {
            token.kind == sql::TokenKind::Parameter && token.text.strip_prefix(':') == Some(param)
        });
        found.next().map_or(0, |token| token.at)
    }

    async fn describe(&self) -> Result<StatementInfo, FileError> {
        let info = match self.context.source.describe(self.sql).await {
            Ok(info) => info,
            Err(error) => return Err(self.explain(error).await),
        };
        let ours = sql::parameters(self.sql);
        match info.params.iter().find(|name| !ours.contains(&name.as_str())) {
            None => Ok(info),
            Some(name) => {
                let error = self.error(format!("`{}` has the parameter `{name}`", self.key));
                Err(error.hint("parameters are written as `:name`"))
            }
        }
    }

    /// The database's message, at the line where the statement was written.
    async fn explain(&self, error: SourceError) -> FileError {
        match error {
            SourceError::Statement { message, offset } => {
                // SQLite does not always report an offset; then the missing name is searched for.
                let at = offset.or_else(|| self.offset_of_missing(&message)).unwrap_or(0);
                let error = self.error_at(at, format!("`{}`: {message}", self.key));
                match self.suggest(&message).await {
                    Some(word) => error.hint(format!("did you mean `{word}`?")),
                    None => error,
                }
            }
            SourceError::Data(message) => self.error(format!("`{}`: {message}", self.key)),
            unavailable => self
                .context
                .error("database", 0, unavailable.to_string())
                .retryable(true)
                .hint("is the address right, and is the server there?"),
        }
    }

    /// The byte offset of the first use of the name that the database does not find.
    fn offset_of_missing(&self, message: &str) -> Option<usize> {
        let name = missing_table(message).or_else(|| missing(message, "column"))?;
        sql::significant_tokens(self.sql).find(|token| token.text == name).map(|token| token.at)
    }

    /// The existing column or table with the name most similar to the missing one.
    async fn suggest(&self, message: &str) -> Option<String> {
        if let Some(table) = missing_table(message) {
            let tables = self.tables().await;
            return did_you_mean(table, tables.iter().map(String::as_str)).map(str::to_owned);
        }
        let column = missing(message, "column")?;
        let mut columns = Vec::new();
        for table in sql::tables(self.sql) {
            let all = format!("SELECT * FROM {table}");
            columns.extend(self.context.source.describe(&all).await.unwrap_or_default().columns);
        }
        did_you_mean(column, columns.iter().map(String::as_str)).map(str::to_owned)
    }

    /// The database's tables, as SQLite or the SQL standard lists them; empty for other databases,
    /// since they only serve a hint.
    async fn tables(&self) -> Vec<String> {
        let mut names = Vec::new();
        for sql in TABLES {
            let rows = self.context.source.fetch(sql, &[]).await.unwrap_or_default();
            let found = rows.iter().flat_map(|row| &row.columns);
            names.extend(found.map(|(_, name)| crate::sql_json::show_key(name)));
        }
        names
    }
}

/// The name in `no such table: linse` or `relation "linse" does not exist`.
fn missing_table(message: &str) -> Option<&str> {
    let relation = message.strip_prefix("relation \"").and_then(|rest| rest.split_once('"'));
    let relation = relation.filter(|(_, says)| says.trim() == "does not exist");
    let relation = relation.and_then(|(name, _)| name.rsplit('.').next());
    relation.or_else(|| missing(message, "table"))
}

/// The name in `no such column: l.vendr`, `has no column named vendr`, `column "vendr" does not
/// exist`; `what` is `column` or `table`.
fn missing<'m>(message: &'m str, what: &str) -> Option<&'m str> {
    // `Unknown` or `unknown`, depending on the database.
    let absence_words = ["no such", "no column", "not exist", "nknown"];
    absence_words.iter().find(|words| message.contains(**words))?;
    let (before, after) = message.split_once(what)?;
    // In "table t has no column named c" the column is missing, not the table.
    if what == "table" && !before.trim_end().ends_with("no such") {
        return None;
    }
    let after = after.trim_start().trim_start_matches("named");
    let after = after.trim_start_matches(|c: char| !c.is_alphanumeric() && c != '_');
    let ends = |c: char| !c.is_alphanumeric() && c != '_' && c != '.' && c != '$';
    let name = after.split(ends).next().unwrap_or_default();
    name.rsplit('.').next().filter(|name| !name.is_empty())
}
