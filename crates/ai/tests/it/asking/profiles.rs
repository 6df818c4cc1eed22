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

#[tokio::test(start_paused = true)]
async fn a_suspended_profile_says_so_and_works_again_when_resumed() {
    let rig = Rig::new();
    rig.scripted("acme", "fast", FINE, json!({})).await;
    for suspended in [true, false] {
        let put = PutProfile {
            tenant: tenant("acme"),
            name: ProfileName::new("fast").unwrap(),
            body: None,
            suspended: Some(suspended),
            expected: None,
        };
        rig.store.put_profile(&Scope::All, put).await.unwrap();
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
