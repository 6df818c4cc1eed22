//! Permits over HTTP: leases with fences that end by themselves, and are given back.

use longshore::PoolName;
use longshore::ledger::Role;
use longshore_web::Lock;
use serde_json::{Value, json};

use crate::kit::Site;

async fn acquire(site: &Site, query: &str, body: Value, token: &str) -> crate::kit::Told {
    let path = format!("/pools/db/permits{query}");
    site.ask("POST", &path, Some(token), Some(body)).await
}

async fn site() -> (Site, String) {
    let site = Site::in_memory(Lock::Always);
    site.permits.resize(&PoolName::new("db").unwrap(), 2).await.unwrap();
    let token = site.token("acme", Role::Submit).await;
    (site, token)
}

#[tokio::test]
async fn permits_are_given_until_there_are_none_and_again_when_one_comes_back() {
    let (site, token) = site().await;
    let first = acquire(&site, "", json!({ "owner": "import" }), &token).await.good();
    let second = acquire(&site, "", json!({}), &token).await.good();
    assert!(second["fence"].as_u64() > first["fence"].as_u64(), "{first} {second}");
    let told = acquire(&site, "", json!({}), &token).await;
    assert_eq!((told.status.as_u16(), &told.headers["retry-after"]), (429, &"1".parse().unwrap()));
    let told = acquire(&site, "?wait=1", json!({}), &token).await;
    assert_eq!(told.status.as_u16(), 429, "{}", told.text);
    let id = first["permit"].as_str().unwrap().to_owned();
    let release = format!("/pools/db/permits/{id}/release");
    for _ in 0..2 {
        assert_eq!(site.post(&release, Some(&token)).await.good()["held"], false);
    }
    acquire(&site, "?wait=60", json!({}), &token).await.good();
    let told = site.post(&format!("/pools/db/permits/{id}/extend"), Some(&token)).await;
    assert_eq!(told.status.as_u16(), 409, "what was given back is not extended: {}", told.text);
    let id = second["permit"].as_str().unwrap();
    let kept = site.post(&format!("/pools/db/permits/{id}/extend"), Some(&token)).await.good();
    assert_eq!(kept["held"], true);
    let admin = site.token("ops", Role::Admin).await;
    let pools = site.get("/pools", Some(&admin)).await;
    assert_eq!(
        (&pools["items"][0]["in_use"], &pools["items"][0]["timeouts"]),
        (&2.into(), &1.into())
    );
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
    // Who waits has it when the first lease has run out, without anybody's release.
    let waited = acquire(&site, "?wait=60", json!({}), &token).await.good();
    assert_eq!(waited["pool"], "db");
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
        let told = acquire(&site, "", body.clone(), &token).await;
        assert_eq!(told.status.as_u16(), status, "{body}: {}", told.text);
        assert!(told.text.contains(words), "{body}: {}", told.text);
    }
    let told = site.ask("POST", "/pools/unknown/permits", Some(&token), Some(json!({}))).await;
    assert_eq!(told.status.as_u16(), 404, "asking makes no pool: {}", told.text);
    let reader = site.token("acme", Role::Read).await;
    let told = acquire(&site, "", json!({}), &reader).await;
    assert_eq!(told.status.as_u16(), 403, "{}", told.text);
}
