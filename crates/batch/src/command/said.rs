//! What commands answer, read strictly: an answer that means nothing is an error, not a guess.

use std::collections::BTreeMap;
use std::time::Duration;

use longshore::outcome::Params;
use longshore::{Effect, SqlValue};
use serde::Deserialize;
use serde_json::Value;

use crate::definition::Verdict;
use crate::sql;
use crate::sql_post::{self, RESERVED};
use crate::step::{Reply, RowRun};
use crate::value::from_json;

/// What PRE said.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Prepared {
    Prompt(String),
    Skip(String),
}

/// What POST said.
#[derive(Debug, PartialEq)]
pub(super) struct Said {
    pub(super) verdict: Verdict,
    pub(super) reason: Option<String>,
    pub(super) after: Option<Duration>,
    pub(super) effects: Vec<Wanted>,
}

/// A statement that POST wants to be run with the row's end.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    sql: String,
    #[serde(default)]
    params: BTreeMap<String, Value>,
    #[serde(default)]
    rows: Option<u64>,
}

/// Reads PRE's answer: a prompt as text, `{"prompt": …}`, or `{"skip": reason}`.
pub(super) fn prepared(answer: Value) -> Result<Prepared, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "snake_case")]
    enum Object {
        Prompt(String),
        Skip(String),
    }
    let prompt = match answer {
        Value::String(prompt) => prompt,
        answer => match Object::deserialize(&answer) {
            Ok(Object::Prompt(prompt)) => prompt,
            Ok(Object::Skip(reason)) => return Ok(Prepared::Skip(reason)),
            Err(_) => {
                let wanted = r#"`prepare` answers with a prompt, or {"skip": "reason"}"#;
                return Err(format!("{wanted}; this is neither: {}", cut(&answer)));
            }
        },
    };
    match prompt.trim() {
        "" => Err("`prepare` answered with an empty prompt".to_owned()),
        _ => Ok(Prepared::Prompt(prompt)),
    }
}

/// Reads POST's answer: a verdict as text, or an object with `verdict`, `reason`, `after_ms` and
/// `effects`. Nothing at all is `done`.
pub(super) fn applied(answer: Value) -> Result<Said, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Object {
        #[serde(default)]
        verdict: Option<String>,
        #[serde(default)]
        reason: Option<String>,
        #[serde(default)]
        after_ms: Option<u64>,
        #[serde(default)]
        effects: Vec<Value>,
    }
    let said = match &answer {
        Value::Null => Object { verdict: None, reason: None, after_ms: None, effects: Vec::new() },
        Value::String(word) => {
            let verdict = Some(word.clone());
            Object { verdict, reason: None, after_ms: None, effects: Vec::new() }
        }
        answer => {
            object(answer).map_err(|why| format!("`apply` answered {}: {why}", cut(answer)))?
        }
    };
    let verdict = said.verdict.as_deref().map_or(Ok(Verdict::Success), verdict)?;
    let after = said.after_ms.map(Duration::from_millis).filter(|_| verdict == Verdict::Retry);
    let effects = said.effects.into_iter().map(wanted).collect::<Result<_, _>>()?;
    Ok(Said { verdict, reason: said.reason, after, effects })
}

/// Reads an object. A list would do for serde, field by field.
fn object<'v, T: Deserialize<'v>>(value: &'v Value) -> Result<T, String> {
    match value.is_object() {
        true => T::deserialize(value).map_err(|error| error.to_string()),
        false => Err("not an object".to_owned()),
    }
}

fn verdict(word: &str) -> Result<Verdict, String> {
    match word.to_ascii_lowercase().as_str() {
        "done" | "success" => Ok(Verdict::Success),
        "retry" => Ok(Verdict::Retry),
        "fail" => Ok(Verdict::Fail),
        _ => Err(format!("`{word}` is no verdict; `apply` answers with done, retry or fail")),
    }
}

fn wanted(effect: Value) -> Result<Wanted, String> {
    let wanted = match effect {
        Value::String(sql) => Wanted { sql, params: BTreeMap::new(), rows: None },
        effect => object(&effect).map_err(|why| format!("{} is no effect: {why}", cut(&effect)))?,
    };
    Ok(wanted)
}

impl Wanted {
    /// The statement with a value for each of its parameters: those that the command gave, and what
    /// SQL of POST may use anywhere.
    pub(super) fn bind(&self, row: &RowRun<'_>, reply: &Reply) -> Result<Effect, String> {
        let bind = |name: &str| -> Result<(String, SqlValue), String> {
            let value = match self.params.get(name) {
                Some(value) => value_of(value),
                None if is_known(name, reply) => sql_post::value(name, row, reply),
                None => {
                    return Err(format!(
                        "an effect uses `:{name}`, which has no value: {}",
                        self.sql
                    ));
                }
            };
            Ok((name.to_owned(), value))
        };
        let bound = sql::parameters(&self.sql).into_iter().map(bind).collect::<Result<_, _>>()?;
        Ok(Effect { sql: self.sql.clone(), params: Params::Named(bound), expected_rows: self.rows })
    }
}

fn is_known(name: &str, reply: &Reply) -> bool {
    let has = |name: &str| reply.json.as_ref().is_some_and(|json| json.get(name).is_some());
    RESERVED.contains(&name) || has(name) || name.strip_prefix("answer_").is_some_and(has)
}

/// As [`from_json`], and `{"base16": "…"}`, which is how commands see bytes, is bytes.
fn value_of(value: &Value) -> SqlValue {
    let hex = value.as_object().filter(|fields| fields.len() == 1);
    let hex = hex.and_then(|fields| fields.get("base16")?.as_str());
    hex.and_then(bytes).map_or_else(|| from_json(value), SqlValue::Blob)
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = hex.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).ok()).collect()
}

/// A value in a message: its beginning.
fn cut(value: &Value) -> String {
    const MOST: usize = 200;
    let mut text = value.to_string();
    if text.len() > MOST {
        text.truncate(text.floor_char_boundary(MOST));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_prompt_is_text_or_an_object_and_nothing_else() {
        let prompt = || Ok(Prepared::Prompt("ask".to_owned()));
        assert_eq!(prepared(json!("ask")), prompt());
        assert_eq!(prepared(json!({"prompt": "ask"})), prompt());
        assert_eq!(prepared(json!({"skip": "dull"})), Ok(Prepared::Skip("dull".to_owned())));
        for odd in [json!(null), json!(7), json!(["ask"]), json!({"promt": "ask"}), json!(" \n")] {
            assert!(prepared(odd.clone()).is_err(), "{odd}");
        }
        assert!(prepared(json!({"prompt": "ask", "skip": "dull"})).is_err(), "which of them?");
    }

    #[test]
    fn a_verdict_is_a_word_an_object_or_nothing() {
        let verdict = |answer: Value| applied(answer).map(|said| said.verdict);
        assert_eq!(verdict(json!(null)), Ok(Verdict::Success));
        assert_eq!(verdict(json!({})), Ok(Verdict::Success));
        assert_eq!(verdict(json!("done")), Ok(Verdict::Success));
        assert_eq!(verdict(json!("SUCCESS")), Ok(Verdict::Success));
        assert_eq!(verdict(json!({"verdict": "fail", "reason": "no"})), Ok(Verdict::Fail));
        let retry = applied(json!({"verdict": "retry", "after_ms": 1500})).unwrap();
        assert_eq!(retry.after, Some(Duration::from_millis(1500)));
        for odd in [json!("yes"), json!(true), json!(["done"]), json!({"verdikt": "done"})] {
            assert!(verdict(odd.clone()).is_err(), "{odd}");
        }
    }

    #[test]
    fn an_effect_is_sql_with_or_without_parameters_of_its_own() {
        let effects = |effects: Value| applied(json!({ "effects": effects }));
        let said = effects(json!(["DELETE FROM t", {"sql": "X", "params": {"a": 1}, "rows": 1}]));
        let said = said.unwrap().effects;
        assert_eq!((said.len(), said[1].rows, &said[1].params["a"]), (2, Some(1), &json!(1)));
        assert!(effects(json!([{"sql": "X", "parms": {}}])).is_err());
        assert!(effects(json!([["X"]])).is_err());
    }

    #[test]
    fn bytes_come_back_as_they_went() {
        let blob = SqlValue::Blob(vec![0, 0xab, 0xff]);
        assert_eq!(value_of(&crate::value::to_json(&blob)), blob);
        assert_eq!(value_of(&json!({"base16": "zz"})), from_json(&json!({"base16": "zz"})));
        assert_eq!(value_of(&json!("text")), SqlValue::Text("text".into()));
    }
}
