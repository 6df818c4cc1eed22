//! A small value that follows a JSON Schema.
//!
//! Knows what schemas for answers are made of: types, enums, constants, required properties,
//! bounds, items, local references, the first of alternatives. What is not simple (patterns,
//! `not`, conditions) it does not try: the value is then refused by the schema like any other
//! wrong answer.

use serde_json::{Map, Value};

use crate::schema::target;

/// Most values in a sample, and deepest nesting. A schema that requires itself has no finite
/// value; these end the attempt.
const MOST_VALUES: u32 = 10_000;
const DEEPEST: u32 = 64;

/// Longest echo of the prompt in a text, and longest text, whatever `minLength` says.
const ECHO: usize = 60;
const LONGEST: usize = 10_000;

/// A value that follows `schema`; texts in it say the prompt back.
pub(crate) fn sample(schema: &Value, prompt: &str) -> Value {
    Sampler { root: schema, prompt, left: MOST_VALUES }.value(schema, 0)
}

struct Sampler<'a> {
    root: &'a Value,
    prompt: &'a str,
    /// How many values may still be made.
    left: u32,
}

impl Sampler<'_> {
    fn value(&mut self, schema: &Value, depth: u32) -> Value {
        if self.left == 0 || depth > DEEPEST {
            return Value::Null;
        }
        self.left -= 1;
        let schema = target(self.root, schema);
        if let Some(fixed) = schema.get("const").or_else(|| first(schema, "enum")) {
            return fixed.clone();
        }
        match kind(schema) {
            "object" => self.object(schema, depth),
            "array" => self.array(schema, depth),
            "integer" => Range::of(schema).number(true),
            "number" => Range::of(schema).number(false),
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

    /// As many items as there must be, which is none unless the schema says otherwise.
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
        let most = size(schema, "maxLength").unwrap_or(ECHO).min(ECHO);
        let least = size(schema, "minLength").unwrap_or(0).min(LONGEST);
        let mut text: String = self.prompt.chars().take(most).collect();
        let missing = least.saturating_sub(text.chars().count());
        text.extend(std::iter::repeat_n('.', missing));
        text
    }
}

/// The type to make: the one that is named, or that the other keywords are about. Otherwise the
/// keyword under which alternatives are, or text, which is right where anything is.
fn kind(schema: &Value) -> &str {
    let named = first(schema, "type").or_else(|| schema.get("type"));
    let named = named.and_then(Value::as_str);
    const SIGNS: [(&str, &str); 8] = [
        ("anyOf", "anyOf"),
        ("oneOf", "oneOf"),
        ("allOf", "allOf"),
        ("properties", "object"),
        ("required", "object"),
        ("items", "array"),
        ("minimum", "number"),
        ("maximum", "number"),
    ];
    let sign = || SIGNS.into_iter().find(|(key, _)| schema.get(key).is_some());
    named.or_else(|| sign().map(|(_, kind)| kind)).unwrap_or("string")
}

fn first<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    schema.get(key)?.get(0)
}

fn size(schema: &Value, key: &str) -> Option<usize> {
    schema.get(key)?.as_u64().map(|size| usize::try_from(size).unwrap_or(usize::MAX))
}

/// Where a number must lie.
struct Range {
    least: Option<f64>,
    above: Option<f64>,
    most: Option<f64>,
    below: Option<f64>,
    step: Option<f64>,
}

impl Range {
    fn of(schema: &Value) -> Self {
        let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
        Self {
            least: bound("minimum"),
            above: bound("exclusiveMinimum"),
            most: bound("maximum"),
            below: bound("exclusiveMaximum"),
            step: bound("multipleOf"),
        }
    }

    /// Zero if that will do, else something near the bounds.
    fn number(&self, whole: bool) -> Value {
        let step = self.step.unwrap_or(1.0);
        let low = self.least.or(self.above).unwrap_or(0.0);
        let high = self.most.or(self.below).unwrap_or(0.0);
        let (up, down) = ((low / step).ceil() * step, (high / step).floor() * step);
        let mut tries = vec![0.0, up, up + step, down, down - step];
        if !whole && self.step.is_none() {
            tries.extend([low, high, f64::midpoint(low, high)]);
        }
        let found = tries.into_iter().find(|number| self.holds(*number)).unwrap_or(0.0);
        json_number(found)
    }

    fn holds(&self, number: f64) -> bool {
        self.least.is_none_or(|least| number >= least)
            && self.above.is_none_or(|above| number > above)
            && self.most.is_none_or(|most| number <= most)
            && self.below.is_none_or(|below| number < below)
    }
}

/// Whole numbers without a point, as far as a float can count.
fn json_number(number: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() <= EXACT {
        Value::from(number as i64)
    } else {
        Value::from(number)
    }
}
