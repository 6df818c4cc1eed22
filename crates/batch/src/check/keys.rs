//! Checks that candidates have keys and that these are unique, before a batch is opened for them.

use longshore::SqlValue;
use longshore::text::truncate_chars;

use crate::definition::{Candidates, Definition};
use crate::file::{FileError, SourceMap};
use crate::rows::{Row, RowSource};
use crate::sql;
use crate::sql_json::{from_json, show_key};

/// Columns of a candidate that a message shows, and the characters of each.
const MAX_COLUMNS: usize = 4;
const MAX_CHARS: usize = 40;

/// Rejects candidates without a key, and candidates of which two have the same: queries that the database answers with one
/// row each. If it cannot, the initiator notices such candidates as it reads them.
pub async fn candidate_keys(
    definition: &Definition,
    source_map: &SourceMap,
    source: &dyn RowSource,
) -> Result<(), FileError> {
    let Some(search) = KeySearch::new(&definition.candidates, source) else { return Ok(()) };
    let name = &definition.candidates.key;
    let error = |message: String| source_map.error(&definition.source, "candidates.key", 0, message);
    if let Some(found) = search.nulls().await {
        let (rows, first) = match found.count {
            1 => ("one candidate".to_owned(), "it"),
            count => (format!("{count} candidates"), "one of them"),
        };
        let example = found.example.map_or_else(String::new, |columns| format!(": {first} has {columns}"));
        let message = format!("keys must not be NULL, but `{name}` is NULL in {rows}{example}");
        let hint = format!(
            "add `{name} IS NOT NULL` to the WHERE of candidates.sql, or name a column that identifies each row"
        );
        return Err(error(message).hint(hint));
    }
    let Some(found) = search.duplicates().await else { return Ok(()) };
    let DuplicateKeys { count, first, last } = found;
    let examples = if first == last { format!("`{first}`") } else { format!("`{first}` to `{last}`") };
    let what = if count == 1 { "one key has".to_owned() } else { format!("{count} keys have") };
    let message = format!("keys must be unique, but in `{name}` {what} several candidates: {examples}");
    let hint = "a join that repeats rows needs GROUP BY or DISTINCT, or a column that identifies each row";
    Err(error(message).hint(hint))
}

/// Candidates without a key.
struct NullKeys {
    count: i64,
    /// Other columns of one of them.
    example: Option<String>,
}

/// Keys that several candidates have.
struct DuplicateKeys {
    count: i64,
    first: String,
    last: String,
}

/// Looks for unusable keys.
struct KeySearch<'a> {
    /// The candidates' statement, without a semicolon.
    sql: &'a str,
    key: &'a str,
    params: Vec<(String, SqlValue)>,
    source: &'a dyn RowSource,
}

impl<'a> KeySearch<'a> {
    fn new(candidates: &'a Candidates, source: &'a dyn RowSource) -> Option<Self> {
        let Candidates { sql, key, params, .. } = candidates;
        // A plain name needs no quotes, which differ from database to database.
        if !key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return None;
        }
        let [statement] = sql::split(sql)[..] else { return None };
        let params = params.iter().map(|(name, value)| (name.clone(), from_json(value))).collect();
        Some(Self { sql: statement.sql, key, params, source })
    }

    async fn nulls(&self) -> Option<NullKeys> {
        let Self { sql, key, .. } = self;
        let without_key = format!("FROM (\n{sql}\n) c WHERE c.{key} IS NULL");
        let found = self.first_row(&format!("SELECT count(*) AS n {without_key}")).await?;
        let count = count(&found)?;
        // Not every database knows LIMIT.
        let example = self.first_row(&format!("SELECT * {without_key} LIMIT 1")).await;
        Some(NullKeys { count, example: example.and_then(|row| self.describe(&row)) })
    }

    async fn duplicates(&self) -> Option<DuplicateKeys> {
        let Self { sql, key, .. } = self;
        let sql = format!(
            "SELECT count(k) AS n, min(k) AS low, max(k) AS high FROM (SELECT c.{key} AS k FROM (\n{sql}\n) c \
             GROUP BY c.{key} HAVING count(*) > 1) d"
        );
        let found = self.first_row(&sql).await?;
        let key = |at: usize| found.columns.get(at).map(|(_, value)| show_key(value));
        Some(DuplicateKeys { count: count(&found)?, first: key(1)?, last: key(2)? })
    }

    async fn first_row(&self, sql: &str) -> Option<Row> {
        let rows = self.source.fetch(sql, &self.params).await;
        let rows = rows.inspect_err(|error| tracing::debug!(%error, "unusable keys cannot be looked for"));
        rows.ok()?.into_iter().next()
    }

    /// What tells a candidate without a key apart.
    fn describe(&self, row: &Row) -> Option<String> {
        let others = row.columns.iter().filter(|(name, value)| {
            !name.eq_ignore_ascii_case(self.key) && !matches!(value, SqlValue::Null | SqlValue::Blob(_))
        });
        let shown: Vec<String> = others
            .take(MAX_COLUMNS)
            .map(|(name, value)| format!("`{name}` = `{}`", truncate_chars(&show_key(value), MAX_CHARS)))
            .collect();
        (!shown.is_empty()).then(|| shown.join(", "))
    }
}

/// The count in a row's first column, if it is not zero.
fn count(row: &Row) -> Option<i64> {
    let count = match row.columns.first().map(|(_, value)| value)? {
        SqlValue::Int(count) => *count,
        SqlValue::Text(count) => count.parse().ok()?,
        _ => return None,
    };
    (count > 0).then_some(count)
}
