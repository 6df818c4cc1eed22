//! Builds a profile's document: from a file, then the flags, then `--set`.

use std::path::Path;

use anyhow::Context;
use longshore::HumanDuration;
use serde_json::{Map, Value, json};

use crate::amount_args::TokenCount;
use crate::args::limit::{AtLeastOne, LimitArg};
use crate::args::profile::{
    FurtherModel, PriceArgs, ProfileAddArgs, ProfileFields, ProfileSetArgs, RateLimitArgs, RetryArgs,
};
use crate::error::{WithHint, usage};

/// A field of a document, by its path, and its new value; `None` removes it.
type FieldChange = (String, Option<Value>);

/// A new document.
pub fn new(typed: &ProfileAddArgs) -> anyhow::Result<Value> {
    let mut body = typed.from.as_deref().map_or_else(|| Ok(json!({})), read)?;
    if typed.template {
        put(&mut body, "template", Some(json!(true)))?;
    }
    apply(&mut body, changes(&typed.parts)?)?;
    put_models(&mut body, &typed.parts.also_model)?;
    Ok(body)
}

/// A document with the given changes.
pub fn changed(mut body: Value, typed: &ProfileSetArgs) -> anyhow::Result<Value> {
    let mut all = changes(&typed.parts)?;
    all.extend(typed.unset.iter().map(|path| (path.clone(), None)));
    if all.is_empty() && typed.parts.also_model.is_empty() {
        return Err(usage("nothing to set")).hint("name a field, as --model M or --set wire.num_ctx=8192");
    }
    apply(&mut body, all)?;
    put_models(&mut body, &typed.parts.also_model)?;
    Ok(body)
}

/// Adds further models. Not by their path: names of models hold dots.
fn put_models(body: &mut Value, typed: &[FurtherModel]) -> anyhow::Result<()> {
    for FurtherModel { name, prices } in typed {
        let prices = match prices {
            Some((input, output)) => json!({ "input": input, "output": output }),
            None => json!({}),
        };
        let models = body.as_object_mut().map(|body| body.entry("models").or_insert_with(|| json!({})));
        let models = models.and_then(Value::as_object_mut).ok_or_else(|| usage("`models` is no section"))?;
        models.insert(name.clone(), prices);
    }
    Ok(())
}

/// The changes to limits, under `limits.`.
pub fn limits(typed: &RateLimitArgs) -> Vec<FieldChange> {
    fn given<T>(limit: Option<&LimitArg<T>>, value: impl Fn(&T) -> Value) -> Option<Option<Value>> {
        limit.map(|LimitArg(limit)| limit.as_ref().map(value))
    }
    let per_minute = |TokenCount(count): &TokenCount| json!(count);
    let all = [
        ("requests", given(typed.rpm.as_ref(), per_minute)),
        ("tokens", given(typed.tpm.as_ref(), per_minute)),
        ("in_flight", given(typed.in_flight.as_ref(), |AtLeastOne(count)| json!(count))),
        ("burst", given(typed.burst.as_ref(), |minutes| json!(minutes))),
        ("when_full", typed.when_full.map(|what| Some(json!(what.as_str())))),
    ];
    let all = all.into_iter().filter_map(|(key, change)| Some((format!("limits.{key}"), change?)));
    all.collect()
}

/// Applies changes to a document.
pub fn apply(body: &mut Value, changes: Vec<FieldChange>) -> anyhow::Result<()> {
    changes.into_iter().try_for_each(|(path, value)| put(body, &path, value))
}

fn changes(parts: &ProfileFields) -> anyhow::Result<Vec<FieldChange>> {
    let script = parts.script.as_deref().map(text).transpose()?;
    let ca = parts.ca_file.as_deref().map(text).transpose()?;
    let RetryArgs { attempts, retry_base, idle_timeout } = &parts.retry;
    let seconds = |time: &HumanDuration| json!(time);
    let names = |names: &[longshore::ProfileName]| (!names.is_empty()).then(|| json!(names));
    let all = [
        ("provider", parts.provider.as_ref().map(|text| json!(text))),
        ("model", parts.model.as_ref().map(|text| json!(text))),
        ("endpoint", parts.endpoint.as_ref().map(|text| json!(text))),
        ("key", parts.key.as_ref().map(|text| json!(text))),
        ("proxy", parts.proxy.as_ref().map(|text| json!(text))),
        ("proxy_key", parts.proxy_key.as_ref().map(|text| json!(text))),
        ("ca", ca.map(Value::String)),
        ("retry.attempts", attempts.map(|AtLeastOne(count)| json!(count))),
        ("retry.base", retry_base.as_ref().map(seconds)),
        ("retry.idle_timeout", idle_timeout.as_ref().map(seconds)),
        ("system", parts.system.as_ref().map(|text| json!(text))),
        ("max_tokens", parts.max_tokens.map(|AtLeastOne(count)| json!(count))),
        ("script", script.map(Value::String)),
        ("fallback", names(&parts.fallback)),
        ("extends", parts.extends.as_ref().map(|name| json!(name))),
    ];
    let all = all.into_iter().filter_map(|(path, value)| Some((path.to_owned(), Some(value?))));
    let mut all: Vec<FieldChange> = all.collect();
    all.extend(prices(&parts.prices)?);
    all.extend(limits(&parts.limits));
    for typed in &parts.set {
        all.push(set(typed)?);
    }
    Ok(all)
}

fn prices(typed: &PriceArgs) -> anyhow::Result<Vec<FieldChange>> {
    let all = [
        ("input", typed.price_input),
        ("output", typed.price_output),
        ("cache_read", typed.price_cache_read),
        ("cache_write", typed.price_cache_write),
        ("cache_write_long", typed.price_cache_write_long),
        ("batch", typed.price_batch),
    ];
    let given = all.into_iter().filter_map(|(key, price)| Some((key, price?)));
    given.map(|(key, price)| Ok((format!("prices.{key}"), Some(serde_json::to_value(price)?)))).collect()
}

/// Parses `PATH=VALUE`. The error does not repeat the argument, which may hold a secret.
fn set(typed: &str) -> anyhow::Result<FieldChange> {
    let Some((path, value)) = typed.split_once('=') else {
        return Err(usage("--set takes PATH=VALUE, and there is no `=`")).hint("as --set wire.sampling=true");
    };
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    Ok((path.to_owned(), Some(value)))
}

/// Sets or removes the value at a path. Missing objects on the path are created, empty ones
/// removed.
fn put(body: &mut Value, path: &str, value: Option<Value>) -> anyhow::Result<()> {
    let (key, rest) = match path.split_once('.') {
        // Names of headers contain dots themselves.
        Some((key, rest)) => (key, Some(rest)),
        None => (path, None),
    };
    let object = body.as_object_mut().ok_or_else(|| usage(format!("`{path}` is in no section")))?;
    let Some(rest) = rest else {
        if key.is_empty() {
            return Err(usage("a field needs a name")).hint("as --set model=M");
        }
        match value {
            Some(value) => object.insert(key.to_owned(), value),
            None => object.remove(key),
        };
        return Ok(());
    };
    let section = object.entry(key).or_insert_with(|| Value::Object(Map::new()));
    put(section, rest, value)?;
    if section.as_object().is_some_and(Map::is_empty) {
        object.remove(key);
    }
    Ok(())
}

/// Reads a document from a file, TOML or JSON by its extension.
fn read(path: &Path) -> anyhow::Result<Value> {
    let inside = || format!("in {}", path.display());
    let body = match path.extension().and_then(|name| name.to_str()) {
        Some("toml") => read_toml(&text(path)?),
        Some("json") => read_json(&text(path)?),
        _ => {
            return Err(usage(format!("{} is neither .toml nor .json", path.display())))
                .hint("use the extension of the file's format");
        }
    };
    let body = body.with_context(inside)?;
    match body {
        Value::Object(_) => Ok(body),
        _ => Err(usage("a profile's document is an object")).with_context(inside),
    }
}

fn read_toml(text: &str) -> anyhow::Result<Value> {
    let table = toml::from_str::<toml::Table>(text).map_err(|error| usage(error.message()));
    Ok(from_toml(toml::Value::Table(table.hint(FILE_HINT)?)))
}

fn read_json(text: &str) -> anyhow::Result<Value> {
    let body = serde_json::from_str(text)
        .map_err(|e| usage(format!("line {}, column {}: not JSON", e.line(), e.column())));
    body.hint(FILE_HINT)
}

const FILE_HINT: &str = "`longshore profile show NAME --json` shows documents as they are written";

/// Dates and times become strings, as in JSON.
fn from_toml(value: toml::Value) -> Value {
    use toml::Value as Toml;
    match value {
        Toml::String(text) => Value::String(text),
        Toml::Integer(number) => json!(number),
        Toml::Float(number) => json!(number),
        Toml::Boolean(truth) => json!(truth),
        Toml::Datetime(time) => Value::String(time.to_string()),
        Toml::Array(items) => items.into_iter().map(from_toml).collect(),
        Toml::Table(table) => table.into_iter().map(|(key, value)| (key, from_toml(value))).collect(),
    }
}

fn text(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path)
        .hint("the path is relative to the working directory")
        .with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_put_changed_and_left_out_by_its_path() {
        let mut body = json!({ "provider": "echo" });
        put(&mut body, "limits.requests", Some(json!(60))).unwrap();
        put(&mut body, "wire.headers.x-team", Some(json!("a"))).unwrap();
        assert_eq!(body["limits"], json!({ "requests": 60 }));
        put(&mut body, "limits.requests", None).unwrap();
        put(&mut body, "wire.headers.x-team", None).unwrap();
        assert_eq!(body, json!({ "provider": "echo" }), "empty sections are gone");
        assert!(put(&mut body, "provider.x", Some(json!(1))).is_err());
    }

    #[test]
    fn a_value_is_json_or_else_text_and_a_mistake_is_not_repeated() {
        assert_eq!(set("wire.sampling=true").unwrap().1, Some(json!(true)));
        assert_eq!(set("system=be brief").unwrap().1, Some(json!("be brief")));
        assert_eq!(set("a=b=c").unwrap(), ("a".into(), Some(json!("b=c"))));
        assert!(!set("sk-marked").unwrap_err().to_string().contains("marked"));
    }
}
