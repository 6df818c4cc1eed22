//! Converts values from and to ODBC with the pool's driver code.

use longshore::SqlValue;
use longshore_pool::database::odbc::dialect::Dialect;
use longshore_pool::database::odbc::value;
use odbc_api::parameter::InputParameter;
use odbc_api::{CursorRow, Error};

pub(super) use longshore_pool::database::odbc::value::ColumnKind;

use crate::rows::value_convert::{from_pool_value, to_pool_value};

/// A column of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: ColumnKind,
}

/// The value in column `at`, from 0. Columns must be read in order.
pub(super) fn read(row: &mut CursorRow<'_>, at: usize, kind: ColumnKind) -> Result<SqlValue, Error> {
    value::read(row, at, kind).map(from_pool_value)
}

/// A value for a placeholder.
pub(super) fn bound(value: &SqlValue, dialect: Dialect) -> Box<dyn InputParameter> {
    value::to_parameter(to_pool_value(value), dialect)
}
