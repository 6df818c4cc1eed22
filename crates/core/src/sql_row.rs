//! Reads rows of the SQL stores. Their tables have the same columns, so one function reads a record
//! from the row of any driver. What the columns encode is in [`crate::sql_encoding`].

mod records;
mod unit;

pub use records::{
    BATCH_COLUMNS, FAILURE_COLUMNS, LEASED_ROWS, SCHEDULE_COLUMNS, parse_kinds, read_batch, read_counts,
    read_failure, read_queue, read_schedule, read_session, read_tenant, session_columns,
};
pub use unit::{UnitNames, UnitParts, UnitRow};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};
use crate::time::Timestamp;
use crate::unit::Payload;

/// A row of a query's result. Columns are addressed by their position.
pub trait SqlRow {
    /// How the driver binds and returns text that may contain a zero byte.
    type Key;

    /// An integer or boolean of any width; `None` for NULL, as in the other methods.
    fn int(&self, at: usize) -> Result<Option<i64>>;

    /// A text.
    fn text(&self, at: usize) -> Result<Option<&str>>;

    /// Bytes.
    fn bytes(&self, at: usize) -> Result<Option<&[u8]>>;

    /// Sixteen bytes, or a UUID.
    fn id(&self, at: usize) -> Result<Option<[u8; 16]>>;

    /// A text that may contain a zero byte.
    fn key(&self, at: usize) -> Result<Option<Self::Key>>;

    /// A number in the range of `N`, or NULL.
    fn optional_number<N: TryFrom<i64>>(&self, at: usize) -> Result<Option<N>> {
        let convert = |number: i64| N::try_from(number).map_err(|_| damaged(format!("the number {number}")));
        self.int(at)?.map(convert).transpose()
    }

    /// A number in the range of `N`.
    fn number<N: TryFrom<i64>>(&self, at: usize) -> Result<N> {
        not_null(self.optional_number(at)?, at)
    }

    /// A boolean.
    fn flag(&self, at: usize) -> Result<bool> {
        Ok(not_null(self.int(at)?, at)? != 0)
    }

    /// A text that `parse` understands.
    fn parsed<'r, T, E: std::fmt::Display>(
        &'r self,
        at: usize,
        parse: impl FnOnce(&'r str) -> Result<T, E>,
    ) -> Result<T> {
        parse(not_null(self.text(at)?, at)?).map_err(damaged)
    }

    /// A text that `parse` understands, or NULL.
    fn optional_parsed<'r, T, E: std::fmt::Display>(
        &'r self,
        at: usize,
        parse: impl FnOnce(&'r str) -> Result<T, E>,
    ) -> Result<Option<T>> {
        self.text(at)?.map(parse).transpose().map_err(damaged)
    }

    /// A text.
    fn string(&self, at: usize) -> Result<String> {
        Ok(not_null(self.text(at)?, at)?.to_owned())
    }

    /// A text, or NULL.
    fn optional_string(&self, at: usize) -> Result<Option<String>> {
        Ok(self.text(at)?.map(str::to_owned))
    }

    /// A time.
    fn time(&self, at: usize) -> Result<Timestamp> {
        not_null(self.optional_time(at)?, at)
    }

    /// A time, or NULL.
    fn optional_time(&self, at: usize) -> Result<Option<Timestamp>> {
        Ok(self.int(at)?.map(Timestamp::from_micros))
    }

    /// An id made of sixteen bytes.
    fn required_id(&self, at: usize) -> Result<[u8; 16]> {
        not_null(self.id(at)?, at)
    }

    /// Bytes.
    fn byte_vec(&self, at: usize) -> Result<Vec<u8>> {
        Ok(not_null(self.bytes(at)?, at)?.to_vec())
    }

    /// Bytes, or NULL.
    fn payload(&self, at: usize) -> Result<Option<Payload>> {
        Ok(self.bytes(at)?.map(Payload::from))
    }

    /// JSON, or NULL.
    fn json<T: DeserializeOwned>(&self, at: usize) -> Result<Option<T>> {
        self.text(at)?.map(parse_json).transpose()
    }
}

/// Data in a store that this program could not have written.
pub fn damaged(what: impl std::fmt::Display) -> Error {
    Error::Broken { message: format!("the database holds {what}"), source: None }
}

/// Serialises a value for a column of JSON.
pub fn to_json<T: Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(damaged)
}

fn parse_json<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| damaged(format!("bad JSON: {error}")))
}

fn not_null<T>(value: Option<T>, at: usize) -> Result<T> {
    value.ok_or_else(|| damaged(format!("NULL in column {at} of a row")))
}
