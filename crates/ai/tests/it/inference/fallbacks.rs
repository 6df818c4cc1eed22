use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use longshore::ProfileName;
use longshore::accounts::CallStatus;
use longshore_ai::{Answer, AskError, Code, Headroom, Provider, Question, RemainingLimit};
use serde_json::json;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::Instant;

use super::fixture::{InferenceFixture, request};

const DOWN: &str = "[[answer]]\nerror = 'PROVIDER_ERROR'";
const FINE: &str = "[[answer]]\nreply = 'fine'";

#[tokio::test(start_paused = true)]
async fn where_one_cannot_answer_the_next_does_and_the_books_are_truthful() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "first", DOWN, json!({ "fallback": ["second", "third"] })).await;
    fixture.scripted("acme", "second", DOWN, json!({})).await;
    fixture.scripted("acme", "third", FINE, json!({})).await;
    let outcome = fixture.ask("acme", "first", "12345678").await;
    assert_eq!(outcome.result.as_ref().unwrap().model, "third");
    let actual: Vec<_> = outcome
        .records
        .iter()
        .map(|record| (record.call.profile.as_str(), record.end.as_ref().unwrap().status))
        .collect();
    let (error, success) = (CallStatus::Error, CallStatus::Success);
    assert_eq!(actual, [("first", error), ("second", error), ("third", success)]);
    let costs: Vec<i64> =
        outcome.records.iter().map(|record| record.end.as_ref().unwrap().cost_picos).collect();
    assert_eq!((costs[0], costs[1]), (0, 0));
    assert_eq!(costs[2], 2 * 1_000_000 + 10_000_000, "two tokens in, one out");
    assert_eq!(outcome.cost_picos, costs[2]);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_question_or_one_that_may_be_billed_is_not_asked_elsewhere() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "second", FINE, json!({})).await;
    for code in ["INVALID_REQUEST", "TIMEOUT"] {
        let script = format!("[[answer]]\nerror = '{code}'");
        fixture.scripted("acme", "first", &script, json!({ "fallback": ["second"] })).await;
        let error = fixture.ask("acme", "first", code).await.result.unwrap_err();
        assert_eq!(error.code.as_str(), code);
    }
}

#[tokio::test(start_paused = true)]
async fn the_tenants_fallback_comes_last_and_circles_end() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "first", DOWN, json!({ "fallback": ["first", "gone"] })).await;
    fixture.scripted("acme", "last", FINE, json!({})).await;
    fixture.profile("acme", ".tenant", json!({ "fallback": "last" })).await;
    assert_eq!(fixture.ask("acme", "first", "hi").await.result.unwrap().model, "last");
    // The last resort fails, too: its error does not hide the first one.
    fixture.scripted("acme", "last", DOWN, json!({})).await;
    let error = fixture.ask("acme", "first", "hi again").await.result.unwrap_err();
    assert_eq!(error.code, Code::ProviderError);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_was_wished_for_is_the_first_profiles_and_no_other_is_asked_for_it() {
    let fixture = InferenceFixture::new();
    let more = json!({ "fallback": ["second"], "models": { "firsts-own": {} } });
    fixture.scripted("acme", "first", DOWN, more).await;
    fixture.scripted("acme", "second", FINE, json!({})).await;
    let mut request = request("acme", "first", "hi");
    request.question.model = Some("firsts-own".into());
    let outcome = fixture.inference.ask(&request, None).await;
    assert_eq!(outcome.result.unwrap().model, "second");
    let asked: Vec<_> = outcome.records.iter().map(|record| record.call.model.as_str()).collect();
    assert_eq!(asked, ["firsts-own", "second"]);
}

/// How long a caller with a fallback may wait for the first profile.
const SHORT: Duration = Duration::from_secs(2);

#[tokio::test(start_paused = true)]
async fn a_fallback_is_asked_instead_of_a_long_wait() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "second", FINE, json!({})).await;
    for (failing, attempts) in [
        ("[[answer]]\nerror = 'RATE_LIMITED'\nretry_after = '60s'", 1),
        ("[[answer]]\nerror = 'RATE_LIMITED'", 1),
        ("[[answer]]\nerror = 'PROVIDER_ERROR'\nretry_after = '60s'", 1),
        // A wait of a second at most, and one more attempt.
        (DOWN, 2),
    ] {
        fixture.scripted("acme", "first", failing, json!({ "fallback": ["second"] })).await;
        let started = Instant::now();
        let outcome = fixture.ask("acme", "first", failing).await;
        assert_eq!(outcome.result.unwrap().model, "second");
        assert!(started.elapsed() <= SHORT, "{failing}: {:?}", started.elapsed());
        assert_eq!(outcome.attempts, attempts + 1, "{failing}");
    }
}

/// Answers, and reports that its rate limit is exhausted for so long.
struct ExhaustedLimit(Duration);

#[async_trait]
impl Provider for ExhaustedLimit {
    async fn ask(&self, _: &Question) -> Result<Answer, AskError> {
        let requests = RemainingLimit { limit: Some(1), left: 0, reset: Some(self.0) };
        let headroom = Headroom { requests: Some(requests), tokens: None };
        Ok(Answer { text: "first".to_owned(), headroom, ..Answer::default() })
    }
}

#[tokio::test(start_paused = true)]
async fn a_fallback_is_asked_while_the_providers_rate_limit_is_exhausted() {
    let fixture = InferenceFixture::new();
    let provider = Arc::new(ExhaustedLimit(Duration::from_secs(4)));
    fixture.inference.override_provider(ProfileName::new("first").unwrap(), provider);
    fixture.scripted("acme", "first", FINE, json!({ "fallback": ["second"] })).await;
    fixture.scripted("acme", "second", FINE, json!({})).await;
    assert_eq!(fixture.ask("acme", "first", "1").await.result.unwrap().text, "first");
    let started = Instant::now();
    let asks = (2..6).map(|number| {
        let fixture = &fixture;
        async move { fixture.ask("acme", "first", &number.to_string()).await.result.unwrap().text }
    });
    assert_eq!(futures_util::future::join_all(asks).await, ["fine"; 4]);
    assert!(started.elapsed() <= SHORT, "{:?}", started.elapsed());
}

/// A provider that can be connected to by no further client: its queue of connections is full.
#[tokio::test]
async fn a_connection_that_hangs_delays_a_caller_with_a_fallback_by_two_seconds() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut filling = Vec::new();
    while let Ok(Ok(stream)) =
        tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await
    {
        filling.push(stream);
    }
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "second", FINE, json!({})).await;
    let endpoint = format!("http://{address}");
    let first = json!({ "provider": "openai", "model": "m", "endpoint": endpoint, "fallback": ["second"] });
    fixture.profile("acme", "first", first).await;
    let started = Instant::now();
    let outcome = fixture.ask("acme", "first", "hello").await;
    assert_eq!(outcome.result.unwrap().text, "fine");
    assert!(started.elapsed() <= 2 * SHORT, "{:?}", started.elapsed());
}
