//! Our providers against a real LiteLLM proxy in front of the fake: two APIs to it, two from it.
//! `crates/ai/tests/litellm/run` installs it and runs this.

mod proxy;

use longshore_ai::{AnswerPiece, Code, FinishReason, ProviderName, Question, Retryability};
use longshore_testkit::fake_ai::{FakeAnswer, FakeBehaviour};
use serde_json::json;

use crate::providers::fixture::{question, saying, stream};
use proxy::{Proxy, Translates};

const WIRES: [ProviderName; 2] = [ProviderName::Openai, ProviderName::Anthropic];
const MODELS: [&str; 2] = ["plain", "claude"];

/// Starting the proxy takes longer than all of this, so it is one test.
#[tokio::test]
#[ignore = "needs LiteLLM: see crates/ai/tests/litellm/run"]
async fn our_providers_understand_a_litellm_proxy() {
    let proxy = Proxy::start(Translates::ToChat).await;
    for wire in WIRES {
        for model in MODELS {
            answers(&proxy, wire, model).await;
            streams(&proxy, wire, model).await;
            follows_a_schema(&proxy, wire, model).await;
            tells_what_went_wrong(&proxy, wire, model).await;
        }
        refuses_a_wrong_key(&proxy, wire).await;
    }
}

/// By default, the proxy translates Anthropic's API to OpenAI's responses API for OpenAI's models.
#[tokio::test]
#[ignore = "needs LiteLLM: see crates/ai/tests/litellm/run"]
async fn our_anthropic_provider_understands_responses_translated_by_a_litellm_proxy() {
    let proxy = Proxy::start(Translates::ToResponses).await;
    let (wire, model) = (ProviderName::Anthropic, "plain");
    answers(&proxy, wire, model).await;
    let path = proxy.fake.requests().pop().unwrap().path;
    assert_eq!(path, "/v1/responses", "that is the way that is tried here");
    streams(&proxy, wire, model).await;
    follows_a_schema(&proxy, wire, model).await;
    tells_what_went_wrong(&proxy, wire, model).await;
}

async fn answers(proxy: &Proxy, wire: ProviderName, model: &str) {
    proxy.fake.push_behaviours([FakeBehaviour::Answer(saying("fine, thank you"))]);
    let asked = Question { system: Some("be polite".into()), ..question("how are you?") };
    let answer = proxy.provider(wire, model).ask(&asked).await.unwrap();
    assert_eq!(answer.text, "fine, thank you");
    assert_eq!((answer.tokens_in, answer.tokens_out), (11, 7), "{answer:?}");
    assert_eq!(answer.finish_reason, FinishReason::Stop);
    assert!(!answer.estimated, "{answer:?}");
    let sent = proxy.fake.requests().pop().unwrap().body.to_string();
    assert!(sent.contains("how are you?") && sent.contains("be polite"), "{sent}");
}

async fn streams(proxy: &Proxy, wire: ProviderName, model: &str) {
    proxy.fake.push_behaviours([FakeBehaviour::Answer(saying("one two three"))]);
    let provider = proxy.provider(wire, model);
    let (answer, pieces) = stream(&*provider, &question("count")).await;
    let answer = answer.unwrap();
    let text = |piece: &AnswerPiece| match piece {
        AnswerPiece::Text(text) => text.clone(),
        _ => String::new(),
    };
    let whole: String = pieces.iter().map(text).collect();
    assert_eq!((whole.as_str(), answer.text.as_str()), ("one two three", "one two three"));
    assert_eq!((answer.tokens_in, answer.tokens_out), (11, 7), "{answer:?}");
}

async fn follows_a_schema(proxy: &Proxy, wire: ProviderName, model: &str) {
    let schema = json!({
        "type": "object", "required": ["prime"], "additionalProperties": false,
        "properties": { "prime": { "type": "boolean" } },
    });
    proxy.fake.push_behaviours([FakeBehaviour::Answer(saying(r#"{"prime":true}"#))]);
    let asked = Question { schema: Some(schema.into()), ..question("is 7 prime?") };
    let answer = proxy.provider(wire, model).ask(&asked).await.unwrap();
    assert_eq!(answer.text.replace(' ', ""), r#"{"prime":true}"#);
    let sent = proxy.fake.requests().pop().unwrap().body.to_string();
    assert!(sent.contains("prime\""), "the schema reaches the model: {sent}");
}

async fn tells_what_went_wrong(proxy: &Proxy, wire: ProviderName, model: &str) {
    for (status, code) in [
        (429, Code::RateLimited),
        (401, Code::ProviderAuth),
        (400, Code::InvalidRequest),
        (503, Code::ProviderError),
    ] {
        proxy.fake.push_behaviours([FakeBehaviour::error(status)]);
        let error = proxy.provider(wire, model).ask(&question("hi")).await.unwrap_err();
        assert_eq!(error.code, code, "{status}: {error}");
    }
    // The upstream's token counts are passed on, and not lost after an error.
    proxy.fake.push_behaviours([FakeBehaviour::Answer(FakeAnswer {
        tokens_in: Some(5),
        tokens_out: Some(2),
        ..saying("ok")
    })]);
    let answer = proxy.provider(wire, model).ask(&question("hi")).await.unwrap();
    assert_eq!((answer.tokens_in, answer.tokens_out), (5, 2));
}

async fn refuses_a_wrong_key(proxy: &Proxy, wire: ProviderName) {
    let asked = proxy.fake.requests().len();
    let provider = proxy.provider_with(wire, "plain", "sk-this-is-not-the-key");
    let error = provider.ask(&question("hi")).await.unwrap_err();
    // It looks up other keys in a database; without one it answers 400 and not 401.
    assert!(matches!(error.code, Code::ProviderAuth | Code::InvalidRequest), "{error}");
    assert_eq!(error.retry, Retryability::Never);
    assert!(!error.to_string().contains("this-is-not-the-key"), "{error}");
    assert_eq!(proxy.fake.requests().len(), asked, "the proxy asked no provider");
}
