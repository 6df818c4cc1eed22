//! `[[expect]]` and `[check]`: rows with known answers, and how many of them must be right.

use serde_json::{Map, Value};

use super::ai::json;
use super::error::FileError;
use super::section::{Field, Section};

/// Rows with known answers.
#[derive(Debug, Clone, PartialEq)]
pub struct GoldenSet {
    /// The share of the rows that must be answered as expected, from 0 to 1.
    pub pass: f64,
    /// The rows.
    pub rows: Vec<ExpectedRow>,
}

/// A row and the fields that its answer must have.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpectedRow {
    /// Its key.
    pub key: Value,
    /// The fields of the answer, each with its value.
    pub fields: Map<String, Value>,
}

pub(super) fn read(root: &Section<'_>) -> Result<Option<GoldenSet>, FileError> {
    let section = root.section("check", &["pass"])?;
    let pass = section.as_ref().and_then(|section| section.field("pass"));
    let pass = pass.map_or(Ok(1.0), |field| share(&field))?;
    let Some(field) = root.field("expect") else {
        return match section {
            None => Ok(None),
            Some(section) => Err(section.error("[check] needs rows with known answers: [[expect]]")),
        };
    };
    let items = field.items().ok_or_else(|| field.type_error("a list: write [[expect]]"))?;
    let rows: Vec<ExpectedRow> = items.iter().map(row).collect::<Result<_, _>>()?;
    for (index, item) in items.iter().enumerate() {
        if rows[..index].iter().any(|before| before.key == rows[index].key) {
            return Err(item.error(format!("`{}` has the key of an earlier one", item.name)));
        }
    }
    Ok(Some(GoldenSet { pass, rows }))
}

fn row(item: &Field<'_>) -> Result<ExpectedRow, FileError> {
    let section = item.section(&["key", "answer"])?;
    let key = value(&section.require("key")?)?;
    if !(key.is_string() || key.is_i64()) {
        return Err(section.require("key")?.type_error("a whole number or text"));
    }
    let field = section.require("answer")?;
    match value(&field)? {
        Value::Object(fields) if !fields.is_empty() => Ok(ExpectedRow { key, fields }),
        _ => Err(field.type_error("fields with their values, as { verdict = \"approve\" }")),
    }
}

fn value(field: &Field<'_>) -> Result<Value, FileError> {
    json(field.value())
        .ok_or_else(|| field.error(format!("`{}` holds a number that JSON does not have", field.name)))
}

/// `"95%"`, or `0.95`.
fn share(field: &Field<'_>) -> Result<f64, FileError> {
    let wrong = || field.error(format!("`{}` must be a share, as \"95%\"", field.name));
    let share = match field.value().as_str() {
        Some(text) => {
            text.strip_suffix('%').and_then(|text| text.trim().parse::<f64>().ok()).map(|share| share / 100.0)
        }
        None => field.number().ok(),
    };
    share.filter(|share| (0.0..=1.0).contains(share)).ok_or_else(wrong)
}
