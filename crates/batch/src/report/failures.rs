//! Groups failures by reason.

use serde::Serialize;
use std::collections::HashMap;

use longshore::store::UnitFilter;
use longshore::text::truncate_chars;
use longshore::{BatchId, Failure, Result, Scope, Store, Unit, UnitState};

use crate::handler::RowInput;
use crate::sql_json::{from_json, show_key};

/// Units per page.
const PAGE: u32 = 1_000;
/// Maximum number of reasons; all further ones form one group.
const MAX_GROUPS: usize = 100;
/// Example rows per reason.
const MAX_EXAMPLES: usize = 3;
/// Maximum characters of a message shown.
const MAX_MESSAGE_CHARS: usize = 300;

/// Rows that failed for the same reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailureGroup {
    /// The failure's code.
    pub code: String,
    /// The message of the newest failure.
    pub message: String,
    /// The number of rows.
    pub count: u64,
    /// Keys of some of the rows.
    pub examples: Vec<String>,
}

/// The newest failures of a batch, `max` of them or all, by reason, most frequent first.
pub async fn gather(
    store: &dyn Store,
    scope: &Scope,
    batch: &BatchId,
    max: Option<u64>,
) -> Result<Vec<FailureGroup>> {
    let filter =
        UnitFilter { state: Some(UnitState::Failed), batch: Some(batch.clone()), ..UnitFilter::default() };
    let mut groups = FailureGroups::default();
    // Lists carry no payloads: the keys of the examples are read at the end.
    let mut examples = HashMap::new();
    let (mut after, mut seen) = (None, 0);
    loop {
        let page = store.units(scope, &filter, after.as_deref(), PAGE).await?;
        seen += page.items.len() as u64;
        for unit in page.items {
            let id = unit.id.to_string();
            if groups.add(unit.failure, || id.clone()) {
                examples.insert(id, unit.id);
            }
        }
        after = page.next;
        if after.is_none() || max.is_some_and(|max| seen >= max) {
            break;
        }
    }
    let mut groups = groups.sorted();
    for example in groups.iter_mut().flat_map(|group| &mut group.examples) {
        if let Some(id) = examples.get(example) {
            *example = row_key(&store.unit(scope, *id).await?);
        }
    }
    Ok(groups)
}

/// Collects failures by reason.
#[derive(Debug, Default)]
pub struct FailureGroups {
    by_reason: HashMap<(String, String), usize>,
    all: Vec<FailureGroup>,
}

impl FailureGroups {
    /// Adds a failure. Returns whether its `key` was called, as one of the group's examples.
    pub fn add(&mut self, failure: Option<Failure>, key: impl FnOnce() -> String) -> bool {
        let unknown = || Failure::new("unknown", "no reason was recorded");
        let at = self.group_index(failure.unwrap_or_else(unknown));
        let group = &mut self.all[at];
        group.count += 1;
        let is_example = group.examples.len() < MAX_EXAMPLES;
        if is_example {
            group.examples.push(key());
        }
        is_example
    }

    fn group_index(&mut self, failure: Failure) -> usize {
        let mut reason = (failure.code, pattern(&failure.message));
        let mut message = truncate_chars(&failure.message, MAX_MESSAGE_CHARS);
        if self.all.len() >= MAX_GROUPS && !self.by_reason.contains_key(&reason) {
            reason = ("other".to_owned(), String::new());
            "further reasons".clone_into(&mut message);
        }
        let Self { by_reason, all } = self;
        *by_reason.entry(reason).or_insert_with_key(|(code, _)| {
            let (code, examples) = (code.clone(), Vec::new());
            all.push(FailureGroup { code, message, count: 0, examples });
            all.len() - 1
        })
    }

    /// The groups, most frequent first.
    pub fn sorted(self) -> Vec<FailureGroup> {
        let mut groups = self.all;
        groups.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.code.cmp(&b.code)));
        groups
    }
}

fn row_key(unit: &Unit) -> String {
    let input = unit.payload.parse::<RowInput>();
    input.map_or_else(|_| unit.id.to_string(), |input| show_key(&from_json(&input.key)))
}

/// A message without the values that differ from row to row: words with digits, and quoted text.
fn pattern(message: &str) -> String {
    let mut pattern = String::new();
    let mut quote = None;
    for word in message.split_inclusive(|c: char| !c.is_alphanumeric()) {
        let (name, end) = match word.char_indices().next_back() {
            Some((at, last)) if !last.is_alphanumeric() => (&word[..at], Some(last)),
            _ => (word, None),
        };
        if quote.is_none() {
            pattern.push_str(if name.contains(|c: char| c.is_ascii_digit()) { "#" } else { name });
        }
        match (quote, end) {
            (Some(open), Some(end)) if end == open => {
                quote = None;
                pattern.extend(['…', end]);
            }
            (None, Some(end)) => {
                pattern.push(end);
                quote = matches!(end, '`' | '"').then_some(end);
            }
            _ => {}
        }
    }
    truncate_chars(&pattern, MAX_MESSAGE_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_differ_only_in_values_have_one_pattern() {
        let one = "line 3, column 14: expected `,` but found `xyz`: {\"quantity\": 12";
        let two = "line 12, column 1: expected `,` but found `a`: {\"price\": 4";
        assert_eq!(pattern(one), pattern(two));
        assert_eq!(pattern(one), "line #, column #: expected `…` but found `…`: {\"…\": #");
        assert_ne!(pattern("no row has the key `7`"), pattern("two rows have the key `7`"));
    }

    #[test]
    fn an_unclosed_quote_does_not_hide_that_it_is_there() {
        assert_eq!(pattern("found `xyz"), "found `");
    }
}
