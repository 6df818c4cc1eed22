//! Tests for every provider.

use std::time::Duration;

use longshore_ai::{
    AnswerPiece, BillingStatus, Code, FinishReason, Profile, ProviderName, Retryability, ToolCall,
};
use longshore_testkit::fake_ai::{AnswerEnd, FakeAnswer, FakeBehaviour};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::fixture::{KEY, ProviderFixture, hurried, open_at, question, saying, stream};

pub(super) async fn an_answer_has_text_model_tokens_and_an_end(fixture: ProviderFixture) {
    let answer = fixture.ask(FakeBehaviour::answer("fine, thanks")).await.unwrap();
    assert_eq!(answer.text, "fine, thanks");
    let model = if fixture.name == ProviderName::Gemini { "gemini-fake" } else { "fake-1" };
    assert_eq!(answer.model, model);
    assert_eq!((answer.tokens_in, answer.tokens_out), (11, 7));
    assert_eq!(answer.finish_reason, FinishReason::Stop);
    assert!(!answer.simulated && !answer.estimated && answer.tool_calls.is_empty());
    // Without an act, the fake returns the prompt.
    assert_eq!(fixture.provider.ask(&question("echo?")).await.unwrap().text, "echo?");
}

pub(super) async fn a_stream_is_the_same_answer_in_pieces(fixture: ProviderFixture) {
    let (streamed, pieces) = fixture.stream(FakeBehaviour::answer("fine, thanks")).await;
    let (mut streamed, mut whole) =
        (streamed.unwrap(), fixture.ask(FakeBehaviour::answer("fine, thanks")).await.unwrap());
    (streamed.latency_ms, whole.latency_ms) = (0, 0);
    assert_eq!(streamed, whole);
    assert_eq!(pieces, [AnswerPiece::Text("fine, ".into()), AnswerPiece::Text("thanks".into())]);
}

pub(super) async fn a_stream_may_come_byte_by_byte(fixture: ProviderFixture) {
    let (streamed, pieces) = fixture.stream(FakeBehaviour::Drip(Duration::ZERO)).await;
    let streamed = streamed.unwrap();
    assert_eq!((streamed.text.as_str(), streamed.tokens_out), ("how are you?", 7));
    assert_eq!(pieces.len(), 2);
    assert_eq!(fixture.ask(FakeBehaviour::Drip(Duration::ZERO)).await.unwrap().text, "how are you?");
}

pub(super) async fn a_tool_call_is_read_whole_and_from_a_stream(fixture: ProviderFixture) {
    let input = json!({ "city": "Malmö", "days": [1, 2] });
    let tool = Some(("weather".to_owned(), input.clone()));
    let act = FakeBehaviour::Answer(FakeAnswer { tool, ..saying("let me look") });
    let answer = fixture.ask(act.clone()).await.unwrap();
    let (streamed, pieces) = fixture.stream(act).await;
    assert_eq!(streamed.unwrap().tool_calls, answer.tool_calls);
    assert_eq!(answer.tool_calls.len(), 1, "{answer:?}");
    let ToolCall { id, name, input: given } = &answer.tool_calls[0];
    assert_eq!((name.as_str(), given, id.is_empty()), ("weather", &input, false));
    assert_eq!(answer.finish_reason, FinishReason::Stop);
    assert_eq!(pieces.last(), Some(&AnswerPiece::ToolCall(answer.tool_calls[0].clone())));
}

pub(super) async fn tokens_that_nobody_counted_are_estimated(fixture: ProviderFixture) {
    // Some servers report zeros.
    for count in [None, Some(0)] {
        let answer = FakeAnswer { tokens_in: count, tokens_out: count, ..saying("12345678") };
        let act = FakeBehaviour::Answer(answer);
        for answer in [fixture.ask(act.clone()).await, fixture.stream(act).await.0] {
            let answer = answer.unwrap();
            assert!(answer.estimated, "{count:?}");
            assert_eq!((answer.tokens_in, answer.tokens_out), (3, 2), "{count:?}");
        }
    }
}

pub(super) async fn counts_that_cannot_be_read_are_estimated(fixture: ProviderFixture) {
    let answer = |counts: &Value| match fixture.name {
        ProviderName::Openai => json!({
            "choices": [{ "message": { "content": "12345678" }, "finish_reason": "stop" }],
            "usage": { "prompt_tokens": counts, "completion_tokens": counts,
                "prompt_tokens_details": { "cached_tokens": counts } },
        }),
        ProviderName::Anthropic => json!({
            "type": "message", "model": "m", "stop_reason": "end_turn",
            "content": [{ "type": "text", "text": "12345678" }],
            "usage": { "input_tokens": counts, "output_tokens": counts, "cache_read_input_tokens": counts,
                "cache_creation": { "ephemeral_1h_input_tokens": counts } },
        }),
        ProviderName::Gemini => json!({
            "candidates": [{ "content": { "parts": [{ "text": "12345678" }] }, "finishReason": "STOP" }],
            "usageMetadata": { "promptTokenCount": counts, "candidatesTokenCount": counts,
                "thoughtsTokenCount": counts },
        }),
        _ => json!({
            "model": "m", "message": { "content": "12345678" }, "done": true, "done_reason": "stop",
            "prompt_eval_count": counts, "eval_count": counts,
        }),
    };
    for counts in [json!(10.5), json!("10"), json!(-5), json!(null), json!({}), json!([1])] {
        let body = answer(&counts).to_string();
        let given =
            fixture.ask(FakeBehaviour::Error { status: 200, headers: Vec::new(), body: Some(body) }).await;
        let given = given.unwrap();
        assert!(given.estimated, "{counts}");
        assert_eq!((given.text.as_str(), given.tokens_in, given.tokens_out), ("12345678", 3, 2), "{counts}");
    }
    // The usage itself may be of another type.
    let mut body = answer(&json!(1));
    for name in ["usage", "usageMetadata"] {
        if body.get(name).is_some() {
            body[name] = json!("none");
        }
    }
    let body = Some(body.to_string());
    fixture.ask(FakeBehaviour::Error { status: 200, headers: Vec::new(), body }).await.unwrap();
}

pub(super) async fn an_answer_that_ends_early_says_so(fixture: ProviderFixture) {
    let filtered = match fixture.name {
        ProviderName::Ollama => FinishReason::Other,
        _ => FinishReason::ContentFilter,
    };
    for (end, expected) in [(AnswerEnd::Length, FinishReason::Length), (AnswerEnd::Filter, filtered)] {
        let act = FakeBehaviour::Answer(FakeAnswer { end, ..saying("well") });
        assert_eq!(fixture.ask(act.clone()).await.unwrap().finish_reason, expected);
        assert_eq!(fixture.stream(act).await.0.unwrap().finish_reason, expected);
    }
}

pub(super) async fn questions_share_a_connection(fixture: ProviderFixture) {
    fixture.ask(FakeBehaviour::answer("one")).await.unwrap();
    fixture.stream(FakeBehaviour::answer("two")).await.0.unwrap();
    fixture.ask(FakeBehaviour::error(429)).await.unwrap_err();
    fixture.stream(FakeBehaviour::error(500)).await.0.unwrap_err();
    fixture.ask(FakeBehaviour::answer("three")).await.unwrap();
    assert_eq!((fixture.fake.requests().len(), fixture.fake.connections()), (5, 1));
}

pub(super) async fn another_model_may_be_asked(fixture: ProviderFixture) {
    let mut question = question("hi");
    question.model = Some("other-2".into());
    let sent = fixture.sent(&question).await;
    assert!(sent.path.contains("other-2") || sent.body["model"] == "other-2", "{sent:?}");
}

pub(super) async fn a_question_without_a_model_is_not_sent(fixture: ProviderFixture) {
    let provider = open_at(Profile::new("p", fixture.name), &fixture.fake.url());
    let error = provider.ask(&question("hi")).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidRequest);
    assert!(fixture.fake.requests().is_empty());
}

pub(super) async fn a_page_instead_of_json_is_the_providers_failure(fixture: ProviderFixture) {
    let error = fixture.ask(FakeBehaviour::Html(200)).await.unwrap_err();
    assert_eq!((error.code, error.retry), (Code::ProviderError, Retryability::Never));
    assert!(error.message.contains("<html> <h1>Please log in"), "{error}");
    let error = fixture.ask(FakeBehaviour::Html(502)).await.unwrap_err();
    assert_eq!((error.code, error.retry), (Code::ProviderError, Retryability::Later));
    assert_eq!(error.provider_status, Some(502));
}

pub(super) async fn a_body_that_ends_early_may_have_been_billed(fixture: ProviderFixture) {
    let error = fixture.ask(FakeBehaviour::Truncated).await.unwrap_err();
    assert_eq!((error.code, error.retry), (Code::ProviderError, Retryability::Never));
    assert!(error.message.starts_with("the connection broke: error reading a body"), "{error}");
    assert_eq!(error.billing, BillingStatus::Unknown);
}

pub(super) async fn a_slow_drip_ends_at_the_deadline(fixture: ProviderFixture) {
    let drip = FakeBehaviour::Drip(Duration::from_secs(5));
    fixture.fake.push_behaviours([drip.clone(), drip]);
    let whole = fixture.provider.ask(&hurried("hi")).await.unwrap_err();
    let streamed = stream(&*fixture.provider, &hurried("hi")).await.0.unwrap_err();
    for error in [whole, streamed] {
        assert_eq!((error.code, error.retry), (Code::Timeout, Retryability::Never));
        assert_eq!(error.billing, BillingStatus::Unknown, "it left");
    }
}

pub(super) async fn no_answer_ends_at_the_deadline(fixture: ProviderFixture) {
    fixture.fake.push_behaviours([FakeBehaviour::Hang]);
    let error = fixture.provider.ask(&hurried("hi")).await.unwrap_err();
    assert_eq!((error.code, error.retry), (Code::Timeout, Retryability::Never));
    assert_eq!(error.billing, BillingStatus::Unknown, "it left");
    assert_eq!(fixture.provider.ask(&question("still there?")).await.unwrap().text, "still there?");
}

pub(super) async fn a_question_that_is_too_late_is_not_sent(fixture: ProviderFixture) {
    let mut late = question("hi");
    late.until = Instant::now();
    let error = fixture.provider.ask(&late).await.unwrap_err();
    assert_eq!((error.code, error.billing), (Code::ProviderError, BillingStatus::Nothing));
    assert_eq!(error.retry, Retryability::NotSent);
    assert_eq!(stream(&*fixture.provider, &late).await.0.unwrap_err().code, Code::ProviderError);
    assert_eq!(fixture.provider.health(late.until).await.unwrap_err().code, Code::ProviderError);
    assert!(fixture.fake.requests().is_empty());
}

pub(super) async fn retry_after_is_handed_on_in_all_its_forms(fixture: ProviderFixture) {
    for (header, value, millis) in [
        ("retry-after", "2", 2000),
        ("retry-after", "0.25", 250),
        ("retry-after-ms", "1500", 1500),
        ("x-ms-retry-after-ms", "70", 70),
        ("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT", 0),
    ] {
        let error = fixture.ask(FakeBehaviour::error_with_header(429, header, value)).await.unwrap_err();
        assert_eq!((error.code, error.retry), (Code::RateLimited, Retryability::Later), "{value}");
        assert_eq!(error.retry_after, Some(Duration::from_millis(millis)), "{header}: {value}");
    }
    let bare = fixture.ask(FakeBehaviour::error(429)).await.unwrap_err();
    assert_eq!((bare.retry, bare.retry_after), (Retryability::Later, None));
    let streamed =
        fixture.stream(FakeBehaviour::error_with_header(429, "retry-after", "3")).await.0.unwrap_err();
    assert_eq!(streamed.retry_after, Some(Duration::from_secs(3)));
}

pub(super) async fn an_overloaded_provider_may_be_asked_later(fixture: ProviderFixture) {
    let error = fixture.ask(FakeBehaviour::error(529)).await.unwrap_err();
    assert_eq!((error.code, error.retry), (Code::ProviderError, Retryability::Later));
    assert_eq!(error.provider_status, Some(529));
    assert!(error.message.contains("the fake says 529"), "{error}");
}

pub(super) async fn a_reset_may_have_been_billed(fixture: ProviderFixture) {
    for act in [FakeBehaviour::ResetUnread, FakeBehaviour::ResetRead] {
        let error = fixture.ask(act.clone()).await.unwrap_err();
        let verdict = (error.code, error.retry, error.provider_status);
        assert_eq!(verdict, (Code::ProviderError, Retryability::Never, None), "{act:?}: {error}");
        assert_eq!(error.billing, BillingStatus::Unknown);
    }
}

pub(super) async fn a_question_that_found_nobody_was_not_sent(fixture: ProviderFixture) {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    let profile = Profile { model: "m".into(), ..Profile::new("p", fixture.name) };
    let error = open_at(profile, &url).ask(&question("hi")).await.unwrap_err();
    assert_eq!((error.code, error.retry), (Code::ProviderError, Retryability::NotSent));
    assert!(error.message.contains("refused"), "{error}");
    assert_eq!(error.billing, BillingStatus::Nothing);
}

/// A server that is so busy that it does not accept the connection's first bytes.
pub(super) async fn a_question_that_waits_for_its_connection_was_not_sent(fixture: ProviderFixture) {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    // The TLS handshake waits for a server that never answers.
    let url = format!("https://{}", silent.local_addr().unwrap());
    let profile = Profile { model: "m".into(), ..Profile::new("p", fixture.name) };
    let error = open_at(profile, &url).ask(&hurried("hi")).await.unwrap_err();
    assert_eq!(error.billing, BillingStatus::Nothing, "{error}");
    assert!(error.message.starts_with("no connection"), "{error}");
}

pub(super) async fn a_redirect_is_not_followed(fixture: ProviderFixture) {
    let to = format!("{}/elsewhere?token=abc", fixture.fake.url());
    let error = fixture.ask(FakeBehaviour::Redirect(to)).await.unwrap_err();
    assert_eq!((error.code, error.retry), (Code::ProviderError, Retryability::Never));
    assert_eq!(error.provider_status, Some(307));
    assert!(error.message.contains("/elsewhere,") && !error.message.contains("token"), "{error}");
    assert_eq!(fixture.fake.requests().len(), 1);
}

pub(super) async fn a_huge_answer_is_refused(fixture: ProviderFixture) {
    let error = fixture.ask(FakeBehaviour::Huge(33 << 20)).await.unwrap_err();
    assert_eq!((error.code, error.retry), (Code::ProviderError, Retryability::Never));
    assert_eq!(error.message, "the answer is larger than 32 MB");
    let error = fixture.stream(FakeBehaviour::Huge(33 << 20)).await.0.unwrap_err();
    assert!(error.message.contains("larger than 32 MB"), "{error}");
}

pub(super) async fn a_stream_without_its_end_is_a_failure(fixture: ProviderFixture) {
    for act in [FakeBehaviour::TruncatedStream, FakeBehaviour::Broken] {
        let (answer, pieces) = fixture.stream(act.clone()).await;
        let error = answer.unwrap_err();
        assert_eq!((error.code, error.retry), (Code::ProviderError, Retryability::Never), "{act:?}");
        assert!(error.message.starts_with("the stream ended before the answer did"), "{error}");
        assert!(!pieces.is_empty(), "some of it came");
        let actual: String = pieces.iter().map(text).collect();
        assert!(matches!(&error.billing, BillingStatus::Partial(_)), "{act:?}: {:?}", error.billing);
        if let BillingStatus::Partial(came) = error.billing {
            assert_eq!((came.text.as_str(), came.estimated), (actual.as_str(), true), "{act:?}");
            assert!(came.tokens_in > 0 && came.tokens_out > 0, "{came:?}");
        }
    }
}

fn text(piece: &AnswerPiece) -> &str {
    match piece {
        AnswerPiece::Text(text) => text,
        _ => "",
    }
}

pub(super) async fn an_error_in_a_stream_is_a_failure(fixture: ProviderFixture) {
    let (answer, pieces) = fixture.stream(FakeBehaviour::ErrorInStream).await;
    let error = answer.unwrap_err();
    assert_eq!((error.code, error.retry), (Code::ProviderError, Retryability::Never));
    assert!(error.message.ends_with("the fake says 529"), "{error}");
    assert!(!pieces.is_empty(), "some of it came");
    assert!(matches!(error.billing, BillingStatus::Partial(_)), "{:?}", error.billing);
}

pub(super) async fn a_page_instead_of_a_stream_is_the_providers_failure(fixture: ProviderFixture) {
    let (answer, pieces) = fixture.stream(FakeBehaviour::Html(200)).await;
    let error = answer.unwrap_err();
    assert_eq!((error.code, error.retry), (Code::ProviderError, Retryability::Never));
    assert!(error.message.contains("<html>") && pieces.is_empty(), "{error}");
}

pub(super) async fn a_wrong_key_is_not_tried_again(fixture: ProviderFixture) {
    for status in [401, 403] {
        let error = fixture.ask(FakeBehaviour::error(status)).await.unwrap_err();
        assert_eq!((error.code, error.retry), (Code::ProviderAuth, Retryability::Never));
    }
}

pub(super) async fn a_key_that_is_quoted_back_is_not_handed_on(fixture: ProviderFixture) {
    let quoted = [
        FakeBehaviour::Error { status: 401, headers: Vec::new(), body: Some(format!("no such key: {KEY}")) },
        FakeBehaviour::Error {
            status: 400,
            headers: Vec::new(),
            body: Some(json!({ "error": { "message": KEY } }).to_string()),
        },
        FakeBehaviour::Error { status: 200, headers: Vec::new(), body: Some(format!("what is {KEY}?")) },
        FakeBehaviour::Redirect(format!("/{KEY}/")),
    ];
    for act in quoted {
        let error = fixture.ask(act.clone()).await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains(KEY), "{error:?}");
        assert!(error.message.contains("[secret]"), "{error}");
        let error = fixture.stream(act).await.0.unwrap_err();
        assert!(!format!("{error} {error:?}").contains(KEY), "{error:?}");
    }
}

pub(super) async fn who_stops_listening_has_what_came(fixture: ProviderFixture) {
    let (send, came) = mpsc::channel(1);
    drop(came);
    fixture.fake.push_behaviours([FakeBehaviour::answer("fine, thanks")]);
    let answer = fixture.provider.stream(&question("hi"), &send).await.unwrap();
    assert!("fine, thanks".starts_with(&answer.text), "{answer:?}");
    assert!(answer.estimated, "the rest of the answer was not counted");
}

pub(super) async fn health_is_asked_for_nothing(fixture: ProviderFixture) {
    let status = fixture.provider.health(question("").until).await.unwrap();
    assert!(status.starts_with("answers"), "{status}");
    let sent = fixture.fake.requests();
    assert_eq!((sent.len(), sent[0].method.as_str()), (1, "GET"));
    fixture.fake.push_behaviours([FakeBehaviour::error(401)]);
    let error = fixture.provider.health(question("").until).await.unwrap_err();
    assert_eq!(error.code, Code::ProviderAuth);
}
