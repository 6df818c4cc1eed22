//! JSON Schemas of answers: compiles a schema, and parses an answer by it.
//!
//! A schema is one document. References to other documents are rejected, not fetched: a batch's
//! definition is stored completely, and no schema makes a worker open a connection.
//!
//! Clients send schemas, and may choose the answers: patterns are matched in linear time, their
//! number and memory are bounded, and [`schema_violation`] checks what may take long on threads of
//! their own.

mod complexity;
mod types;

use std::sync::Arc;
use std::time::Duration;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, Retrieve, Uri, ValidationError, Validator};
use longshore::text::truncate_bytes;
use serde_json::Value;
use tokio::sync::{Semaphore, oneshot};

use complexity::{Complexity, measure};
pub use types::check_types;

/// Errors shown of an answer, and length of the whole message.
const MAX_ERRORS: usize = 3;
const MAX_MESSAGE_BYTES: usize = 500;

/// Length of the text shown around a syntax error.
const EXCERPT_BYTES: usize = 60;

/// Longest schema, as JSON.
const MAX_SCHEMA_BYTES: usize = 256 * 1024;

/// Most patterns of a schema, and the memory of one that is compiled.
const MAX_PATTERNS: usize = 100;
const MAX_PATTERN_MEMORY: usize = 256 * 1024;

/// Most nodes of a schema multiplied by bytes of an answer that are checked on the caller's thread.
const MAX_INLINE_WORK: u64 = 1_000_000;

/// Threads of this process that check larger answers, and their stack: the validator descends by
/// level of the answer and of the schema. Untouched pages of a stack take no memory.
static CHECK_THREADS: Semaphore = Semaphore::const_new(4);
const CHECK_STACK: usize = 512 * 1024 * 1024;

/// How long a caller waits for the check of an answer.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

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
        check_size(schema)?;
        let patterns = PatternOptions::regex().size_limit(MAX_PATTERN_MEMORY);
        let options = jsonschema::options().with_retriever(NoOtherDocuments).with_pattern_options(patterns);
        let validator = options.build(schema).map_err(|error| schema_error(schema, &error))?;
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

/// The check of an answer took too long, or all threads were busy.
#[derive(Debug, thiserror::Error)]
#[error("the answer could not be checked by its schema within {} s", CHECK_TIMEOUT.as_secs())]
pub(crate) struct CheckTimeout;

/// Why an answer does not follow a schema. Every answer follows an invalid schema. A check that takes
/// too long keeps its thread until it ends, because a thread cannot be stopped; the runtime's own
/// threads would then delay the end of the process.
pub(crate) async fn schema_violation(
    schema: &Arc<Value>,
    text: &str,
) -> Result<Option<String>, CheckTimeout> {
    let Ok(Complexity { nodes, is_recursive }) = measure(schema) else { return Ok(None) };
    if !is_recursive && nodes.saturating_mul(text.len() as u64) <= MAX_INLINE_WORK {
        return Ok(violation(schema, text));
    }
    let (schema, text) = (Arc::clone(schema), text.to_owned());
    let check = async {
        let permit = CHECK_THREADS.acquire().await;
        let (sender, checked) = oneshot::channel();
        let thread = std::thread::Builder::new().name("schema-check".to_owned()).stack_size(CHECK_STACK);
        let started = thread.spawn(move || {
            let _permit = permit;
            // The caller may have stopped waiting.
            let _ = sender.send(violation(&schema, &text));
        });
        started.map_err(|_| CheckTimeout)?;
        checked.await.map_err(|_| CheckTimeout)
    };
    tokio::time::timeout(CHECK_TIMEOUT, check).await.unwrap_or(Err(CheckTimeout))
}

fn violation(schema: &Value, text: &str) -> Option<String> {
    ResponseSchema::new(schema).ok()?.read(text).err()
}

/// Rejects a schema that takes too much memory or time to compile.
fn check_size(schema: &Value) -> Result<(), SchemaError> {
    if schema.to_string().len() > MAX_SCHEMA_BYTES {
        return Err(SchemaError(format!("it is longer than {} KiB", MAX_SCHEMA_BYTES / 1024)));
    }
    match count_patterns(schema) {
        0..=MAX_PATTERNS => measure(schema).map(drop),
        patterns => Err(SchemaError(format!("it has {patterns} patterns; {MAX_PATTERNS} are allowed"))),
    }
}

fn count_patterns(schema: &Value) -> usize {
    let own = |(key, value): (&String, &Value)| match (key.as_str(), value) {
        ("pattern", Value::String(_)) => 1,
        ("patternProperties", Value::Object(patterns)) => patterns.len() + count_patterns(value),
        _ => count_patterns(value),
    };
    match schema {
        Value::Object(members) => members.iter().map(own).sum(),
        Value::Array(items) => items.iter().map(count_patterns).sum(),
        _ => 0,
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
            let at = location(error.schema_path().as_str());
            format!("{at}: {error}; look-around, back references and large repetitions are not supported")
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
