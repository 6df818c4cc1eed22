//! Values with their SQL types.
//!
//! Statements are sent unnamed, with the types of their parameters: a transaction pooler hands every
//! transaction another server connection, where nothing prepared earlier exists.

use longshore_core::{CallId, SessionId, UnitId};
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

/// A value that knows its SQL type.
pub(crate) trait Param: Sync {
    /// The type the server is told.
    fn ty(&self) -> Type;
    /// The value itself.
    fn sql(&self) -> &(dyn ToSql + Sync);
}

macro_rules! param {
    ($($rust:ty => $one:ident, $many:ident;)*) => {$(
        impl Param for $rust {
            fn ty(&self) -> Type { Type::$one }
            fn sql(&self) -> &(dyn ToSql + Sync) { self }
        }
        impl Param for Option<$rust> {
            fn ty(&self) -> Type { Type::$one }
            fn sql(&self) -> &(dyn ToSql + Sync) { self }
        }
        impl Param for Vec<$rust> {
            fn ty(&self) -> Type { Type::$many }
            fn sql(&self) -> &(dyn ToSql + Sync) { self }
        }
        impl Param for Vec<Option<$rust>> {
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

/// Values and their types, as the driver wants them.
pub(crate) fn typed<'p>(params: &[&'p dyn Param]) -> Vec<(&'p (dyn ToSql + Sync), Type)> {
    params.iter().map(|param| (param.sql(), param.ty())).collect()
}

/// A unit's id as PostgreSQL's type.
pub(crate) fn uuid(unit: UnitId) -> Uuid {
    Uuid::from_bytes(*unit.as_bytes())
}

/// Units' ids as an array.
pub(crate) fn uuids<'u>(units: impl IntoIterator<Item = &'u UnitId>) -> Vec<Uuid> {
    units.into_iter().map(|unit| uuid(*unit)).collect()
}

/// The other way.
pub(crate) fn unit_id(uuid: Uuid) -> UnitId {
    UnitId::from_bytes(*uuid.as_bytes())
}

/// A session's id as PostgreSQL's type.
pub(crate) fn session_uuid(session: SessionId) -> Uuid {
    Uuid::from_bytes(*session.as_bytes())
}

/// The other way.
pub(crate) fn session_id(uuid: Uuid) -> SessionId {
    SessionId::from_bytes(*uuid.as_bytes())
}

/// A call's id as PostgreSQL's type.
pub(crate) fn call_uuid(call: CallId) -> Uuid {
    Uuid::from_bytes(*call.as_bytes())
}

/// The other way.
pub(crate) fn call_id(uuid: Uuid) -> CallId {
    CallId::from_bytes(*uuid.as_bytes())
}

/// Words for people. PostgreSQL's text cannot hold a zero character.
pub(crate) fn replace_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}
