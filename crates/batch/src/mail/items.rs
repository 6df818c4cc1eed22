//! The new items of a row: the last one, and removal of duplicates.

use std::cmp::Ordering;
use std::collections::HashSet;

use longshore::SqlValue;

use crate::rows::Row;
use crate::sql_json::show_key;

/// The highest value of a column: the next message begins after it.
pub(super) fn last(items: &[Row], column: &str) -> Result<SqlValue, String> {
    let mut last: Option<&SqlValue> = None;
    for item in items {
        let value = value(item, column).ok_or_else(|| format!("an item has no `{column}`"))?;
        last = match last {
            None => Some(value),
            Some(other) => match compare(value, other) {
                None => return Err(incomparable(column, value, other)),
                Some(Ordering::Greater) => Some(value),
                Some(_) => last,
            },
        };
    }
    last.cloned().ok_or_else(|| "there are no items".to_owned())
}

fn compare(one: &SqlValue, other: &SqlValue) -> Option<Ordering> {
    match (one, other) {
        (SqlValue::Int(one), SqlValue::Int(other)) => Some(one.cmp(other)),
        (SqlValue::Text(one), SqlValue::Text(other)) => compare_text(one, other),
        (SqlValue::Real(one), SqlValue::Real(other)) => one.partial_cmp(other),
        _ => None,
    }
}

/// Compares two texts; `None` if their order in the database is unknown. Times with an offset are
/// compared as instants. Numbers in text are ambiguous: PostgreSQL compares `numeric` as numbers
/// and `text` as text.
fn compare_text(one: &str, other: &str) -> Option<Ordering> {
    let time = |text: &str| text.parse::<jiff::Timestamp>().ok();
    if let (Some(one), Some(other)) = (time(one), time(other)) {
        return Some(one.cmp(&other));
    }
    let as_text = one.cmp(other);
    let longest = one.len().max(other.len());
    match (parse_number(one), parse_number(other)) {
        // Too long for a float to distinguish.
        (Some(a), Some(b)) if a == b && one != other && longest > 15 => None,
        (Some(one), Some(other)) if one.total_cmp(&other) == as_text.reverse() && one != other => None,
        _ => Some(as_text),
    }
}

/// Parses a number as databases write it.
fn parse_number(text: &str) -> Option<f64> {
    let plain = text.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | '-'));
    if plain { text.parse().ok() } else { None }
}

fn incomparable(column: &str, one: &SqlValue, other: &SqlValue) -> String {
    let (one, other) = (show_key(one), show_key(other));
    format!(
        "`{column}` has values that cannot be compared, as {one} and {other}: cast it to a whole number \
         or to a time in the SQL of the list"
    )
}

/// Removes duplicates, keeping the first.
pub(super) fn distinct(items: Vec<Row>, same: &[Vec<String>]) -> Vec<Row> {
    let mut seen = HashSet::new();
    let is_new = |item: &Row| dedup_key(item, same).is_none_or(|dedup_key| seen.insert(dedup_key));
    items.into_iter().filter(is_new).collect()
}

/// The dedup key of an item: the values, in lower case and with single spaces, of the first list of
/// columns that it has in full.
fn dedup_key(item: &Row, same: &[Vec<String>]) -> Option<(usize, Vec<String>)> {
    same.iter().enumerate().find_map(|(at, columns)| {
        let values = columns.iter().map(|column| {
            let text = show_key(value(item, column)?).to_lowercase();
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            (!text.is_empty()).then_some(text)
        });
        values.collect::<Option<Vec<_>>>().map(|values| (at, values))
    })
}

/// An item's value in a column; `None` for NULL.
fn value<'r>(item: &'r Row, column: &str) -> Option<&'r SqlValue> {
    let found = item.columns.iter().find(|(name, _)| name == column);
    found.map(|(_, value)| value).filter(|value| **value != SqlValue::Null)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(id: i64, origin: Option<&str>, subject: &str) -> Row {
        let origin = origin.map_or(SqlValue::Null, |text| SqlValue::Text(text.into()));
        let columns =
            [("id", SqlValue::Int(id)), ("origin", origin), ("subject", SqlValue::Text(subject.into()))];
        Row { columns: columns.map(|(name, value)| (name.to_owned(), value)).into() }
    }

    fn ids(items: &[Row]) -> Vec<String> {
        items.iter().map(|item| show_key(&item.columns[0].1)).collect()
    }

    #[test]
    fn the_last_is_the_highest_and_not_the_last_that_came() {
        let items = [item(9, None, "a"), item(10, None, "b"), item(2, None, "c")];
        assert_eq!(last(&items, "id"), Ok(SqlValue::Int(10)));
        assert_eq!(last(&items, "subject"), Ok(SqlValue::Text("c".into())));
        assert!(last(&items, "origin").is_err() && last(&items, "no").is_err());
    }

    #[test]
    fn numbers_that_are_text_are_not_ordered_by_a_guess_and_times_are_times() {
        let last = |texts: [&str; 2]| {
            let items = texts.map(|text| item(1, Some(text), ""));
            last(&items, "origin")
        };
        let text = |text: &str| Ok(SqlValue::Text(text.to_owned()));
        assert!(last(["9", "10"]).is_err_and(|words| words.contains("as 10 and 9")));
        assert!(last(["-1", "-2"]).is_err());
        assert!(last(["99999999999999999", "100000000000000000"]).is_err());
        assert_eq!(last(["10", "11"]), text("11"));
        assert_eq!(last(["a9", "a10"]), text("a9"));
        // The night when clocks go back, as PostgreSQL shows it.
        let (earlier, later) = ("2026-10-25 02:50:00+02", "2026-10-25 02:10:00.5+01");
        assert_eq!(last([later, earlier]), text(later));
        assert_eq!(last([earlier, later]), text(later));
        assert_eq!(last(["2026-10-25 02:50:00", "2026-10-25 02:10:00"]), text("2026-10-25 02:50:00"));
    }

    #[test]
    fn items_that_are_alike_are_one_by_the_first_columns_that_they_have() {
        let same = [vec!["origin".to_owned()], vec!["subject".to_owned()]];
        let items = vec![
            item(1, Some("x"), "Sofa"),
            item(2, Some("x"), "Table"),
            item(3, None, " sofa "),
            item(4, None, "SOFA"),
            item(5, None, ""),
            item(6, None, ""),
        ];
        assert_eq!(ids(&distinct(items.clone(), &same)), ["1", "3", "5", "6"]);
        assert_eq!(distinct(items.clone(), &[]), items);
    }
}
