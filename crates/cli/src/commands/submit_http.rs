//! `submit http --url …`: builds a payload of kind `http` from the arguments.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use longshore::Verdict;
use serde::Serialize;
use serde_json::value::RawValue;

use super::submit::read;
use crate::args::submit::SubmitArgs;
use crate::error::{WithHint, usage};
use crate::http::{KIND, payload::HttpPayload};
use crate::ndjson_reader;

/// A payload as a user would write it: defaults are left out.
#[derive(Serialize)]
struct HttpPayloadJson<'a> {
    url: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<f64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    follow: bool,
}

/// The payload for the arguments, validated as a worker would.
pub fn payload(url: &str, typed: &SubmitArgs) -> anyhow::Result<Vec<u8>> {
    let kind = typed.kind()?;
    if kind.as_str() != KIND {
        return Err(usage(format!("a unit of kind `{kind}` has no --url")))
            .hint("`longshore submit http --url …` calls a URL");
    }
    let call = &typed.call;
    let payload = HttpPayloadJson {
        url,
        method: call.method.as_deref(),
        headers: headers(typed)?,
        body: body(call.body.clone(), call.body_file.as_deref())?,
        timeout: typed.timeout.map(|limit| limit.0.as_secs_f64()),
        follow: call.follow,
    };
    let text = serde_json::to_string(&payload)?;
    ndjson_reader::check(text.as_bytes()).map_err(|problem| usage(format!("the payload {problem}")))?;
    let checked = HttpPayload::read(&text).and_then(|http| http.check());
    checked.map(|()| text.into_bytes()).map_err(|verdict| usage(failure_text(verdict)))
}

fn headers(typed: &SubmitArgs) -> anyhow::Result<BTreeMap<&str, &str>> {
    let mut headers = BTreeMap::new();
    for header in &typed.call.header {
        if headers.insert(&*header.name, &*header.value).is_some() {
            return Err(usage(format!("header `{}` is given twice", header.name)));
        }
    }
    Ok(headers)
}

fn body(text: Option<String>, file: Option<&Path>) -> anyhow::Result<Option<Box<RawValue>>> {
    let text = match (text, file) {
        (Some(text), _) => text,
        (None, Some(path)) => content(path)?,
        (None, None) => return Ok(None),
    };
    let is_json = text.trim_start().starts_with(['{', '[']);
    let json = is_json.then(|| RawValue::from_string(text.trim().to_owned()).ok()).flatten();
    Ok(Some(match json {
        Some(json) => json,
        None => serde_json::value::to_raw_value(&text)?,
    }))
}

fn content(path: &Path) -> anyhow::Result<String> {
    let bytes = match path.to_str() {
        Some("-") => read(std::io::stdin().lock()),
        _ => std::fs::File::open(path).and_then(read),
    };
    let bytes = bytes.with_context(|| format!("cannot read {}", path.display()))?;
    let text = String::from_utf8(bytes).ok();
    text.ok_or_else(|| usage(format!("{} is not UTF-8 text", path.display())))
}

fn failure_text(verdict: Verdict) -> String {
    match verdict {
        Verdict::Fail(failure) => failure.message,
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_is_an_object_or_a_list_is_json_and_any_other_text() {
        let body = |text: &str| body(Some(text.to_owned()), None).unwrap().unwrap().get().to_owned();
        assert_eq!(body(r#" {"b": 1, "a": 2} "#), r#"{"b": 1, "a": 2}"#);
        assert_eq!(body("[1]"), "[1]");
        assert_eq!(body("7"), r#""7""#);
        assert_eq!(body("{oops"), r#""{oops""#);
        assert_eq!(body("a \"b\""), r#""a \"b\"""#);
    }
}
