use longshore::accounts::{Budget, Limits, ProfileChange, Profiles, PutProfile};
use longshore::{ProfileName, Scope};
use longshore_ai::contract::ReplyBody;
use serde_json::{Value, json};

use super::fixture::{WorkerFixture, code_or_text, next_reply, request, with_reply_queue};
use crate::inference::fixture::tenant;

const FINE: &str = "[[answer]]\nreply = 'fine'";

/// The result of a request to this profile.
async fn code_of(fixture: &WorkerFixture, profile: &str, more: &Value) -> String {
    let inbox = fixture.inbox("acme", "r").await;
    fixture.send("acme", with_reply_queue(&format!("of {profile}"), profile, more)).await;
    fixture.work().await;
    let reply = next_reply(&inbox).await;
    inbox.close().await.unwrap();
    assert_eq!(reply.header.request_id, Some(format!("of {profile}")));
    code_or_text(&reply).to_owned()
}

#[tokio::test(start_paused = true)]
async fn what_a_provider_comes_to_is_what_the_caller_reads() {
    let fixture = WorkerFixture::new();
    for code in ["RATE_LIMITED", "PROVIDER_AUTH", "PROVIDER_ERROR", "TIMEOUT", "INTERNAL"] {
        let script = format!("[[answer]]\nerror = '{code}'\nmessage = 'so it is'");
        fixture.setup.scripted("acme", code, &script, json!({})).await;
        assert_eq!(code_of(&fixture, code, &json!({})).await, code);
    }
    let books = fixture.setup.calls().await;
    let codes: Vec<_> = books.iter().filter_map(|call| call.end.as_ref()?.code.as_deref()).collect();
    assert_eq!(codes, ["RATE_LIMITED", "PROVIDER_AUTH", "PROVIDER_ERROR", "TIMEOUT", "INTERNAL"]);
}

#[tokio::test(start_paused = true)]
async fn an_error_message_quotes_the_prompt_only_where_that_is_allowed() {
    let fixture = WorkerFixture::new();
    let prompt = "the harbour master keeps the key under the mat";
    let script = format!("[[answer]]\nerror = 'INVALID_REQUEST'\nmessage = 'rejected: {prompt}'");
    fixture.setup.scripted("acme", "fast", &script, json!({})).await;
    for (id, allowed) in [("r-1", false), ("r-2", true)] {
        let _ = fixture.setup.inference.clone().with_prompt_quotes(allowed);
        let asked = request(id, "fast", &json!({ "prompt": prompt }));
        let unit = fixture.send("acme", asked.to_string()).await;
        fixture.work().await;
        let (_, message) = fixture.error_reply(unit).await;
        assert_eq!(
            (message.contains("harbour"), message.contains("[prompt]")),
            (allowed, !allowed),
            "{message}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_profile_that_is_not_there_or_another_tenants_is_not_found() {
    let fixture = WorkerFixture::new();
    fixture.setup.scripted("evil", "theirs", FINE, json!({})).await;
    for profile in ["none", "theirs"] {
        assert_eq!(code_of(&fixture, profile, &json!({})).await, "PROFILE_NOT_FOUND");
    }
}

#[tokio::test(start_paused = true)]
async fn a_suspended_profile_is_disabled() {
    let fixture = WorkerFixture::new();
    fixture.setup.scripted("acme", "fast", FINE, json!({})).await;
    let put = PutProfile {
        tenant: tenant("acme"),
        name: ProfileName::new("fast").unwrap(),
        body: None,
        suspended: Some(true),
        expected: None,
    };
    fixture.setup.store.change_profile(&Scope::All, ProfileChange::Put(put)).await.unwrap();
    fixture.setup.inference.clear_cache();
    assert_eq!(code_of(&fixture, "fast", &json!({})).await, "PROFILE_DISABLED");
}

#[tokio::test(start_paused = true)]
async fn a_request_of_a_tenant_that_was_suspended_while_it_ran_is_answered_at_once() {
    let fixture = WorkerFixture::new();
    fixture.setup.scripted("acme", "fast", FINE, json!({})).await;
    let inbox = fixture.inbox("acme", "r").await;
    fixture.send("acme", with_reply_queue("r-1", "fast", &json!({}))).await;
    fixture.setup.suspend("acme", true).await;
    // As if it had been claimed just before: lanes of suspended tenants are skipped. The cache
    // still has the suspension.
    fixture.setup.ask("acme", "fast", "hi").await.result.unwrap_err();
    fixture.setup.suspend("acme", false).await;
    fixture.work().await;
    let reply = next_reply(&inbox).await;
    let ReplyBody::Error(failure) = &reply.body else { panic!("{reply:?}") };
    let actual = (failure.code.as_str(), failure.message.as_str());
    assert_eq!(actual, ("PROFILE_DISABLED", "tenant `acme` is suspended"));
    assert!(failure.retry_after.is_some(), "a profile's own suspension does not say that");
}

#[tokio::test(start_paused = true)]
async fn a_month_that_is_spent_is_over_budget_and_nobody_is_asked() {
    let fixture = WorkerFixture::new();
    fixture.setup.scripted("acme", "fast", FINE, json!({})).await;
    let budget = Budget { tokens: Some(1), cost_picos: None, warn_at: 0.8 };
    fixture.setup.store.put_budget(&Scope::All, &tenant("acme"), Some(budget)).await.unwrap();
    fixture.setup.inference.clear_cache();
    assert_eq!(code_of(&fixture, "fast", &json!({})).await, "OVER_BUDGET");
    assert_eq!(fixture.setup.reserved("acme").await, (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_wrong_value_is_an_invalid_request_that_names_the_field() {
    let fixture = WorkerFixture::new();
    fixture.setup.scripted("acme", "fast", FINE, json!({})).await;
    let inbox = fixture.inbox("acme", "r").await;
    fixture.send("acme", with_reply_queue("r-1", "fast", &json!({ "max_tokens": -1 }))).await;
    fixture.work().await;
    let reply = next_reply(&inbox).await;
    let ReplyBody::Error(failure) = &reply.body else { panic!("{reply:?}") };
    assert_eq!(failure.code.as_str(), "INVALID_REQUEST");
    assert!(failure.message.contains("max_tokens"), "{}", failure.message);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_nobody_speaks_is_refused() {
    let fixture = WorkerFixture::new();
    fixture.setup.scripted("acme", "fast", FINE, json!({})).await;
    assert_eq!(code_of(&fixture, "fast", &json!({ "version": "2.0" })).await, "INVALID_REQUEST");
    assert_eq!(code_of(&fixture, "fast", &json!({ "version": "1.7", "new": [1] })).await, "fine");
}
