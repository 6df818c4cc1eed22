//! Pages of lists, and their cursors.

use std::fmt;
use std::str::FromStr;

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

/// The position of a unit in a list: its sort key, then its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnitCursor {
    /// The sort key; 0 in lists that are sorted by id.
    pub place: i64,
    /// The unit.
    pub id: UnitId,
}

impl UnitCursor {
    /// Before the first unit of a list that starts with the newest.
    pub const START: Self = Self { place: i64::MAX, id: UnitId::from_bytes([0xff; 16]) };

    /// A position in a list that is sorted by id.
    pub fn by_id(id: UnitId) -> Self {
        Self { place: 0, id }
    }

    /// Parses the cursor of a page.
    pub fn parse(after: Option<&str>) -> Result<Self> {
        after.map_or(Ok(Self::START), parse_cursor)
    }
}

impl fmt::Display for UnitCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.place, self.id)
    }
}

impl FromStr for UnitCursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (place, id) = text.split_once('.').ok_or_else(|| invalid_cursor(text))?;
        Ok(Self { place: parse_cursor(place)?, id: parse_cursor(id)? })
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
    fn a_unit_cursor_is_read_as_it_was_written() {
        let cursor = UnitCursor { place: -7, id: UnitId::new() };
        assert_eq!(cursor.to_string().parse::<UnitCursor>().unwrap(), cursor);
        for text in ["", ".", "7", "7.x", "x.0195c8a0-0000-7000-8000-000000000000"] {
            assert!(UnitCursor::parse(Some(text)).is_err(), "{text}");
        }
        assert!(UnitCursor::parse(None).unwrap() > cursor);
    }
}
