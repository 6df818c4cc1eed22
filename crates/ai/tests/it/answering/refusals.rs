use longshore::UnitState;
use serde_json::json;

use super::office::{Office, answered, is_empty, next, request, said};

const FINE: &str = "[[answer]]\nreply = 'fine'";

#[tokio::test(start_paused = true)]
async fn what_cannot_be_parsed_is_answered_where_it_says_where_to() {
    let office = Office::new();
    let inbox = office.inbox("acme", "r").await;
    let whole = answered("r-1", "fast", &json!({}));
    let begun = r#"{"version":"1.0","request_id":"r-1","customer":"acme",
        "reply_queue":{"library":"ACME","name":"r"},"prompt":"#;
    for broken in [begun.to_owned(), whole.replace("\"profile_ref\":\"fast\"", "\"profile_ref\":7")]
    {
        let id = office.send("acme", broken).await;
        office.work().await;
        let reply = next(&inbox).await;
        assert_eq!(said(&reply), "INVALID_REQUEST");
        assert_eq!(reply.heading.request_id.as_deref(), Some("r-1"));
        assert_eq!(office.unit(id).await.state, UnitState::Done);
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_parsed_nor_answered_fails_with_the_reason() {
    let office = Office::new();
    for broken in ["", "{", "[]", "\u{0}", "{\"version\":\"1.0\"}"] {
        let id = office.send("acme", broken).await;
        office.work().await;
        let (code, words) = office.failure(id).await;
        assert_eq!(code, "INVALID_REQUEST", "{broken:?}");
        assert!(!words.is_empty());
        assert_eq!(office.unit(id).await.state, UnitState::Failed);
    }
    assert!(office.books().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn another_tenants_library_is_refused_and_hears_nothing() {
    let office = Office::new();
    office.rig.scripted("acme", "fast", FINE, json!({})).await;
    let theirs = office.inbox("evil", "r").await;
    for library in ["EVIL_5DTA", "evil", "ACME_EVIL", "../evil"] {
        let to = json!({ "reply_queue": { "library": library, "name": "r" } });
        let id = office.send("acme", request(library, "fast", &to).to_string()).await;
        office.work().await;
        let (code, words) = office.failure(id).await;
        assert_eq!(code, "INVALID_REQUEST", "{library}");
        assert!(words.contains("reply_queue"), "{words}");
    }
    assert!(is_empty(&theirs).await);
    assert!(office.books().await.is_empty(), "nobody was asked");
}

#[tokio::test(start_paused = true)]
async fn nobody_asks_in_another_customers_name() {
    let office = Office::new();
    office.rig.scripted("acme", "fast", FINE, json!({})).await;
    let (ours, theirs) = (office.inbox("acme", "r").await, office.inbox("evil", "r").await);
    // The unit is evil's, the request says that it is acme's, and so is the queue.
    let id = office.send("evil", answered("r-1", "fast", &json!({}))).await;
    office.work().await;
    let (code, words) = office.failure(id).await;
    assert_eq!(code, "INVALID_REQUEST");
    assert!(words.contains("customer `acme` is not tenant `evil`"), "{words}");
    assert!(is_empty(&ours).await && is_empty(&theirs).await);
    // To its own queue it is told.
    let to = json!({ "reply_queue": { "library": "EVIL", "name": "r" } });
    office.send("evil", request("r-2", "fast", &to).to_string()).await;
    office.work().await;
    assert_eq!(said(&next(&theirs).await), "INVALID_REQUEST");
    assert!(is_empty(&ours).await);
    assert!(office.books().await.is_empty());
}
