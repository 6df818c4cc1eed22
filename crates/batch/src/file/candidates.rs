//! `[candidates]`: which rows, and the values of their parameters.

use std::collections::BTreeMap;

use serde_json::{Number, Value};
use toml::de::DeValue;

use crate::definition::{Candidates, Mail};
use crate::sql;

use super::error::FileError;
use super::places::Places;
use super::section::{Field, Section};
use super::{Overrides, Written, ai, statements};

const KEYS: [&str; 8] = ["sql", "sql_file", "key", "priority", "limit", "claim", "ahead", "params"];

/// How many rows may wait unfinished, unless the file says otherwise.
const AHEAD: u64 = 10_000;

/// The same where rows sleep while their questions are with a provider, perhaps for a day.
const AHEAD_IN_BULK: u64 = 100_000;

pub(super) fn read(
    root: &Section<'_>,
    kind: &str,
    overrides: &Overrides,
    mail: Option<&Mail>,
    places: &mut Places,
) -> Result<Candidates, FileError> {
    let section = root.need_section("candidates", &KEYS)?;
    let written = Written::either(&section, "sql", "sql_file")?;
    let written = written.ok_or_else(|| section.missing("sql"))?;
    let sql = statements::query(&written, "candidates.sql", places)?;
    let params = params(&section, &sql, overrides, mail, places)?;
    let limit = section.field("limit").map(|field| field.count()).transpose()?;
    let ahead = section.field("ahead").map(|field| field.count()).transpose()?;
    Ok(Candidates {
        key: column(&section.need("key")?, places)?,
        priority: section.field("priority").map(|field| column(&field, places)).transpose()?,
        params,
        limit: overrides.limit.or(limit),
        claim: claim(&section, kind)?.filter(|_| !overrides.allow_duplicates),
        ahead: ahead.unwrap_or(if ai::is_bulk(root) { AHEAD_IN_BULK } else { AHEAD }),
        sql,
    })
}

fn column(field: &Field<'_>, places: &mut Places) -> Result<String, FileError> {
    places.put(&field.name, field.place());
    Ok(field.text()?.to_owned())
}

fn claim(section: &Section<'_>, kind: &str) -> Result<Option<String>, FileError> {
    let written = section.field("claim").map(|field| field.text()).transpose()?;
    Ok(Some(written.unwrap_or(kind).to_owned()))
}

/// The value of every parameter that the SQL has, and of no other.
fn params(
    section: &Section<'_>,
    sql: &str,
    overrides: &Overrides,
    mail: Option<&Mail>,
    places: &Places,
) -> Result<BTreeMap<String, Value>, FileError> {
    let known = sql::parameters(sql);
    let at_sql = |message| places.error(&section.file.shown, "candidates.sql", 0, message);
    let mut values = defaults(section, &known)?;
    let facts = mail.iter().flat_map(|mail| mail.facts());
    for (name, value) in facts.filter(|(name, _)| known.contains(name)) {
        values.insert(name.to_owned(), Value::from(value));
    }
    for (name, given) in &overrides.params {
        if !known.contains(&name.as_str()) {
            let message = format!("--param {name}: the candidates' SQL has no `:{name}`");
            return Err(at_sql(message).meant(name, known.iter().copied()));
        }
        let value = typed(given, values.get(name));
        values.insert(name.clone(), value);
    }
    match known.iter().find(|name| !values.contains_key(**name)) {
        None => Ok(values),
        Some(name) => Err(at_sql(format!("parameter `:{name}` has no value")).hint(format!(
            "give it with --param {name}=…, or a default under [candidates.params]"
        ))),
    }
}

fn defaults(section: &Section<'_>, known: &[&str]) -> Result<BTreeMap<String, Value>, FileError> {
    let Some(field) = section.field("params") else { return Ok(BTreeMap::new()) };
    let mut values = BTreeMap::new();
    for (name, field) in field.open_section()?.fields() {
        if !known.contains(&name) {
            let error = field.error(format!("the candidates' SQL has no parameter `:{name}`"));
            return Err(error.meant(name, known.iter().copied()));
        }
        values.insert(name.to_owned(), value(&field)?);
    }
    Ok(values)
}

fn value(field: &Field<'_>) -> Result<Value, FileError> {
    let unusable = || field.wrong("text, a number, true, false or a date");
    Ok(match field.value() {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Boolean(value) => Value::from(*value),
        DeValue::Datetime(date) => Value::from(date.to_string()),
        DeValue::Integer(_) | DeValue::Float(_) => {
            super::ai::json(field.value()).ok_or_else(unusable)?
        }
        DeValue::Array(_) | DeValue::Table(_) => return Err(unusable()),
    })
}

/// A value as typed at the command line. What would not read the same again (`007`) is text, and
/// so is everything where the file's default is.
fn typed(given: &str, default: Option<&Value>) -> Value {
    let text = || Value::from(given);
    if default.is_some_and(Value::is_string) {
        return text();
    }
    if let Ok(whole) = given.parse::<i64>() {
        return if whole.to_string() == given { Value::from(whole) } else { text() };
    }
    let digits = given.strip_prefix('-').unwrap_or(given);
    let begins_well = digits.starts_with("0.") || digits.starts_with(|c| ('1'..='9').contains(&c));
    let number = given.parse::<f64>().ok().filter(|_| begins_well && given.contains('.'));
    number.and_then(Number::from_f64).map_or_else(text, Value::Number)
}
