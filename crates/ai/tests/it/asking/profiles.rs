use std::time::Duration;

use longshore::ledger::{Profiles, PutProfile};
use longshore::{ProfileName, Scope};
use longshore_ai::{Code, Profile, ProviderName};
use serde_json::json;

use super::rig::{Rig, errand, tenant};

const FINE: &str = "[[answer]]\nreply = 'fine'";

#[tokio::test(start_paused = true)]
async fn a_tenant_asks_by_its_own_profile() {
    let rig = Rig::new();
    rig.scripted("acme", "fast", FINE, json!({})).await;
    let settled = rig.ask("acme", "fast", "hi").await;
    assert_eq!(settled.result.unwrap().text, "fine");
}

#[tokio::test(start_paused = true)]
async fn another_tenants_profile_does_not_exist() {
    let rig = Rig::new();
    rig.scripted("acme", "fast", FINE, json!({})).await;
    // Once with nothing remembered, once after its owner has used it.
    for _ in 0..2 {
        let error = rig.ask("evil", "fast", "hi").await.result.unwrap_err();
        assert_eq!(error.code, Code::ProfileNotFound);
        rig.ask("acme", "fast", "hi").await.result.unwrap();
    }
}

/// Suspends acme's profile `fast`, or lets it be used again. Nobody tells the desk.
async fn suspend(rig: &Rig, suspended: bool) {
    let put = PutProfile {
        tenant: tenant("acme"),
        name: ProfileName::new("fast").unwrap(),
        body: None,
        suspended: Some(suspended),
        expected: None,
    };
    rig.store.put_profile(&Scope::All, put).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_remembered_of_a_profile_is_forgotten_when_the_store_tells_of_a_change() {
    let rig = Rig::new();
    rig.scripted("acme", "fast", FINE, json!({})).await;
    let asking = async {
        // It listens from now on.
        tokio::task::yield_now().await;
        rig.ask("acme", "fast", "before").await.result.unwrap();
        suspend(&rig, true).await;
        // Long before it would be read anew by itself.
        tokio::time::sleep(Duration::from_secs(2)).await;
        rig.ask("acme", "fast", "after").await.result.unwrap_err().code
    };
    let code = tokio::select! {
        biased;
        ended = rig.desk.hear_of_changes(&*rig.store) => panic!("{ended:?}"),
        code = asking => code,
    };
    assert_eq!(code, Code::ProfileDisabled);
}

#[tokio::test(start_paused = true)]
async fn what_is_remembered_of_a_profile_expires_where_nobody_hears_of_changes() {
    let rig = Rig::new();
    rig.scripted("acme", "fast", FINE, json!({})).await;
    rig.ask("acme", "fast", "before").await.result.unwrap();
    suspend(&rig, true).await;
    rig.ask("acme", "fast", "still believed").await.result.unwrap();
    tokio::time::sleep(Duration::from_secs(31)).await;
    let error = rig.ask("acme", "fast", "after").await.result.unwrap_err();
    assert_eq!(error.code, Code::ProfileDisabled);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_lent_is_not_taken_elsewhere() {
    let rig = Rig::new();
    let house = json!({ "template": true, "provider": "openai", "model": "m", "key": "house" });
    rig.profile("default", "house", house).await;
    let own = json!({ "extends": "house", "endpoint": "http://127.0.0.1:9" });
    rig.profile("acme", "thief", own).await;
    let error = rig.ask("acme", "thief", "hi").await.result.unwrap_err();
    assert!(error.message.contains("lent by a template"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_a_template_lends_costs_what_the_template_says() {
    let rig = Rig::new();
    let priced = json!({ "template": true, "prices": { "input": 1, "output": 10 } });
    rig.profile("default", "prices", priced).await;
    let house = json!({
        "template": true, "extends": "prices", "provider": "scripted", "model": "m", "script": FINE,
    });
    rig.profile("default", "house", house).await;
    let own = json!({ "extends": "house", "prices": { "input": 0, "output": 0 } });
    rig.profile("acme", "cheap", own).await;
    let error = rig.ask("acme", "cheap", "hi").await.result.unwrap_err();
    assert!(error.message.contains("at the template's prices"), "{error}");
    // What the house's template extends is the house's, whatever others call theirs.
    let free = json!({ "template": true, "prices": { "input": 0, "output": 0 } });
    rig.profile("acme", "prices", free).await;
    rig.profile("acme", "fair", json!({ "extends": "house" })).await;
    let settled = rig.ask("acme", "fair", "12345678").await;
    assert_eq!(settled.cost_picos, 2 * 1_000_000 + 10_000_000);
}

#[tokio::test(start_paused = true)]
async fn a_suspended_profile_says_so_and_works_again_when_resumed() {
    let rig = Rig::new();
    rig.scripted("acme", "fast", FINE, json!({})).await;
    for suspended in [true, false] {
        suspend(&rig, suspended).await;
        rig.desk.clear();
        let result = rig.ask("acme", "fast", "hi").await.result;
        match suspended {
            true => assert_eq!(result.unwrap_err().code, Code::ProfileDisabled),
            false => assert!(result.is_ok()),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_profile_may_extend_a_template_of_its_own_tenant_or_of_the_house() {
    let rig = Rig::new();
    let house = json!({ "template": true, "provider": "scripted", "model": "m", "script": FINE });
    rig.profile("default", "house", house).await;
    rig.profile("acme", "fast", json!({ "extends": "house", "model": "own" })).await;
    let answer = rig.ask("acme", "fast", "hi").await.result.unwrap();
    assert_eq!((answer.text.as_str(), answer.model.as_str()), ("fine", "own"));
    // A template itself cannot be asked, and a profile is no template.
    assert_eq!(
        rig.ask("default", "house", "hi").await.result.unwrap_err().code,
        Code::ProfileNotFound
    );
    rig.profile("acme", "upon", json!({ "extends": "fast" })).await;
    assert_eq!(rig.ask("acme", "upon", "hi").await.result.unwrap_err().code, Code::Internal);
}

#[tokio::test(start_paused = true)]
async fn profiles_that_extend_each_other_are_an_error_and_not_an_endless_loop() {
    let rig = Rig::new();
    rig.profile("acme", "a", json!({ "template": true, "extends": "b" })).await;
    rig.profile("acme", "b", json!({ "template": true, "extends": "a" })).await;
    rig.profile("acme", "c", json!({ "extends": "a" })).await;
    let error = rig.ask("acme", "c", "hi").await.result.unwrap_err();
    assert!(error.message.contains("extends itself"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn without_a_name_the_tenants_default_is_asked() {
    let rig = Rig::new();
    rig.scripted("acme", "fast", FINE, json!({})).await;
    let mut nameless = errand("acme", "fast", "hi");
    nameless.profile = None;
    let error = rig.desk.ask(&nameless, None).await.result.unwrap_err();
    assert_eq!(error.code, Code::ProfileNotFound);
    rig.profile("acme", ".tenant", json!({ "default": "fast" })).await;
    assert_eq!(rig.desk.ask(&nameless, None).await.result.unwrap().text, "fine");
}

#[tokio::test(start_paused = true)]
async fn a_profile_that_is_written_elsewhere_is_in_the_books_by_its_name() {
    let rig = Rig::new();
    rig.scripted("acme", "spare", FINE, json!({})).await;
    let script = "[[answer]]\nerror = 'PROVIDER_ERROR'";
    let written = Profile {
        script: Some(script.to_owned()),
        fallback: vec!["spare".to_owned()],
        ..Profile::new("own", ProviderName::Scripted)
    };
    let settled = rig.desk.ask_by(&written, &errand("acme", "fast", "hi")).await;
    let asked: Vec<&str> = settled.records.iter().map(|one| one.call.profile.as_str()).collect();
    assert_eq!(asked, ["own", "spare"], "its fallbacks are the tenant's own");
    assert_eq!(settled.result.unwrap().text, "fine");
    let unnamed = Profile { name: "no name".to_owned(), ..written };
    let settled = rig.desk.ask_by(&unnamed, &errand("acme", "fast", "hi")).await;
    assert_eq!(settled.result.unwrap_err().code, Code::Internal);
}
