use longshore::{BatchId, UnitState};
use serde_json::json;

use super::fixture::{WorkerFixture, code_or_text, is_empty, next_reply, request, with_reply_queue};

const FINE: &str = "[[answer]]\nreply = 'fine'";

#[tokio::test(start_paused = true)]
async fn what_cannot_be_parsed_is_answered_where_it_says_where_to() {
    let fixture = WorkerFixture::new();
    let inbox = fixture.inbox("acme", "r").await;
    let whole = with_reply_queue("r-1", "fast", &json!({}));
    let unterminated = r#"{"version":"1.0","request_id":"r-1","customer":"acme",
        "reply_queue":{"library":"ACME","name":"r"},"prompt":"#;
    for broken in [unterminated.to_owned(), whole.replace("\"profile_ref\":\"fast\"", "\"profile_ref\":7")] {
        let id = fixture.send("acme", broken).await;
        fixture.work().await;
        let reply = next_reply(&inbox).await;
        assert_eq!(code_or_text(&reply), "INVALID_REQUEST");
        assert_eq!(reply.header.request_id.as_deref(), Some("r-1"));
        assert_eq!(fixture.unit(id).await.state, UnitState::Done);
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_parsed_is_answered_in_the_units_result_without_a_reply_queue() {
    let fixture = WorkerFixture::new();
    for broken in ["", "{", "[]", "\u{0}", "{\"version\":\"1.0\"}"] {
        let id = fixture.send("acme", broken).await;
        fixture.work().await;
        let (code, words) = fixture.error_reply(id).await;
        assert_eq!(code, "INVALID_REQUEST", "{broken:?}");
        assert!(!words.is_empty());
    }
    assert!(fixture.call_records().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_schema_with_a_typing_error_is_refused_before_a_model_is_asked() {
    let fixture = WorkerFixture::new();
    fixture.setup.scripted("acme", "fast", FINE, json!({})).await;
    let schema = json!({ "response_schema": { "type": "objec" } });
    let id = fixture.send("acme", request("r-1", "fast", &schema).to_string()).await;
    fixture.work().await;
    let (code, message) = fixture.error_reply(id).await;
    assert_eq!(code, "INVALID_REQUEST");
    assert!(message.starts_with("in `response_schema`, at /type: \"objec\" is no type"), "{message}");
    assert!(fixture.call_records().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn another_tenants_library_is_refused_and_hears_nothing() {
    let fixture = WorkerFixture::new();
    fixture.setup.scripted("acme", "fast", FINE, json!({})).await;
    let theirs = fixture.inbox("evil", "r").await;
    for library in ["EVIL_5DTA", "evil", "ACME_EVIL", "../evil"] {
        let to = json!({ "reply_queue": { "library": library, "name": "r" } });
        let id = fixture.send("acme", request(library, "fast", &to).to_string()).await;
        fixture.work().await;
        let (code, words) = fixture.error_reply(id).await;
        assert_eq!(code, "INVALID_REQUEST", "{library}");
        assert!(words.contains("reply_queue"), "{words}");
    }
    assert!(is_empty(&theirs).await);
    assert!(fixture.call_records().await.is_empty(), "no provider was asked");
}

#[tokio::test(start_paused = true)]
async fn a_call_is_recorded_with_a_batch_of_its_own_tenant_only() {
    let fixture = WorkerFixture::new();
    fixture.setup.scripted("acme", "fast", FINE, json!({})).await;
    let send = async |batch: &str| {
        fixture.send("acme", request(batch, "fast", &json!({ "batch": batch })).to_string()).await
    };
    let theirs = send("evil/nightly").await;
    fixture.work().await;
    let (code, words) = fixture.error_reply(theirs).await;
    assert_eq!(code, "INVALID_REQUEST");
    assert!(words.contains("batch `evil/nightly` is not tenant `acme`'s"), "{words}");
    assert!(fixture.call_records().await.is_empty(), "no provider was asked");
    for own in ["nightly", "acme/nightly"] {
        send(own).await;
        fixture.work().await;
    }
    let batches: Vec<_> = fixture.setup.calls().await.into_iter().map(|call| call.call.batch).collect();
    let own = Some(BatchId::new("acme/nightly").unwrap());
    assert_eq!(batches, [own.clone(), own], "without an owner the name is the tenant's too");
}

#[tokio::test(start_paused = true)]
async fn nobody_asks_in_another_customers_name() {
    let fixture = WorkerFixture::new();
    fixture.setup.scripted("acme", "fast", FINE, json!({})).await;
    let (ours, theirs) = (fixture.inbox("acme", "r").await, fixture.inbox("evil", "r").await);
    // The unit belongs to evil, the request and its reply queue to acme.
    let id = fixture.send("evil", with_reply_queue("r-1", "fast", &json!({}))).await;
    fixture.work().await;
    let (code, words) = fixture.error_reply(id).await;
    assert_eq!(code, "INVALID_REQUEST");
    assert!(words.contains("customer `acme` is not tenant `evil`"), "{words}");
    assert!(is_empty(&ours).await && is_empty(&theirs).await);
    // In its own queue it gets the error.
    let to = json!({ "reply_queue": { "library": "EVIL", "name": "r" } });
    fixture.send("evil", request("r-2", "fast", &to).to_string()).await;
    fixture.work().await;
    assert_eq!(code_or_text(&next_reply(&theirs).await), "INVALID_REQUEST");
    assert!(is_empty(&ours).await);
    assert!(fixture.call_records().await.is_empty());
}
