//! What a budget promises: the provider never bills more, whatever is asked, by however many callers.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use futures_util::future::join_all;
use http_body_util::BodyExt;
use longshore::accounts::{Budget, CallStatus, Ledger, Limits};
use longshore::{ProfileName, Scope, UnitId};
use longshore_ai::gateway::{Gateway, SingleTenant};
use longshore_ai::{Answer, AskError, Code, Http, Inference, Provider, Question, Vault};
use longshore_testkit::crash_points::{CrashPoint, CrashPointLedger, CrashTiming};
use longshore_testkit::fake_ai::{FakeAi, FakeAnswer, FakeBehaviour, RecordedRequest, billed_tokens};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::fixture::{InferenceFixture, request, tenant};

const OPENAI: &str = "/v1/chat/completions";
const ANTHROPIC: &str = "/v1/messages";

/// A dollar per million tokens, ten per million of the answer's, and twice that in the tier
/// `priority`; the further model costs five times as much.
fn prices() -> Value {
    let tiers = json!([{ "tier": "priority", "input": 2, "output": 20 }]);
    json!({ "input": 1, "output": 10, "tiers": tiers })
}

/// Inference with profiles of both APIs, and the fake provider behind them.
async fn metered() -> (InferenceFixture, FakeAi, Router) {
    let (fixture, fake) = (InferenceFixture::new(), FakeAi::start().await.unwrap());
    fake.set_default(FakeBehaviour::Answer(FakeAnswer { metered: true, ..FakeAnswer::default() }));
    for provider in ["openai", "anthropic"] {
        let body = json!({
            "provider": provider, "model": "m", "endpoint": fake.url(), "prices": prices(),
            "models": { "large": { "input": 5, "output": 50 } },
        });
        fixture.profile("acme", provider, body).await;
    }
    let authenticator = SingleTenant { tenant: tenant("acme"), token: None };
    let gateway = Gateway::new(Arc::new(fixture.inference.clone()), Arc::new(authenticator));
    (fixture, fake, gateway.router())
}

async fn allow(fixture: &InferenceFixture, cost_picos: i64) {
    let budget = Budget { tokens: None, cost_picos: Some(cost_picos), warn_at: 1.0 };
    fixture.store.put_budget(&Scope::All, &tenant("acme"), Some(budget)).await.unwrap();
    fixture.inference.clear_cache();
}

fn says(path: &str, content: Value, more: Value) -> (&str, Value) {
    let model = if path == OPENAI { "openai" } else { "anthropic" };
    let messages = json!([{ "role": "user", "content": content }]);
    let mut body = json!({ "model": model, "max_tokens": 20, "messages": messages });
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    (path, body)
}

async fn send(router: &Router, (path, body): (&str, Value)) -> (u16, String) {
    let request = Request::post(path).header("host", "localhost").body(Body::from(body.to_string())).unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// The client leaves after the first event of a stream.
async fn leave(router: &Router, (path, body): (&str, Value)) {
    let request = Request::post(path).header("host", "localhost").body(Body::from(body.to_string())).unwrap();
    let mut response = router.clone().oneshot(request).await.unwrap();
    let _ = response.body_mut().frame().await;
}

/// What a provider bills for a request, in picos.
fn bill(request: &RecordedRequest) -> i64 {
    let body = &request.body;
    assert!(body["web_search_options"].is_null() && body["speed"].is_null(), "{body}");
    let (asked, answered) = billed_tokens(body);
    let factor = match (body["model"].as_str(), body["service_tier"].as_str()) {
        (Some("large"), _) => 5,
        (_, Some("priority")) => 2,
        _ => 1,
    };
    i64::try_from(factor * (asked + 10 * answered) * 1_000_000).unwrap()
}

fn billed(fake: &FakeAi) -> i64 {
    fake.requests().iter().map(bill).sum()
}

/// Requests with an image outside of the user's messages.
fn requests_with_other_images() -> Vec<(&'static str, Value)> {
    let url = json!({ "url": "data:image/png;base64,iVBORw0KGgo=" });
    let image = json!([{ "type": "text", "text": "look" }, { "type": "image_url", "image_url": url }]);
    let user = json!({ "role": "user", "content": "hi" });
    let says_first = |role: &str| {
        let other = json!({ "role": role, "content": image, "tool_call_id": "t", "name": "f" });
        says(OPENAI, json!("hi"), json!({ "messages": [other, user] }))
    };
    let mut requests = Vec::from(["system", "developer", "tool", "function"].map(says_first));
    let source = json!({ "type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo=" });
    let system = json!([{ "type": "text", "text": "look" }, { "type": "image", "source": source }]);
    requests.push(says(ANTHROPIC, json!("hi"), json!({ "system": system })));
    requests
}

#[tokio::test]
async fn an_image_is_reserved_in_whatever_message_it_is() {
    let (fixture, fake, router) = metered().await;
    // Enough for the text, less than an image may cost.
    allow(&fixture, 4_000_000_000).await;
    for request in requests_with_other_images() {
        let (status, body) = send(&router, request.clone()).await;
        assert!([402, 429].contains(&status), "{status}: {body} for {}", request.1);
    }
    assert!(fake.requests().is_empty());
    assert_eq!(send(&router, says(OPENAI, json!("hi"), json!({}))).await.0, 200);
}

#[tokio::test]
async fn an_image_that_a_translation_would_lose_is_refused() {
    let (_fixture, fake, router) = metered().await;
    for (path, mut body) in requests_with_other_images() {
        body["model"] = json!(if path == OPENAI { "anthropic" } else { "openai" });
        let (status, answer) = send(&router, (path, body)).await;
        assert!(status == 400 && answer.contains("images in "), "{status}: {answer}");
    }
    assert!(fake.requests().is_empty());
}

/// Requests that cost more than they seem to. The last ones are refused, whatever is left.
fn expensive_requests() -> Vec<(&'static str, Value)> {
    let (hanzi, emoji) = ("\u{2070e}漢字".repeat(50), "🏴󠁧󠁢󠁳󠁣󠁴󠁿".repeat(20));
    let data = "iVBORw0KGgo=";
    let url = json!({ "url": format!("data:image/png;base64,{data}") });
    let source = json!({ "type": "base64", "media_type": "image/png", "data": data });
    let image = json!({ "type": "image", "source": source });
    let result = json!([{ "type": "tool_result", "tool_use_id": "t", "content": [image.clone()] }]);
    let function = json!({ "name": "look", "description": hanzi, "parameters": { "type": "object" } });
    let schema =
        json!({ "type": "object", "required": ["sum"], "properties": { "sum": { "type": "integer" } } });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "s", "schema": schema } });
    let thinking = json!([{ "type": "thinking", "thinking": emoji, "signature": "s" }]);
    let mut requests = requests_with_other_images();
    requests.extend([
        says(OPENAI, json!("hi"), json!({ "max_tokens": 1, "n": 100 })),
        says(OPENAI, json!(hanzi), json!({ "service_tier": "priority" })),
        says(OPENAI, json!(emoji), json!({ "model": "openai/large", "stream": true })),
        says(OPENAI, json!([{ "type": "image_url", "image_url": url }]), json!({})),
        says(OPENAI, json!("hi"), json!({ "tools": [{ "type": "function", "function": function }] })),
        // The fake repeats the question, which is no JSON: each is followed by a repair.
        says(OPENAI, json!(hanzi), json!({ "response_format": format })),
        says(
            ANTHROPIC,
            json!(hanzi),
            json!({ "output_config": { "format": { "type": "json_schema", "schema": schema } } }),
        ),
        says(ANTHROPIC, json!([image]), json!({ "thinking": { "type": "enabled", "budget_tokens": 19 } })),
        says(ANTHROPIC, result, json!({})),
        says(
            ANTHROPIC,
            json!(emoji),
            json!({ "messages": [{ "role": "user", "content": hanzi }, { "role": "assistant", "content": thinking }, { "role": "user", "content": "x" }] }),
        ),
        says(ANTHROPIC, json!(emoji), json!({ "stream": true, "model": "anthropic/large" })),
        says(OPENAI, json!("hi"), json!({ "web_search_options": {} })),
        says(ANTHROPIC, json!("hi"), json!({ "speed": "fast" })),
    ]);
    requests
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_callers_with_the_worst_requests_are_never_billed_more_than_the_budget() {
    let (fixture, fake, router) = metered().await;
    let budget = 400_000_000_000;
    allow(&fixture, budget).await;
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..64_usize {
        let router = router.clone();
        callers.spawn(async move {
            let requests = expensive_requests();
            for turn in 0..8 {
                let request = requests[(caller + turn) % requests.len()].clone();
                if request.1["stream"] == true && caller % 2 == 0 {
                    leave(&router, request).await;
                } else {
                    let (status, body) = send(&router, request).await;
                    assert!([200, 400, 402, 429, 502].contains(&status), "{status}: {body}");
                }
            }
        });
    }
    callers.join_all().await;
    // Streams that a client left end by themselves.
    fixture.ended_calls(1).await;
    let total = billed(&fake);
    assert!(total <= budget, "{total} of {budget}");
    assert!(total > budget / 4, "the budget can be used: {total} of {budget}");
    // The task of a client that left ends a moment later.
    let settled = async {
        while fixture.reserved("acme").await != (0, 0) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), settled).await.expect("nothing stays reserved");
    let month = fixture.store.budget(&Scope::All, &tenant("acme")).await.unwrap();
    assert!((total..=budget).contains(&month.spent_picos), "{} for {total}", month.spent_picos);
}

#[tokio::test]
async fn ten_requests_for_a_hundred_answers_each_stay_within_a_cent() {
    let (fixture, fake, router) = metered().await;
    allow(&fixture, 10_000_000_000).await;
    let ask = || send(&router, says(OPENAI, json!("hi"), json!({ "max_tokens": 1, "n": 100 })));
    join_all((0..10).map(|_| ask())).await;
    assert!((1..10).contains(&fake.requests().len()), "{}", fake.requests().len());
    assert!(billed(&fake) <= 10_000_000_000, "{}", billed(&fake));
}

#[tokio::test]
async fn what_may_change_the_price_is_refused_by_its_name_where_a_budget_is_set_or_a_key_is_lent() {
    let (fixture, fake, router) = metered().await;
    let members = [
        (OPENAI, json!({ "web_search_options": {} }), "`web_search_options`"),
        (OPENAI, json!({ "service_tier": "flex" }), "`service_tier`"),
        (OPENAI, json!({ "prediction": { "type": "content", "content": "x" } }), "`prediction`"),
        (OPENAI, json!({ "modalities": ["text", "audio"], "audio": {} }), "`audio`"),
        (OPENAI, json!({ "from_the_future": 1 }), "`from_the_future`"),
        (OPENAI, json!({ "best_of": 5 }), "`best_of`"),
        (ANTHROPIC, json!({ "speed": "fast" }), "`speed`"),
        (ANTHROPIC, json!({ "inference_geo": "us" }), "`inference_geo`"),
        (
            ANTHROPIC,
            json!({ "tools": [{ "type": "web_search_20250305", "name": "web_search" }] }),
            "`web_search_20250305`",
        ),
    ];
    for (path, more, _) in members.clone() {
        let (status, body) = send(&router, says(path, json!("hi"), more)).await;
        assert_eq!(status, 200, "an own key without a budget: {body}");
    }
    let free = fake.requests().len();
    let refused = async |whose: &str| {
        for (path, more, name) in members.clone() {
            let mut request = says(path, json!("hi"), more);
            request.1["model"] = json!(format!("{whose}{}", request.1["model"].as_str().unwrap()));
            let (status, body) = send(&router, request).await;
            assert!(status == 400 && body.contains(name), "{whose} {name}: {status} {body}");
        }
        let twice = r#"{"model":"openai","n":100,"n":1,"messages":[{"role":"user","content":"hi"}]}"#;
        let twice = twice.replace("openai", &format!("{whose}openai"));
        let request = Request::post(OPENAI).header("host", "localhost").body(Body::from(twice)).unwrap();
        assert_eq!(router.clone().oneshot(request).await.unwrap().status(), 400, "a member twice");
    };
    for provider in ["openai", "anthropic"] {
        let lent = json!({
            "template": true, "provider": provider, "model": "m", "endpoint": fake.url(), "prices": prices(),
        });
        fixture.profile("default", provider, lent).await;
        fixture.profile("acme", &format!("lent-{provider}"), json!({ "extends": provider })).await;
    }
    refused("lent-").await;
    allow(&fixture, 1_000_000_000_000).await;
    refused("").await;
    assert_eq!(fake.requests().len(), free, "nothing was sent");
}

#[tokio::test]
async fn a_profile_asks_only_the_models_that_it_names_each_at_its_price() {
    let (fixture, fake, router) = metered().await;
    for path in [OPENAI, ANTHROPIC] {
        let (_, mut body) = says(path, json!("hi"), json!({}));
        body["model"] = json!(format!("{}/huge", body["model"].as_str().unwrap()));
        let (status, answer) = send(&router, (path, body)).await;
        assert_eq!(status, 400, "{answer}");
        assert!(answer.contains("does not offer model `huge`, only `m`, `large`"), "{answer}");
    }
    assert!(fake.requests().is_empty());
    for model in ["openai", "openai/m", "openai/large"] {
        assert_eq!(send(&router, says(OPENAI, json!("hi"), json!({ "model": model }))).await.0, 200);
    }
    let costs: Vec<i64> =
        fixture.calls().await.iter().skip(2).map(|call| call.end.as_ref().unwrap().cost_picos).collect();
    assert_eq!(costs, fake.requests().iter().map(bill).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_tenant_does_not_choose_another_model_for_a_lent_key() {
    let (fixture, fake) = (InferenceFixture::new(), FakeAi::start().await.unwrap());
    let house = json!({
        "template": true, "provider": "openai", "model": "small", "endpoint": fake.url(), "prices": prices(),
        "models": { "large": { "input": 5, "output": 50 } },
    });
    fixture.profile("default", "house", house).await;
    fixture.profile("acme", "p", json!({ "extends": "house", "model": "huge" })).await;
    let error = fixture.ask("acme", "p", "hi").await.result.unwrap_err();
    assert!(error.message.contains("does not name model `huge`; it names: large, small"), "{error}");
    fixture.profile("acme", "p", json!({ "extends": "house", "model": "large" })).await;
    assert_eq!(fixture.ask("acme", "p", "hi").await.cost_picos, 5 * 11_000_000 + 50 * 7_000_000);
}

#[tokio::test]
async fn a_repair_reserves_its_own_cost_and_an_answer_without_one_is_an_error() {
    let (fixture, fake, router) = metered().await;
    let schema =
        json!({ "type": "json_schema", "json_schema": { "name": "s", "schema": { "type": "object" } } });
    let ask = || send(&router, says(OPENAI, json!("hi"), json!({ "response_format": schema })));
    assert_eq!((ask().await.0, fake.requests().len()), (502, 2), "without a budget it is asked");
    let calls = fixture.calls().await;
    assert_eq!(calls.len(), 2, "each is a call");
    let first = calls[0].call.reserve_picos;
    allow(&fixture, calls.iter().map(|call| call.end.as_ref().unwrap().cost_picos).sum::<i64>() + first)
        .await;
    let (status, body) = ask().await;
    assert_eq!((status, fake.requests().len()), (502, 3), "{body}");
    assert!(body.contains("no correction was possible: OVER_BUDGET"), "{body}");
    assert!(fixture.calls().await.iter().all(|call| call.status == CallStatus::Success));
}

/// Reports no tokens.
struct Uncounted;

#[async_trait::async_trait]
impl Provider for Uncounted {
    async fn ask(&self, _: &Question) -> Result<Answer, AskError> {
        Ok(Answer { text: "x".into(), tokens_in: 1, tokens_out: 1, estimated: true, ..Answer::default() })
    }
}

#[tokio::test]
async fn what_a_provider_does_not_report_counts_as_reserved_where_there_is_a_budget() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "p", "[[answer]]\nreply = 'x'", json!({})).await;
    fixture.inference.override_provider(ProfileName::new("p").unwrap(), Arc::new(Uncounted));
    let free = fixture.ask("acme", "p", "hi").await;
    assert_eq!(free.cost_picos, 11_000_000);
    allow(&fixture, 1_000_000_000_000).await;
    let outcome = fixture.ask("acme", "p", "hi").await;
    let record = &outcome.records[0];
    assert_eq!(outcome.cost_picos, record.call.reserve_picos);
    assert!(record.end.as_ref().unwrap().estimated);
}

#[tokio::test]
async fn a_question_of_a_providers_batch_reserves_every_byte_and_refuses_like_any_other() {
    let (fixture, _fake, _) = metered().await;
    let prompt = "漢".repeat(1_000);
    let mut asked = request("acme", "openai", &prompt);
    asked.question.request_id = "first".into();
    asked.unit = Some(UnitId::new());
    let call = fixture.inference.admit_batch_call(&asked, None).await.ok().unwrap();
    assert!(call.reserve_tokens >= 3_000 + 100, "{}", call.reserve_tokens);
    allow(&fixture, call.reserve_picos + 1).await;
    asked.unit = Some(UnitId::new());
    asked.question.request_id = "other".into();
    let refused = fixture.inference.admit_batch_call(&asked, None).await.err().unwrap();
    assert_eq!(refused.result.unwrap_err().code, Code::OverBudget);
    asked.question.model = Some("huge".into());
    let refused = fixture.inference.admit_batch_call(&asked, None).await.err().unwrap();
    assert_eq!(refused.result.unwrap_err().code, Code::InvalidRequest);
}

#[tokio::test]
async fn a_budget_in_dollars_needs_prices() {
    let fixture = InferenceFixture::new();
    fixture.profile("acme", "p", json!({ "provider": "openai", "model": "m" })).await;
    fixture.inference.override_provider(ProfileName::new("p").unwrap(), Arc::new(Uncounted));
    allow(&fixture, 1_000_000_000_000).await;
    let error = fixture.ask("acme", "p", "hi").await.result.unwrap_err();
    assert_eq!(error.code, Code::ProfileDisabled, "{error}");
}

/// Inference with a ledger that stops before or after it admits a call.
fn stopping(fixture: &InferenceFixture, when: CrashTiming) -> (Inference, Arc<CrashPoint>) {
    let point = CrashPoint::at(0, when, &["admit_calls"]);
    let ledger: Arc<dyn Ledger> =
        Arc::new(CrashPointLedger::new(Arc::clone(&fixture.store) as _, Arc::clone(&point)));
    let vault = Arc::new(Vault::new(Arc::clone(&fixture.store) as _, None));
    (Inference::new(ledger, vault, Http::new(), "fixture".to_owned()), point)
}

#[tokio::test(start_paused = true)]
async fn whoever_leaves_while_the_ledger_decides_holds_no_budget() {
    for when in [CrashTiming::Before, CrashTiming::After] {
        let fixture = InferenceFixture::new();
        fixture.scripted("acme", "fast", "[[answer]]\nreply = 'fine'", json!({})).await;
        allow(&fixture, 1_000_000_000_000).await;
        let (inference, point) = stopping(&fixture, when);
        let request = request("acme", "fast", "hi");
        tokio::select! {
            _ = inference.ask(&request, None) => panic!("{when:?}: the ledger answered"),
            () = point.reached.notified() => {}
        }
        tokio::select! {
            () = inference.run_journal() => {}
            () = inference.flush_journal() => {}
        }
        assert_eq!(fixture.reserved("acme").await, (0, 0), "{when:?}");
        let calls = fixture.calls().await;
        assert_eq!((calls.len(), calls[0].status), (1, CallStatus::Error), "{when:?}");
        assert_eq!(calls[0].end.as_ref().unwrap().cost_picos, 0, "{when:?}: nothing was sent");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_leaves_during_a_fallback_leaves_no_earlier_call_open() {
    let fixture = InferenceFixture::new();
    let down = "[[answer]]\nerror = 'PROVIDER_AUTH'";
    fixture.scripted("acme", "down", down, json!({ "fallback": ["slow"] })).await;
    fixture.scripted("acme", "slow", "[[answer]]\nhang = true", json!({})).await;
    allow(&fixture, 1_000_000_000_000).await;
    let request = request("acme", "down", "hi");
    let asking = fixture.inference.ask(&request, None);
    assert!(tokio::time::timeout(Duration::from_secs(1), asking).await.is_err());
    let ended: Vec<_> = fixture.calls().await.iter().map(|call| call.status).collect();
    assert_eq!(ended, [CallStatus::Error, CallStatus::MaybeBilled]);
    assert_eq!(fixture.reserved("acme").await, (0, 0));
}
