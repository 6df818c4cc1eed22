use std::sync::Arc;

use longshore::accounts::{CallStatus, Ledger, Limits, MAX_CALL_COST};
use longshore::{ProfileName, Scope, UnitId};
use longshore_ai::{
    Answer, AnswerPiece, AskError, BillingStatus, Code, Http, Inference, Provider, Question, Vault,
};
use longshore_testkit::crash_points::{CrashPoint, CrashPointLedger, CrashTiming};
use serde_json::json;
use tokio::sync::mpsc;

use super::fixture::{InferenceFixture, request, tenant};

const FINE: &str = "[[answer]]\nreply = 'fine'";

#[tokio::test(start_paused = true)]
async fn every_call_is_in_the_books_good_or_bad() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "fast", FINE, json!({})).await;
    fixture.scripted("acme", "bad", "[[answer]]\nerror = 'PROVIDER_AUTH'", json!({})).await;
    for (profile, prompt) in [("fast", "a"), ("bad", "b"), ("none", "c")] {
        let outcome = fixture.ask("acme", profile, prompt).await;
        fixture.inference.record_calls(outcome.records).await;
    }
    let calls = fixture.calls().await;
    let actual: Vec<_> = calls
        .iter()
        .map(|call| (call.call.request_id.as_str(), call.status, call.end.as_ref().unwrap().code.as_deref()))
        .collect();
    assert_eq!(
        actual,
        [
            ("a", CallStatus::Success, None),
            ("b", CallStatus::Error, Some("PROVIDER_AUTH")),
            ("c", CallStatus::Error, Some("PROFILE_NOT_FOUND")),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_tenants_rejected_calls_are_recorded_sixty_times_a_minute() {
    let fixture = InferenceFixture::new();
    let rejected = async |tenant: &str| fixture.ask(tenant, "none", "hi").await.records.len();
    let mut records = 0;
    for _ in 0..200 {
        records += rejected("acme").await;
    }
    assert_eq!((records, rejected("other").await), (60, 1), "each tenant by itself");
    tokio::time::advance(std::time::Duration::from_secs(61)).await;
    assert_eq!(rejected("acme").await, 1);
}

#[tokio::test(start_paused = true)]
async fn whoever_goes_away_while_the_question_is_out_leaves_maybe_billed() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "slow", "[[answer]]\nhang = true", json!({})).await;
    let request = request("acme", "slow", "hi");
    let asking = fixture.inference.ask(&request, None);
    let gone = tokio::time::timeout(std::time::Duration::from_secs(1), asking).await;
    assert!(gone.is_err());
    let calls = fixture.calls().await;
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].status, CallStatus::MaybeBilled);
    assert_eq!(fixture.reserved("acme").await, (0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_same_request_of_another_unit_is_not_asked_again() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "fast", FINE, json!({})).await;
    let mut first = request("acme", "fast", "hi");
    first.unit = Some(UnitId::new());
    let outcome = fixture.inference.ask(&first, None).await;
    fixture.inference.record_calls(outcome.records).await;
    fixture.inference.flush_journal().await;
    let second = longshore_ai::InferenceRequest { unit: Some(UnitId::new()), ..first.clone() };
    let outcome = fixture.inference.ask(&second, None).await;
    assert_eq!(outcome.duplicate.unwrap().call.unit, first.unit);
    assert_eq!(outcome.result.unwrap_err().code, Code::DuplicateRequest);
    assert_eq!((outcome.attempts, outcome.records.len()), (0, 0));
    // The unit itself may ask again: it was retried.
    assert!(fixture.inference.ask(&first, None).await.result.is_ok());
}

/// By the prices of a scripted profile: a question's token costs 1, an answer's 10 millionths of a
/// dollar.
const MOST: (u64, u64, i64) = (2, 100, 2 * 1_000_000 + 100 * 10_000_000);

#[tokio::test(start_paused = true)]
async fn a_question_that_was_sent_and_not_answered_in_time_counts_as_much_as_it_might_have_cost() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "slow", "[[answer]]\nhang = true", json!({})).await;
    let outcome = fixture.ask("acme", "slow", "12345678").await;
    assert_eq!(outcome.result.as_ref().unwrap_err().code, Code::Timeout);
    assert_eq!(outcome.cost_picos, MOST.2);
    fixture.inference.record_calls(outcome.records).await;
    let call = fixture.calls().await.remove(0);
    let end = call.end.unwrap();
    assert_eq!((call.status, end.code.as_deref()), (CallStatus::MaybeBilled, Some("TIMEOUT")));
    assert_eq!((end.tokens_in, end.tokens_out, end.cost_picos), MOST);
    assert!(end.estimated && end.attempts == 1);
    // A budget counts it as spent: it may have been billed.
    let month = fixture.store.budget(&Scope::All, &tenant("acme")).await.unwrap();
    assert_eq!((month.spent_tokens, month.spent_picos), (102, MOST.2));
    assert_eq!((month.reserved_tokens, month.reserved_picos), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_a_provider_refuses_costs_nothing() {
    let fixture = InferenceFixture::new();
    for code in ["PROVIDER_ERROR", "RATE_LIMITED", "PROVIDER_AUTH", "INVALID_REQUEST"] {
        fixture.scripted("acme", code, &format!("[[answer]]\nerror = '{code}'"), json!({})).await;
        let end = fixture.ask("acme", code, code).await.records.remove(0).end.unwrap();
        let actual = (end.status, end.cost_picos, end.tokens(), end.estimated);
        assert_eq!(actual, (CallStatus::Error, 0, 0, false), "{code}");
    }
}

/// Streams one piece, then either fails or sends another piece.
struct OnePieceProvider;

#[async_trait::async_trait]
impl Provider for OnePieceProvider {
    async fn ask(&self, _: &Question) -> Result<Answer, AskError> {
        Err(AskError::new(Code::Internal, "only as a stream"))
    }

    async fn stream(
        &self,
        question: &Question,
        pieces: &mpsc::Sender<AnswerPiece>,
    ) -> Result<Answer, AskError> {
        let _ = pieces.send(AnswerPiece::Text("some".to_owned())).await;
        let came = Answer { text: "some".into(), tokens_in: 2, tokens_out: 1, ..Answer::default() };
        let cut = AskError::new(Code::ProviderError, "the stream was cut");
        match question.prompt.as_str() {
            "cut" => Err(AskError { billing: BillingStatus::Partial(Box::new(came)), ..cut }),
            _ => {
                let _ = pieces.send(AnswerPiece::Text("more".to_owned())).await;
                Ok(came)
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_stream_that_was_cut_or_left_what_came_is_counted_as_an_estimate() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "halting", FINE, json!({})).await;
    fixture
        .inference
        .override_provider(ProfileName::new("halting").unwrap(), std::sync::Arc::new(OnePieceProvider));
    for prompt in ["cut", "left"] {
        let (sender, pieces) = mpsc::channel(8);
        if prompt == "left" {
            drop(pieces);
        }
        let outcome = fixture.inference.ask(&request("acme", "halting", prompt), Some(&sender)).await;
        assert!(outcome.result.is_err(), "{prompt}");
        let end = outcome.records[0].end.clone().unwrap();
        assert_eq!((end.status, end.estimated), (CallStatus::MaybeBilled, true), "{prompt}");
        let cost = 2 * 1_000_000 + 10_000_000;
        assert_eq!((end.tokens_in, end.tokens_out, end.cost_picos), (2, 1, cost), "{prompt}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_keeps_the_books_may_be_dropped_in_the_middle_of_a_write() {
    for kill in [CrashTiming::Before, CrashTiming::After] {
        let fixture = InferenceFixture::new();
        fixture.scripted("acme", "fast", FINE, json!({})).await;
        let wire = CrashPoint::at(0, kill, &["record_calls"]);
        let ledger: Arc<dyn Ledger> =
            Arc::new(CrashPointLedger::new(Arc::clone(&fixture.store) as _, Arc::clone(&wire)));
        let vault = Arc::new(Vault::new(Arc::clone(&fixture.store) as _, None));
        let inference = Inference::new(ledger, vault, Http::new(), "fixture".to_owned());
        let outcome = inference.ask(&request("acme", "fast", "hi"), None).await;
        inference.record_calls(outcome.records).await;
        tokio::select! {
            () = inference.run_journal() => {}
            () = wire.reached.notified() => {}
        }
        let closing = async {
            tokio::select! {
                () = inference.run_journal() => {}
                () = inference.flush_journal() => {}
            }
        };
        let closed = tokio::time::timeout(std::time::Duration::from_secs(60), closing).await;
        assert!(closed.is_ok(), "{kill:?}: the books are never closed");
        let calls = fixture.calls().await;
        let actual: Vec<_> = calls.iter().map(|call| call.status).collect();
        assert_eq!(actual, [CallStatus::Success], "{kill:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_beyond_the_ledgers_limits_is_recorded_with_them_and_so_are_the_others_of_its_write() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "fast", FINE, json!({})).await;
    let prompts = ["a", "b", "c", "d", "e", "f", "g"];
    let mut records = Vec::new();
    for prompt in prompts {
        let mut record = fixture.ask("acme", "fast", prompt).await.records.remove(0);
        if ["c", "g"].contains(&prompt) {
            record.end.as_mut().unwrap().tokens_out = 1 << 41;
        }
        if prompt == "d" {
            record.end.as_mut().unwrap().cost_picos = i64::MAX;
        }
        records.push(record);
    }
    fixture.inference.flush_journal().await;
    fixture.inference.record_calls(records).await;
    let calls = fixture.calls().await;
    let ended = calls.iter().filter(|call| call.status == CallStatus::Success);
    let mut stored: Vec<_> = ended.map(|call| call.call.request_id.as_str()).collect();
    stored.sort_unstable();
    assert_eq!(stored, prompts);
    let tokens_out = calls.iter().filter_map(|call| Some(call.end.as_ref()?.tokens_out));
    assert_eq!(tokens_out.max(), Some(1 << 40));
    let costs = calls.iter().filter_map(|call| Some(call.end.as_ref()?.cost_picos));
    assert_eq!(costs.max(), Some(MAX_CALL_COST));
}
