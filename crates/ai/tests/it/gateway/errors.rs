//! Error responses, in the format of either API.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use serde_json::{Value, json};

use super::{ANTHROPIC, GatewayFixture, OPENAI, post};

fn hello(model: &str) -> Value {
    json!({"model": model, "max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]})
}

/// An error code; its status, type and code for OpenAI, its status and type for Anthropic;
/// `x-should-retry`.
type Case =
    (&'static str, (u16, &'static str, Option<&'static str>), (u16, &'static str), Option<&'static str>);

const CASES: &[Case] = &[
    ("INVALID_REQUEST", (400, "invalid_request_error", None), (400, "invalid_request_error"), None),
    (
        "PROFILE_NOT_FOUND",
        (404, "invalid_request_error", Some("model_not_found")),
        (404, "not_found_error"),
        None,
    ),
    (
        "PROFILE_DISABLED",
        (403, "invalid_request_error", Some("profile_disabled")),
        (403, "permission_error"),
        None,
    ),
    (
        "RATE_LIMITED-soon",
        (429, "rate_limit_error", Some("rate_limit_exceeded")),
        (429, "rate_limit_error"),
        Some("true"),
    ),
    (
        "OVER_BUDGET",
        (429, "insufficient_quota", Some("insufficient_quota")),
        (402, "billing_error"),
        Some("false"),
    ),
    ("PROVIDER_AUTH", (502, "server_error", Some("provider_auth")), (502, "api_error"), Some("false")),
    ("PROVIDER_ERROR", (502, "server_error", Some("provider_error")), (502, "api_error"), Some("false")),
    (
        "PROVIDER_ERROR-soon",
        (503, "server_error", Some("provider_error")),
        (503, "overloaded_error"),
        Some("true"),
    ),
    ("TIMEOUT", (504, "server_error", Some("timeout")), (504, "timeout_error"), Some("false")),
    ("INTERNAL", (500, "server_error", Some("internal")), (500, "api_error"), Some("false")),
];

#[tokio::test]
async fn every_error_has_its_status_and_its_words_on_either_wire() {
    let fixture = GatewayFixture::new();
    for (code, openai, anthropic, again) in CASES {
        let model = format!("error/{code}");
        let reply = fixture.post(OPENAI, hello(&model)).await;
        let error = &reply.json()["error"];
        let actual = (reply.status.as_u16(), error["type"].as_str().unwrap(), error["code"].as_str());
        assert_eq!((actual, error["message"].as_str()), (*openai, Some("as told")), "{code}");
        assert_eq!(reply.header("x-should-retry"), *again, "{code}");
        let after = code.ends_with("-soon").then_some(("2", "1200"));
        assert_eq!(reply.header("retry-after").zip(reply.header("retry-after-ms")), after);

        let reply = fixture.post(ANTHROPIC, hello(&model)).await;
        let body = reply.json();
        let actual = (reply.status.as_u16(), body["error"]["type"].as_str().unwrap());
        assert_eq!((actual, body["type"].as_str()), (*anthropic, Some("error")), "{code}");
        assert_eq!(body["request_id"].as_str(), reply.header("request-id"));
    }
}

#[tokio::test]
async fn the_providers_own_type_and_code_are_passed_on_unless_they_are_about_our_account() {
    let fixture = GatewayFixture::new();
    for (code, passed_on) in [("INVALID_REQUEST-long", true), ("PROVIDER_AUTH-long", false)] {
        let model = format!("error/{code}");
        let error = fixture.post(OPENAI, hello(&model)).await.json()["error"].clone();
        let expected = if passed_on { "context_length_exceeded" } else { "provider_auth" };
        assert_eq!(error["code"], expected, "{error}");
        let kind = fixture.post(ANTHROPIC, hello(&model)).await.json()["error"]["type"].clone();
        assert_eq!(kind, if passed_on { "invalid_request_error" } else { "api_error" });
    }
}

#[tokio::test]
async fn strangers_are_turned_away_before_anything_is_read() {
    let fixture = GatewayFixture::new();
    for token in [None, Some(""), Some("another")] {
        for (path, kind) in [(OPENAI, "invalid_request_error"), (ANTHROPIC, "authentication_error")] {
            let mut request = Request::post(path);
            if let Some(token) = token {
                request = request.header("x-api-key", token);
            }
            let reply = fixture.reply(request.body("not even JSON".into()).unwrap()).await;
            assert_eq!(reply.status, StatusCode::UNAUTHORIZED);
            assert_eq!(reply.json()["error"]["type"], kind);
        }
    }
    assert!(fixture.fake.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn both_kinds_of_keys_open() {
    let fixture = GatewayFixture::new();
    for (name, value) in [("x-api-key", "a-token"), ("authorization", "Bearer a-token")] {
        let request = Request::post(ANTHROPIC).header(name, value);
        let request = request.body(hello("plain").to_string().into()).unwrap();
        assert_eq!(fixture.reply(request).await.status, StatusCode::OK, "{name}");
    }
}

#[tokio::test]
async fn a_profile_that_is_none_is_not_found() {
    let fixture = GatewayFixture::new();
    for model in ["gpt-4o", "no such/model", "", "/model"] {
        let reply = fixture.post(OPENAI, hello(model)).await;
        assert_eq!(reply.status, StatusCode::NOT_FOUND, "{model}");
        assert_eq!(reply.json()["error"]["code"], "model_not_found");
        assert_eq!(reply.json()["error"]["param"], "model");
        let reply = fixture.post(ANTHROPIC, hello(model)).await;
        assert_eq!(reply.json()["error"]["type"], "not_found_error");
    }
}

#[tokio::test]
async fn what_would_be_lost_is_refused_by_name() {
    let fixture = GatewayFixture::new();
    for (path, member, value, named) in [
        (OPENAI, "n", json!(2), "`n`"),
        (OPENAI, "logprobs", json!(true), "`logprobs`"),
        (OPENAI, "modalities", json!(["text", "audio"]), "`modalities`"),
        (OPENAI, "functions", json!([{"name": "f"}]), "`functions`"),
        (OPENAI, "reasoning_effort", json!("for ever"), "`reasoning_effort`"),
        (OPENAI, "parallel_tool_calls", json!(false), "one tool call at a time"),
        (OPENAI, "logit_bias", json!({"1": 1}), "`logit_bias`"),
        (OPENAI, "unheard_of", json!(1), "`unheard_of`"),
        (OPENAI, "tools", json!([{"type": "custom", "custom": {"name": "c"}}]), "type `custom`"),
        (
            OPENAI,
            "messages",
            json!([{"role": "user", "content": [{"type": "input_audio"}]}]),
            "`input_audio`",
        ),
        (ANTHROPIC, "inference_geo", json!("us"), "`inference_geo`"),
        (ANTHROPIC, "thinking", json!({"type": "deep"}), "`thinking`"),
        (ANTHROPIC, "output_config", json!({"effort": "for ever"}), "`output_config.effort`"),
        (ANTHROPIC, "tools", json!([{"type": "web_search_1", "name": "w"}]), "`web_search_1`"),
        (ANTHROPIC, "messages", json!([{"role": "user", "content": [{"type": "document"}]}]), "`document`"),
    ] {
        let mut body = hello("plain");
        if path == OPENAI {
            body["tools"] = json!([{"type": "function", "function": {"name": "f"}}]);
        }
        body[member] = value;
        let reply = fixture.post(path, body).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{member}: {}", reply.body);
        let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(named), "{message}");
    }
    assert!(fixture.fake.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_with_its_place() {
    let fixture = GatewayFixture::new();
    for (path, member, value, why) in [
        (OPENAI, "max_tokens", json!("many"), "`max_tokens`: invalid type"),
        (OPENAI, "messages", json!([]), "must not be empty"),
        (
            OPENAI,
            "messages",
            json!([{"role": "robot", "content": "x"}]),
            "`messages[0]`: there is no role `robot`",
        ),
        (
            OPENAI,
            "messages",
            json!([{"role": "user", "content": 5}]),
            "`messages[0]`: `content`: invalid type",
        ),
        (
            OPENAI,
            "messages",
            json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///x"}}]}]),
            "http(s)",
        ),
        (OPENAI, "response_format", json!({"type": "json_schema"}), "`json_schema.schema`"),
        (
            ANTHROPIC,
            "messages",
            json!([{"role": "user", "content": [{"type": "text"}]}]),
            "messages.0: a block lacks its `text`",
        ),
        (ANTHROPIC, "messages", json!([{"role": "system", "content": "x"}]), "no role `system`"),
        (ANTHROPIC, "output_config", json!({"format": {"type": "xml"}}), "json_schema"),
    ] {
        let mut body = hello("plain");
        body[member] = value;
        let reply = fixture.post(path, body).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{why}: {}", reply.body);
        let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(why), "{message}");
    }
    for body in ["", "[]", "{\"model\":", "\u{0}"] {
        let mut request = post(OPENAI, &json!({}));
        *request.body_mut() = Body::from(body);
        assert_eq!(fixture.reply(request).await.status, StatusCode::BAD_REQUEST, "{body:?}");
    }
}

#[tokio::test]
async fn a_request_that_is_too_long_is_refused_in_the_wires_own_words() {
    let fixture = GatewayFixture::new();
    let mut request = post(ANTHROPIC, &json!({}));
    *request.body_mut() = Body::from(vec![b' '; 32 * 1024 * 1024 + 1]);
    let reply = fixture.reply(request).await;
    assert_eq!(reply.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(reply.json()["error"]["type"], "request_too_large");
}

#[tokio::test]
async fn a_request_keeps_its_id() {
    let fixture = GatewayFixture::new();
    let mut request = post(OPENAI, &hello("plain"));
    request.headers_mut().insert("x-request-id", "job-7".parse().unwrap());
    let reply = fixture.reply(request).await;
    assert_eq!(reply.header("x-request-id"), Some("job-7"));
    assert_eq!(fixture.asked().question.request_id, "job-7");
}
