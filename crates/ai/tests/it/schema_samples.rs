//! `echo`'s answers follow typical schemas.

use longshore_ai::{Echo, Provider, ResponseSchema};
use serde_json::{Value, json};

use crate::questions::question_by;

async fn sample(schema: &Value) -> String {
    let prompt = "Say whether line 7 of purchase order 4711 is plausible, and say why you think so.";
    Echo::default().ask(&question_by(schema, prompt)).await.unwrap().text
}

async fn follows(schema: Value) {
    let text = sample(&schema).await;
    let read = ResponseSchema::new(&schema).expect("the schema is one").read(&text);
    assert!(read.is_ok(), "{text} for {schema}: {}", read.unwrap_err());
}

#[tokio::test]
async fn every_type_is_followed() {
    for kind in ["object", "array", "string", "number", "integer", "boolean", "null"] {
        follows(json!({ "type": kind })).await;
    }
    follows(json!({ "type": ["integer", "null"] })).await;
    follows(json!({})).await;
    follows(json!(true)).await;
}

#[tokio::test]
async fn enums_and_constants_are_followed() {
    follows(json!({ "enum": ["ok", "bad"] })).await;
    follows(json!({ "type": "integer", "enum": [3, 4] })).await;
    follows(json!({ "const": { "a": [1] } })).await;
}

#[tokio::test]
async fn bounds_of_numbers_are_followed() {
    for kind in ["integer", "number"] {
        follows(json!({ "type": kind, "minimum": 1, "maximum": 10 })).await;
        follows(json!({ "type": kind, "exclusiveMinimum": 0 })).await;
        follows(json!({ "type": kind, "maximum": -3 })).await;
        follows(json!({ "type": kind, "exclusiveMaximum": 0 })).await;
        follows(json!({ "type": kind, "minimum": 7, "multipleOf": 5 })).await;
        follows(json!({ "type": kind, "minimum": 0.5, "maximum": 1.5 })).await;
    }
    follows(json!({ "type": "number", "minimum": 0.2, "maximum": 0.4 })).await;
    follows(json!({ "type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1 })).await;
    follows(json!({ "minimum": 3 })).await;
}

#[tokio::test]
async fn lengths_of_texts_and_lists_are_followed() {
    follows(json!({ "type": "string", "maxLength": 5 })).await;
    follows(json!({ "type": "string", "minLength": 200 })).await;
    follows(json!({ "type": "array", "minItems": 3, "items": { "type": "integer" } })).await;
    follows(json!({
        "type": "array", "minItems": 2,
        "prefixItems": [{ "type": "string" }, { "type": "boolean" }],
    }))
    .await;
}

#[tokio::test]
async fn nested_objects_references_and_alternatives_are_followed() {
    follows(json!({
        "type": "object",
        "properties": {
            "lines": { "type": "array", "minItems": 1, "items": { "$ref": "#/$defs/line" } },
            "note": { "anyOf": [{ "type": "string" }, { "type": "null" }] },
            "total": { "oneOf": [{ "type": "number", "minimum": 1 }, { "type": "null" }] },
            "left_out": { "type": "string", "pattern": "^not simple$" },
        },
        "required": ["lines", "note", "total", "unnamed"],
        "$defs": {
            "line": { "allOf": [{ "properties": { "ok": { "type": "boolean" } }, "required": ["ok"] }] },
        },
    }))
    .await;
}

#[tokio::test]
async fn a_schema_without_a_finite_value_still_gets_an_answer() {
    let pair = json!({
        "type": "object",
        "properties": { "left": { "$ref": "#" }, "right": { "$ref": "#" } },
        "required": ["left", "right"],
    });
    assert!(sample(&pair).await.starts_with('{'));
    assert!(sample(&json!({ "type": "array", "minItems": u64::MAX })).await.starts_with('['));
    assert!(sample(&json!({ "type": "string", "minLength": u64::MAX })).await.starts_with('"'));
    assert_eq!(sample(&json!({ "$ref": "#" })).await.chars().next(), Some('"'));
}
