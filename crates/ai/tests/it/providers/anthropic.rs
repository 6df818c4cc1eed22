//! Tests for Anthropic only.

use std::sync::Arc;

use longshore_ai::{
    ApiOptions, Auth, CacheFor, Code, Http, Profile, ProfileError, ProviderName, Retryability, providers,
};
use longshore_testkit::fake_ai::{FakeAnswer, FakeBehaviour};
use serde_json::json;

use super::fixture::{KEY, ProviderFixture, open_at, question, saying};
use crate::conversation::conversation;

async fn fixture(wire: ApiOptions) -> ProviderFixture {
    ProviderFixture::with(ProviderName::Anthropic, wire).await
}

#[tokio::test]
async fn a_plain_question_says_no_more_than_it_must() {
    let fixture = fixture(ApiOptions::default()).await;
    let sent = fixture.sent(&question("hi")).await;
    assert_eq!(sent.path, "/v1/messages");
    assert_eq!(
        sent.body,
        json!({ "model": "fake-1", "max_tokens": 1024,
            "messages": [{ "role": "user", "content": "hi" }] })
    );
    assert_eq!(sent.header("content-type"), "application/json");
    assert_eq!(sent.header("anthropic-version"), "2023-06-01");
    assert_eq!((sent.header("x-api-key"), sent.header("authorization")), (KEY, ""));
}

#[tokio::test]
async fn the_newer_version_takes_a_bearer_and_no_sampling() {
    let version = Some("2026-10-21".to_owned());
    let newer = ApiOptions { version, sampling: Some(true), ..ApiOptions::default() };
    let sent = fixture(newer.clone()).await.sent(&question("hi")).await;
    assert_eq!(sent.header("anthropic-version"), "2026-10-21");
    assert_eq!(sent.header("authorization"), format!("Bearer {KEY}"));
    assert_eq!((sent.header("x-api-key"), sent.body.get("temperature")), ("", None));
    let sent = fixture(ApiOptions { auth: Auth::Header, ..newer }).await.sent(&question("hi")).await;
    assert_eq!((sent.header("x-api-key"), sent.header("authorization")), (KEY, ""));
}

#[tokio::test]
async fn sampling_is_sent_where_the_profile_says_so() {
    let sent = fixture(ApiOptions { sampling: Some(true), ..ApiOptions::default() })
        .await
        .sent(&conversation())
        .await;
    assert_eq!((&sent.body["temperature"], &sent.body["top_p"]), (&json!(0.0), &json!(0.9)));
}

#[tokio::test]
async fn instructions_are_marked_to_be_kept() {
    let mut asked = question("hi");
    asked.system = Some("be brief".into());
    let sent = fixture(ApiOptions::default()).await.sent(&asked).await;
    assert_eq!(sent.body["system"], json!("be brief"));
    for (keep, mark) in [
        (CacheFor::Minutes, json!({ "type": "ephemeral" })),
        (CacheFor::Hour, json!({ "type": "ephemeral", "ttl": "1h" })),
    ] {
        let sent =
            fixture(ApiOptions { cache: Some(keep), ..ApiOptions::default() }).await.sent(&asked).await;
        let block = json!([{ "type": "text", "text": "be brief", "cache_control": mark }]);
        assert_eq!(sent.body["system"], block);
    }
}

#[tokio::test]
async fn tokens_of_the_cache_are_part_of_the_questions() {
    let act = || {
        FakeBehaviour::Answer(FakeAnswer { tokens_in: Some(100), cached: 60, cache_write: 30, ..saying("x") })
    };
    for (keep, written) in [(None, (30, 0)), (Some(CacheFor::Hour), (0, 30))] {
        let fixture = fixture(ApiOptions { cache: keep, ..ApiOptions::default() }).await;
        for answer in [fixture.ask(act()).await, fixture.stream(act()).await.0] {
            let answer = answer.unwrap();
            assert_eq!((answer.tokens_in, answer.tokens_cached, answer.tokens_out), (100, 60, 7));
            assert_eq!((answer.tokens_cache_write, answer.tokens_cache_write_long), written);
        }
    }
}

#[tokio::test]
async fn writes_for_minutes_and_for_an_hour_are_told_apart() {
    let body = json!({ "model": "m", "content": [{ "type": "thinking", "thinking": "hm" },
            { "type": "text", "text": "a" }, { "type": "text", "text": "b" }],
        "stop_reason": "end_turn", "usage": { "input_tokens": 1, "output_tokens": 2,
            "cache_creation_input_tokens": 50, "service_tier": "priority",
            "cache_creation": { "ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 30 } } });
    let fixture = fixture(ApiOptions::default()).await;
    let act = FakeBehaviour::Error { status: 200, headers: vec![], body: Some(body.to_string()) };
    let answer = fixture.ask(act.clone()).await.unwrap();
    assert_eq!((answer.text.as_str(), answer.tier.as_deref()), ("ab", Some("priority")));
    assert_eq!((answer.tokens_in, answer.tokens_cached), (51, 0));
    assert_eq!((answer.tokens_cache_write, answer.tokens_cache_write_long), (20, 30));
    // The same answer from a server that was asked to stream and does not.
    let (streamed, pieces) = fixture.stream(act).await;
    assert_eq!((streamed.unwrap().text.as_str(), pieces.len()), ("ab", 1));
}

#[tokio::test]
async fn a_schema_is_sent_closed_or_told_in_words() {
    let fixture = fixture(ApiOptions::default()).await;
    let mut asked = question("hi");
    asked.schema = Some(Arc::new(json!({ "type": "object",
        "properties": { "n": { "type": "integer", "minimum": 0 } }, "required": ["n"] })));
    let sent = fixture.sent(&asked).await;
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } },
        "required": ["n"], "additionalProperties": false });
    let format = json!({ "type": "json_schema", "schema": schema });
    assert_eq!(sent.body["output_config"], json!({ "format": format }));
    asked.schema = Some(Arc::new(json!({ "type": "object" })));
    let sent = fixture.sent(&asked).await;
    assert_eq!(sent.body.get("output_config"), None);
    assert!(sent.body["system"].as_str().unwrap().ends_with("{\"type\":\"object\"}"));
}

#[tokio::test]
async fn a_conversation_is_sent_in_blocks() {
    let sent = fixture(ApiOptions::default()).await.sent(&conversation()).await;
    assert_eq!(
        sent.body["messages"],
        json!([
            { "role": "user", "content": [
                { "type": "text", "text": "what is this?" },
                { "type": "image", "source":
                    { "type": "base64", "media_type": "image/png", "data": "AAAA" } },
                { "type": "image", "source": { "type": "url", "url": "https://example.org/a.png" } },
            ] },
            { "role": "assistant", "content": [
                { "type": "text", "text": "let me look" },
                { "type": "tool_use", "id": "c1", "name": "look", "input": { "at": 1 } },
            ] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "c1", "content": "dark", "is_error": true },
                { "type": "text", "text": "and now?" },
            ] },
        ])
    );
    assert_eq!(sent.body["system"], "be brief");
    assert_eq!(sent.body["stop_sequences"], json!(["END"]));
    assert_eq!(sent.body["tool_choice"], json!({ "type": "tool", "name": "look" }));
    assert_eq!(
        sent.body["tools"],
        json!([{ "name": "look", "description": "looks", "input_schema": { "type": "object" } }])
    );
}

#[tokio::test]
async fn limits_are_read_from_its_headers() {
    let headers = vec![
        ("anthropic-ratelimit-requests-remaining".into(), "3".into()),
        ("anthropic-ratelimit-requests-limit".into(), "50".into()),
    ];
    let answer = fixture(ApiOptions::default())
        .await
        .ask(FakeBehaviour::Answer(FakeAnswer { headers, ..saying("x") }))
        .await;
    let requests = answer.unwrap().headroom.requests.unwrap();
    assert_eq!((requests.left, requests.limit), (3, Some(50)));
}

#[tokio::test]
async fn the_provider_itself_wants_a_key_and_an_address_is_an_address() {
    let http = Http::new();
    let bare = Profile::new("p", ProviderName::Anthropic);
    let error = providers::open(&bare, None, &http).err().unwrap();
    assert_eq!(error.to_string(), "profile `p` has no key, and anthropic requires one");
    for endpoint in ["ftp://x", "nonsense", "http://", "http://u:p@x", "https://x/?key=1"] {
        let profile = Profile { endpoint: Some(endpoint.into()), ..bare.clone() };
        let error = providers::open(&profile, None, &http).err().unwrap();
        assert!(matches!(error, ProfileError::Endpoint(..)), "{endpoint}");
    }
    let error = providers::open(&bare, Some("sk-\u{7}bell".into()), &http).err().unwrap();
    assert_eq!(error.to_string(), "profile `p` has a header `x-api-key` that cannot be sent");
}

#[tokio::test]
async fn a_handshake_that_fails_has_sent_nothing() {
    let fixture = fixture(ApiOptions::default()).await;
    let url = fixture.fake.url().replace("http://", "https://");
    let profile = Profile { model: "m".into(), ..Profile::new("p", ProviderName::Anthropic) };
    let error = open_at(profile, &url).ask(&question("hi")).await.unwrap_err();
    assert_eq!((error.code, error.retry), (Code::ProviderError, Retryability::NotSent), "{error}");
    assert!(fixture.fake.requests().is_empty());
}
