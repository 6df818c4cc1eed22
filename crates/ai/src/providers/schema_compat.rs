//! Adapts JSON Schemas to what providers accept. Nothing is lost: every answer is validated against
//! the full schema afterwards.

use serde_json::{Map, Value};

/// Keywords for a schema, a list of schemas, and schemas by name.
const SCHEMA_KEYWORDS: [&str; 2] = ["items", "additionalProperties"];
const SCHEMA_LIST_KEYWORDS: [&str; 4] = ["anyOf", "allOf", "oneOf", "prefixItems"];
const SCHEMA_MAP_KEYWORDS: [&str; 3] = ["properties", "$defs", "definitions"];

/// Keywords that Anthropic rejects.
const UNSUPPORTED_KEYWORDS: [&str; 9] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "maxItems",
    "uniqueItems",
];

/// Whether OpenAI accepts a schema as `strict`: every object is closed and requires all its
/// properties.
pub(crate) fn is_strict(schema: &Value) -> bool {
    let Some(members) = schema.as_object() else { return true };
    object_is_strict(members) && children(members).all(is_strict)
}

fn object_is_strict(members: &Map<String, Value>) -> bool {
    if !is_object(members) {
        return true;
    }
    let closed = members.get("additionalProperties") == Some(&Value::Bool(false));
    let required = members.get("required").and_then(Value::as_array);
    let must = |name: &String| required.is_some_and(|all| all.iter().any(|one| one == name));
    let named = members.get("properties").and_then(Value::as_object);
    closed && named.is_none_or(|named| named.keys().all(must))
}

/// The schema with closed objects, and without bounds on numbers and lengths. `None` if it has
/// objects with unknown properties: closed, they would be empty.
pub(crate) fn close_objects(schema: &Value) -> Option<Value> {
    let Some(members) = schema.as_object() else { return Some(schema.clone()) };
    if is_object(members) && is_open(members) {
        return None;
    }
    let kept = members.iter().filter(|(name, _)| !UNSUPPORTED_KEYWORDS.contains(&name.as_str()));
    let mut shaped = kept
        .map(|(name, value)| Some((name.clone(), close_member(name, value)?)))
        .collect::<Option<Map<String, Value>>>()?;
    // Only 0 and 1 are supported.
    if shaped.get("minItems").and_then(Value::as_u64).is_some_and(|least| least > 1) {
        shaped.remove("minItems");
    }
    if is_object(members) {
        shaped.insert("additionalProperties".into(), Value::Bool(false));
    }
    Some(Value::Object(shaped))
}

fn is_open(members: &Map<String, Value>) -> bool {
    let others = members.get("additionalProperties");
    others.map_or_else(|| !members.contains_key("properties"), |others| others != &Value::Bool(false))
}

fn close_member(name: &str, value: &Value) -> Option<Value> {
    match value {
        Value::Object(named) if SCHEMA_MAP_KEYWORDS.contains(&name) => {
            let named = named.iter().map(|(name, one)| Some((name.clone(), close_objects(one)?)));
            named.collect::<Option<Map<_, _>>>().map(Value::Object)
        }
        Value::Array(many) if SCHEMA_LIST_KEYWORDS.contains(&name) => {
            many.iter().map(close_objects).collect()
        }
        Value::Object(_) if SCHEMA_KEYWORDS.contains(&name) => close_objects(value),
        _ => Some(value.clone()),
    }
}

fn children(members: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let one = SCHEMA_KEYWORDS.iter().filter_map(|name| members.get(*name)).filter(|value| value.is_object());
    let many = SCHEMA_LIST_KEYWORDS.iter().filter_map(|name| members.get(*name)?.as_array()).flatten();
    let named = SCHEMA_MAP_KEYWORDS.iter().filter_map(|name| members.get(*name)?.as_object());
    one.chain(many).chain(named.flat_map(Map::values))
}

fn is_object(members: &Map<String, Value>) -> bool {
    let named = members.get("type").is_some_and(|kind| match kind {
        Value::Array(kinds) => kinds.iter().any(|kind| kind == "object"),
        kind => kind == "object",
    });
    named || members.contains_key("properties")
}

/// Appends the schema to the system prompt, where the API cannot enforce it.
pub(crate) fn append_to_prompt(system: Option<String>, schema: &Value) -> String {
    let words = "Answer with JSON only, nothing around it, that follows this JSON Schema:";
    let before = system.filter(|system| !system.is_empty()).map(|system| format!("{system}\n\n"));
    format!("{}{words}\n{schema}", before.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_schemas_without_optional_parts_are_strict() {
        let strict = json!({ "type": "object", "properties": { "a": { "type": "string" } },
            "required": ["a"], "additionalProperties": false });
        assert!(is_strict(&strict));
        assert!(is_strict(&json!({ "type": "array", "items": strict.clone() })));
        for path in ["/required", "/additionalProperties"] {
            let mut loose = strict.clone();
            *loose.pointer_mut(path).unwrap() = json!(true);
            assert!(!is_strict(&loose), "{path}");
            assert!(!is_strict(&json!({ "anyOf": [{ "type": "null" }, loose.clone()] })));
            assert!(!is_strict(&json!({ "$defs": { "x": loose }, "$ref": "#/$defs/x" })));
        }
    }

    #[test]
    fn closing_a_schema_keeps_properties_that_are_called_like_keywords() {
        let schema = json!({ "type": "object", "properties": {
            "minimum": { "type": "integer", "minimum": 3, "enum": [3, 4] },
            "list": { "type": "array", "minItems": 2, "items": { "properties": {} } } } });
        assert_eq!(
            close_objects(&schema).unwrap(),
            json!({ "type": "object", "additionalProperties": false, "properties": {
                "minimum": { "type": "integer", "enum": [3, 4] },
                "list": { "type": "array",
                    "items": { "properties": {}, "additionalProperties": false } },
            } })
        );
    }

    #[test]
    fn objects_of_which_nobody_knows_the_properties_are_not_closed() {
        for open in [
            json!({ "type": "object" }),
            json!({ "properties": { "a": {} }, "additionalProperties": true }),
            json!({ "type": "array", "items": { "additionalProperties": {}, "type": "object" } }),
        ] {
            assert_eq!(close_objects(&open), None, "{open}");
        }
    }
}
