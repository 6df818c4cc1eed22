//! Mutations over HTTP take effect once, and are audited.

use axum::body::Body;
use axum::http::Request;
use longshore::accounts::Role;
use longshore::store::{Capacity, FinishRequest, QueueChange};
use longshore::{Outcome, QueueName, Scope, UnitState};
use longshore_web::endpoints::ENDPOINTS;
use longshore_web::{AuthMode, ConnectionLimits};
use serde_json::{Value, json};

use crate::fixture::{TenantData, TestSite, body, good_path, path};

fn submit(key: Option<&str>, body: &Value) -> Request<Body> {
    let mut request = Request::post("/api/v1/units")
        .header("host", "localhost")
        .header("content-type", "application/json; charset=utf-8");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    request.body(Body::from(body.to_string())).unwrap()
}

#[tokio::test]
async fn a_unit_submitted_twice_with_one_key_is_one() {
    for site in TestSite::everywhere(AuthMode::NoAuth).await {
        let body = json!({ "kind": "mail", "payload": { "to": "a@example.org" }, "priority": 1 });
        let first = site.send(submit(Some("order-7"), &body)).await;
        assert_eq!((first.status.as_u16(), &first.good()["status"]), (201, &"created".into()));
        let second = site.send(submit(Some("order-7"), &body)).await;
        assert_eq!((second.status.as_u16(), &second.good()["status"]), (200, &"existing".into()));
        assert_eq!(first.good()["unit"], second.good()["unit"]);
        let other = site.send(submit(None, &body)).await.good();
        assert_ne!(first.good()["unit"], other["unit"]);
        let id = first.good()["unit"].as_str().unwrap().to_owned();
        let unit = site.get(&format!("/units/{id}"), None).await;
        assert_eq!(unit["payload"], json!({ "to": "a@example.org" }));
        assert_eq!((&unit["priority"], &unit["state"]), (&1.into(), &"ready".into()));
    }
}

#[tokio::test]
async fn the_longest_cap_key_is_accepted() {
    let site = TestSite::in_memory(AuthMode::NoAuth);
    let unit = |bytes| json!({ "kind": "k", "cap": { "key": "k".repeat(bytes), "limit": 1 } });
    let longest = site.send(submit(None, &unit(512))).await;
    assert_eq!(longest.status.as_u16(), 201, "{}", longest.text);
    assert_eq!(site.send(submit(None, &unit(513))).await.status.as_u16(), 413);
}

#[tokio::test]
async fn what_is_no_unit_is_refused_in_words() {
    let site = TestSite::in_memory(AuthMode::NoAuth);
    for (body, words) in [
        (json!({}), "missing field `kind`"),
        (json!({ "kind": "a b" }), "letters, digits"),
        (json!({ "kind": "k", "colour": "red" }), "unknown field `colour`"),
        (json!({ "kind": "k", "policy": { "max_losst": 1 } }), "unknown field `max_losst`"),
        (json!({ "kind": "k", "policy": { "retry": { "max_atempts": 1 } } }), "unknown field `max_atempts`"),
        (json!({ "kind": "k", "weight": { "slot": 2 } }), "unknown field `slot`"),
        (json!({ "kind": "k", "cap": { "key": "a", "limit": 1, "max": 1 } }), "unknown field `max`"),
        (json!({ "kind": "k", "after": { "units": [], "on_fail": "cancel" } }), "unknown field `on_fail`"),
        (json!({ "kind": "k", "priority": 10 }), "priority"),
        (json!({ "kind": "k", "weight": { "slots": 0 } }), "at least one slot"),
        (json!([1]), "the body"),
    ] {
        let response = site.send(submit(None, &body)).await;
        assert_eq!(response.status.as_u16(), 400, "{body}: {}", response.text);
        assert!(response.text.contains(words), "{body}: {}", response.text);
    }
    let others = site.send(submit(None, &json!({ "kind": "k", "queue": "acme/mail" }))).await;
    assert_eq!(others.status.as_u16(), 404, "{}", others.text);
    assert!(others.text.contains("is not tenant `default`'s"), "{}", others.text);
    let units = site.get("/units", None).await;
    assert_eq!(units["items"], json!([]));
}

#[tokio::test]
async fn a_full_queue_says_when_to_come_back() {
    let site = TestSite::in_memory(AuthMode::NoAuth);
    let queue = QueueName::new("small").unwrap();
    let capacity = Some(Capacity { units: Some(1), bytes: None });
    let change = QueueChange { capacity, ..QueueChange::default() };
    site.store.change_queue(&Scope::All, &queue, change).await.unwrap();
    let body = json!({ "kind": "k", "queue": "small" });
    assert_eq!(site.send(submit(None, &body)).await.status.as_u16(), 201);
    let response = site.send(submit(None, &body)).await;
    assert_eq!((response.status.as_u16(), &response.headers["retry-after"]), (429, &"1".parse().unwrap()));
    assert!(response.text.contains("is full"), "{}", response.text);
}

#[tokio::test]
async fn whoever_waits_hears_of_the_end() {
    let site = TestSite::in_memory(AuthMode::NoAuth);
    let data = site.populate("acme").await;
    let shown = path("/units/{unit}?wait=0", &data);
    assert_eq!(site.get(&shown, None).await["state"], "ready", "it is shown as it is");
    let waits = path("/units/{unit}?wait=60", &data);
    let (ended, cancelled) = tokio::join!(site.get(&waits, None), async {
        site.post(&path("/units/{unit}/cancel", &data), None).await.good()
    });
    assert_eq!(cancelled["changed"], 1);
    assert_eq!(ended["state"], "cancelled");
    let retried = site.post(&path("/units/{unit}/retry", &data), None).await.good();
    assert_eq!(retried["changed"], 1);
    assert_eq!(site.get(&shown, None).await["state"], "ready");
}

async fn batch(site: &TestSite, verb: &str, data: &TenantData) -> Value {
    site.post(&path(&format!("/batches/{{batch}}/{verb}"), data), None).await.good()
}

#[tokio::test]
async fn a_batch_is_paused_resumed_retried_and_cancelled() {
    for site in TestSite::everywhere(AuthMode::NoAuth).await {
        let data = site.populate("acme").await;
        let paused = batch(&site, "pause", &data).await;
        assert_eq!(paused["status"], "paused");
        assert_eq!(batch(&site, "resume", &data).await["status"], "running");
        let drained = batch(&site, "drain", &data).await;
        assert_eq!((&drained["status"], &drained["counts"]["leased"]), (&"paused".into(), &0.into()));
        assert!(drained["reason"].as_str().unwrap().starts_with("drained by"), "{drained}");
        assert_eq!(batch(&site, "resume", &data).await["status"], "running");
        let groups = site.get(&path("/batches/{batch}/failures", &data), None).await;
        assert_eq!(groups["items"][0]["count"], 1);
        assert_eq!(groups["items"][0]["message"], "acme broke");
        let failed = site.get(&path("/batches/{batch}/rows?state=failed", &data), None).await;
        assert_eq!(failed["items"].as_array().unwrap().len(), 1);
        assert_eq!(failed["items"][0]["reason"], "acme broke");
        assert_eq!(batch(&site, "retry", &data).await["counts"]["failed"], 0);
        assert_eq!(batch(&site, "cancel", &data).await["status"], "cancelled");
        let response = site.post(&path("/batches/{batch}/resume", &data), None).await;
        assert_eq!(response.status.as_u16(), 409, "{}", response.text);
    }
}

#[tokio::test]
async fn who_drains_a_batch_waits_until_nothing_of_it_runs() {
    for site in TestSite::everywhere(AuthMode::NoAuth).await {
        let data = site.populate("acme").await;
        let held = site.hold_unit("acme", &data).await;
        let now = batch(&site, "drain?wait=0", &data).await;
        assert_eq!((&now["status"], &now["counts"]["leased"]), (&"paused".into(), &1.into()));
        let (drained, ()) = tokio::join!(batch(&site, "drain?wait=60", &data), async {
            let done = FinishRequest::new(held.lease, Outcome::Done(None));
            site.store.finish(data.worker, vec![done]).await.unwrap();
        });
        assert_eq!((&drained["status"], &drained["counts"]["leased"]), (&"paused".into(), &0.into()));
        assert_eq!(drained["counts"]["done"], 1);
        // A batch that is resumed meanwhile does not become idle.
        batch(&site, "resume", &data).await;
        let _held = site.hold_unit("acme", &data).await;
        let path = path("/batches/{batch}/drain?wait=60", &data);
        let (response, ()) = tokio::join!(site.post(&path, None), async {
            while batch_status(&site, &data).await != "paused" {
                tokio::task::yield_now().await;
            }
            batch(&site, "resume", &data).await;
        });
        assert_eq!(response.status.as_u16(), 409, "{}", response.text);
    }
}

async fn batch_status(site: &TestSite, data: &TenantData) -> String {
    let batch = site.get(&path("/batches/{batch}", data), None).await;
    batch["status"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_tenant_pauses_its_lane_and_an_admin_the_queue() {
    let site = TestSite::in_memory(AuthMode::TokenRequired);
    site.populate("acme").await;
    site.populate("other").await;
    let (acme, admin) = (site.token("acme", Role::Operate).await, site.token("ops", Role::Admin).await);
    let paused = async |token: &str| {
        let lanes = site.get("/queues/shared", Some(token)).await;
        let lanes = lanes["items"].as_array().unwrap().clone();
        let flags =
            |lane: &Value| ["paused", "lane_paused", "queue_paused"].map(|of| lane[of].as_bool().unwrap());
        lanes.iter().map(flags).collect::<Vec<_>>()
    };
    let (open, lane, queue) = ([false; 3], [true, true, false], [true, false, true]);
    site.post("/queues/shared/pause", Some(&acme)).await.good();
    assert_eq!(paused(&admin).await, [lane, open]);
    site.post("/queues/shared/resume", Some(&acme)).await.good();
    site.post("/queues/shared/pause", Some(&admin)).await.good();
    assert_eq!(paused(&admin).await, [queue, queue]);
    // A tenant resumes its own lane, and not the queue that an admin paused.
    site.post("/queues/shared/resume", Some(&acme)).await.good();
    assert_eq!(paused(&acme).await, [queue]);
    let response = site.post("/queues/acme%2Fmail/pause", Some(&acme)).await.good();
    assert_eq!(response["items"][0]["paused"], true);
}

#[tokio::test]
async fn a_worker_hears_what_it_is_asked() {
    let site = TestSite::in_memory(AuthMode::NoAuth);
    let data = site.populate("acme").await;
    for (verb, order) in [("quiet", "quiet"), ("work", "work"), ("drain", "drain"), ("stop", "stop")] {
        let response = site.post(&path(&format!("/workers/{{worker}}/{verb}"), &data), None).await;
        assert_eq!(response.good()["order"], order);
        let workers = site.get("/workers", None).await;
        assert_eq!(workers["items"][0]["order"], order);
    }
}

#[tokio::test]
async fn every_change_is_written_down_with_who_asked_for_it() {
    for site in TestSite::everywhere(AuthMode::TokenRequired).await {
        let data = site.populate("acme").await;
        let token = site.token("acme", Role::Admin).await;
        let mut asked = Vec::new();
        for endpoint in ENDPOINTS.iter().filter(|one| one.is_audited()) {
            let body = body(endpoint.id, "acme");
            let response = site.ask("POST", &good_path(endpoint, &data), Some(&token), body).await;
            assert!(response.status.is_success(), "{}: {}", endpoint.id, response.text);
            asked.push(endpoint.path.rsplit('/').next().unwrap().to_owned());
        }
        let deeds = site.get("/audit?limit=1000", Some(&token)).await;
        let deeds = deeds["items"].as_array().unwrap();
        assert_eq!(deeds.len(), asked.len(), "one entry for each: {deeds:#?}");
        let unnoted: Vec<&str> =
            ENDPOINTS.iter().filter(|one| one.is_mutation() && !one.is_audited()).map(|one| one.id).collect();
        let counted_only = [
            "addToBatch",
            "submitUnit",
            "submitUnits",
            "acquirePermit",
            "extendPermit",
            "releasePermit",
            "openReplyQueue",
            "acknowledgeReplies",
            "closeReplyQueue",
        ];
        assert_eq!(unnoted, counted_only, "units, permits and replies are too many for the log");
        assert!(deeds.iter().all(|deed| deed["by"] == "acme's admin" && deed["token"].is_string()));
        assert!(deeds.iter().all(|deed| deed["action"].as_str().unwrap().contains('.')));
        assert!(!format!("{deeds:?}").contains("secret"), "the audit log contains no payload");
    }
}

#[tokio::test]
async fn what_changes_nothing_leaves_no_entry() {
    for site in TestSite::everywhere(AuthMode::TokenRequired).await {
        site.populate("acme").await;
        let token = site.token("acme", Role::Operate).await;
        let open = json!({ "id": "again" });
        for _ in 0..3 {
            site.ask("POST", "/batches", Some(&token), Some(open.clone())).await.good();
            for change in ["/batches/acme%2Fagain/seal", "/queues/shared/pause", "/queues/acme%2Fmail/pause"]
            {
                site.post(change, Some(&token)).await.good();
            }
        }
        let entries = site.get("/audit", Some(&token)).await;
        assert_eq!(entries["items"].as_array().unwrap().len(), 4, "{entries:#}");
    }
}

#[tokio::test]
async fn a_token_cannot_flood_the_audit_log() {
    let mut site = TestSite::in_memory(AuthMode::TokenRequired);
    site.populate("acme").await;
    let limits = ConnectionLimits { audited_per_minute: Some(1), ..ConnectionLimits::default() };
    site.router = site.web(AuthMode::TokenRequired).limits(limits).router();
    let (token, admin) = (site.token("acme", Role::Operate).await, site.token("acme", Role::Admin).await);
    let mut statuses = Vec::new();
    for verb in ["pause", "resume"].repeat(20) {
        let answer = site.post(&format!("/queues/shared/{verb}"), Some(&token)).await;
        statuses.push(answer.status.as_u16());
    }
    assert_eq!((statuses[9], statuses[10]), (200, 429), "{statuses:?}");
    let entries = site.ledger.audit_entries(&Scope::All, None, 100).await.unwrap();
    assert_eq!(entries.items.len(), 10);
    site.post("/queues/shared/pause", Some(&admin)).await.good();
}

#[tokio::test]
async fn what_is_refused_changes_nothing() {
    let site = TestSite::in_memory(AuthMode::TokenRequired);
    let data = site.populate("acme").await;
    let reader = site.token("acme", Role::Read).await;
    for endpoint in ENDPOINTS.iter().filter(|one| one.is_mutation()) {
        let response = site.post(&path(endpoint.path, &data), Some(&reader)).await;
        assert_eq!(response.status.as_u16(), 403, "{}", endpoint.id);
    }
    let unit = site.store.unit(&Scope::All, data.unit).await.unwrap();
    assert_eq!(unit.state, UnitState::Ready);
    assert!(site.ledger.audit_entries(&Scope::All, None, 10).await.unwrap().items.is_empty());
}
