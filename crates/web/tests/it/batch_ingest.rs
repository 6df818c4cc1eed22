//! Batches over HTTP: chunk by chunk, without gaps or repeats.

use axum::body::Body;
use axum::http::Request;
use longshore::accounts::Role;
use longshore::store::{Capacity, QueueChange, TenantChange, UnitFilter};
use longshore::{BatchId, QueueName, Scope};
use longshore_web::AuthMode;
use serde_json::{Value, json};

use crate::fixture::{TestResponse, TestSite, tenant};

fn units(from: u32, to: u32) -> String {
    (from..to).map(|n| json!({ "kind": "k", "payload": n }).to_string() + "\n").collect()
}

async fn add(site: &TestSite, query: &str, body: String, token: Option<&str>) -> TestResponse {
    let mut request =
        Request::post(format!("/api/v1/batches/nightly/units?{query}")).header("host", "localhost");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    site.send(request.body(Body::from(body)).unwrap()).await
}

async fn open(site: &TestSite, token: Option<&str>, more: Value) -> TestResponse {
    let mut batch = json!({ "id": "nightly", "type": "orders" });
    batch.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    site.ask("POST", "/batches", token, Some(batch)).await
}

#[tokio::test]
async fn a_batch_is_opened_filled_without_gap_or_repeat_and_sealed() {
    for site in TestSite::everywhere(AuthMode::NoAuth).await {
        let response =
            open(&site, None, json!({ "threshold": { "limit": { "percent": 5.0 }, "then": "fail" } })).await;
        assert_eq!((response.status.as_u16(), &response.json()["status"]), (201, &json!("created")));
        let response = add(&site, "next=2", units(0, 2), None).await.good();
        assert_eq!((&response["created"], &response["cursor"]), (&json!(2), &json!("2")));
        // A repeat after a lost response returns the batch's cursor.
        let again = add(&site, "next=2", units(0, 2), None).await;
        assert_eq!((again.status.as_u16(), &again.json()["so_far"]["cursor"]), (409, &json!("2")));
        let found = open(&site, None, json!({})).await.good();
        assert_eq!((&found["status"], &found["batch"]["cursor"]), (&json!("existing"), &json!("2")));
        add(&site, "cursor=2&next=5", units(2, 5), None).await.good();
        let sealed = site.post("/batches/nightly/seal", None).await.good();
        assert_eq!((&sealed["sealed"], &sealed["counts"]["ready"]), (&json!(true), &json!(5)));
        let late = add(&site, "cursor=5&next=6", units(5, 6), None).await;
        assert_eq!(late.status.as_u16(), 409, "{}", late.text);
        let filter = UnitFilter { batch: Some(BatchId::new("nightly").unwrap()), ..UnitFilter::default() };
        let page = site.store.units(&Scope::All, &filter, None, 100).await.unwrap();
        assert_eq!(page.items.len(), 5);
    }
}

#[tokio::test]
async fn a_chunk_with_a_bad_line_or_without_room_stays_out_as_a_whole() {
    for site in TestSite::everywhere(AuthMode::NoAuth).await {
        open(&site, None, json!({})).await.good();
        for (query, body, words) in [
            ("next=3", units(0, 2) + "{\"kind\": 7}\n", "line 3"),
            ("next=", units(0, 2), "`next`"),
            ("cursor=1", units(0, 2), "`next`"),
        ] {
            let response = add(&site, query, body, None).await;
            assert_eq!(response.status.as_u16(), 400, "{}", response.text);
            assert!(response.text.contains(words), "{}", response.text);
        }
        let still = add(&site, "cursor=1&next=1", units(0, 2), None).await;
        assert_eq!(still.status.as_u16(), 409, "{}", still.text);
        let most = add(&site, "next=10001", units(0, 10_001), None).await;
        assert_eq!(most.status.as_u16(), 413, "{}", most.text);
        let room = Capacity { units: Some(3), bytes: None };
        let change = QueueChange { capacity: Some(room), ..QueueChange::default() };
        let queue = QueueName::default();
        site.store.change_queue(&Scope::All, &queue, change).await.unwrap();
        let full = add(&site, "next=4", units(0, 4), None).await;
        assert_eq!((full.status.as_u16(), full.headers.contains_key("retry-after")), (429, true));
        let batch = site.get("/batches/nightly", None).await;
        assert_eq!((&batch["cursor"], &batch["counts"]["ready"]), (&json!(""), &json!(0)));
        add(&site, "next=3", units(0, 3), None).await.good();
    }
}

#[tokio::test]
async fn a_misspelt_member_of_a_batch_is_named() {
    let site = TestSite::in_memory(AuthMode::NoAuth);
    let limit = json!({ "percent": 5.0 });
    for (more, words) in [
        (json!({ "threshold": { "limit": limit, "then": "fail", "than": 1 } }), "unknown field `than`"),
        (json!({ "callback": { "queue": "q", "kind": "k", "date": 1 } }), "unknown field `date`"),
    ] {
        let response = open(&site, None, more).await;
        assert_eq!(response.status.as_u16(), 400, "{}", response.text);
        assert!(response.text.contains(words), "{}", response.text);
    }
    let data = json!({ "any": [{ "thing": 1.0 }, null] });
    let callback = json!({ "queue": "q", "kind": "k", "data": data });
    let opened = open(&site, None, json!({ "callback": callback })).await.good();
    assert_eq!(opened["batch"]["callback"], callback);
}

#[tokio::test]
async fn a_suspended_tenant_opens_fills_and_seals_no_batch() {
    let site = TestSite::in_memory(AuthMode::TokenRequired);
    let token = site.token("acme", Role::Submit).await;
    open(&site, Some(&token), json!({})).await.good();
    let change = TenantChange { suspended: Some(true), ..TenantChange::default() };
    site.store.put_tenant(&Scope::All, &tenant("acme"), change).await.unwrap();
    let unit = json!({ "kind": "k" });
    for response in [
        site.ask("POST", "/units", Some(&token), Some(unit)).await,
        open(&site, Some(&token), json!({ "id": "weekly" })).await,
        add(&site, "next=1", units(0, 1), Some(&token)).await,
        site.post("/batches/nightly/seal", Some(&token)).await,
    ] {
        assert_eq!(response.status.as_u16(), 403, "{}", response.text);
        assert_eq!(response.json()["type"], "urn:longshore:problem:suspended");
        assert_eq!(response.json()["refusal"], json!({ "suspended": "acme" }));
    }
    let found = open(&site, Some(&token), json!({})).await.good();
    assert_eq!((&found["status"], &found["batch"]["sealed"]), (&json!("existing"), &json!(false)));
}

#[tokio::test]
async fn a_batch_is_filled_by_its_own_tenant_only() {
    for site in TestSite::everywhere(AuthMode::TokenRequired).await {
        let own = site.token("acme", Role::Submit).await;
        let others = [site.token("other", Role::Submit).await, site.token("other", Role::Admin).await];
        open(&site, Some(&own), json!({})).await.good();
        for other in &others {
            let response = add(&site, "next=1", units(0, 1), Some(other)).await;
            assert_eq!(response.status.as_u16(), 404, "{}", response.text);
            assert_eq!(site.post("/batches/nightly/seal", Some(other)).await.status.as_u16(), 404);
        }
        let response = open(&site, Some(&others[0]), json!({})).await.good();
        assert_eq!(response["batch"]["id"], "other/nightly", "each tenant has its own names");
        let reads = site.token("acme", Role::Read).await;
        assert_eq!(add(&site, "next=1", units(0, 1), Some(&reads)).await.status.as_u16(), 403);
        add(&site, "next=1", units(0, 1), Some(&own)).await.good();
    }
}
