//! Compares kept answers: of two batches over the same rows, and with a golden set.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::file::GoldenSet;
use crate::row_listing::ListedRow;
use crate::sql_json::{from_json, show_key};

/// One batch's side of a comparison.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct AnswerSet {
    /// Rows with an answer.
    pub answers: u64,
    /// Rows without one.
    pub without_answer: u64,
    /// The models that answered.
    pub models: Vec<String>,
    /// What the rows' last answers cost, in dollars.
    pub cost: f64,
    /// The mean latency of an answer.
    pub mean_latency_ms: Option<f64>,
}

/// A row in both batches.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ComparedRow {
    /// The row's key.
    pub key: Value,
    /// Whether both answers are the same: as JSON, else as text.
    pub agree: bool,
    /// The names of the fields that differ, if both answers are JSON objects.
    pub differs: Vec<String>,
    /// The first batch's answer.
    pub a: ComparedAnswer,
    /// The second batch's answer.
    pub b: ComparedAnswer,
}

/// One answer of a compared row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ComparedAnswer {
    /// The answer's text; `None` if there is none.
    pub answer: Option<String>,
    /// Why the row failed, if it did.
    pub failure: Option<String>,
    /// The cost in dollars.
    pub cost: Option<f64>,
    /// The latency.
    pub latency_ms: Option<u64>,
}

/// Two batches over the same rows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AnswerComparison {
    /// The first batch.
    pub a: AnswerSet,
    /// The second batch.
    pub b: AnswerSet,
    /// Rows in both batches.
    pub rows: Vec<ComparedRow>,
    /// Rows in the first batch only.
    pub only_a: u64,
    /// Rows in the second batch only.
    pub only_b: u64,
    /// The share of the rows in both that agree.
    pub agreement: Option<f64>,
    /// The share for each field of the answers.
    pub fields: BTreeMap<String, f64>,
}

impl AnswerSet {
    #[expect(clippy::cast_precision_loss, reason = "a mean for people")]
    fn of(rows: &[ListedRow]) -> Self {
        let mut set = Self::default();
        let (mut latency, mut measured) = (0.0, 0_u64);
        for row in rows {
            let answer = ComparedAnswer::of(row);
            *(if answer.answer.is_some() { &mut set.answers } else { &mut set.without_answer }) += 1;
            set.cost += answer.cost.unwrap_or_default();
            if let Some(millis) = answer.latency_ms {
                latency += millis as f64;
                measured += 1;
            }
            let model = row.result.as_ref().and_then(|result| result["model"].as_str());
            if let Some(model) = model.filter(|model| !set.models.iter().any(|known| known == model)) {
                set.models.push(model.to_owned());
            }
        }
        set.mean_latency_ms = (measured > 0).then(|| latency / measured as f64);
        set
    }
}

impl ComparedAnswer {
    fn of(row: &ListedRow) -> Self {
        let result = |name: &str| row.result.as_ref().map(|result| &result[name]);
        let failure = row.code.as_ref().map(|code| match &row.reason {
            Some(reason) => format!("{code}: {reason}"),
            None => code.clone(),
        });
        Self {
            answer: row.answer.clone(),
            failure: failure.filter(|_| row.state == longshore::UnitState::Failed),
            cost: result("cost_usd").and_then(Value::as_f64),
            latency_ms: result("latency_ms").and_then(Value::as_u64),
        }
    }
}

impl AnswerComparison {
    /// Compares the rows of two batches by their keys.
    #[expect(clippy::cast_precision_loss, reason = "shares for people")]
    pub fn of(a: &[ListedRow], b: &[ListedRow]) -> Self {
        let by_key: BTreeMap<String, &ListedRow> = b.iter().map(|row| (row_key(&row.key), row)).collect();
        let mut rows: Vec<ComparedRow> = Vec::new();
        let mut fields: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for (one, other) in a.iter().filter_map(|one| Some((one, *by_key.get(&row_key(&one.key))?))) {
            rows.push(compare(one, other, &mut fields));
        }
        rows.sort_by(|one, other| {
            let number = |row: &ComparedRow| row.key.as_f64().unwrap_or(f64::MAX);
            number(one).total_cmp(&number(other)).then_with(|| row_key(&one.key).cmp(&row_key(&other.key)))
        });
        let both = rows.len() as u64;
        let agreeing = rows.iter().filter(|row| row.agree).count();
        let share = |(same, all): (u64, u64)| same as f64 / all as f64;
        Self {
            a: AnswerSet::of(a),
            b: AnswerSet::of(b),
            only_a: a.len() as u64 - both,
            only_b: (b.len() as u64).saturating_sub(both),
            agreement: (both > 0).then(|| agreeing as f64 / both as f64),
            fields: fields.into_iter().map(|(name, counts)| (name, share(counts))).collect(),
            rows,
        }
    }
}

/// A key as in lists: the number 1 and the text `1` are two rows.
fn row_key(key: &Value) -> String {
    key.to_string()
}

fn compare(one: &ListedRow, other: &ListedRow, fields: &mut BTreeMap<String, (u64, u64)>) -> ComparedRow {
    let (a, b) = (parsed(one), parsed(other));
    let mut differs = Vec::new();
    if let (Some(Value::Object(a)), Some(Value::Object(b))) = (&a, &b) {
        let names = a.keys().chain(b.keys().filter(|name| !a.contains_key(*name)));
        for name in names {
            let same = equal(a.get(name), b.get(name));
            let counts = fields.entry(name.clone()).or_default();
            (counts.0, counts.1) = (counts.0 + u64::from(same), counts.1 + 1);
            if !same {
                differs.push(name.clone());
            }
        }
    }
    let agree = match (&a, &b) {
        (Some(a), Some(b)) => equal(Some(a), Some(b)),
        _ => one.answer.is_some() && trimmed(one) == trimmed(other),
    };
    ComparedRow {
        key: one.key.clone(),
        agree,
        differs,
        a: ComparedAnswer::of(one),
        b: ComparedAnswer::of(other),
    }
}

fn trimmed(row: &ListedRow) -> Option<&str> {
    row.answer.as_deref().map(str::trim)
}

fn parsed(row: &ListedRow) -> Option<Value> {
    serde_json::from_str(row.answer.as_deref()?).ok()
}

/// Whether two values are the same; numbers by their value, so that 1 is 1.0.
fn equal(one: Option<&Value>, other: Option<&Value>) -> bool {
    match (one, other) {
        (Some(Value::Number(one)), Some(Value::Number(other))) => one.as_f64() == other.as_f64(),
        (Some(Value::Array(one)), Some(Value::Array(other))) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| equal(Some(one), Some(other)))
        }
        (Some(Value::Object(one)), Some(Value::Object(other))) => {
            one.len() == other.len() && one.iter().all(|(name, value)| equal(Some(value), other.get(name)))
        }
        (one, other) => one == other,
    }
}

/// How a golden set was answered.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckScore {
    /// Rows with a known answer.
    pub rows: u64,
    /// Rows that were answered as expected.
    pub right: u64,
    /// The share that was needed, from 0 to 1.
    pub pass: f64,
    /// Whether enough rows are right.
    pub passed: bool,
    /// What was wrong.
    pub wrong: Vec<WrongAnswer>,
}

/// A field that is not as expected, or a row without an answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WrongAnswer {
    /// The row's key, for people.
    pub key: String,
    /// The field; `None` if there is no answer.
    pub field: Option<String>,
    /// What was expected.
    pub expected: Value,
    /// What the answer has, or why there is none.
    pub found: Value,
}

impl CheckScore {
    /// Scores the rows of a batch that asked for all rows of the set.
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    pub fn of(set: &GoldenSet, rows: &[ListedRow]) -> Self {
        let mut wrong = Vec::new();
        let mut right = 0;
        for expected in &set.rows {
            let row = rows.iter().find(|row| equal(Some(&row.key), Some(&expected.key)));
            let answer = row.and_then(parsed);
            let key = show_key(&from_json(&expected.key));
            let before = wrong.len();
            match &answer {
                Some(answer) => {
                    let fields = expected
                        .fields
                        .iter()
                        .filter(|(name, value)| !equal(Some(value), answer.get(name.as_str())));
                    wrong.extend(fields.map(|(name, value)| WrongAnswer {
                        key: key.clone(),
                        field: Some(name.clone()),
                        expected: value.clone(),
                        found: answer.get(name.as_str()).cloned().unwrap_or_default(),
                    }));
                }
                None => {
                    let why =
                        row.and_then(|row| ComparedAnswer::of(row).failure.or_else(|| row.answer.clone()));
                    let found = Value::from(why.unwrap_or_else(|| "no answer".to_owned()));
                    let expected = Value::Object(expected.fields.clone());
                    wrong.push(WrongAnswer { key, field: None, expected, found });
                }
            }
            right += u64::from(wrong.len() == before);
        }
        let count = set.rows.len() as u64;
        let passed = right as f64 >= set.pass * count as f64 - 1e-9;
        Self { rows: count, right, pass: set.pass, passed, wrong }
    }
}
