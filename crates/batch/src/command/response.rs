//! Parses the responses of commands strictly: an unknown form is an error, not a guess.

use std::collections::BTreeMap;
use std::time::Duration;

use longshore::outcome::Params;
use longshore::text::truncate_bytes;
use longshore::{Effect, SqlValue};
use serde::Deserialize;
use serde_json::Value;

use crate::definition::PostVerdict;
use crate::pre_post::{RowReply, RowRun};
use crate::sql;
use crate::sql_json::from_json;
use crate::sql_post::{self, RESERVED};

/// PRE's response.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PrepareResponse {
    Prompt(String),
    Skip(String),
}

/// POST's response.
#[derive(Debug, PartialEq)]
pub(super) struct ApplyResponse {
    pub(super) verdict: PostVerdict,
    pub(super) reason: Option<String>,
    pub(super) after: Option<Duration>,
    pub(super) effects: Vec<EffectRequest>,
}

/// The response of a step.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunResponse {
    #[serde(default)]
    pub(super) answer: Value,
    #[serde(default)]
    effects: Vec<Value>,
}

impl RunResponse {
    /// The statements to run with the step.
    pub(super) fn effects(&self, row: &RowRun<'_>) -> Result<Vec<Effect>, String> {
        let reply = RowReply::of_step(self.answer.clone());
        self.effects.iter().map(|effect| parse_effect(effect.clone())?.bind(row, &reply)).collect()
    }
}

/// Parses a step's response: an object with `answer` and `effects`, or null.
pub(super) fn parse_run(answer: Value) -> Result<RunResponse, String> {
    match &answer {
        Value::Null => Ok(RunResponse::default()),
        answer => object(answer).map_err(|why| {
            let expected = r#"`run` answers with {"answer": …, "effects": […]}"#;
            format!("{expected}; this is not: {}: {why}", truncated(answer))
        }),
    }
}

/// A statement that POST asks to run when the row ends.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EffectRequest {
    sql: String,
    #[serde(default)]
    params: BTreeMap<String, Value>,
    #[serde(default)]
    rows: Option<u64>,
}

/// Parses PRE's response: a prompt as text, `{"prompt": …}`, or `{"skip": reason}`.
pub(super) fn parse_prepare(answer: Value) -> Result<PrepareResponse, String> {
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
            Ok(Object::Skip(reason)) => return Ok(PrepareResponse::Skip(reason)),
            Err(_) => {
                let expected = r#"`prepare` answers with a prompt, or {"skip": "reason"}"#;
                return Err(format!("{expected}; this is neither: {}", truncated(&answer)));
            }
        },
    };
    match prompt.trim() {
        "" => Err("`prepare` answered with an empty prompt".to_owned()),
        _ => Ok(PrepareResponse::Prompt(prompt)),
    }
}

/// Parses POST's response: a verdict as text, or an object with `verdict`, `reason`, `after_ms` and
/// `effects`. Null means `done`.
pub(super) fn parse_apply(answer: Value) -> Result<ApplyResponse, String> {
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
    let response = match &answer {
        Value::Null => Object { verdict: None, reason: None, after_ms: None, effects: Vec::new() },
        Value::String(word) => {
            let verdict = Some(word.clone());
            Object { verdict, reason: None, after_ms: None, effects: Vec::new() }
        }
        answer => object(answer).map_err(|why| format!("`apply` answered {}: {why}", truncated(answer)))?,
    };
    let verdict = response.verdict.as_deref().map_or(Ok(PostVerdict::Success), parse_verdict)?;
    let after = response.after_ms.map(Duration::from_millis).filter(|_| verdict == PostVerdict::Retry);
    let effects = response.effects.into_iter().map(parse_effect).collect::<Result<_, _>>()?;
    Ok(ApplyResponse { verdict, reason: response.reason, after, effects })
}

/// Parses an object. Serde alone would also accept a list, field by field.
fn object<'v, T: Deserialize<'v>>(value: &'v Value) -> Result<T, String> {
    match value.is_object() {
        true => T::deserialize(value).map_err(|error| error.to_string()),
        false => Err("not an object".to_owned()),
    }
}

fn parse_verdict(word: &str) -> Result<PostVerdict, String> {
    match word.to_ascii_lowercase().as_str() {
        "done" | "success" => Ok(PostVerdict::Success),
        "retry" => Ok(PostVerdict::Retry),
        "fail" => Ok(PostVerdict::Fail),
        _ => Err(format!("`{word}` is no verdict; `apply` answers with done, retry or fail")),
    }
}

fn parse_effect(effect: Value) -> Result<EffectRequest, String> {
    let parse_effect = match effect {
        Value::String(sql) => EffectRequest { sql, params: BTreeMap::new(), rows: None },
        effect => object(&effect).map_err(|why| format!("{} is no effect: {why}", truncated(&effect)))?,
    };
    Ok(parse_effect)
}

impl EffectRequest {
    /// The statement with a value for each of its parameters: from the command's `params`, else
    /// from the names that every POST statement may use.
    pub(super) fn bind(&self, row: &RowRun<'_>, reply: &RowReply) -> Result<Effect, String> {
        let bind = |name: &str| -> Result<(String, SqlValue), String> {
            let value = match self.params.get(name) {
                Some(value) => parse_value(value),
                None if has_value(name, row, reply) => sql_post::value(name, row, reply),
                None => {
                    return Err(format!("an effect uses `:{name}`, which has no value: {}", self.sql));
                }
            };
            Ok((name.to_owned(), value))
        };
        let bound = sql::parameters(&self.sql).into_iter().map(bind).collect::<Result<_, _>>()?;
        Ok(Effect { sql: self.sql.clone(), params: Params::Named(bound), expected_rows: self.rows })
    }
}

fn has_value(name: &str, row: &RowRun<'_>, reply: &RowReply) -> bool {
    let has = |name: &str| reply.json.as_ref().is_some_and(|json| json.get(name).is_some());
    sql_post::of_step(name, &row.answers).is_some()
        || RESERVED.contains(&name)
        || has(name)
        || name.strip_prefix("answer_").is_some_and(has)
}

/// Like [`from_json`], but `{"base16": "…"}`, the form in which commands receive bytes, becomes
/// bytes.
fn parse_value(value: &Value) -> SqlValue {
    let hex = value.as_object().filter(|fields| fields.len() == 1);
    let hex = hex.and_then(|fields| fields.get("base16")?.as_str());
    hex.and_then(decode_hex).map_or_else(|| from_json(value), SqlValue::Blob)
}

fn decode_hex(hex: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = hex.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).ok()).collect()
}

/// The beginning of a value, for a message.
fn truncated(value: &Value) -> String {
    truncate_bytes(&value.to_string(), 200)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_prompt_is_text_or_an_object_and_nothing_else() {
        let prompt = || Ok(PrepareResponse::Prompt("ask".to_owned()));
        assert_eq!(parse_prepare(json!("ask")), prompt());
        assert_eq!(parse_prepare(json!({"prompt": "ask"})), prompt());
        assert_eq!(parse_prepare(json!({"skip": "dull"})), Ok(PrepareResponse::Skip("dull".to_owned())));
        for odd in [json!(null), json!(7), json!(["ask"]), json!({"promt": "ask"}), json!(" \n")] {
            assert!(parse_prepare(odd.clone()).is_err(), "{odd}");
        }
        assert!(parse_prepare(json!({"prompt": "ask", "skip": "dull"})).is_err(), "which of them?");
    }

    #[test]
    fn a_verdict_is_a_word_an_object_or_nothing() {
        let verdict = |answer: Value| parse_apply(answer).map(|response| response.verdict);
        assert_eq!(verdict(json!(null)), Ok(PostVerdict::Success));
        assert_eq!(verdict(json!({})), Ok(PostVerdict::Success));
        assert_eq!(verdict(json!("done")), Ok(PostVerdict::Success));
        assert_eq!(verdict(json!("SUCCESS")), Ok(PostVerdict::Success));
        assert_eq!(verdict(json!({"verdict": "fail", "reason": "no"})), Ok(PostVerdict::Fail));
        let retry = parse_apply(json!({"verdict": "retry", "after_ms": 1500})).unwrap();
        assert_eq!(retry.after, Some(Duration::from_millis(1500)));
        for odd in [json!("yes"), json!(true), json!(["done"]), json!({"verdikt": "done"})] {
            assert!(verdict(odd.clone()).is_err(), "{odd}");
        }
    }

    #[test]
    fn an_effect_is_sql_with_or_without_parameters_of_its_own() {
        let effects = |effects: Value| parse_apply(json!({ "effects": effects }));
        let response = effects(json!(["DELETE FROM t", {"sql": "X", "params": {"a": 1}, "rows": 1}]));
        let response = response.unwrap().effects;
        assert_eq!((response.len(), response[1].rows, &response[1].params["a"]), (2, Some(1), &json!(1)));
        assert!(effects(json!([{"sql": "X", "parms": {}}])).is_err());
        assert!(effects(json!([["X"]])).is_err());
    }

    #[test]
    fn bytes_come_back_as_they_went() {
        let blob = SqlValue::Blob(vec![0, 0xab, 0xff]);
        assert_eq!(parse_value(&crate::sql_json::to_json(&blob)), blob);
        assert_eq!(parse_value(&json!({"base16": "zz"})), from_json(&json!({"base16": "zz"})));
        assert_eq!(parse_value(&json!("text")), SqlValue::Text("text".into()));
    }
}
