//! A few answers of each batch, for the summary of a run: one for each class of answers, so that the
//! usual verdict does not hide the others.
//!
//! Kept in memory by the process that runs the rows. The store deletes an answer once POST has
//! applied it.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use longshore::{BatchId, SqlValue};
use serde_json::Value;

use crate::sql_json::show_key;

/// How many answers are shown.
const MAX_SAMPLES: usize = 3;
/// How many rows of a batch are searched for answers that differ.
const MAX_SCANNED: u32 = 200;

/// Samples of the batches that this process runs.
#[derive(Debug, Default)]
pub struct AnswerSamples {
    batches: Mutex<HashMap<BatchId, BatchSamples>>,
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerSample {
    /// The row's key, for people.
    pub key: String,
    /// The answer.
    pub text: String,
}

#[derive(Debug, Default)]
struct BatchSamples {
    scanned: u32,
    classes: BTreeSet<String>,
    differing: Vec<AnswerSample>,
    spare: Vec<AnswerSample>,
}

impl AnswerSamples {
    /// Adds the answer of a row that is done.
    pub fn add(&self, batch: &BatchId, key: &SqlValue, text: &str) {
        let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        match batches.get_mut(batch) {
            Some(samples) => samples.add(key, text),
            None => batches.entry(batch.clone()).or_default().add(key, text),
        }
    }

    /// The samples of a batch: first samples that differ, then others.
    pub fn of(&self, batch: &BatchId) -> Vec<AnswerSample> {
        let batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(samples) = batches.get(batch) else { return Vec::new() };
        samples.differing.iter().chain(&samples.spare).take(MAX_SAMPLES).cloned().collect()
    }
}

impl BatchSamples {
    fn add(&mut self, key: &SqlValue, text: &str) {
        if self.scanned == MAX_SCANNED || self.differing.len() == MAX_SAMPLES {
            return;
        }
        self.scanned += 1;
        let sample = AnswerSample { key: show_key(key), text: text.to_owned() };
        if self.classes.insert(answer_class(text)) {
            self.differing.push(sample);
        } else if self.spare.len() < MAX_SAMPLES {
            self.spare.push(sample);
        }
    }
}

/// What an answer is classified by: its first short string, or else its first boolean, if it is
/// JSON.
fn answer_class(text: &str) -> String {
    let Ok(Value::Object(fields)) = serde_json::from_str(text) else { return String::new() };
    let word = |value: &Value| value.as_str().is_some_and(|text| text.len() < 24);
    let truth = |value: &Value| value.is_boolean();
    let found = fields.values().find(|value| word(value)).or_else(|| fields.values().find(|v| truth(v)));
    found.map_or(String::new(), Value::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_differ_are_shown_first() {
        let (samples, batch) = (AnswerSamples::default(), BatchId::new("b").unwrap());
        let verdicts = ["APPROVE", "APPROVE", "APPROVE", "REJECT"];
        for (key, verdict) in (1..).zip(verdicts) {
            samples.add(&batch, &SqlValue::Int(key), &format!(r#"{{"verdict":"{verdict}"}}"#));
        }
        let keys: Vec<String> = samples.of(&batch).into_iter().map(|sample| sample.key).collect();
        assert_eq!(keys, ["1", "4", "2"]);
        assert_eq!(samples.of(&BatchId::new("other").unwrap()), []);
    }
}
