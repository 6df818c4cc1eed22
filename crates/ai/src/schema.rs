//! JSON Schemas of answers: compiles a schema, and parses an answer by it.
//!
//! A schema is one document. References to other documents are rejected, not fetched: a batch's
//! definition is stored completely, and no schema makes a worker open a connection.

use jsonschema::error::ValidationErrorKind;
use jsonschema::{Retrieve, Uri, ValidationError, Validator};
use longshore::text::truncate_bytes;
use serde_json::Value;

/// Errors shown of an answer, and length of the whole message.
const MAX_ERRORS: usize = 3;
const MAX_MESSAGE_BYTES: usize = 500;

/// Length of the text shown around a syntax error.
const EXCERPT_BYTES: usize = 60;

/// References that are followed in a row.
const MAX_REFERENCES: usize = 32;

/// A compiled JSON Schema.
#[derive(Debug)]
pub struct ResponseSchema {
    validator: Validator,
    properties: Option<Vec<String>>,
}

/// An invalid schema: where, and why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SchemaError(pub String);

/// Rejects every reference to another document.
struct NoOtherDocuments;

impl Retrieve for NoOtherDocuments {
    fn retrieve(&self, uri: &Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err(format!("`{uri}` is another document").into())
    }
}

impl ResponseSchema {
    /// Compiles a schema.
    pub fn new(schema: &Value) -> Result<Self, SchemaError> {
        let compiled = jsonschema::options().with_retriever(NoOtherDocuments).build(schema);
        let validator = compiled.map_err(|error| schema_error(schema, &error))?;
        Ok(Self { validator, properties: properties(schema) })
    }

    /// Parses an answer's text as JSON and validates it. Removes code fences around it.
    pub fn read(&self, text: &str) -> Result<Value, String> {
        let text = strip_fence(text);
        let value = serde_json::from_str(text).map_err(|error| not_json(text, &error))?;
        let errors: Vec<String> =
            self.validator.iter_errors(&value).take(MAX_ERRORS).map(|e| error_message(&e)).collect();
        if errors.is_empty() {
            return Ok(value);
        }
        let all = format!("the answer does not follow the schema: {}", errors.join("; "));
        Err(truncate_bytes(&all, MAX_MESSAGE_BYTES))
    }

    /// The top-level properties that an answer may have; `None` if any. If a schema names
    /// properties, only these count, even if it does not forbid others.
    pub fn properties(&self) -> Option<Vec<String>> {
        self.properties.clone()
    }
}

fn properties(schema: &Value) -> Option<Vec<String>> {
    let schema = resolve(schema, schema);
    let named = schema.get("properties").and_then(Value::as_object);
    let names: Vec<String> = named.into_iter().flat_map(|all| all.keys().cloned()).collect();
    let closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    (closed || !names.is_empty()).then_some(names)
}

/// A schema with its local references resolved.
pub(crate) fn resolve<'a>(root: &'a Value, mut schema: &'a Value) -> &'a Value {
    for _ in 0..MAX_REFERENCES {
        let reference = schema.get("$ref").and_then(Value::as_str);
        match reference.and_then(|reference| resolve_pointer(root, reference)) {
            Some(next) => schema = next,
            None => break,
        }
    }
    schema
}

/// The target of `#/…`.
fn resolve_pointer<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    root.pointer(reference.strip_prefix('#')?)
}

/// The text without the code fence that models like to put around JSON.
fn strip_fence(text: &str) -> &str {
    let text = text.trim_start_matches('\u{feff}').trim();
    let Some(inside) = text.strip_prefix("```") else { return text };
    let inside = inside.strip_suffix("```").unwrap_or(inside);
    let word = inside.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(inside.len());
    let after = inside[word..].trim();
    // Without anything after it, the word is not a language but the content.
    if after.is_empty() { inside.trim() } else { after }
}

fn not_json(text: &str, error: &serde_json::Error) -> String {
    if text.is_empty() {
        return "the answer is empty, not JSON".into();
    }
    let line = text.lines().nth(error.line().saturating_sub(1)).unwrap_or(text);
    let from = line.floor_char_boundary(error.column().saturating_sub(EXCERPT_BYTES / 2));
    format!("the answer is not JSON: {error}, near `{}`", truncate_bytes(&line[from..], EXCERPT_BYTES))
}

fn error_message(error: &ValidationError<'_>) -> String {
    let message = truncate_bytes(&error.to_string(), MAX_MESSAGE_BYTES / MAX_ERRORS);
    format!("{}: {message}", location(error.instance_path().as_str()))
}

/// A JSON pointer in messages.
fn location(pointer: &str) -> String {
    if pointer.is_empty() { "at the top".into() } else { format!("at {pointer}") }
}

fn schema_error(schema: &Value, error: &ValidationError<'_>) -> SchemaError {
    let message = match error.kind() {
        ValidationErrorKind::Referencing(reference) => {
            broken_reference(schema, schema, "").unwrap_or_else(|| format!("in a reference: {reference}"))
        }
        // An invalid pattern is detected when it is compiled: then the path is the schema's.
        ValidationErrorKind::Format { .. } if error.instance_path().as_str().is_empty() => {
            format!("{}: {error}", location(error.schema_path().as_str()))
        }
        _ => format!("{}: {error}", location(error.instance_path().as_str())),
    };
    SchemaError(truncate_bytes(&message, MAX_MESSAGE_BYTES))
}

/// The first reference that does not resolve, or leaves the document. The validator's own message
/// says neither where it is nor what to do.
fn broken_reference(root: &Value, schema: &Value, path: &str) -> Option<String> {
    match schema {
        Value::Object(members) => members.iter().find_map(|(key, value)| {
            let path = format!("{path}/{key}");
            match value.as_str().filter(|_| key == "$ref" || key == "$dynamicRef") {
                Some(reference) => reference_error(root, reference).map(|why| format!("at {path}: {why}")),
                None => broken_reference(root, value, &path),
            }
        }),
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.find_map(|(i, item)| broken_reference(root, item, &format!("{path}/{i}")))
        }
        _ => None,
    }
}

fn reference_error(root: &Value, reference: &str) -> Option<String> {
    if reference.starts_with('#') {
        // Any other fragment is an anchor, which may be anywhere.
        let missing = reference.starts_with("#/") && resolve_pointer(root, reference).is_none();
        return missing.then(|| format!("there is nothing at `{reference}` in the schema"));
    }
    Some(format!(
        "`{reference}` is another document, and none is fetched; \
         put the definition under `$defs` and refer to it as `#/$defs/name`"
    ))
}
