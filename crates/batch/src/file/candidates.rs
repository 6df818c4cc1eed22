//! `[candidates]`: the rows, and the values of the query's parameters.

use std::collections::BTreeMap;

use serde_json::{Number, Value};
use toml::de::DeValue;

use crate::definition::{Candidates, Mail};
use crate::sql;

use super::error::FileError;
use super::section::{Field, Section};
use super::source_map::SourceMap;
use super::{Overrides, SourceText, ai, statements};

const KEYS: [&str; 8] = ["sql", "sql_file", "key", "priority", "limit", "claim", "ahead", "params"];

/// Default number of unfinished rows.
const DEFAULT_AHEAD: u64 = 10_000;

/// Default number of unfinished rows with a provider batch, where rows sleep for up to a day.
const DEFAULT_AHEAD_PROVIDER_BATCH: u64 = 100_000;

pub(super) fn read(
    root: &Section<'_>,
    kind: &str,
    overrides: &Overrides,
    mail: Option<&Mail>,
    source_map: &mut SourceMap,
) -> Result<Candidates, FileError> {
    let section = root.require_section("candidates", &KEYS)?;
    let written = SourceText::inline_or_file(&section, "sql", "sql_file")?;
    let written = written.ok_or_else(|| section.missing("sql"))?;
    let sql = statements::query(&written, "candidates.sql", source_map)?;
    let params = params(&section, &sql, overrides, mail, source_map)?;
    let limit = section.field("limit").map(|field| field.count()).transpose()?;
    let ahead = section.field("ahead").map(|field| field.count()).transpose()?;
    Ok(Candidates {
        key: column(&section.require("key")?, source_map)?,
        priority: section.field("priority").map(|field| column(&field, source_map)).transpose()?,
        params,
        limit: overrides.limit.or(limit),
        sample: None,
        keys: None,
        skip_since: None,
        claim: claim(&section, kind)?.filter(|_| !overrides.allow_duplicates),
        ahead: ahead.unwrap_or(if ai::uses_provider_batch(root) {
            DEFAULT_AHEAD_PROVIDER_BATCH
        } else {
            DEFAULT_AHEAD
        }),
        sql,
    })
}

fn column(field: &Field<'_>, source_map: &mut SourceMap) -> Result<String, FileError> {
    source_map.put(&field.name, field.location());
    Ok(field.text()?.to_owned())
}

fn claim(section: &Section<'_>, kind: &str) -> Result<Option<String>, FileError> {
    let written = section.field("claim").map(|field| field.text()).transpose()?;
    Ok(Some(written.unwrap_or(kind).to_owned()))
}

/// The values of all parameters of the SQL; an error for any other name.
fn params(
    section: &Section<'_>,
    sql: &str,
    overrides: &Overrides,
    mail: Option<&Mail>,
    source_map: &SourceMap,
) -> Result<BTreeMap<String, Value>, FileError> {
    let sql_params = sql::parameters(sql);
    let at_sql = |message| source_map.error(&section.file.display_path, "candidates.sql", 0, message);
    let mut values = defaults(section, &sql_params)?;
    let facts = mail.iter().flat_map(|mail| mail.facts());
    for (name, value) in facts.filter(|(name, _)| sql_params.contains(name)) {
        values.insert(name.to_owned(), Value::from(value));
    }
    for (name, given) in &overrides.params {
        if !sql_params.contains(&name.as_str()) {
            let message = format!("--param {name}: the candidates' SQL has no `:{name}`");
            return Err(at_sql(message).suggest(name, sql_params.iter().copied()));
        }
        let value = parse_param(given, values.get(name));
        values.insert(name.clone(), value);
    }
    match sql_params.iter().find(|name| !values.contains_key(**name)) {
        None => Ok(values),
        Some(name) => Err(at_sql(format!("parameter `:{name}` has no value"))
            .hint(format!("give it with --param {name}=…, or a default under [candidates.params]"))),
    }
}

fn defaults(section: &Section<'_>, sql_params: &[&str]) -> Result<BTreeMap<String, Value>, FileError> {
    let Some(field) = section.field("params") else { return Ok(BTreeMap::new()) };
    let mut values = BTreeMap::new();
    for (name, field) in field.section_with_any_keys()?.fields() {
        if !sql_params.contains(&name) {
            let error = field.error(format!("the candidates' SQL has no parameter `:{name}`"));
            return Err(error.suggest(name, sql_params.iter().copied()));
        }
        values.insert(name.to_owned(), value(&field)?);
    }
    Ok(values)
}

fn value(field: &Field<'_>) -> Result<Value, FileError> {
    let unusable = || field.type_error("text, a number, true, false or a date");
    Ok(match field.value() {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Boolean(value) => Value::from(*value),
        DeValue::Datetime(date) => Value::from(date.to_string()),
        DeValue::Integer(_) | DeValue::Float(_) => super::ai::json(field.value()).ok_or_else(unusable)?,
        DeValue::Array(_) | DeValue::Table(_) => return Err(unusable()),
    })
}

/// A parameter value from the command line. A number that would not print the same again (`007`) is
/// text, and so is everything if the file's default is text.
fn parse_param(given: &str, default: Option<&Value>) -> Value {
    let text = || Value::from(given);
    if default.is_some_and(Value::is_string) {
        return text();
    }
    if let Ok(whole) = given.parse::<i64>() {
        return if whole.to_string() == given { Value::from(whole) } else { text() };
    }
    let digits = given.strip_prefix('-').unwrap_or(given);
    let is_plain = digits.starts_with("0.") || digits.starts_with(|c| ('1'..='9').contains(&c));
    let number = given.parse::<f64>().ok().filter(|_| is_plain && given.contains('.'));
    number.and_then(Number::from_f64).map_or_else(text, Value::Number)
}
