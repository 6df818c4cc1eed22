//! Kinds that act with the operator's rights are closed to tenants' tokens, by every way in.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::Request;
use longshore::accounts::Role;
use longshore::store::{TenantChange, UnitFilter};
use longshore::{Rights, Scope};
use longshore_web::AuthMode;
use serde_json::{Value, json};

use crate::fixture::{TestResponse, TestSite, kind, tenant};

/// Sends lines of JSON.
async fn stream(site: &TestSite, path: &str, token: &str, lines: &[Value]) -> TestResponse {
    let body: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let request = Request::post(format!("/api/v1{path}")).header("host", "localhost");
    let request = request.header("authorization", format!("Bearer {token}"));
    site.send(request.body(Body::from(body)).unwrap()).await
}

fn unit(kind: &str) -> Value {
    json!({ "kind": kind, "payload": {} })
}

async fn allow(site: &TestSite, of: &str, kinds: &[&str]) {
    let kinds: BTreeSet<_> = kinds.iter().map(|name| kind(name)).collect();
    let change = TenantChange { allowed_kinds: Some(kinds), ..TenantChange::default() };
    site.store.put_tenant(&Scope::All, &tenant(of), change).await.unwrap();
}

/// The kinds and rights of all units, oldest first.
async fn sent(site: &TestSite) -> Vec<(String, Rights)> {
    let page = site.store.units(&Scope::All, &UnitFilter::default(), None, 100).await.unwrap();
    page.items.iter().rev().map(|unit| (unit.kind.to_string(), unit.rights)).collect()
}

#[track_caller]
fn is_closed(response: &TestResponse, kind: &str) {
    assert_eq!(response.status.as_u16(), 403, "{}", response.text);
    assert!(response.text.contains(&format!("kind `{kind}`")), "{}", response.text);
    assert!(response.text.contains("--allow-kind"), "{}", response.text);
}

#[tokio::test]
async fn a_tenants_token_sends_no_kind_that_acts_for_the_operator() {
    for site in TestSite::everywhere(AuthMode::TokenRequired).await {
        for of in ["acme", "default"] {
            let token = site.token(of, Role::Operate).await;
            for name in ["exec", "script", "batch.start", "batch.row", "mail.send"] {
                is_closed(&site.ask("POST", "/units", Some(&token), Some(unit(name))).await, name);
                is_closed(&stream(&site, "/units/stream", &token, &[unit(name)]).await, name);
            }
            let id = format!("{of}-batch");
            let callback = json!({ "queue": "default", "kind": "exec", "rights": "operator" });
            let open = json!({ "id": id, "callback": callback });
            is_closed(&site.ask("POST", "/batches", Some(&token), Some(open)).await, "exec");
            site.ask("POST", "/batches", Some(&token), Some(json!({ "id": id }))).await.good();
            let path = format!("/batches/{id}/units?next=1");
            is_closed(&stream(&site, &path, &token, &[unit("http"), unit("exec")]).await, "exec");
        }
        assert_eq!(sent(&site).await, []);
    }
}

#[tokio::test]
async fn other_kinds_are_open_and_an_operator_opens_the_rest_for_one_tenant() {
    for site in TestSite::everywhere(AuthMode::TokenRequired).await {
        let acme = site.token("acme", Role::Submit).await;
        let other = site.token("other", Role::Submit).await;
        let admin = site.token("acme", Role::Admin).await;
        for name in ["http", "ai", "images.resize"] {
            site.ask("POST", "/units", Some(&acme), Some(unit(name))).await.good();
        }
        site.ask("POST", "/units", Some(&admin), Some(unit("exec"))).await.good();
        allow(&site, "acme", &["exec"]).await;
        site.ask("POST", "/units", Some(&acme), Some(unit("exec"))).await.good();
        is_closed(&site.ask("POST", "/units", Some(&acme), Some(unit("script"))).await, "script");
        is_closed(&site.ask("POST", "/units", Some(&other), Some(unit("exec"))).await, "exec");
        let listed = site.get("/tenants", Some(&acme)).await;
        assert_eq!(listed["items"][0]["allowed_kinds"], json!(["exec"]));
        allow(&site, "acme", &[]).await;
        is_closed(&site.ask("POST", "/units", Some(&acme), Some(unit("exec"))).await, "exec");
        let wanted = [
            ("http", Rights::Tenant),
            ("ai", Rights::Tenant),
            ("images.resize", Rights::Tenant),
            ("exec", Rights::Operator),
            ("exec", Rights::Tenant),
        ];
        assert_eq!(sent(&site).await, wanted.map(|(kind, rights)| (kind.to_owned(), rights)));
    }
}

#[tokio::test]
async fn the_callback_of_a_tenants_batch_has_the_tenants_rights() {
    let site = TestSite::in_memory(AuthMode::TokenRequired);
    let acme = site.token("acme", Role::Submit).await;
    let callback = json!({ "queue": "default", "kind": "http", "rights": "operator" });
    let open = json!({ "id": "nightly", "callback": callback });
    site.ask("POST", "/batches", Some(&acme), Some(open)).await.good();
    site.post("/batches/nightly/seal", Some(&acme)).await.good();
    assert_eq!(sent(&site).await, [("http".to_owned(), Rights::Tenant)]);
}
