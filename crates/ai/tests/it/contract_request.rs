//! Requests: valid ones, defaults, and the errors of invalid ones.

use std::time::Duration;

use longshore::{Priority, TenantId};
use longshore_ai::contract::{Delivery, Libraries, Prompt, ReplyTo, Request};
use longshore_ai::{AskError, Code, Profile, ProviderName};
use serde_json::{Value, json};
use tokio::time::Instant;

/// The smallest request.
pub(crate) fn smallest() -> Value {
    json!({
        "version": "1.0",
        "request_id": "r-1",
        "customer": "acme",
        "profile_ref": "acme_default",
        "reply_queue": { "library": "ACME_5DTA", "name": "RPLY_000001" },
        "prompt": "1 + 1?",
    })
}

/// The smallest request with other fields. `null` removes one.
pub(crate) fn with(changes: Value) -> Value {
    let mut request = smallest();
    for (name, value) in changes.as_object().unwrap() {
        request[name] = value.clone();
    }
    request
}

fn parse(request: &Value) -> Result<Request, String> {
    Request::parse(request.to_string().as_bytes()).map_err(|error| error.to_string())
}

#[test]
fn what_is_not_said_is_as_the_contract_has_it() {
    let request = parse(&smallest()).unwrap();
    assert_eq!(request.version.to_string(), "1.0");
    assert_eq!((request.request_id.as_str(), request.customer.as_str()), ("r-1", "acme"));
    assert_eq!(request.prompt, Prompt::Text("1 + 1?".into()));
    assert_eq!(request.timeout, Duration::from_secs(60));
    assert_eq!(request.metadata.as_str(), "{}");
    assert_eq!(request.priority, Priority::NORMAL);
    assert_eq!(request.delivery, Delivery::Whole);
    assert_eq!((request.temperature, request.max_tokens, request.model), (None, None, None));
}

#[test]
fn what_is_said_counts_and_unknown_fields_do_not() {
    let request = parse(&with(json!({
        "version": "1.17", "model_override": "m", "temperature": 2, "max_tokens": 5.0,
        "system_prompt": "", "timeout_ms": 1, "priority": 9, "stream": true,
        "response_schema": { "type": "object" }, "prompt": null, "prompt_ref": "LIB.TABLE.r-1",
        "colour": "blue", "temprature": 9,
    })))
    .unwrap();
    assert_eq!(request.version.to_string(), "1.17");
    assert_eq!(request.header().version.to_string(), "1.17", "and is answered in it");
    assert_eq!(request.prompt, Prompt::Reference("LIB.TABLE.r-1".into()));
    assert_eq!((request.temperature, request.max_tokens), (Some(2.0), Some(5)));
    assert_eq!(request.system.as_deref(), Some(""));
    assert_eq!(request.timeout, Duration::from_millis(1));
    assert_eq!((request.priority, request.delivery), (Priority::LOW, Delivery::Pieces));
    assert_eq!(request.schema, Some(json!({ "type": "object" })));
}

#[test]
fn whoever_breaks_a_rule_is_told_which() {
    let cases = [
        (json!({ "version": null }), "`version` is missing; it must be a text of two numbers"),
        (json!({ "version": 1.0 }), "`version` must be a text of two numbers, as \"1.0\""),
        (json!({ "version": "1" }), "`version` must be"),
        (json!({ "version": "1.x" }), "`version` must be"),
        (json!({ "version": "01.0" }), "`version` must be"),
        (json!({ "version": "2.0" }), "version 2.0 is not supported, only 1.x"),
        (json!({ "request_id": "" }), "`request_id` must be a text of 1 to 200 characters"),
        (json!({ "request_id": "x".repeat(201) }), "`request_id` must be"),
        (json!({ "request_id": "a\u{7}" }), "without control characters"),
        (json!({ "request_id": 17 }), "`request_id` must be"),
        (json!({ "customer": "a/b" }), "`customer` must be a name of up to 128 letters"),
        (json!({ "profile_ref": null }), "`profile_ref` is missing"),
        (json!({ "reply_queue": "ACME/R" }), "`reply_queue` must be an object with `library`"),
        (json!({ "reply_queue": { "library": "L" } }), "in `reply_queue`, `name` is missing"),
        (json!({ "reply_queue": { "library": 1, "name": "R" } }), "in `reply_queue`, `library`"),
        (json!({ "reply_queue": { "library": "L", "name": "a/b" } }), "in `reply_queue`, `name`"),
        (json!({ "prompt": null }), "`prompt` or `prompt_ref` is missing"),
        (json!({ "prompt": "" }), "`prompt` must be a text that is not empty"),
        (json!({ "prompt": ["a"] }), "`prompt` must be a text"),
        (json!({ "prompt_ref": "L.T.1" }), "`prompt` or `prompt_ref`, not both"),
        (json!({ "temperature": 2.01 }), "`temperature` must be a number from 0 to 2"),
        (json!({ "temperature": "0" }), "`temperature` must be"),
        (json!({ "max_tokens": 0 }), "`max_tokens` must be a whole number from 1"),
        (json!({ "max_tokens": 1.5 }), "`max_tokens` must be"),
        (json!({ "timeout_ms": 0 }), "`timeout_ms` must be a whole number of milliseconds"),
        (json!({ "timeout_ms": 3_600_001 }), "from 1 to 3600000"),
        (json!({ "priority": 0 }), "`priority` must be a whole number from 1 to 9"),
        (json!({ "priority": 10 }), "`priority` must be"),
        (json!({ "metadata": [] }), "`metadata` must be an object"),
        (json!({ "response_schema": true }), "`response_schema` must be a JSON Schema"),
        (json!({ "stream": "yes" }), "`stream` must be true or false"),
    ];
    for (changes, expected) in cases {
        let error = parse(&with(changes.clone())).unwrap_err();
        assert!(error.contains(expected), "{changes}: {error}");
    }
}

#[test]
fn what_is_no_object_is_refused_without_being_repeated() {
    let cases: [(&[u8], &str); 6] = [
        (b"", "the request is not JSON: EOF while parsing a value at line 1 column 0"),
        (b"{\"version\": ", "the request is not JSON: EOF"),
        (b"{\"prompt\": \"a\nb\"}", "the request is not JSON: control character"),
        (b"\"my SECRET prompt\"", "the request is not a JSON object"),
        (b"[1]", "the request is not a JSON object"),
        (b"{\"prompt\": \"\xfc\"}", "the request is not UTF-8"),
    ];
    for (bytes, expected) in cases {
        let error = Request::parse(bytes).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
        assert!(!error.to_string().contains("SECRET"), "{error}");
        assert_eq!(AskError::from(error).code, Code::InvalidRequest);
    }
}

#[test]
fn metadata_is_kept_as_it_was_written() {
    let text = smallest().to_string();
    let own = r#"{"z": 1.000, "a": 12345678901234567890123, "z2":"\u00e9",  "n":null}"#;
    let text = text.replacen('{', &format!("{{\"metadata\": {own},"), 1);
    let request = Request::parse(text.as_bytes()).unwrap();
    assert_eq!(request.metadata.as_str(), own);
    let again = Request::parse(&request.to_json().unwrap()).unwrap();
    assert_eq!(again.metadata.as_str(), own);
}

#[test]
fn a_mark_before_utf_8_does_no_harm() {
    let text = format!("\u{feff}{}", smallest());
    Request::parse(text.as_bytes()).unwrap();
}

#[test]
fn what_a_request_does_not_say_its_profile_does() {
    let profile = Profile {
        max_tokens: Some(7),
        temperature: Some(0.5),
        system: Some("Be brief.".into()),
        ..Profile::new("p", ProviderName::Echo)
    };
    let plain = Profile::new("p", ProviderName::Echo);
    let until = Instant::now();
    let silent = parse(&smallest()).unwrap();
    let question = silent.question("hi".into(), &plain, until);
    assert_eq!((question.max_tokens, question.temperature, question.system), (1024, 0.0, None));
    let question = silent.question("hi".into(), &profile, until);
    assert_eq!((question.max_tokens, question.temperature), (7, 0.5));
    assert_eq!(question.system.as_deref(), Some("Be brief."));
    let request = parse(&with(json!({ "max_tokens": 9, "temperature": 1, "system_prompt": "Sing." })));
    let question = request.unwrap().question("hi".into(), &profile, until);
    assert_eq!((question.max_tokens, question.temperature), (9, 1.0));
    assert_eq!(question.system.as_deref(), Some("Sing."));
}

#[test]
fn a_library_names_its_tenant_and_no_other() {
    let tenant = |name: &str| TenantId::new(name).unwrap();
    let mut libraries = Libraries::default();
    libraries.map.insert("QGPL".into(), tenant("acme"));
    libraries.map.insert("OTHER".into(), tenant("acme"));
    for good in ["acme", "ACME", "Acme_5dta", "ACME_5DTA", "qgpl", "other"] {
        assert!(libraries.owns(&tenant("acme"), good), "{good}");
    }
    for bad in ["", "_5DTA", "ACM", "ACME_5OBJ", "ACME_5DTA_5DTA", "OTHER_5DTA", "é_5DTA", "é5DTA"] {
        assert!(!libraries.owns(&tenant("acme"), bad), "{bad}");
    }
    assert!(!libraries.owns(&tenant("other"), "OTHER"), "the map has the last word");
    assert!(libraries.owns(&tenant("other"), "OTHER_5DTA"));
    assert!(libraries.owns(&tenant("acme_5dta"), "ACME_5DTA"), "the suffix may be missing");
}

#[test]
fn a_reply_queue_of_another_tenant_is_refused() {
    let reply_to = ReplyTo { library: "ACME_5DTA".into(), name: "RPLY_000001".into() };
    let acme = TenantId::new("acme").unwrap();
    let queue = reply_to.queue(&acme, &Libraries::default()).unwrap();
    assert_eq!(queue.as_str(), "acme/RPLY_000001");
    let evil = TenantId::new("evil").unwrap();
    let error = reply_to.queue(&evil, &Libraries::default()).unwrap_err();
    assert_eq!(error.0, "the library `ACME_5DTA` of `reply_queue` does not belong to `evil`");
}
