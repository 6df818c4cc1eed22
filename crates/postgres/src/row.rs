//! Rows of the driver, in the form that `longshore_core::sql_row` reads.

use longshore_core::sql_row::{SqlRow, UnitNames};
use longshore_core::{Result, SessionId, Unit, UnitState};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};
use uuid::Uuid;

use crate::error::{Translate, damaged};
use crate::streams::Stream;

pub(crate) use longshore_core::sql_encoding::{
    READY_ALONE, READY_CAPPED, UnitAttributes, entry_code, flag, state_code, state_codes,
};
pub(crate) use longshore_core::sql_row::{UnitParts, to_json};

/// The state of its row does not say: it is in `longshore_ready`, a lease group or a done group.
pub(crate) const BULK: u8 = 9;

/// The columns of a unit that decisions need.
pub(crate) type UnitRow = longshore_core::sql_row::UnitRow<Vec<u8>>;

/// A row of the driver.
pub(crate) struct Columns<'r>(pub(crate) &'r Row);

impl SqlRow for Columns<'_> {
    type Key = Vec<u8>;

    fn int(&self, at: usize) -> Result<Option<i64>> {
        Ok(match *self.column_type(at)? {
            Type::INT2 => value::<Option<i16>>(self.0, at)?.map(i64::from),
            Type::INT4 => value::<Option<i32>>(self.0, at)?.map(i64::from),
            Type::BOOL => value::<Option<bool>>(self.0, at)?.map(i64::from),
            _ => value(self.0, at)?,
        })
    }

    fn text(&self, at: usize) -> Result<Option<&str>> {
        // Text that may contain a zero byte is in columns of bytes.
        if *self.column_type(at)? == Type::BYTEA {
            return self.bytes(at)?.map(std::str::from_utf8).transpose().map_err(damaged);
        }
        value(self.0, at)
    }

    fn bytes(&self, at: usize) -> Result<Option<&[u8]>> {
        value(self.0, at)
    }

    fn id(&self, at: usize) -> Result<Option<[u8; 16]>> {
        Ok(value::<Option<Uuid>>(self.0, at)?.map(Uuid::into_bytes))
    }

    fn key(&self, at: usize) -> Result<Option<Vec<u8>>> {
        value(self.0, at)
    }
}

impl Columns<'_> {
    fn column_type(&self, at: usize) -> Result<&Type> {
        let column = self.0.columns().get(at);
        column.map(tokio_postgres::Column::type_).ok_or_else(|| damaged(format!("no column {at}")))
    }
}

/// The state behind a code.
pub(crate) fn state(code: i16) -> Result<UnitState> {
    longshore_core::sql_encoding::decode_state(u8::try_from(code).map_err(damaged)?)
}

/// A column's value.
pub(crate) fn value<'r, T: FromSql<'r>>(row: &'r Row, at: usize) -> Result<T> {
    row.try_get(at).or_translate()
}

/// Logs and drops a row that cannot be read. A row that a newer version wrote must not hide all
/// others.
pub(crate) fn readable<T>(what: &str, read: Result<T>) -> Option<T> {
    read.inspect_err(|error| tracing::error!(%error, "cannot read {what}: skipped")).ok()
}

/// A column that holds a count: stored signed, never negative.
pub(crate) fn count<N: TryFrom<i64>>(row: &Row, at: usize) -> Result<N> {
    let number: i64 = value(row, at)?;
    N::try_from(number).map_err(|_| damaged(format!("the count {number}")))
}

/// A four-byte column that holds a count.
pub(crate) fn small<N: TryFrom<i32>>(row: &Row, at: usize) -> Result<N> {
    let number: i32 = value(row, at)?;
    N::try_from(number).map_err(|_| damaged(format!("the number {number}")))
}

/// Builds a unit from its columns.
pub(crate) fn unit(
    row: UnitRow,
    parts: UnitParts,
    names: &Stream,
    session: Option<SessionId>,
) -> Result<Unit> {
    let Stream { tenant, queue, kind, batch, .. } = names;
    row.into_unit(parts, UnitNames { tenant, queue, kind, batch: batch.as_ref() }, session)
}
