//! JSON schemas of types that serialise as one JSON value, for the feature `schema`.

/// Implements `JsonSchema` with this schema, written where the type is used.
macro_rules! inline_schema {
    ($type:ident, $schema:tt) => {
        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!($schema)
            }
        }
    };
}
