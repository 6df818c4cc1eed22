//! Checks that candidates have unique keys, before a batch is opened for them.

use longshore::SqlValue;

use crate::definition::{Candidates, Definition};
use crate::file::{FileError, SourceMap};
use crate::rows::RowSource;
use crate::sql_json::{from_json, show_key};

/// Rejects candidates of which two have the same key: one query, which the database answers with a single row. If it cannot,
/// the initiator notices duplicates as it reads them.
pub async fn unique_keys(
    definition: &Definition,
    source_map: &SourceMap,
    source: &dyn RowSource,
) -> Result<(), FileError> {
    let candidates = &definition.candidates;
    let Some(found) = duplicates(candidates, source).await else { return Ok(()) };
    let DuplicateKeys { count, first, last } = found;
    let examples = if first == last { format!("`{first}`") } else { format!("`{first}` to `{last}`") };
    let (key, name) = ("candidates.key", &candidates.key);
    let what = if count == 1 { "one key has".to_owned() } else { format!("{count} keys have") };
    let message = format!("keys must be unique, but in `{name}` {what} several candidates: {examples}");
    let hint = "a join that repeats rows needs GROUP BY or DISTINCT, or a column that identifies each row";
    Err(source_map.error(&definition.source, key, 0, message).hint(hint))
}

/// Keys that several candidates have.
struct DuplicateKeys {
    count: i64,
    first: String,
    last: String,
}

async fn duplicates(candidates: &Candidates, source: &dyn RowSource) -> Option<DuplicateKeys> {
    let Candidates { sql, key, params, .. } = candidates;
    // A plain name needs no quotes, which differ from database to database.
    if !key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return None;
    }
    // `count(k)` leaves out NULL, which the initiator rejects as such.
    let sql = format!(
        "SELECT count(k) AS n, min(k) AS low, max(k) AS high FROM (SELECT c.{key} AS k FROM (\n{sql}\n) c \
         GROUP BY c.{key} HAVING count(*) > 1) d"
    );
    let params: Vec<_> = params.iter().map(|(name, value)| (name.clone(), from_json(value))).collect();
    let rows = source.fetch(&sql, &params).await;
    let rows =
        rows.inspect_err(|error| tracing::debug!(%error, "duplicate keys cannot be looked for")).ok()?;
    let columns = &rows.first()?.columns;
    let value = |at: usize| columns.get(at).map(|(_, value)| value);
    let count = match value(0)? {
        SqlValue::Int(count) => *count,
        SqlValue::Text(count) => count.parse().ok()?,
        _ => return None,
    };
    (count > 0).then_some(())?;
    Some(DuplicateKeys { count, first: show_key(value(1)?), last: show_key(value(2)?) })
}
