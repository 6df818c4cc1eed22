use std::sync::Arc;

use longshore::ledger::{CallStatus, Ledger, Limits};
use longshore::{ProfileName, Scope, UnitId};
use longshore_ai::{Answer, AskError, Bill, Code, Desk, Http, Piece, Provider, Question, Vault};
use longshore_testkit::standstill::{Kill, StandstillLedger, Tripwire};
use serde_json::json;
use tokio::sync::mpsc;

use super::rig::{Rig, errand, tenant};

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

/// The prices of a scripted profile: a token of the question costs 1, one of the answer 10 millionths.
const MOST: (u64, u64, i64) = (2, 100, 2 * 1_000_000 + 100 * 10_000_000);

#[tokio::test(start_paused = true)]
async fn a_question_that_was_sent_and_not_answered_in_time_counts_as_much_as_it_might_have_cost() {
    let rig = Rig::new();
    rig.scripted("acme", "slow", "[[answer]]\nhang = true", json!({})).await;
    let settled = rig.ask("acme", "slow", "12345678").await;
    assert_eq!(settled.result.as_ref().unwrap_err().code, Code::Timeout);
    assert_eq!(settled.cost_picos, MOST.2);
    rig.desk.note(settled.records).await;
    let call = rig.calls().await.remove(0);
    let end = call.end.unwrap();
    assert_eq!((call.status, end.code.as_deref()), (CallStatus::MaybeBilled, Some("TIMEOUT")));
    assert_eq!((end.tokens_in, end.tokens_out, end.cost_picos), MOST);
    assert!(end.estimated && end.attempts == 1);
    // A budget counts it as spent: it may well be on the bill.
    let month = rig.store.budget(&Scope::All, &tenant("acme")).await.unwrap();
    assert_eq!((month.spent_tokens, month.spent_picos), (102, MOST.2));
    assert_eq!((month.reserved_tokens, month.reserved_picos), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_a_provider_refuses_costs_nothing() {
    let rig = Rig::new();
    for code in ["PROVIDER_ERROR", "RATE_LIMITED", "PROVIDER_AUTH", "INVALID_REQUEST"] {
        rig.scripted("acme", code, &format!("[[answer]]\nerror = '{code}'"), json!({})).await;
        let end = rig.ask("acme", code, code).await.records.remove(0).end.unwrap();
        let told = (end.status, end.cost_picos, end.tokens(), end.estimated);
        assert_eq!(told, (CallStatus::Error, 0, 0, false), "{code}");
    }
}

/// Says something, and then no more; or what it is told to say.
struct Halting;

#[async_trait::async_trait]
impl Provider for Halting {
    async fn ask(&self, _: &Question) -> Result<Answer, AskError> {
        Err(AskError::new(Code::Internal, "only as a stream"))
    }

    async fn stream(
        &self,
        question: &Question,
        pieces: &mpsc::Sender<Piece>,
    ) -> Result<Answer, AskError> {
        let _ = pieces.send(Piece::Text("some".to_owned())).await;
        let came = Answer { text: "some".into(), tokens_in: 2, tokens_out: 1, ..Answer::default() };
        let cut = AskError::new(Code::ProviderError, "the stream was cut");
        match question.prompt.as_str() {
            "cut" => Err(AskError { bill: Bill::Came(Box::new(came)), ..cut }),
            _ => {
                let _ = pieces.send(Piece::Text("more".to_owned())).await;
                Ok(came)
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_stream_that_was_cut_or_left_what_came_is_counted_as_an_estimate() {
    let rig = Rig::new();
    rig.scripted("acme", "halting", FINE, json!({})).await;
    rig.desk.answer_for(ProfileName::new("halting").unwrap(), std::sync::Arc::new(Halting));
    for prompt in ["cut", "left"] {
        let (sender, pieces) = mpsc::channel(8);
        if prompt == "left" {
            drop(pieces);
        }
        let settled = rig.desk.ask(&errand("acme", "halting", prompt), Some(&sender)).await;
        assert!(settled.result.is_err(), "{prompt}");
        let end = settled.records[0].end.clone().unwrap();
        assert_eq!((end.status, end.estimated), (CallStatus::MaybeBilled, true), "{prompt}");
        let cost = 2 * 1_000_000 + 10_000_000;
        assert_eq!((end.tokens_in, end.tokens_out, end.cost_picos), (2, 1, cost), "{prompt}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_keeps_the_books_may_be_dropped_in_the_middle_of_a_write() {
    for kill in [Kill::Before, Kill::After] {
        let rig = Rig::new();
        rig.scripted("acme", "fast", FINE, json!({})).await;
        let wire = Tripwire::at(0, kill, |verb| verb == "record_calls");
        let ledger: Arc<dyn Ledger> =
            Arc::new(StandstillLedger::new(Arc::clone(&rig.store) as _, Arc::clone(&wire)));
        let vault = Arc::new(Vault::new(Arc::clone(&rig.store) as _, None));
        let desk = Desk::new(ledger, vault, Http::new(), "rig".to_owned());
        let settled = desk.ask(&errand("acme", "fast", "hi"), None).await;
        desk.note(settled.records).await;
        tokio::select! {
            () = desk.keep_books() => {}
            () = wire.tripped.notified() => {}
        }
        let closing = async {
            tokio::select! {
                () = desk.keep_books() => {}
                () = desk.books_kept() => {}
            }
        };
        let closed = tokio::time::timeout(std::time::Duration::from_secs(60), closing).await;
        assert!(closed.is_ok(), "{kill:?}: the books are never closed");
        let calls = rig.calls().await;
        let told: Vec<_> = calls.iter().map(|call| call.status).collect();
        assert_eq!(told, [CallStatus::Success], "{kill:?}");
    }
}
