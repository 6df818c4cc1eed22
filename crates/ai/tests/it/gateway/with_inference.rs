//! The gateway with real inference: limits, budgets and records as for every other call.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use longshore::Scope;
use longshore::accounts::{Budget, CallStatus, Limits};
use longshore_testkit::fake_ai::{FakeAi, FakeBehaviour};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{ANTHROPIC, GatewayFixture, OPENAI, TOKEN};
use crate::inference::fixture::{InferenceFixture, tenant};
use crate::inference::outages::{Mode, SwitchedProvider};

const FINE: &str = "[[answer]]\nreply = 'fine'";

fn hello(profile: &str) -> Value {
    let messages = [json!({ "role": "user", "content": "12345678" })];
    json!({ "model": profile, "max_tokens": 100, "messages": messages })
}

#[tokio::test]
async fn every_request_is_in_the_books_at_its_price() {
    let setup = InferenceFixture::new();
    setup.scripted("default", "fast", FINE, json!({})).await;
    let fixture = GatewayFixture::with_backend(Arc::new(setup.inference.clone()));
    for path in [OPENAI, ANTHROPIC] {
        assert_eq!(fixture.post(path, hello("fast")).await.status, StatusCode::OK);
    }
    let calls = setup.calls().await;
    assert_eq!(calls.len(), 2);
    for call in calls {
        let end = call.end.unwrap();
        let actual = (call.status, call.call.profile.as_str(), end.tokens_in, end.cost_picos);
        assert_eq!(actual, (CallStatus::Success, "fast", 2, 2 * 1_000_000 + 10_000_000));
    }
}

#[tokio::test]
async fn from_its_warning_on_a_budgets_use_is_in_a_header() {
    let setup = InferenceFixture::new();
    setup.scripted("default", "fast", FINE, json!({})).await;
    let fixture = GatewayFixture::with_backend(Arc::new(setup.inference.clone()));
    fixture.post(OPENAI, hello("fast")).await;
    setup.inference.flush_journal().await;
    // Three tokens are used, and a call reserves most of the budget.
    for (warn_at, is_warned) in [(0.9, false), (0.00001, true), (0.9, false)] {
        let budget = Budget { tokens: Some(110_000), cost_picos: None, warn_at };
        setup.store.put_budget(&Scope::All, &tenant("default"), Some(budget)).await.unwrap();
        setup.inference.clear_cache();
        for stream in [false, true] {
            let mut body = hello("fast");
            (body["stream"], body["max_tokens"]) = (json!(stream), json!(100_000));
            let reply = fixture.post(OPENAI, body).await;
            assert_eq!(reply.status, StatusCode::OK, "{}", reply.body);
            let used = reply.header("x-longshore-budget-used").map(|used| used.parse::<f64>().unwrap());
            assert_eq!(used.is_some(), is_warned, "{warn_at}: {used:?}");
            assert!(used.is_none_or(|used| used < 0.01), "{used:?}");
            setup.inference.flush_journal().await;
        }
    }
}

#[tokio::test]
async fn a_model_that_is_not_offered_is_recorded_without_its_name_and_a_long_name_not_at_all() {
    let setup = InferenceFixture::new();
    setup.scripted("default", "fast", FINE, json!({})).await;
    let fixture = GatewayFixture::with_backend(Arc::new(setup.inference.clone()));
    for path in [OPENAI, ANTHROPIC] {
        let reply = fixture.post(path, hello(&format!("fast/{}", "x".repeat(1_000_000)))).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST);
        assert!(reply.body.len() < 2_000, "{}", reply.body.len());
    }
    assert_eq!(setup.calls().await.len(), 0);
    let reply = fixture.post(OPENAI, hello("fast/other")).await;
    assert!(reply.body.contains("does not offer model `other`"), "{}", reply.body);
    let calls = setup.calls().await;
    assert_eq!((calls.len(), calls[0].call.model.as_str()), (1, ""));
}

#[tokio::test]
async fn an_error_does_not_repeat_a_long_request() {
    let setup = InferenceFixture::new();
    setup.scripted("default", "fast", FINE, json!({})).await;
    let fixture = GatewayFixture::with_backend(Arc::new(setup.inference.clone()));
    let long = "x".repeat(1_000_000);
    let parts: Vec<_> = (0..1_000).map(|n| json!({ "type": format!("kind-{n}") })).collect();
    for (name, value) in [
        ("max_tokens", json!(long)),
        (&*long, json!(1)),
        ("messages", json!([{"role": "user", "content": parts}])),
    ] {
        let mut body = hello("fast");
        body[name] = value;
        let reply = fixture.post(OPENAI, body).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST);
        assert!(reply.body.len() < 2_000, "{}", reply.body.len());
    }
}

#[tokio::test]
async fn a_suspended_tenant_is_refused_at_every_door() {
    let setup = InferenceFixture::new();
    setup.scripted("default", "fast", FINE, json!({})).await;
    setup.suspend("default", true).await;
    let fixture = GatewayFixture::with_backend(Arc::new(setup.inference.clone()));
    for path in [OPENAI, ANTHROPIC] {
        let reply = fixture.post(path, hello("fast")).await;
        assert_eq!(reply.status, StatusCode::FORBIDDEN, "{}", reply.body);
        assert!(reply.body.contains("tenant `default` is suspended"), "{}", reply.body);
    }
    let request = Request::get("/v1/models").header("authorization", format!("Bearer {TOKEN}"));
    let models = fixture.reply(request.body(Body::empty()).unwrap()).await;
    assert_eq!(models.status, StatusCode::FORBIDDEN, "{}", models.body);
}

#[tokio::test]
async fn a_limit_that_is_reached_is_told_with_when_to_come_again() {
    let setup = InferenceFixture::new();
    let limits = json!({ "limits": { "requests": 1, "burst": 1, "when_full": "refuse" } });
    setup.scripted("default", "fast", FINE, limits).await;
    let fixture = GatewayFixture::with_backend(Arc::new(setup.inference.clone()));
    assert_eq!(fixture.post(OPENAI, hello("fast")).await.status, StatusCode::OK);
    for path in [OPENAI, ANTHROPIC] {
        let reply = fixture.post(path, hello("fast")).await;
        assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS, "{}", reply.body);
        let wait: f64 = reply.header("retry-after").unwrap().parse().unwrap();
        assert!(wait > 0.0 && wait <= 61.0, "{wait}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_answered_within_two_seconds_with_when_to_retry() {
    let setup = InferenceFixture::new();
    let provider = SwitchedProvider::install(&setup, &["default"], &json!({})).await;
    let fixture = GatewayFixture::with_backend(Arc::new(setup.inference.clone()));
    let ask = async |path: &str, number: usize| {
        let mut body = hello("p");
        body["messages"][0]["content"] = json!(format!("question {number}"));
        fixture.post(path, body).await
    };
    provider.set(Mode::Fail);
    let mut asked = usize::MAX;
    while provider.asked() != asked {
        asked = provider.asked();
        futures_util::future::join_all((0..10).map(|number| ask(OPENAI, number))).await;
    }
    for path in [OPENAI, ANTHROPIC] {
        let started = tokio::time::Instant::now();
        let reply = ask(path, 11).await;
        assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE, "{}", reply.body);
        assert!(started.elapsed() <= std::time::Duration::from_secs(2));
        let wait: u64 = reply.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=30).contains(&wait), "{wait}");
        assert_eq!(reply.header("x-should-retry"), Some("true"));
    }
    assert_eq!(provider.asked(), asked, "the breaker is open");
}

#[tokio::test]
async fn a_month_that_is_spent_is_over_for_the_gateway_too() {
    let setup = InferenceFixture::new();
    setup.scripted("default", "fast", FINE, json!({})).await;
    let budget = Budget { tokens: Some(50), cost_picos: None, warn_at: 0.8 };
    setup.store.put_budget(&Scope::All, &tenant("default"), Some(budget)).await.unwrap();
    setup.inference.clear_cache();
    let fixture = GatewayFixture::with_backend(Arc::new(setup.inference.clone()));
    let reply = fixture.post(OPENAI, hello("fast")).await;
    assert_eq!(reply.json()["error"]["code"], "insufficient_quota", "{}", reply.body);
    let reply = fixture.post(ANTHROPIC, hello("fast")).await;
    assert_eq!(reply.json()["error"]["type"], "billing_error", "{}", reply.body);
}

#[tokio::test]
async fn a_response_says_what_it_cost() {
    let setup = InferenceFixture::new();
    setup.scripted("default", "fast", FINE, json!({})).await;
    let fixture = GatewayFixture::with_backend(Arc::new(setup.inference.clone()));
    for path in [OPENAI, ANTHROPIC] {
        let reply = fixture.post(path, hello("fast")).await;
        let headers = ["calls", "tokens-in", "tokens-out", "cost-usd"];
        let values = headers.map(|name| reply.header(&format!("x-longshore-{name}")));
        assert_eq!(values, [Some("1"), Some("2"), Some("1"), Some("0.000012")]);
        assert!(reply.header("x-request-id").is_some_and(|id| !id.is_empty()));
    }
    let reply = fixture.post(OPENAI, hello("none")).await;
    assert_eq!(reply.header("x-longshore-cost-usd"), None, "nothing was asked");
}

#[tokio::test]
async fn an_answer_that_breaks_its_schema_twice_is_an_error_with_the_cost_of_both_calls() {
    let setup = InferenceFixture::new();
    setup.scripted("default", "fast", FINE, json!({})).await;
    let fixture = GatewayFixture::with_backend(Arc::new(setup.inference.clone()));
    let mut body = hello("fast");
    let schema = json!({ "name": "s", "schema": { "type": "object" } });
    body["response_format"] = json!({ "type": "json_schema", "json_schema": schema });
    let reply = fixture.post(OPENAI, body).await;
    assert_eq!(reply.status, StatusCode::BAD_GATEWAY, "{}", reply.body);
    assert!(reply.body.contains("is not JSON") || reply.body.contains("schema"), "{}", reply.body);
    assert_eq!(
        (reply.header("x-longshore-calls"), reply.header("x-should-retry")),
        (Some("2"), Some("false"))
    );
    let costs: i64 = setup.calls().await.iter().map(|call| call.end.as_ref().unwrap().cost_picos).sum();
    assert_eq!(reply.header("x-longshore-cost-usd"), Some(&*longshore_ai::Cost(costs).plain()));
}

/// A client that reads so many frames of a stream, and leaves.
async fn leave_after(fixture: &GatewayFixture, path: &str, body: &Value, frames: usize) {
    let mut response = fixture.send(super::post(path, body)).await;
    for _ in 0..frames {
        response.body_mut().frame().await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_stream_that_its_client_leaves_is_booked_by_what_came() {
    let (setup, fake) = (InferenceFixture::new(), FakeAi::start().await.unwrap());
    fake.set_default(FakeBehaviour::StalledStream);
    for provider in ["openai", "anthropic"] {
        let prices = json!({ "input": 1, "output": 10 });
        let body = json!({ "provider": provider, "model": "m", "endpoint": fake.url(), "prices": prices });
        setup.profile("default", provider, body).await;
    }
    let fixture = GatewayFixture::with_backend(Arc::new(setup.inference.clone()));
    for (path, profile) in [(OPENAI, "openai"), (ANTHROPIC, "anthropic"), (ANTHROPIC, "openai")] {
        let mut body = hello(profile);
        (body["stream"], body["max_tokens"]) = (json!(true), json!(4_096));
        leave_after(&fixture, path, &body, 1).await;
    }
    let calls = setup.ended_calls(3).await;
    for call in calls {
        let end = call.end.unwrap();
        assert_eq!((call.status, end.estimated), (CallStatus::MaybeBilled, true));
        assert!((1..=20).contains(&end.tokens_in), "{end:?}");
        assert!((1..=20).contains(&end.tokens_out), "{end:?}");
        let cost = (end.tokens_in + 10 * end.tokens_out) * 1_000_000;
        assert_eq!(end.cost_picos, i64::try_from(cost).unwrap());
    }
}

/// A provider that sends this body of a stream and no more. Returns its address.
async fn stalled_provider(body: String) -> (String, tokio::task::JoinSet<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut serving = tokio::task::JoinSet::new();
    serving.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = [0; 4096];
        let _ = stream.read(&mut head).await.unwrap();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
        stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        std::future::pending::<()>().await;
    });
    (url, serving)
}

#[tokio::test]
async fn a_stream_that_its_client_leaves_counts_thoughts_further_choices_and_the_input_of_tool_calls() {
    let long = "word ".repeat(160);
    let choice = |delta: Value, index: u64| json!({ "choices": [{ "index": index, "delta": delta }] });
    let call = json!([{ "index": 0, "id": "c", "function": { "name": "f", "arguments": long } }]);
    let thinking = json!({ "type": "thinking_delta", "thinking": long });
    let input = json!({ "type": "input_json_delta", "partial_json": long });
    let delta = |delta: &Value| json!({ "type": "content_block_delta", "index": 0, "delta": delta });
    let usage = json!({ "input_tokens": 2, "output_tokens": 1 });
    let start =
        json!({ "type": "message_start", "message": { "model": "m", "content": [], "usage": usage } });
    let tool = json!({ "type": "tool_use", "id": "c", "name": "f", "input": {} });
    let tool = json!({ "type": "content_block_start", "index": 0, "content_block": tool });
    let hi = delta(&json!({ "type": "text_delta", "text": "hi" }));
    let part = |part: Value| json!({ "candidates": [{ "content": { "parts": [part] } }] });
    let streams = [
        ("openai", vec![choice(json!({ "tool_calls": call }), 0)]),
        ("openai", vec![choice(json!({ "reasoning_content": long }), 0)]),
        ("openai", vec![choice(json!({ "reasoning": long }), 0)]),
        ("openai", vec![choice(json!({ "content": long }), 3)]),
        ("anthropic", vec![start.clone(), tool, delta(&input)]),
        ("anthropic", vec![start, delta(&thinking), hi]),
        ("gemini", vec![part(json!({ "text": long, "thought": true })), part(json!({ "text": "hi" }))]),
        (
            "ollama",
            vec![
                json!({ "message": { "content": "", "thinking": long } }),
                json!({ "message": { "content": "hi" } }),
            ],
        ),
    ];
    for (provider, events) in streams {
        let line = |event: &Value| match provider {
            "ollama" => format!("{event}\n"),
            _ => format!("data: {event}\n\n"),
        };
        let (url, _serving) = stalled_provider(events.iter().map(line).collect()).await;
        let setup = InferenceFixture::new();
        let body = json!({ "provider": provider, "model": "m", "endpoint": url, "prices": { "input": 1, "output": 10 } });
        setup.profile("default", "p", body).await;
        let fixture = GatewayFixture::with_backend(Arc::new(setup.inference.clone()));
        let mut body = hello("p");
        (body["stream"], body["max_tokens"]) = (json!(true), json!(4_096));
        leave_after(&fixture, if provider == "anthropic" { ANTHROPIC } else { OPENAI }, &body, 1).await;
        let end = setup.ended_calls(1).await.remove(0).end.unwrap();
        assert!((150..=300).contains(&end.tokens_out), "{provider} {events:?}: {end:?}");
    }
}

#[tokio::test]
async fn all_choices_of_an_answer_without_token_counts_are_estimated() {
    let (setup, fake) = (InferenceFixture::new(), FakeAi::start().await.unwrap());
    let choice = json!({ "message": { "content": "word ".repeat(40) }, "finish_reason": "stop" });
    let body = json!({ "model": "m", "choices": vec![choice; 4] }).to_string();
    fake.set_default(FakeBehaviour::Error { status: 200, headers: Vec::new(), body: Some(body) });
    let body = json!({ "provider": "openai", "model": "m", "endpoint": fake.url() });
    setup.profile("default", "p", body).await;
    let fixture = GatewayFixture::with_backend(Arc::new(setup.inference.clone()));
    let mut body = hello("p");
    body["n"] = json!(4);
    let reply = fixture.post(OPENAI, body).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.body);
    let end = setup.ended_calls(1).await.remove(0).end.unwrap();
    assert!(end.estimated && (180..=250).contains(&end.tokens_out), "{end:?}");
}

/// While the breaker is open, the gateway does not use the attempts that a call has left.
#[tokio::test(start_paused = true)]
async fn a_client_may_repeat_what_the_breaker_has_blocked() {
    let setup = InferenceFixture::new();
    let provider = SwitchedProvider::install(&setup, &["default"], &json!({})).await;
    provider.set(Mode::Fail);
    let fixture = GatewayFixture::with_backend(Arc::new(setup.inference.clone()));
    for stream in [false, true] {
        let asks = (0..20).map(async |number| {
            let mut body = hello("p");
            body["messages"][0]["content"] = json!(format!("question {number}"));
            body["stream"] = json!(stream);
            fixture.post(OPENAI, body).await
        });
        for reply in futures_util::future::join_all(asks).await {
            assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE, "{}", reply.body);
            assert_eq!(reply.header("x-should-retry"), Some("true"), "{}", reply.body);
            let wait: u64 = reply.header("retry-after").unwrap().parse().unwrap();
            assert!((1..=30).contains(&wait), "{wait}");
        }
    }
}

/// A question that was never sent costs the provider nothing, however often it is repeated.
#[tokio::test(start_paused = true)]
async fn a_client_may_repeat_a_question_that_was_never_sent() {
    let setup = InferenceFixture::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let body =
        json!({ "provider": "openai", "model": "m", "endpoint": endpoint, "retry": { "attempts": 3 } });
    setup.profile("default", "p", body).await;
    let fixture = GatewayFixture::with_backend(Arc::new(setup.inference.clone()));
    let reply = fixture.post(OPENAI, hello("p")).await;
    let actual = (reply.status, reply.header("x-should-retry"));
    assert_eq!(actual, (StatusCode::SERVICE_UNAVAILABLE, Some("true")), "{}", reply.body);
}

#[tokio::test]
async fn every_choice_of_an_answer_follows_the_schema() {
    let (setup, fake) = (InferenceFixture::new(), FakeAi::start().await.unwrap());
    let choice = |text: &str| json!({ "message": { "content": text }, "finish_reason": "stop" });
    let body = json!({ "model": "m", "choices": [choice("{}"), choice("seven")] }).to_string();
    fake.set_default(FakeBehaviour::Error { status: 200, headers: Vec::new(), body: Some(body) });
    setup
        .profile("default", "p", json!({ "provider": "openai", "model": "m", "endpoint": fake.url() }))
        .await;
    let fixture = GatewayFixture::with_backend(Arc::new(setup.inference.clone()));
    let mut body = hello("p");
    let schema = json!({ "name": "s", "schema": { "type": "object" } });
    body["response_format"] = json!({ "type": "json_schema", "json_schema": schema });
    body["n"] = json!(2);
    let reply = fixture.post(OPENAI, body).await;
    assert_eq!(reply.status, StatusCode::BAD_GATEWAY, "{}", reply.body);
    assert!(reply.body.contains("choice 2"), "{}", reply.body);
}

#[tokio::test]
async fn a_request_that_does_not_fit_into_the_budget_says_how_much_is_used() {
    let setup = InferenceFixture::new();
    setup.scripted("default", "fast", FINE, json!({})).await;
    let fixture = GatewayFixture::with_backend(Arc::new(setup.inference.clone()));
    fixture.post(OPENAI, hello("fast")).await;
    setup.inference.flush_journal().await;
    // Three tokens are used.
    let budget = Budget { tokens: Some(4), cost_picos: None, warn_at: 0.5 };
    setup.store.put_budget(&Scope::All, &tenant("default"), Some(budget)).await.unwrap();
    setup.inference.clear_cache();
    for stream in [false, true] {
        let mut body = hello("fast");
        body["stream"] = json!(stream);
        let reply = fixture.post(OPENAI, body).await;
        assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS, "{}", reply.body);
        assert_eq!(reply.header("x-longshore-budget-used"), Some("0.750"), "{stream}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_is_told_not_to_repeat_what_the_gateway_has_repeated() {
    let setup = InferenceFixture::new();
    let failing = "[[answer]]\nerror = 'PROVIDER_ERROR'";
    setup.scripted("default", "often", failing, json!({ "retry": { "attempts": 2 } })).await;
    setup.scripted("default", "once", failing, json!({ "retry": { "attempts": 1 } })).await;
    let fixture = GatewayFixture::with_backend(Arc::new(setup.inference.clone()));
    for (profile, again) in [("often", "false"), ("once", "true")] {
        for stream in [false, true] {
            let mut body = hello(profile);
            body["stream"] = json!(stream);
            let reply = fixture.post(OPENAI, body).await;
            let actual = (reply.status, reply.header("x-should-retry"));
            assert_eq!(actual, (StatusCode::SERVICE_UNAVAILABLE, Some(again)), "{profile} {stream}");
        }
    }
}
