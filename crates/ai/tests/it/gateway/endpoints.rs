//! Endpoints beside chats: older completions, embeddings, token counts, and paths that do not exist.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use longshore_testkit::fake_ai::FakeAi;
use serde_json::{Value, json};

use super::{ANTHROPIC, GatewayFixture, OPENAI};
use crate::inference::fixture::InferenceFixture;

const COMPLETIONS: &str = "/v1/completions";
const EMBEDDINGS: &str = "/v1/embeddings";
const COUNT: &str = "/v1/messages/count_tokens";

/// A gateway with a profile for every provider, all behind one fake; `echo` is simulated, `drop` drops what Anthropic
/// cannot express.
async fn gateway() -> (InferenceFixture, FakeAi, GatewayFixture) {
    let (setup, fake) = (InferenceFixture::new(), FakeAi::start().await.unwrap());
    let prices = json!({ "input": 1, "output": 10 });
    for provider in ["openai", "anthropic", "gemini", "ollama"] {
        let body = json!({ "provider": provider, "model": "m", "endpoint": fake.url(), "prices": prices });
        setup.profile("default", provider, body).await;
    }
    let body = json!({
        "provider": "anthropic", "model": "claude-opus-5", "endpoint": fake.url(), "prices": prices,
        "on_unsupported": "drop",
    });
    setup.profile("default", "drop", body).await;
    setup.profile("default", "echo", json!({ "provider": "echo" })).await;
    let fixture = GatewayFixture::with_backend(Arc::new(setup.inference.clone()));
    (setup, fake, fixture)
}

#[tokio::test]
async fn older_completions_are_asked_as_chats_of_every_provider() {
    let (_setup, fake, fixture) = gateway().await;
    for profile in ["openai", "anthropic", "gemini", "ollama", "echo"] {
        let body = json!({ "model": profile, "prompt": "once upon", "max_tokens": 9, "temperature": 0 });
        let reply = fixture.post(COMPLETIONS, body).await;
        assert_eq!(reply.status, StatusCode::OK, "{profile}: {}", reply.body);
        let body = reply.json();
        let choice = json!({ "index": 0, "text": "once upon", "logprobs": null, "finish_reason": "stop" });
        assert_eq!((&body["object"], &body["choices"]), (&json!("text_completion"), &json!([choice])));
        assert!(body["usage"]["total_tokens"].as_u64().unwrap() > 0, "{body}");
    }
    let body = json!({ "model": "openai", "prompt": ["once upon"], "stream": true });
    let reply = fixture.post(COMPLETIONS, body).await;
    let events = reply.events();
    let texts = events[..events.len() - 1].iter().map(|(_, data)| {
        let chunk: Value = serde_json::from_str(data).unwrap();
        chunk["choices"][0]["text"].as_str().unwrap().to_owned()
    });
    assert_eq!((texts.collect::<String>().as_str(), events.last().unwrap().1), ("once upon", "[DONE]"));
    assert_eq!(fake.requests().last().unwrap().body["max_completion_tokens"], 16, "the API's default");
    for (field, value, named) in [
        ("prompt", json!(["a", "b"]), "only one"),
        ("suffix", json!("x"), "`suffix`"),
        ("logprobs", json!(3), "`logprobs`"),
        ("echo", json!(true), "`echo`"),
        ("n", json!(2), "`n`"),
    ] {
        let mut body = json!({ "model": "openai", "prompt": "a" });
        body[field] = value;
        let reply = fixture.post(COMPLETIONS, body).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{field}: {}", reply.body);
        assert!(reply.body.contains(named), "{}", reply.body);
    }
}

#[tokio::test]
async fn embeddings_come_from_every_provider_that_has_them_in_both_forms_at_their_price() {
    let (setup, fake, fixture) = gateway().await;
    for profile in ["openai", "gemini", "ollama"] {
        let body = json!({ "model": profile, "input": ["a", "bcd"], "dimensions": 2, "user": "u" });
        let reply = fixture.post(EMBEDDINGS, body.clone()).await;
        assert_eq!(reply.status, StatusCode::OK, "{profile}: {}", reply.body);
        let found = reply.json();
        let vector = |index: usize| found["data"][index]["embedding"].clone();
        assert_eq!((vector(0), vector(1)), (json!([1.0, 0.5]), json!([3.0, 0.5])), "{profile}: {found}");
        assert!(found["usage"]["prompt_tokens"].as_u64().unwrap() > 0, "{found}");
        let sent = fake.requests().pop().unwrap().body;
        let dimensions = [&sent["dimensions"], &sent["requests"][1]["outputDimensionality"]];
        assert!(dimensions.contains(&&json!(2)), "{sent}");
        let dropped = (profile != "openai").then_some("`user`");
        assert_eq!(reply.header("x-longshore-dropped"), dropped, "{profile}");
        let mut encoded = body;
        encoded["encoding_format"] = json!("base64");
        let found = fixture.post(EMBEDDINGS, encoded).await.json();
        assert_eq!(found["data"][1]["embedding"], "AABAQAAAAD8=", "{profile}: {found}");
    }
    let calls = setup.calls().await;
    assert_eq!(calls.len(), 6);
    for call in calls {
        let end = call.end.unwrap();
        assert_eq!((end.tokens_out, end.cost_picos), (0, i64::try_from(end.tokens_in).unwrap() * 1_000_000));
    }
    // Simulated ones depend on the text alone.
    let echo = async |input: Value| {
        let body = json!({ "model": "echo", "input": input, "dimensions": 3 });
        fixture.post(EMBEDDINGS, body).await.json()["data"][0]["embedding"].clone()
    };
    assert_eq!(echo(json!("a")).await, echo(json!(["a"])).await);
    assert_eq!(echo(json!("a")).await.as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn embeddings_that_cannot_be_are_refused_with_the_reason() {
    let (_setup, fake, fixture) = gateway().await;
    for (profile, input, why) in [
        ("anthropic", json!("a"), "provider anthropic has no embeddings"),
        ("ollama", json!([1, 2]), "`input` of tokens"),
        ("openai", json!([]), "must not be empty"),
        ("openai", json!([""]), "must not be empty"),
        ("openai", json!(vec!["a"; 2_049]), "more than 2048"),
        ("openai", json!({}), "a text, texts, tokens"),
    ] {
        let reply = fixture.post(EMBEDDINGS, json!({ "model": profile, "input": input })).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{}", reply.body);
        assert!(reply.body.contains(why), "{}", reply.body);
    }
    assert!(fake.requests().is_empty());
    let tokens = json!({ "model": "openai", "input": [[1, 2], [3]] });
    assert_eq!(fixture.post(EMBEDDINGS, tokens.clone()).await.status, StatusCode::OK);
    assert_eq!(fake.requests().pop().unwrap().body["input"], tokens["input"], "unchanged");
}

#[tokio::test]
async fn tokens_are_counted_by_the_provider_or_estimated_with_what_templates_add() {
    let (_setup, fake, fixture) = gateway().await;
    for (profile, counts) in [("anthropic", true), ("gemini", true), ("openai", false), ("ollama", false)] {
        let body = json!({
            "model": profile, "system": "be brief", "messages": [{ "role": "user", "content": "hi" }],
            "tools": [{ "name": "look", "input_schema": { "type": "object" } }],
        });
        let reply = fixture.post(COUNT, body).await;
        assert_eq!(reply.status, StatusCode::OK, "{profile}: {}", reply.body);
        let tokens = reply.json()["input_tokens"].as_u64().unwrap();
        assert!(if counts { tokens == 26 } else { (12..30).contains(&tokens) }, "{profile}: {tokens}");
        assert_eq!(reply.header("x-longshore-estimated").is_none(), counts, "{profile}");
    }
    let sent = fake.requests();
    assert_eq!(sent.len(), 2);
    let fields: Vec<&String> = sent[0].body.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["messages", "model", "system", "tools"]);
    assert_eq!(sent[1].body["generateContentRequest"]["model"], "models/m");
}

#[tokio::test]
async fn what_a_provider_is_not_told_is_in_a_header_of_complete_and_streamed_answers() {
    let (_setup, _fake, fixture) = gateway().await;
    for stream in [false, true] {
        let body = json!({
            "model": "drop", "stream": stream, "seed": 7, "logit_bias": { "1": 1 }, "store": true,
            "messages": [{ "role": "user", "content": "hi" }],
        });
        let reply = fixture.post(OPENAI, body).await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.body);
        assert_eq!(reply.header("x-longshore-dropped"), Some("`logit_bias`, `store`, `seed`"), "{stream}");
    }
    let plain = json!({ "model": "drop", "messages": [{ "role": "user", "content": "hi" }] });
    assert_eq!(fixture.post(OPENAI, plain).await.header("x-longshore-dropped"), None);
}

#[tokio::test]
async fn paths_that_do_not_exist_are_answered_in_the_callers_format() {
    let fixture = GatewayFixture::new();
    let request = |method: &str, path: &str, version: Option<&str>| {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(version) = version {
            request = request.header("anthropic-version", version);
        }
        request.body(Body::empty()).unwrap()
    };
    for (method, path, status) in [
        ("POST", "/v1/audio/speech", StatusCode::NOT_FOUND),
        ("GET", "/v1/", StatusCode::NOT_FOUND),
        ("GET", OPENAI, StatusCode::METHOD_NOT_ALLOWED),
        ("DELETE", "/v1/models", StatusCode::METHOD_NOT_ALLOWED),
    ] {
        let reply = fixture.reply(request(method, path, None)).await;
        assert_eq!(reply.status, status, "{method} {path}");
        let error = &reply.json()["error"];
        assert_eq!(error["code"], "unknown_url", "{error}");
        assert!(error["message"].as_str().unwrap().contains(&format!("`{method} {path}`")), "{error}");
        assert!(reply.header("x-request-id").is_some());
    }
    for (path, version) in [("/v1/messages/nowhere", None), ("/v1/complete", Some("2023-06-01"))] {
        let reply = fixture.reply(request("POST", path, version)).await;
        assert_eq!(reply.status, StatusCode::NOT_FOUND);
        assert_eq!(reply.json()["error"]["type"], "not_found_error", "{path}");
    }
    assert_eq!(fixture.reply(request("GET", ANTHROPIC, None)).await.json()["type"], "error");
}
