//! Requests of the provider's own API are passed through unchanged.

use std::sync::Arc;

use longshore_ai::{AnswerPiece, ApiOptions, Code, PassthroughRequest, ProviderName, Question, RawObject};
use longshore_testkit::fake_ai::FakeBehaviour;
use serde_json::{Value, json};

use super::fixture::{ProviderFixture, question, stream};

const PASSTHROUGH_PROVIDERS: [ProviderName; 2] = [ProviderName::Openai, ProviderName::Anthropic];

/// A request in a provider's API, with a field that only this API has.
fn request_in(format: ProviderName, mut body: Value) -> Question {
    body["unheard_of"] = json!({ "b": [1], "a": null });
    body["messages"] = json!([{ "role": "user", "content": "hi" }]);
    let raw = PassthroughRequest {
        format: Some(format),
        body: RawObject::parse(body.to_string()).unwrap(),
        unsupported: vec!["`unheard_of`".into()],
        ignored: Vec::new(),
        unpriced: Vec::new(),
        choices: 1,
        images: 0,
        has_system: false,
    };
    Question { raw: Some(Arc::new(raw)), max_tokens: 9, ..question("hi") }
}

/// Without the field that a translation would lose.
fn without_special_field(question: Question) -> Question {
    let raw = PassthroughRequest { unsupported: Vec::new(), ..question.raw.as_deref().unwrap().clone() };
    Question { raw: Some(Arc::new(raw)), ..question }
}

fn raw_events(pieces: &[AnswerPiece]) -> Vec<&str> {
    let raw = pieces.iter().map(|piece| match piece {
        AnswerPiece::Raw(data) => Some(data.as_str()),
        _ => None,
    });
    raw.collect::<Option<_>>().expect("every piece is as it came")
}

#[tokio::test]
async fn what_only_the_wire_knows_is_sent_on_and_the_answer_kept_as_it_came() {
    for name in PASSTHROUGH_PROVIDERS {
        let fixture = ProviderFixture::of(name).await;
        let asked = request_in(name, json!({ "model": "profile", "stream": false }));
        let answer = fixture.provider.ask(&asked).await.unwrap();
        let sent = fixture.fake.requests().pop().unwrap().body;
        assert_eq!(sent["unheard_of"], json!({ "b": [1], "a": null }), "{name}");
        assert_eq!((&sent["model"], sent.get("stream")), (&json!("fake-1"), None), "{name}");
        let raw: Value = serde_json::from_slice(&answer.raw.unwrap()).unwrap();
        assert_eq!(raw["model"], json!("fake-1"), "{name}");
        assert!(raw["id"].is_string(), "{raw}");
        assert_eq!((answer.text.as_str(), answer.tokens_in, answer.tokens_out), ("hi", 11, 7));
    }
}

#[tokio::test]
async fn the_most_tokens_go_by_the_name_that_the_model_knows() {
    let body = || json!({ "max_tokens": 5 });
    let format = ProviderName::Openai;
    for (old, name, not) in
        [(true, "max_tokens", "max_completion_tokens"), (false, "max_completion_tokens", "max_tokens")]
    {
        let fixture =
            ProviderFixture::with(format, ApiOptions { old_max_tokens: old, ..ApiOptions::default() }).await;
        let sent = fixture.sent(&request_in(format, body())).await.body;
        assert_eq!((&sent[name], sent.get(not)), (&json!(9), None));
    }
}

#[tokio::test]
async fn sampling_is_sent_only_to_models_that_take_it() {
    for name in PASSTHROUGH_PROVIDERS {
        for sampling in [true, false] {
            let fixture =
                ProviderFixture::with(name, ApiOptions { sampling: Some(sampling), ..ApiOptions::default() })
                    .await;
            let mut asked = request_in(name, json!({ "temperature": 0.5, "top_p": 0.9 }));
            asked.temperature = 0.5;
            let sent = fixture.sent(&asked).await.body;
            assert_eq!(sent.get("temperature"), sampling.then_some(&json!(0.5)), "{name}");
            assert_eq!(sent.get("top_p"), sampling.then_some(&json!(0.9)), "{name}");
        }
    }
}

#[tokio::test]
async fn a_stream_is_handed_on_event_by_event_to_its_last() {
    for name in PASSTHROUGH_PROVIDERS {
        let fixture = ProviderFixture::of(name).await;
        let asked = request_in(name, json!({ "stream_options": { "include_obfuscation": false } }));
        let (answer, pieces) = stream(&*fixture.provider, &asked).await;
        let answer = answer.unwrap();
        assert_eq!((answer.text.as_str(), answer.tokens_in, answer.tokens_out), ("hi", 11, 7));
        let (events, sent) = (raw_events(&pieces), fixture.fake.requests().pop().unwrap().body);
        let last = *events.last().unwrap();
        assert_eq!(sent["stream"], json!(true), "{name}");
        match name {
            ProviderName::Openai => {
                assert_eq!(last, "[DONE]");
                let options = json!({ "include_obfuscation": false, "include_usage": true });
                assert_eq!(sent["stream_options"], options);
            }
            _ => assert_eq!(last, r#"{"type":"message_stop"}"#),
        }
    }
}

#[tokio::test]
async fn a_stream_that_fails_is_not_handed_on_as_if_it_had_not() {
    for name in PASSTHROUGH_PROVIDERS {
        for act in [FakeBehaviour::TruncatedStream, FakeBehaviour::Broken, FakeBehaviour::ErrorInStream] {
            let fixture = ProviderFixture::of(name).await;
            fixture.fake.push_behaviours([act.clone()]);
            let (answer, pieces) = stream(&*fixture.provider, &request_in(name, json!({}))).await;
            assert_eq!(answer.unwrap_err().code, Code::ProviderError, "{name} {act:?}");
            let events = raw_events(&pieces);
            assert!(!events.is_empty() && !events.iter().any(|e| e.contains("error")), "{events:?}");
        }
    }
}

#[tokio::test]
async fn another_wire_is_asked_by_the_translation_or_not_at_all() {
    for name in [ProviderName::Anthropic, ProviderName::Ollama, ProviderName::Gemini] {
        let fixture = ProviderFixture::of(name).await;
        let asked = request_in(ProviderName::Openai, json!({}));
        let error = fixture.provider.ask(&asked).await.unwrap_err();
        assert_eq!(error.code, Code::InvalidRequest, "{name}");
        assert!(error.message.contains("`unheard_of`"), "{error}");
        assert!(fixture.fake.requests().is_empty(), "{name} was asked");
        let answer = fixture.provider.ask(&without_special_field(asked)).await.unwrap();
        assert_eq!((answer.text.as_str(), answer.raw), ("hi", None), "{name}");
    }
}

#[tokio::test]
async fn instructions_of_the_profile_are_not_lost_nor_is_what_they_would_displace() {
    for name in PASSTHROUGH_PROVIDERS {
        let fixture = ProviderFixture::of(name).await;
        let actual = Question { system: Some("Be kind.".into()), ..request_in(name, json!({})) };
        let error = fixture.provider.ask(&actual).await.unwrap_err();
        assert_eq!(error.code, Code::InvalidRequest, "{name}");
        let sent = fixture.sent(&without_special_field(actual)).await.body;
        assert!(sent.to_string().contains("Be kind."), "{sent}");
    }
}

#[tokio::test]
async fn a_server_that_takes_no_schema_is_told_of_it_in_words() {
    let wire = ApiOptions { no_schema: true, ..ApiOptions::default() };
    let fixture = ProviderFixture::with(ProviderName::Openai, wire).await;
    let schema = Some(Arc::new(json!({ "type": "integer" })));
    let asked = Question { schema, ..request_in(ProviderName::Openai, json!({})) };
    let sent = fixture.sent(&without_special_field(asked)).await.body;
    assert!(sent["messages"][0]["content"].as_str().unwrap().ends_with(r#"{"type":"integer"}"#));
}
