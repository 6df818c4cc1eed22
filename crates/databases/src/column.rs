//! Columns of a statement that is not run.

/// A column of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: ColumnKind,
}

/// The type of a column, as far as values are read and compared differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    /// A type to which the database itself converts a parameter, or no type at all.
    Inferred,
    /// A whole number.
    Whole,
    /// A floating-point number.
    Real,
    /// A decimal number, exact.
    Decimal {
        /// Number of digits.
        precision: usize,
        /// Digits after the decimal point.
        scale: i16,
    },
    /// A boolean.
    Truth,
    /// A day.
    Date,
    /// A time of day.
    Time,
    /// Date and time.
    Timestamp,
    /// Bytes.
    Bytes,
    /// Text, and all types that are read as text.
    Text,
    /// A UUID, for which only some databases have a type.
    Guid,
}
