//! Reply queues over HTTP: opened, read, acknowledged and closed by the tenant that owns them.

use longshore::accounts::Role;
use longshore::store::TenantChange;
use longshore::{Scope, UnitState};
use longshore_web::AuthMode;
use serde_json::{Value, json};

use crate::fixture::{TestSite, tenant};

async fn open(site: &TestSite, body: Value, token: &str) -> crate::fixture::TestResponse {
    site.ask("POST", "/reply-queues", Some(token), Some(body)).await
}

/// The texts of the replies that a read returns, and their ids.
async fn read(site: &TestSite, query: &str, token: &str) -> (Vec<String>, Vec<Value>) {
    let page = site.get(&format!("/reply-queues/replies/replies{query}"), Some(token)).await;
    let items = page["items"].as_array().unwrap();
    let texts = items.iter().map(|item| item["reply"]["response"].as_str().unwrap().to_owned());
    (texts.collect(), items.iter().map(|item| item["id"].clone()).collect())
}

async fn acknowledge(site: &TestSite, ids: &[Value], token: &str) -> Value {
    let path = "/reply-queues/replies/ack";
    site.ask("POST", path, Some(token), Some(json!({ "ids": ids }))).await.good()["acknowledged"].clone()
}

#[tokio::test]
async fn a_reply_is_read_until_it_is_acknowledged_and_then_the_next() {
    for site in TestSite::everywhere(AuthMode::TokenRequired).await {
        let token = site.token("acme", Role::Submit).await;
        let opened = open(&site, json!({ "queue": "replies", "ttl_seconds": 60 }), &token).await.good();
        let expected =
            json!({ "queue": "acme/replies", "reply_queue": { "library": "acme", "name": "replies" } });
        assert_eq!(opened, expected);
        assert_eq!(read(&site, "?wait=0", &token).await.0, [""; 0]);
        for text in ["one", "two", "three"] {
            site.reply("acme", text).await;
        }
        let (texts, ids) = read(&site, "?limit=2", &token).await;
        assert_eq!(texts, ["one", "two"]);
        assert_eq!(read(&site, "", &token).await.0, texts, "they are not acknowledged");
        assert_eq!(acknowledge(&site, &ids[..1], &token).await, 1);
        assert_eq!(acknowledge(&site, &ids[..1], &token).await, 0, "a repeat does no harm");
        assert_eq!(read(&site, "", &token).await.0, ["two"]);
        assert_eq!(acknowledge(&site, &ids[1..], &token).await, 1);
        assert_eq!(read(&site, "", &token).await.0, ["three"]);
        assert_eq!(site.get("/reply-queues", Some(&token)).await["items"], json!([expected]));
        site.post("/reply-queues/replies/close", Some(&token)).await.good();
        let closed = site.ask("GET", "/reply-queues/replies/replies", Some(&token), None).await;
        assert_eq!(closed.status.as_u16(), 404, "{}", closed.text);
        let page = site.store.units(&Scope::All, &Default::default(), None, 10).await.unwrap();
        let states: Vec<UnitState> = page.items.iter().map(|unit| unit.state).collect();
        assert_eq!(states, [UnitState::Cancelled, UnitState::Done, UnitState::Done]);
        assert_eq!(site.store.verify().await.unwrap(), vec![]);
    }
}

#[tokio::test]
async fn a_reader_waits_for_the_first_reply() {
    for site in TestSite::everywhere(AuthMode::TokenRequired).await {
        let token = site.token("acme", Role::Submit).await;
        open(&site, json!({ "queue": "replies" }), &token).await.good();
        let reading = read(&site, "?wait=60", &token);
        let (found, ()) = tokio::join!(reading, site.reply("acme", "late"));
        assert_eq!(found.0, ["late"]);
    }
}

#[tokio::test]
async fn a_queue_without_a_name_gets_a_new_one_and_a_name_is_open_once() {
    let site = TestSite::in_memory(AuthMode::TokenRequired);
    let token = site.token("acme", Role::Submit).await;
    let (one, two) =
        (open(&site, json!({}), &token).await.good(), open(&site, json!({}), &token).await.good());
    assert_ne!(one["queue"], two["queue"]);
    let again = open(&site, json!({ "queue": one["queue"] }), &token).await;
    assert_eq!(again.status.as_u16(), 409, "{}", again.text);
    for bad in [json!({ "ttl_seconds": 1 }), json!({ "queue": "a b" }), json!({ "colour": "red" })] {
        assert_eq!(open(&site, bad.clone(), &token).await.status.as_u16(), 400, "{bad}");
    }
}

#[tokio::test]
async fn replies_are_for_tokens_that_may_submit_and_for_tenants_that_are_not_suspended() {
    let site = TestSite::in_memory(AuthMode::TokenRequired);
    site.open_replies("acme").await;
    let reader = site.token("acme", Role::Read).await;
    let path = "/reply-queues/replies/replies";
    assert_eq!(site.ask("GET", path, Some(&reader), None).await.status.as_u16(), 403);
    let other = site.token("other", Role::Operate).await;
    for path in [path, "/reply-queues/acme%2Freplies/replies"] {
        let response = site.ask("GET", path, Some(&other), None).await;
        assert_eq!(response.status.as_u16(), 404, "{path}: {}", response.text);
    }
    let change = TenantChange { suspended: Some(true), ..TenantChange::default() };
    site.store.put_tenant(&Scope::All, &tenant("other"), change).await.unwrap();
    assert_eq!(open(&site, json!({}), &other).await.status.as_u16(), 403);
}
