use std::time::Duration;

use longshore::accounts::{ProfileChange, Profiles, PutProfile};
use longshore::{ProfileName, Scope};
use longshore_ai::{Code, Profile, ProviderName};
use serde_json::json;

use super::fixture::{InferenceFixture, request, tenant};

const FINE: &str = "[[answer]]\nreply = 'fine'";

#[tokio::test(start_paused = true)]
async fn a_tenant_asks_by_its_own_profile() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "fast", FINE, json!({})).await;
    let outcome = fixture.ask("acme", "fast", "hi").await;
    assert_eq!(outcome.result.unwrap().text, "fine");
}

#[tokio::test(start_paused = true)]
async fn another_tenants_profile_does_not_exist() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "fast", FINE, json!({})).await;
    // Once with an empty cache, once after its owner has used it.
    for _ in 0..2 {
        let error = fixture.ask("evil", "fast", "hi").await.result.unwrap_err();
        assert_eq!(error.code, Code::ProfileNotFound);
        fixture.ask("acme", "fast", "hi").await.result.unwrap();
    }
}

/// Suspends or resumes acme's profile `fast`. The cache is not notified.
async fn suspend(fixture: &InferenceFixture, suspended: bool) {
    let put = PutProfile {
        tenant: tenant("acme"),
        name: ProfileName::new("fast").unwrap(),
        body: None,
        suspended: Some(suspended),
        expected: None,
    };
    fixture.store.change_profile(&Scope::All, ProfileChange::Put(put)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_remembered_of_a_profile_is_forgotten_when_the_store_tells_of_a_change() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "fast", FINE, json!({})).await;
    let asking = async {
        // The listener starts now.
        tokio::task::yield_now().await;
        fixture.ask("acme", "fast", "before").await.result.unwrap();
        suspend(&fixture, true).await;
        // Long before the cache expires.
        tokio::time::sleep(Duration::from_secs(2)).await;
        fixture.ask("acme", "fast", "after").await.result.unwrap_err().code
    };
    let code = tokio::select! {
        biased;
        ended = fixture.inference.watch_changes(&*fixture.store) => panic!("{ended:?}"),
        code = asking => code,
    };
    assert_eq!(code, Code::ProfileDisabled);
}

#[tokio::test(start_paused = true)]
async fn what_is_remembered_of_a_profile_expires_where_nobody_hears_of_changes() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "fast", FINE, json!({})).await;
    fixture.ask("acme", "fast", "before").await.result.unwrap();
    suspend(&fixture, true).await;
    fixture.ask("acme", "fast", "still believed").await.result.unwrap();
    tokio::time::sleep(Duration::from_secs(31)).await;
    let error = fixture.ask("acme", "fast", "after").await.result.unwrap_err();
    assert_eq!(error.code, Code::ProfileDisabled);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_lent_is_not_taken_elsewhere() {
    let fixture = InferenceFixture::new();
    let house = json!({ "template": true, "provider": "openai", "model": "m", "key": "house" });
    fixture.profile("default", "house", house).await;
    let own = json!({ "extends": "house", "endpoint": "http://127.0.0.1:9" });
    fixture.profile("acme", "thief", own).await;
    let error = fixture.ask("acme", "thief", "hi").await.result.unwrap_err();
    assert!(error.message.contains("lent by a template"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_a_template_lends_costs_what_the_template_says() {
    let fixture = InferenceFixture::new();
    let priced = json!({ "template": true, "prices": { "input": 1, "output": 10 } });
    fixture.profile("default", "prices", priced).await;
    let house = json!({
        "template": true, "extends": "prices", "provider": "scripted", "model": "m", "script": FINE,
    });
    fixture.profile("default", "house", house).await;
    let own = json!({ "extends": "house", "prices": { "input": 0, "output": 0 } });
    fixture.profile("acme", "cheap", own).await;
    let error = fixture.ask("acme", "cheap", "hi").await.result.unwrap_err();
    assert!(error.message.contains("at the template's prices"), "{error}");
    // Templates of the default tenant extend its own templates, even if other tenants have some of
    // the same name.
    let free = json!({ "template": true, "prices": { "input": 0, "output": 0 } });
    fixture.profile("acme", "prices", free).await;
    fixture.profile("acme", "fair", json!({ "extends": "house" })).await;
    let outcome = fixture.ask("acme", "fair", "12345678").await;
    assert_eq!(outcome.cost_picos, 2 * 1_000_000 + 10_000_000);
}

#[tokio::test(start_paused = true)]
async fn a_suspended_profile_says_so_and_works_again_when_resumed() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "fast", FINE, json!({})).await;
    for suspended in [true, false] {
        suspend(&fixture, suspended).await;
        fixture.inference.clear_cache();
        let result = fixture.ask("acme", "fast", "hi").await.result;
        match suspended {
            true => assert_eq!(result.unwrap_err().code, Code::ProfileDisabled),
            false => assert!(result.is_ok()),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_profile_may_extend_a_template_of_its_own_tenant_or_of_the_house() {
    let fixture = InferenceFixture::new();
    let house = json!({
        "template": true, "provider": "scripted", "model": "m", "models": { "own": {} }, "script": FINE,
    });
    fixture.profile("default", "house", house).await;
    fixture.profile("acme", "fast", json!({ "extends": "house", "model": "own" })).await;
    let answer = fixture.ask("acme", "fast", "hi").await.result.unwrap();
    assert_eq!((answer.text.as_str(), answer.model.as_str()), ("fine", "own"));
    // A template itself cannot be asked, and a profile cannot be extended.
    assert_eq!(fixture.ask("default", "house", "hi").await.result.unwrap_err().code, Code::ProfileNotFound);
    fixture.profile("acme", "upon", json!({ "extends": "fast" })).await;
    assert_eq!(fixture.ask("acme", "upon", "hi").await.result.unwrap_err().code, Code::Internal);
}

#[tokio::test(start_paused = true)]
async fn profiles_that_extend_each_other_are_an_error_and_not_an_endless_loop() {
    let fixture = InferenceFixture::new();
    fixture.profile("acme", "a", json!({ "template": true, "extends": "b" })).await;
    fixture.profile("acme", "b", json!({ "template": true, "extends": "a" })).await;
    fixture.profile("acme", "c", json!({ "extends": "a" })).await;
    let error = fixture.ask("acme", "c", "hi").await.result.unwrap_err();
    assert!(error.message.contains("extends itself"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn without_a_name_the_tenants_default_is_asked() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "fast", FINE, json!({})).await;
    let mut nameless = request("acme", "fast", "hi");
    nameless.profile = None;
    let error = fixture.inference.ask(&nameless, None).await.result.unwrap_err();
    assert_eq!(error.code, Code::ProfileNotFound);
    fixture.profile("acme", ".tenant", json!({ "default": "fast" })).await;
    assert_eq!(fixture.inference.ask(&nameless, None).await.result.unwrap().text, "fine");
}

#[tokio::test(start_paused = true)]
async fn a_profile_that_is_written_elsewhere_is_in_the_books_by_its_name() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "spare", FINE, json!({})).await;
    let script = "[[answer]]\nerror = 'PROVIDER_ERROR'";
    let written = Profile {
        script: Some(script.to_owned()),
        fallback: vec!["spare".to_owned()],
        ..Profile::new("own", ProviderName::Scripted)
    };
    let outcome = fixture.inference.ask_inline(&written, &request("acme", "fast", "hi")).await;
    let asked: Vec<&str> = outcome.records.iter().map(|one| one.call.profile.as_str()).collect();
    assert_eq!(asked, ["own", "spare"], "its fallbacks are the tenant's own");
    assert_eq!(outcome.result.unwrap().text, "fine");
    let unnamed = Profile { name: "no name".to_owned(), ..written };
    let outcome = fixture.inference.ask_inline(&unnamed, &request("acme", "fast", "hi")).await;
    assert_eq!(outcome.result.unwrap_err().code, Code::Internal);
}

#[tokio::test]
async fn a_model_by_a_wildcard_is_asked_at_a_known_price_only() {
    let fixture = InferenceFixture::new();
    let body = json!({ "provider": "openai", "model": "gpt-5", "models": { "*": {} } });
    fixture.profile("acme", "any", body).await;
    fixture.inference.override_provider(ProfileName::new("any").unwrap(), std::sync::Arc::new(Counted));
    let mut asked = request("acme", "any", "hi");
    for (model, cost) in [("gpt-5", 11_250_000), ("gpt-5-mini", 2_250_000)] {
        asked.question.model = Some(model.to_owned());
        assert_eq!(fixture.inference.ask(&asked, None).await.cost_picos, cost, "{model}");
    }
    asked.question.model = Some("gpt-99".to_owned());
    let error = fixture.inference.ask(&asked, None).await.result.unwrap_err();
    assert_eq!(error.code, Code::InvalidRequest);
    assert!(error.message.contains("no price is known of model `gpt-99`"), "{error}");
    // A newer table counts as soon as it is stored.
    let newer =
        json!({ "date": "2999-01-01", "models": { "openai": { "gpt-99": { "input": 1, "output": 2 } } } });
    fixture.profile("default", longshore_ai::PRICE_TABLE, newer).await;
    assert_eq!(fixture.inference.ask(&asked, None).await.cost_picos, 3_000_000);
}

/// A token in, and one out.
struct Counted;

#[async_trait::async_trait]
impl longshore_ai::Provider for Counted {
    async fn ask(&self, _: &longshore_ai::Question) -> Result<longshore_ai::Answer, longshore_ai::AskError> {
        Ok(longshore_ai::Answer { text: "x".into(), tokens_in: 1, tokens_out: 1, ..Default::default() })
    }
}
