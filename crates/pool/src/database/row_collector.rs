//! Collects the rows of a statement: as many as requested, within the limits.

use super::error::{DbError, Reason};
use super::row::Table;
use super::value::Value;

/// Which rows of a statement the caller needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// Their number only.
    Count,
    /// The first; the others need not even be read.
    First,
    /// All, within the limits.
    All,
}

/// Limits of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) rows: usize,
    pub(super) bytes: usize,
}

/// Collects rows.
#[derive(Debug)]
pub(super) struct Gathering {
    want: Want,
    bounds: Bounds,
    bytes: usize,
    count: u64,
    table: Table,
}

/// Whether to fetch more rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Fetch the next row.
    More,
    /// The other rows are not needed.
    Enough,
}

impl Gathering {
    pub(super) fn new(want: Want, bounds: Bounds, names: impl IntoIterator<Item = String>) -> Self {
        let table = Table { names: names.into_iter().collect(), rows: Vec::new() };
        Self { want, bounds, bytes: 0, count: 0, table }
    }

    /// Adds a row; its values are read only if they are needed.
    pub(super) fn take(
        &mut self,
        values: impl FnOnce() -> Result<Vec<Value>, DbError>,
    ) -> Result<Next, DbError> {
        self.count += 1;
        match self.want {
            Want::Count => return Ok(Next::More),
            Want::First if self.count > 1 => return Ok(Next::Enough),
            Want::First => {}
            Want::All if self.table.rows.len() >= self.bounds.rows => return Err(self.too_many()),
            Want::All => {}
        }
        let values = values()?;
        self.bytes += values.iter().map(Value::size).sum::<usize>();
        if self.bytes > self.bounds.bytes {
            return Err(self.too_large());
        }
        self.table.rows.push(values);
        Ok(if self.want == Want::First { Next::Enough } else { Next::More })
    }

    /// Rows that were fetched, kept or not.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn into_table(self) -> Table {
        self.table
    }

    fn too_many(&self) -> DbError {
        let limit = self.bounds.rows;
        DbError::new(Reason::RowLimit, format!("more than {limit} rows, which is the limit"))
    }

    fn too_large(&self) -> DbError {
        let limit = self.bounds.bytes;
        DbError::new(Reason::SizeLimit, format!("more than {limit} bytes, which is the limit"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { rows: 2, bytes: 100 };

    fn gather(want: Want, rows: &[&str]) -> Result<Vec<Vec<Value>>, Reason> {
        let mut gathering = Gathering::new(want, BOUNDS, ["a".to_owned()]);
        for row in rows {
            let next = gathering.take(|| Ok(vec![(*row).into()])).map_err(|error| error.reason)?;
            if next == Next::Enough {
                break;
            }
        }
        Ok(gathering.into_table().rows)
    }

    #[test]
    fn one_row_too_many_is_an_error_and_not_silence() {
        assert_eq!(gather(Want::All, &["x", "y"]).unwrap().len(), 2);
        assert_eq!(gather(Want::All, &["x", "y", "z"]), Err(Reason::RowLimit));
        assert_eq!(gather(Want::All, &[&"x".repeat(93)]), Err(Reason::SizeLimit));
    }

    #[test]
    fn what_is_not_wanted_counts_for_nothing() {
        assert_eq!(gather(Want::First, &["x", "y", "z"]).unwrap(), [["x".into()]]);
        assert_eq!(gather(Want::Count, &["x", "y", "z"]).unwrap().len(), 0);
    }
}
