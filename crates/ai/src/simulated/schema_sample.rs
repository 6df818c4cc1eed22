//! Generates a small value that follows a JSON Schema.
//!
//! Supports the usual keywords of answer schemas: types, enums, constants, required properties,
//! bounds, items, local references, the first of alternatives. Does not support patterns, `not` and
//! conditions: the schema then rejects the value like any other wrong answer.

use serde_json::{Map, Value};

use crate::schema::resolve;

/// Most values in a sample, and deepest nesting. A schema that requires itself has no finite value;
/// these limits end the attempt.
const MAX_VALUES: u32 = 10_000;
const MAX_DEPTH: u32 = 64;

/// Longest part of the prompt in a string, and longest string, whatever `minLength` says.
const MAX_ECHO_CHARS: usize = 60;
const MAX_TEXT_CHARS: usize = 10_000;

/// A value that follows `schema`; strings in it repeat the prompt.
pub(crate) fn sample(schema: &Value, prompt: &str) -> Value {
    Sampler { root: schema, prompt, left: MAX_VALUES }.value(schema, 0)
}

struct Sampler<'a> {
    root: &'a Value,
    prompt: &'a str,
    /// Values that may still be generated.
    left: u32,
}

impl Sampler<'_> {
    fn value(&mut self, schema: &Value, depth: u32) -> Value {
        if self.left == 0 || depth > MAX_DEPTH {
            return Value::Null;
        }
        self.left -= 1;
        let schema = resolve(self.root, schema);
        if let Some(fixed) = schema.get("const").or_else(|| first(schema, "enum")) {
            return fixed.clone();
        }
        match kind(schema) {
            "object" => self.object(schema, depth),
            "array" => self.array(schema, depth),
            "integer" => NumberBounds::of(schema).number(true),
            "number" => NumberBounds::of(schema).number(false),
            "boolean" => Value::Bool(true),
            "null" => Value::Null,
            "string" => Value::String(self.text(schema)),
            alternatives => {
                let schema = first(schema, alternatives).unwrap_or(&Value::Null);
                self.value(schema, depth + 1)
            }
        }
    }

    fn object(&mut self, schema: &Value, depth: u32) -> Value {
        let names = schema.get("required").and_then(Value::as_array);
        let names = names.into_iter().flatten().filter_map(Value::as_str);
        let property = |name| schema.get("properties")?.get(name);
        let members = names.map(|name| {
            let schema = property(name).unwrap_or(&Value::Bool(true));
            (name.to_owned(), self.value(schema, depth + 1))
        });
        Value::Object(members.collect::<Map<_, _>>())
    }

    /// As many items as required: none, unless the schema sets `minItems`.
    fn array(&mut self, schema: &Value, depth: u32) -> Value {
        let mut items = Vec::new();
        while items.len() < size(schema, "minItems").unwrap_or(0) && self.left > 0 {
            let own = schema.get("prefixItems").and_then(|all| all.get(items.len()));
            let item = own.or_else(|| schema.get("items")).unwrap_or(&Value::Bool(true));
            items.push(self.value(item, depth + 1));
        }
        Value::Array(items)
    }

    fn text(&self, schema: &Value) -> String {
        let most = size(schema, "maxLength").unwrap_or(MAX_ECHO_CHARS).min(MAX_ECHO_CHARS);
        let least = size(schema, "minLength").unwrap_or(0).min(MAX_TEXT_CHARS);
        let mut text: String = self.prompt.chars().take(most).collect();
        let missing = least.saturating_sub(text.chars().count());
        text.extend(std::iter::repeat_n('.', missing));
        text
    }
}

/// The type to generate: the named one, or the one that other keywords imply. Otherwise the keyword
/// with the alternatives, or a string, which is valid where anything is.
fn kind(schema: &Value) -> &str {
    let named = first(schema, "type").or_else(|| schema.get("type"));
    let named = named.and_then(Value::as_str);
    const IMPLIED_TYPES: [(&str, &str); 8] = [
        ("anyOf", "anyOf"),
        ("oneOf", "oneOf"),
        ("allOf", "allOf"),
        ("properties", "object"),
        ("required", "object"),
        ("items", "array"),
        ("minimum", "number"),
        ("maximum", "number"),
    ];
    let implied = || IMPLIED_TYPES.into_iter().find(|(key, _)| schema.get(key).is_some());
    named.or_else(|| implied().map(|(_, kind)| kind)).unwrap_or("string")
}

fn first<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    schema.get(key)?.get(0)
}

fn size(schema: &Value, key: &str) -> Option<usize> {
    schema.get(key)?.as_u64().map(|size| usize::try_from(size).unwrap_or(usize::MAX))
}

/// The bounds of a number.
struct NumberBounds {
    min: Option<f64>,
    above: Option<f64>,
    max: Option<f64>,
    below: Option<f64>,
    step: Option<f64>,
}

impl NumberBounds {
    fn of(schema: &Value) -> Self {
        let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
        Self {
            min: bound("minimum"),
            above: bound("exclusiveMinimum"),
            max: bound("maximum"),
            below: bound("exclusiveMaximum"),
            step: bound("multipleOf"),
        }
    }

    /// Zero if it is valid, else a number near the bounds.
    fn number(&self, whole: bool) -> Value {
        let step = self.step.unwrap_or(1.0);
        let low = self.min.or(self.above).unwrap_or(0.0);
        let high = self.max.or(self.below).unwrap_or(0.0);
        let (up, down) = ((low / step).ceil() * step, (high / step).floor() * step);
        let mut candidates = vec![0.0, up, up + step, down, down - step];
        if !whole && self.step.is_none() {
            candidates.extend([low, high, f64::midpoint(low, high)]);
        }
        let found = candidates.into_iter().find(|number| self.contains(*number)).unwrap_or(0.0);
        json_number(found)
    }

    fn contains(&self, number: f64) -> bool {
        self.min.is_none_or(|least| number >= least)
            && self.above.is_none_or(|above| number > above)
            && self.max.is_none_or(|most| number <= most)
            && self.below.is_none_or(|below| number < below)
    }
}

/// Whole numbers without a decimal point, as far as a float is exact.
fn json_number(number: f64) -> Value {
    const MAX_EXACT_INT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() <= MAX_EXACT_INT {
        Value::from(number as i64)
    } else {
        Value::from(number)
    }
}
