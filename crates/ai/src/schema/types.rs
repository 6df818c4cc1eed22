//! Checks the types that a schema names. An invalid schema is not used to check answers, so that a typing
//! error would accept every answer silently.

use serde_json::Value;

use super::{SchemaError, location};

const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

/// Keywords with a schema, or a list of schemas.
const SUBSCHEMAS: [&str; 16] = [
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
];

/// Keywords with schemas by name.
const NAMED_SUBSCHEMAS: [&str; 5] =
    ["$defs", "definitions", "dependentSchemas", "patternProperties", "properties"];

/// Deeper levels are not checked.
const MAX_DEPTH: usize = 128;

/// Rejects a schema with an unknown type.
pub fn check_types(schema: &Value) -> Result<(), SchemaError> {
    check(schema, "", 0)
}

fn check(schema: &Value, path: &str, depth: usize) -> Result<(), SchemaError> {
    let Value::Object(members) = schema else { return Ok(()) };
    if depth >= MAX_DEPTH {
        return Ok(());
    }
    for (key, value) in members {
        let path = || format!("{path}/{key}");
        match key.as_str() {
            "type" => check_type(value, &path())?,
            key if SUBSCHEMAS.contains(&key) => match value {
                Value::Array(many) => {
                    for (at, one) in many.iter().enumerate() {
                        check(one, &format!("{}/{at}", path()), depth + 1)?;
                    }
                }
                one => check(one, &path(), depth + 1)?,
            },
            key if NAMED_SUBSCHEMAS.contains(&key) => {
                for (name, one) in value.as_object().into_iter().flatten() {
                    check(one, &format!("{}/{name}", path()), depth + 1)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_type(value: &Value, path: &str) -> Result<(), SchemaError> {
    let given: Vec<&Value> = match value {
        Value::Array(many) => many.iter().collect(),
        one => vec![one],
    };
    match given.into_iter().find(|one| !one.as_str().is_some_and(|one| TYPES.contains(&one))) {
        None => Ok(()),
        Some(unknown) => {
            let unknown = longshore::text::truncate_bytes(&unknown.to_string(), 40);
            let known = TYPES.join(", ");
            Err(SchemaError(format!("{}: {unknown} is no type; the types are {known}", location(path))))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_type_with_a_typing_error_is_refused_where_it_is() {
        let bad = [
            (json!({ "type": "objec" }), "at /type: \"objec\" is no type"),
            (json!({ "properties": { "n": { "type": ["integer", "nul"] } } }), "at /properties/n/type"),
            (json!({ "items": { "anyOf": [{}, { "type": 7 }] } }), "at /items/anyOf/1/type"),
            (json!({ "$defs": { "a": { "not": { "type": "Object" } } } }), "at /$defs/a/not/type"),
        ];
        for (schema, words) in bad {
            let error = check_types(&schema).unwrap_err().to_string();
            assert!(error.starts_with(words), "{error}");
        }
    }

    #[test]
    fn what_only_looks_like_a_type_is_none() {
        for good in [
            json!({ "type": "object", "properties": { "type": { "type": "string", "enum": ["objec"] } } }),
            json!({ "type": ["null", "array"], "items": true, "default": { "type": "objec" } }),
            json!({ "const": { "type": "objec" }, "examples": [{ "type": "x" }], "x-note": { "type": 1 } }),
        ] {
            check_types(&good).unwrap();
        }
    }
}
