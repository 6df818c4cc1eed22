use longshore::UnitId;
use longshore::ledger::CallStatus;
use longshore_ai::Code;
use serde_json::json;

use super::rig::{Rig, errand};

const FINE: &str = "[[answer]]\nreply = 'fine'";

#[tokio::test(start_paused = true)]
async fn every_call_is_in_the_books_good_or_bad() {
    let rig = Rig::new();
    rig.scripted("acme", "fast", FINE, json!({})).await;
    rig.scripted("acme", "bad", "[[answer]]\nerror = 'PROVIDER_AUTH'", json!({})).await;
    for (profile, prompt) in [("fast", "a"), ("bad", "b"), ("none", "c")] {
        let settled = rig.ask("acme", profile, prompt).await;
        rig.desk.note(settled.records).await;
    }
    let calls = rig.calls().await;
    let told: Vec<_> = calls
        .iter()
        .map(|call| {
            (call.call.request_id.as_str(), call.status, call.end.as_ref().unwrap().code.as_deref())
        })
        .collect();
    assert_eq!(
        told,
        [
            ("a", CallStatus::Success, None),
            ("b", CallStatus::Error, Some("PROVIDER_AUTH")),
            ("c", CallStatus::Error, Some("PROFILE_NOT_FOUND")),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn whoever_goes_away_while_the_question_is_out_leaves_maybe_billed() {
    let rig = Rig::new();
    rig.scripted("acme", "slow", "[[answer]]\nhang = true", json!({})).await;
    let errand = errand("acme", "slow", "hi");
    let asking = rig.desk.ask(&errand, None);
    let gone = tokio::time::timeout(std::time::Duration::from_secs(1), asking).await;
    assert!(gone.is_err());
    let calls = rig.calls().await;
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].status, CallStatus::MaybeBilled);
    assert_eq!(rig.reserved("acme").await, (0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_same_request_of_another_unit_is_not_asked_again() {
    let rig = Rig::new();
    rig.scripted("acme", "fast", FINE, json!({})).await;
    let mut first = errand("acme", "fast", "hi");
    first.unit = Some(UnitId::new());
    let settled = rig.desk.ask(&first, None).await;
    rig.desk.note(settled.records).await;
    rig.desk.books_kept().await;
    let second = longshore_ai::Errand { unit: Some(UnitId::new()), ..first.clone() };
    let settled = rig.desk.ask(&second, None).await;
    assert_eq!(settled.duplicate.unwrap().call.unit, first.unit);
    assert_eq!(settled.result.unwrap_err().code, Code::InvalidRequest);
    assert_eq!((settled.attempts, settled.records.len()), (0, 0));
    // The unit itself may ask again: it was retried.
    assert!(rig.desk.ask(&first, None).await.result.is_ok());
}
