//! Permits over HTTP: leases with fences that expire or are released.

use longshore::accounts::Role;
use longshore::store::TenantChange;
use longshore::{PoolName, Scope};
use longshore_web::AuthMode;
use serde_json::{Value, json};

use crate::fixture::{TestSite, tenant};

async fn acquire(site: &TestSite, query: &str, body: Value, token: &str) -> crate::fixture::TestResponse {
    let path = format!("/pools/acme%2Fdb/permits{query}");
    site.ask("POST", &path, Some(token), Some(body)).await
}

async fn site() -> (TestSite, String) {
    let site = TestSite::in_memory(AuthMode::TokenRequired);
    site.permits.resize(&PoolName::new("acme/db").unwrap(), 2).await.unwrap();
    let token = site.token("acme", Role::Submit).await;
    (site, token)
}

#[tokio::test]
async fn permits_are_given_until_there_are_none_and_again_when_one_comes_back() {
    let (site, token) = site().await;
    let first = acquire(&site, "", json!({ "owner": "import" }), &token).await.good();
    let second = acquire(&site, "", json!({}), &token).await.good();
    assert!(second["fence"].as_u64() > first["fence"].as_u64(), "{first} {second}");
    let response = acquire(&site, "", json!({}), &token).await;
    assert_eq!((response.status.as_u16(), &response.headers["retry-after"]), (429, &"1".parse().unwrap()));
    let response = acquire(&site, "?wait=1", json!({}), &token).await;
    assert_eq!(response.status.as_u16(), 429, "{}", response.text);
    let id = first["permit"].as_str().unwrap().to_owned();
    let release = format!("/pools/acme%2Fdb/permits/{id}/release");
    for _ in 0..2 {
        assert_eq!(site.post(&release, Some(&token)).await.good()["held"], false);
    }
    acquire(&site, "?wait=60", json!({}), &token).await.good();
    let response = site.post(&format!("/pools/acme%2Fdb/permits/{id}/extend"), Some(&token)).await;
    assert_eq!(response.status.as_u16(), 409, "what was given back is not extended: {}", response.text);
    let id = second["permit"].as_str().unwrap();
    let kept = site.post(&format!("/pools/acme%2Fdb/permits/{id}/extend"), Some(&token)).await.good();
    assert_eq!(kept["held"], true);
    let admin = site.token("ops", Role::Admin).await;
    let pools = site.get("/pools", Some(&admin)).await;
    assert_eq!((&pools["items"][0]["in_use"], &pools["items"][0]["timeouts"]), (&2.into(), &1.into()));
}

#[tokio::test]
async fn a_suspended_tenant_keeps_its_permits_and_gets_no_more() {
    let (site, token) = site().await;
    let held = acquire(&site, "", json!({}), &token).await.good();
    let change = TenantChange { suspended: Some(true), ..TenantChange::default() };
    site.store.put_tenant(&Scope::All, &tenant("acme"), change).await.unwrap();
    for query in ["", "?wait=1"] {
        let response = acquire(&site, query, json!({}), &token).await;
        assert_eq!(response.status.as_u16(), 403, "{}", response.text);
        assert_eq!(response.json()["type"], "urn:longshore:problem:suspended");
    }
    let permit = format!("/pools/acme%2Fdb/permits/{}", held["permit"].as_str().unwrap());
    for action in ["extend", "release"] {
        site.post(&format!("{permit}/{action}"), Some(&token)).await.good();
    }
    let admin = site.token("ops", Role::Admin).await;
    acquire(&site, "", json!({}), &admin).await.good();
}

#[tokio::test]
async fn an_ask_that_is_repeated_is_one_permit() {
    let (site, token) = site().await;
    let id = "019a8d2e-0000-7000-8000-00000000000a";
    let first = acquire(&site, "", json!({ "id": id }), &token).await.good();
    let again = acquire(&site, "", json!({ "id": id }), &token).await.good();
    assert_eq!((&first["fence"], &first["permit"]), (&again["fence"], &json!(id)));
    acquire(&site, "", json!({}), &token).await.good();
}

#[tokio::test]
async fn a_permit_that_is_not_extended_ends_by_itself() {
    let (site, token) = site().await;
    for _ in 0..2 {
        acquire(&site, "", json!({ "ttl_seconds": 1 }), &token).await.good();
    }
    // The waiting request gets it when the first lease expires, without a release.
    let waited = acquire(&site, "?wait=60", json!({}), &token).await.good();
    assert_eq!(waited["pool"], "acme/db");
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_in_words() {
    let (site, token) = site().await;
    for (body, status, words) in [
        (json!({ "weight": 0 }), 400, "at least 1"),
        (json!({ "weight": 3 }), 400, "only 2 permits"),
        (json!({ "ttl_seconds": 0 }), 400, "from 1 to 3600"),
        (json!({ "colour": "red" }), 400, "unknown field"),
    ] {
        let response = acquire(&site, "", body.clone(), &token).await;
        assert_eq!(response.status.as_u16(), status, "{body}: {}", response.text);
        assert!(response.text.contains(words), "{body}: {}", response.text);
    }
    let response = site.ask("POST", "/pools/unknown/permits", Some(&token), Some(json!({}))).await;
    assert_eq!(response.status.as_u16(), 404, "asking makes no pool: {}", response.text);
    let reader = site.token("acme", Role::Read).await;
    let response = acquire(&site, "", json!({}), &reader).await;
    assert_eq!(response.status.as_u16(), 403, "{}", response.text);
}

#[tokio::test]
async fn a_tenant_holds_of_its_own_pools_and_of_those_that_are_shared() {
    let (site, acme) = site().await;
    for (pool, max) in [("shared", 2), ("internal", 2)] {
        site.permits.resize(&PoolName::new(pool).unwrap(), max).await.unwrap();
    }
    let other = site.token("other", Role::Operate).await;
    let ask = async |pool: &str, token: &str, body: Value| {
        let path = format!("/pools/{pool}/permits");
        site.ask("POST", &path, Some(token), Some(body)).await
    };
    for (pool, token) in [("acme%2Fdb", &other), ("internal", &other), ("internal", &acme)] {
        let response = ask(pool, token, json!({})).await;
        assert_eq!(response.status.as_u16(), 404, "{pool}: {}", response.text);
    }
    // Both tenants use the same id, and each has its own permit.
    let id = "019a8d2e-0000-7000-8000-00000000000b";
    for token in [&acme, &other] {
        assert_eq!(ask("shared", token, json!({ "id": id })).await.good()["permit"], id);
    }
    assert_eq!(ask("shared", &acme, json!({})).await.status.as_u16(), 429);
    for verb in ["extend", "release"] {
        site.post(&format!("/pools/shared/permits/{id}/{verb}"), Some(&other)).await.good();
    }
    let kept = site.post(&format!("/pools/shared/permits/{id}/extend"), Some(&acme)).await;
    assert_eq!(kept.good()["held"], true, "another's release is another's");
    let seen = site.get("/pools", Some(&other)).await;
    let seen = seen["items"].as_array().unwrap();
    assert_eq!((seen.len(), &seen[0]["pool"]), (1, &"shared".into()), "{seen:?}");
    assert_eq!((&seen[0]["in_use"], &seen[0]["masked"]), (&1.into(), &true.into()));
    assert_eq!(seen[0]["holders"], json!([]), "holders are masked");
    let own = site.get("/pools", Some(&acme)).await.to_string();
    assert!(own.contains("acme/db") && !own.contains("internal"), "{own}");
}
