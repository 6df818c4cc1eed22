//! Pages of lists, and their cursors.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::batch::Batch;
use crate::name::UnitId;
use crate::store::Page;
use crate::{Error, Result};

impl<T> Page<T> {
    /// The first `limit` items and, if there are more, the cursor after the last of them.
    pub fn first(items: impl IntoIterator<Item = T>, limit: u32, cursor: impl FnOnce(&T) -> String) -> Self {
        let mut rest = items.into_iter();
        let items: Vec<T> = rest.by_ref().take(limit as usize).collect();
        let next = items.last().filter(|_| rest.next().is_some()).map(cursor);
        Self { items, next }
    }
}

/// Most bytes of JSON in a page of units, batches or schedules.
pub const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024;

impl<T: Serialize> Page<T> {
    /// Ends the page before the item with which its JSON would exceed [`MAX_PAGE_BYTES`]. The first
    /// item stays, so that every page makes progress. `cursor` gets an item and its position.
    #[must_use]
    pub fn within_bytes(mut self, cursor: impl FnOnce(usize, &T) -> String) -> Self {
        let mut bytes = PageBytes::default();
        let fitting = self.items.iter().take_while(|item| bytes.fits(item)).count().max(1);
        if fitting < self.items.len() {
            self.items.truncate(fitting);
            self.next = self.items.last().map(|last| cursor(fitting - 1, last));
        }
        self
    }
}

/// Counts the JSON of a page's items, so that a store reads no more than a page takes.
#[derive(Debug, Default)]
pub struct PageBytes(ByteCount);

impl PageBytes {
    /// Counts an item; false if the items until here exceed [`MAX_PAGE_BYTES`].
    pub fn fits(&mut self, item: &impl Serialize) -> bool {
        // Counting does not fail, and what cannot be serialised has no size.
        _ = serde_json::to_writer(&mut self.0, item);
        self.0.0 <= MAX_PAGE_BYTES
    }
}

/// Counts the bytes that are written.
#[derive(Debug, Default)]
struct ByteCount(usize);

impl std::io::Write for ByteCount {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The position of a unit in a list: its sort key, then its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnitCursor {
    /// The sort key; 0 in lists that are sorted by id.
    pub sort_key: i64,
    /// The unit.
    pub id: UnitId,
}

impl UnitCursor {
    /// Before the first unit of a list that starts with the newest.
    pub const START: Self = Self { sort_key: i64::MAX, id: UnitId::from_bytes([0xff; 16]) };

    /// A position in a list that is sorted by id.
    pub fn by_id(id: UnitId) -> Self {
        Self { sort_key: 0, id }
    }

    /// A position between two units of a list by id, which says as little as possible about them: they
    /// may belong to other tenants. `last` is the last unit before it, `next` the first one after it.
    pub fn between(last: UnitId, next: UnitId) -> Self {
        let [last, next] = [last, next].map(|id| u128::from_be_bytes(*id.as_bytes()));
        let differing = 128 - (last ^ next).leading_zeros();
        let rest = differing.saturating_sub(1);
        Self::by_id(UnitId::from_bytes((last >> rest << rest).to_be_bytes()))
    }

    /// Parses the cursor of a page.
    pub fn parse(after: Option<&str>) -> Result<Self> {
        after.map_or(Ok(Self::START), parse_cursor)
    }
}

impl fmt::Display for UnitCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.sort_key, self.id)
    }
}

impl FromStr for UnitCursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (sort_key, id) = text.split_once('.').ok_or_else(|| invalid_cursor(text))?;
        Ok(Self { sort_key: parse_cursor(sort_key)?, id: parse_cursor(id)? })
    }
}

/// The position of a batch in a list that starts with the newest: when it was opened, then its id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BatchCursor {
    /// When the batch was opened, in microseconds.
    pub opened_at: i64,
    /// The batch.
    pub id: String,
}

impl BatchCursor {
    /// The position of a batch.
    pub fn of(batch: &Batch) -> Self {
        Self { opened_at: batch.initiated_at.as_micros(), id: batch.id.to_string() }
    }

    /// Parses the cursor of a page.
    pub fn parse(after: Option<&str>) -> Result<Self> {
        let Some(text) = after else { return Ok(Self { opened_at: i64::MAX, id: String::new() }) };
        let (opened_at, id) = text.split_once('/').ok_or_else(|| invalid_cursor(text))?;
        Ok(Self { opened_at: parse_cursor(opened_at)?, id: id.to_owned() })
    }
}

impl fmt::Display for BatchCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.opened_at, self.id)
    }
}

/// Parses a cursor, or a part of it.
pub fn parse_cursor<T: FromStr>(text: &str) -> Result<T> {
    text.parse().map_err(|_| invalid_cursor(text))
}

/// The error for a text that is not a cursor.
pub fn invalid_cursor(text: &str) -> Error {
    Error::Invalid(format!("`{text}` is not a cursor of this list"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_cursor_only_if_more_follows() {
        let page = |limit| {
            let page = Page::first([1, 2, 3], limit, ToString::to_string);
            (page.items, page.next)
        };
        assert_eq!(page(2), (vec![1, 2], Some("2".to_owned())));
        assert_eq!([page(3), page(9)], [(vec![1, 2, 3], None), (vec![1, 2, 3], None)]);
        assert_eq!(page(0), (vec![], None));
    }

    #[test]
    fn a_page_ends_before_it_exceeds_its_bytes() {
        let page = |items: Vec<String>| Page { items, next: None }.within_bytes(|at, _| at.to_string());
        let third = "x".repeat(MAX_PAGE_BYTES / 3);
        let cut = page(vec![third.clone(); 4]);
        assert_eq!((cut.items.len(), cut.next.as_deref()), (2, Some("1")));
        assert_eq!(page(vec![third; 2]).next, None);
        let huge = page(vec!["x".repeat(MAX_PAGE_BYTES); 2]);
        assert_eq!((huge.items.len(), huge.next.as_deref()), (1, Some("0")));
    }

    #[test]
    fn a_cursor_between_two_units_is_neither() {
        let ids: Vec<UnitId> = (0..100).map(|_| UnitId::new()).collect();
        for pair in ids.windows(2) {
            let between = UnitCursor::between(pair[1], pair[0]).id;
            assert!(pair[0] < between && between <= pair[1], "{pair:?} {between}");
            assert!(!ids.contains(&between), "{between}");
        }
    }

    #[test]
    fn a_unit_cursor_is_read_as_it_was_written() {
        let cursor = UnitCursor { sort_key: -7, id: UnitId::new() };
        assert_eq!(cursor.to_string().parse::<UnitCursor>().unwrap(), cursor);
        for text in ["", ".", "7", "7.x", "x.0195c8a0-0000-7000-8000-000000000000"] {
            assert!(UnitCursor::parse(Some(text)).is_err(), "{text}");
        }
        assert!(UnitCursor::parse(None).unwrap() > cursor);
    }
}
