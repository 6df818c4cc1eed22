//! Collects the rows of a statement: as many as requested, within the limits.

use super::error::{DbError, Reason};
use super::row::ResultTable;
use super::value::Value;

/// Which rows of a statement the caller needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowsWanted {
    /// Their number only.
    Count,
    /// The first; the others need not even be read.
    First,
    /// All, within the limits.
    All,
}

/// Limits of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResultLimits {
    /// Maximum number of rows.
    pub rows: usize,
    /// Maximum number of bytes.
    pub bytes: usize,
}

impl ResultLimits {
    /// No limits.
    pub const NONE: Self = Self { rows: usize::MAX, bytes: usize::MAX };
}

/// Collects rows.
#[derive(Debug)]
pub(crate) struct RowCollector {
    want: RowsWanted,
    limits: ResultLimits,
    bytes: usize,
    count: u64,
    table: ResultTable,
}

/// Whether to fetch more rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fetch {
    /// Fetch the next row.
    More,
    /// The other rows are not needed.
    Enough,
}

impl RowCollector {
    pub(crate) fn new(
        want: RowsWanted,
        limits: ResultLimits,
        names: impl IntoIterator<Item = String>,
    ) -> Self {
        let table = ResultTable { names: names.into_iter().collect(), rows: Vec::new() };
        Self { want, limits, bytes: 0, count: 0, table }
    }

    /// Adds a row; its values are read only if they are needed.
    pub(crate) fn take(
        &mut self,
        values: impl FnOnce() -> Result<Vec<Value>, DbError>,
    ) -> Result<Fetch, DbError> {
        self.count += 1;
        match self.want {
            RowsWanted::Count => return Ok(Fetch::More),
            RowsWanted::First if self.count > 1 => return Ok(Fetch::Enough),
            RowsWanted::First => {}
            RowsWanted::All if self.table.rows.len() >= self.limits.rows => {
                return Err(self.too_many());
            }
            RowsWanted::All => {}
        }
        let values = values()?;
        self.bytes += values.iter().map(Value::size).sum::<usize>();
        if self.bytes > self.limits.bytes {
            return Err(self.too_large());
        }
        self.table.rows.push(values);
        Ok(if self.want == RowsWanted::First { Fetch::Enough } else { Fetch::More })
    }

    /// Rows that were fetched, kept or not.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn into_table(self) -> ResultTable {
        self.table
    }

    fn too_many(&self) -> DbError {
        let limit = self.limits.rows;
        DbError::new(Reason::RowLimit, format!("more than {limit} rows, which is the limit"))
    }

    fn too_large(&self) -> DbError {
        let limit = self.limits.bytes;
        DbError::new(Reason::SizeLimit, format!("more than {limit} bytes, which is the limit"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: ResultLimits = ResultLimits { rows: 2, bytes: 100 };

    fn gather(want: RowsWanted, rows: &[&str]) -> Result<Vec<Vec<Value>>, Reason> {
        let mut collector = RowCollector::new(want, BOUNDS, ["a".to_owned()]);
        for row in rows {
            let next = collector.take(|| Ok(vec![(*row).into()])).map_err(|error| error.reason)?;
            if next == Fetch::Enough {
                break;
            }
        }
        Ok(collector.into_table().rows)
    }

    #[test]
    fn one_row_too_many_is_an_error_and_not_silence() {
        assert_eq!(gather(RowsWanted::All, &["x", "y"]).unwrap().len(), 2);
        assert_eq!(gather(RowsWanted::All, &["x", "y", "z"]), Err(Reason::RowLimit));
        assert_eq!(gather(RowsWanted::All, &[&"x".repeat(93)]), Err(Reason::SizeLimit));
    }

    #[test]
    fn what_is_not_wanted_counts_for_nothing() {
        assert_eq!(gather(RowsWanted::First, &["x", "y", "z"]).unwrap(), [["x".into()]]);
        assert_eq!(gather(RowsWanted::Count, &["x", "y", "z"]).unwrap().len(), 0);
    }
}
