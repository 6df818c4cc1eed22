//! Selects rows of a batch by state, failure code, key and attempt.

use std::cmp::Ordering;
use std::str::FromStr;

use longshore::{Unit, UnitState};
use serde_json::Value;

use super::ListedRow;
use crate::sql_json::{from_json, show_key};

/// Selects rows. An empty list selects all.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RowFilter {
    /// In this state.
    pub state: Option<UnitState>,
    /// With one of these codes of their last failure.
    pub codes: Vec<String>,
    /// With a key in one of these ranges.
    pub keys: Vec<KeyRange>,
    /// That used this many attempts.
    pub attempt: Option<u32>,
}

/// A key, or a range of keys that includes both ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key; `None` is open.
    pub from: Option<String>,
    /// The last key; `None` is open.
    pub to: Option<String>,
}

impl RowFilter {
    /// All rows in one state, or all.
    pub fn in_state(state: Option<UnitState>) -> Self {
        Self { state, ..Self::default() }
    }

    /// Whether the row matches.
    pub fn matches(&self, row: &ListedRow) -> bool {
        self.state.is_none_or(|state| state == row.state)
            && self.admits_failure(row.code.as_deref(), row.attempt)
            && (self.keys.is_empty() || self.keys.iter().any(|range| range.contains(&row.key)))
    }

    /// Whether the unit may match, as far as a list without payloads tells.
    pub(super) fn admits(&self, unit: &Unit) -> bool {
        self.admits_failure(unit.failure.as_ref().map(|why| why.code.as_str()), unit.attempt)
    }

    /// The most rows that can match, if the filter names each key.
    pub fn max_rows(&self) -> Option<usize> {
        let names_all = !self.keys.is_empty() && self.keys.iter().all(|range| range.from == range.to);
        names_all.then_some(self.keys.len())
    }

    fn admits_failure(&self, code: Option<&str>, attempt: u32) -> bool {
        let has_code = |code: &str| self.codes.iter().any(|wanted| wanted.eq_ignore_ascii_case(code));
        self.attempt.is_none_or(|wanted| wanted == attempt)
            && (self.codes.is_empty() || code.is_some_and(has_code))
    }
}

impl KeyRange {
    /// Whether the key is in the range.
    pub fn contains(&self, key: &Value) -> bool {
        let key = show_key(&from_json(key));
        self.from.as_ref().is_none_or(|from| compare(from, &key).is_le())
            && self.to.as_ref().is_none_or(|to| compare(&key, to).is_le())
    }
}

/// `17`, `17..20`, `17..` or `..20`.
impl FromStr for KeyRange {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let end = |end: &str| (!end.is_empty()).then(|| end.to_owned());
        match text.split_once("..") {
            Some(("", "")) => Err("a range has at least one end, as 17..20".to_owned()),
            Some((from, to)) => Ok(Self { from: end(from), to: end(to) }),
            None if text.is_empty() => Err("a key is not empty".to_owned()),
            None => Ok(Self { from: end(text), to: end(text) }),
        }
    }
}

/// Numbers by their value, other keys as text.
fn compare(one: &str, other: &str) -> Ordering {
    if let (Ok(one), Ok(other)) = (one.parse::<i128>(), other.parse::<i128>()) {
        return one.cmp(&other);
    }
    match (one.parse::<f64>(), other.parse::<f64>()) {
        (Ok(one), Ok(other)) => one.total_cmp(&other),
        _ => one.cmp(other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_range_of_keys_compares_numbers_by_value_and_text_as_text() {
        let contains = |range: &str, key: Value| range.parse::<KeyRange>().unwrap().contains(&key);
        assert!(contains("9..10", json!(9)) && contains("9..10", json!(10)) && !contains("9..10", json!(11)));
        assert!(contains("17", json!(17)) && !contains("17", json!(170)) && contains("17", json!("17")));
        assert!(
            contains("..a-7", json!("a-3")) && contains("b..", json!("c")) && !contains("b..", json!("a"))
        );
        assert!("..".parse::<KeyRange>().is_err() && "".parse::<KeyRange>().is_err());
    }

    #[test]
    fn a_filter_that_names_keys_knows_how_many_rows_there_are() {
        let filter = |keys: &[&str]| RowFilter {
            keys: keys.iter().map(|key| key.parse().unwrap()).collect(),
            ..RowFilter::default()
        };
        assert_eq!(filter(&["1", "a"]).max_rows(), Some(2));
        assert_eq!((filter(&[]).max_rows(), filter(&["1", "2..3"]).max_rows()), (None, None));
    }
}
