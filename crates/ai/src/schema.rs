//! What answers must look like: a compiled JSON Schema, and how an answer's text is read by it.
//!
//! A schema is one document. References to other documents are refused, not fetched: what a batch
//! is to do is kept in the store, complete, and no schema makes a worker open a connection.

use jsonschema::error::ValidationErrorKind;
use jsonschema::{Retrieve, Uri, ValidationError, Validator};
use serde_json::Value;

/// How many of an answer's mistakes are told, and how long all of it may be.
const MOST_MISTAKES: usize = 3;
const LONGEST: usize = 500;

/// How much of a text is shown around a mistake.
const PIECE: usize = 60;

/// How many references are followed from one to the next.
const MOST_STEPS: usize = 32;

/// A compiled JSON Schema.
#[derive(Debug)]
pub struct ResponseSchema {
    validator: Validator,
    properties: Option<Vec<String>>,
}

/// A schema that is none: where in it, and why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SchemaError(pub String);

/// Refuses every reference to another document.
struct NoOtherDocuments;

impl Retrieve for NoOtherDocuments {
    fn retrieve(
        &self,
        uri: &Uri<String>,
    ) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err(format!("`{uri}` is another document").into())
    }
}

impl ResponseSchema {
    /// Compiles a schema.
    pub fn new(schema: &Value) -> Result<Self, SchemaError> {
        let compiled = jsonschema::options().with_retriever(NoOtherDocuments).build(schema);
        let validator = compiled.map_err(|error| refusal(schema, &error))?;
        Ok(Self { validator, properties: properties(schema) })
    }

    /// Reads an answer's text as JSON by the schema. Code fences around it are taken off.
    pub fn read(&self, text: &str) -> Result<Value, String> {
        let text = unfenced(text);
        let value = serde_json::from_str(text).map_err(|error| not_json(text, &error))?;
        let mistakes: Vec<String> =
            self.validator.iter_errors(&value).take(MOST_MISTAKES).map(|e| mistake(&e)).collect();
        if mistakes.is_empty() {
            return Ok(value);
        }
        let all = format!("the answer does not follow the schema: {}", mistakes.join("; "));
        Err(shortened(&all, LONGEST))
    }

    /// The names of the top-level properties that an answer may have; `None` if it may have any.
    /// A schema that names properties is taken at its word, even if it does not forbid others.
    pub fn properties(&self) -> Option<Vec<String>> {
        self.properties.clone()
    }
}

fn properties(schema: &Value) -> Option<Vec<String>> {
    let schema = target(schema, schema);
    let named = schema.get("properties").and_then(Value::as_object);
    let names: Vec<String> = named.into_iter().flat_map(|all| all.keys().cloned()).collect();
    let closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    (closed || !names.is_empty()).then_some(names)
}

/// What a schema means once its local references are followed.
pub(crate) fn target<'a>(root: &'a Value, mut schema: &'a Value) -> &'a Value {
    for _ in 0..MOST_STEPS {
        let reference = schema.get("$ref").and_then(Value::as_str);
        match reference.and_then(|reference| local(root, reference)) {
            Some(next) => schema = next,
            None => break,
        }
    }
    schema
}

/// What `#/…` points at.
fn local<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    root.pointer(reference.strip_prefix('#')?)
}

/// An answer's text without the code fence that models like to put around JSON.
fn unfenced(text: &str) -> &str {
    let text = text.trim_start_matches('\u{feff}').trim();
    let Some(inside) = text.strip_prefix("```") else { return text };
    let inside = inside.strip_suffix("```").unwrap_or(inside);
    let word = inside.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(inside.len());
    let after = inside[word..].trim();
    // Without anything after it, the word is no language but all there is.
    if after.is_empty() { inside.trim() } else { after }
}

fn not_json(text: &str, error: &serde_json::Error) -> String {
    if text.is_empty() {
        return "the answer is empty, not JSON".into();
    }
    let line = text.lines().nth(error.line().saturating_sub(1)).unwrap_or(text);
    let from = line.floor_char_boundary(error.column().saturating_sub(PIECE / 2));
    format!("the answer is not JSON: {error}, near `{}`", shortened(&line[from..], PIECE))
}

fn mistake(error: &ValidationError<'_>) -> String {
    let words = shortened(&error.to_string(), LONGEST / MOST_MISTAKES);
    format!("{}: {words}", place(error.instance_path().as_str()))
}

/// A JSON pointer for people.
fn place(pointer: &str) -> String {
    if pointer.is_empty() { "at the top".into() } else { format!("at {pointer}") }
}

fn refusal(schema: &Value, error: &ValidationError<'_>) -> SchemaError {
    let words = match error.kind() {
        ValidationErrorKind::Referencing(lost) => {
            lost_reference(schema, schema, "").unwrap_or_else(|| format!("in a reference: {lost}"))
        }
        // A pattern that is no regular expression is found when it is compiled: then the path is that of the schema.
        ValidationErrorKind::Format { .. } if error.instance_path().as_str().is_empty() => {
            format!("{}: {error}", place(error.schema_path().as_str()))
        }
        _ => format!("{}: {error}", place(error.instance_path().as_str())),
    };
    SchemaError(shortened(&words, LONGEST))
}

/// The first reference that leads nowhere, or out of the document. The validator's own words say
/// neither where it stands nor what to do.
fn lost_reference(root: &Value, schema: &Value, path: &str) -> Option<String> {
    match schema {
        Value::Object(members) => members.iter().find_map(|(key, value)| {
            let path = format!("{path}/{key}");
            match value.as_str().filter(|_| key == "$ref" || key == "$dynamicRef") {
                Some(reference) => why_lost(root, reference).map(|why| format!("at {path}: {why}")),
                None => lost_reference(root, value, &path),
            }
        }),
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.find_map(|(i, item)| lost_reference(root, item, &format!("{path}/{i}")))
        }
        _ => None,
    }
}

fn why_lost(root: &Value, reference: &str) -> Option<String> {
    if reference.starts_with('#') {
        // What is neither the whole nor a path is an anchor, and those may stand anywhere.
        let missing = reference.starts_with("#/") && local(root, reference).is_none();
        return missing.then(|| format!("there is nothing at `{reference}` in the schema"));
    }
    Some(format!(
        "`{reference}` is another document, and none is fetched; \
         put the definition under `$defs` and refer to it as `#/$defs/name`"
    ))
}

/// A text cut to a length, with a sign that it was.
fn shortened(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(most)])
}
