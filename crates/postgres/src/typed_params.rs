//! SQL parameters with their types.
//!
//! Statements are sent unnamed, with the types of their parameters: a transaction pooler may run
//! every transaction on another server connection, where earlier prepared statements do not exist.

use longshore_core::{CallId, SessionId, UnitId};
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

/// A value that knows its SQL type.
pub(crate) trait SqlParam: Sync {
    /// The type sent to the server.
    fn ty(&self) -> Type;
    /// The value itself.
    fn sql(&self) -> &(dyn ToSql + Sync);
}

macro_rules! param {
    ($($rust:ty => $one:ident, $many:ident;)*) => {$(
        impl SqlParam for $rust {
            fn ty(&self) -> Type { Type::$one }
            fn sql(&self) -> &(dyn ToSql + Sync) { self }
        }
        impl SqlParam for Option<$rust> {
            fn ty(&self) -> Type { Type::$one }
            fn sql(&self) -> &(dyn ToSql + Sync) { self }
        }
        impl SqlParam for Vec<$rust> {
            fn ty(&self) -> Type { Type::$many }
            fn sql(&self) -> &(dyn ToSql + Sync) { self }
        }
        impl SqlParam for Vec<Option<$rust>> {
            fn ty(&self) -> Type { Type::$many }
            fn sql(&self) -> &(dyn ToSql + Sync) { self }
        }
    )*};
}

param! {
    bool => BOOL, BOOL_ARRAY;
    i16 => INT2, INT2_ARRAY;
    i32 => INT4, INT4_ARRAY;
    i64 => INT8, INT8_ARRAY;
    f64 => FLOAT8, FLOAT8_ARRAY;
    &str => TEXT, TEXT_ARRAY;
    String => TEXT, TEXT_ARRAY;
    Uuid => UUID, UUID_ARRAY;
    Vec<u8> => BYTEA, BYTEA_ARRAY;
    &[u8] => BYTEA, BYTEA_ARRAY;
}

/// Parameters and their types in the driver's form.
pub(crate) fn typed<'p>(params: &[&'p dyn SqlParam]) -> Vec<(&'p (dyn ToSql + Sync), Type)> {
    params.iter().map(|param| (param.sql(), param.ty())).collect()
}

/// A unit's id as PostgreSQL's type.
pub(crate) fn uuid(unit: UnitId) -> Uuid {
    Uuid::from_bytes(*unit.as_bytes())
}

/// Unit ids as an array parameter.
pub(crate) fn uuids<'u>(units: impl IntoIterator<Item = &'u UnitId>) -> Vec<Uuid> {
    units.into_iter().map(|unit| uuid(*unit)).collect()
}

/// A unit's id from PostgreSQL's type.
pub(crate) fn unit_id(uuid: Uuid) -> UnitId {
    UnitId::from_bytes(*uuid.as_bytes())
}

/// A session's id as PostgreSQL's type.
pub(crate) fn session_uuid(session: SessionId) -> Uuid {
    Uuid::from_bytes(*session.as_bytes())
}

/// A session's id from PostgreSQL's type.
pub(crate) fn session_id(uuid: Uuid) -> SessionId {
    SessionId::from_bytes(*uuid.as_bytes())
}

/// A call's id as PostgreSQL's type.
pub(crate) fn call_uuid(call: CallId) -> Uuid {
    Uuid::from_bytes(*call.as_bytes())
}

/// A call's id from PostgreSQL's type.
pub(crate) fn call_id(uuid: Uuid) -> CallId {
    CallId::from_bytes(*uuid.as_bytes())
}

/// Replaces NUL characters, which PostgreSQL's text cannot hold.
pub(crate) fn replace_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}
