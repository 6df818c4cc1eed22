use longshore::accounts::{Budget, Limits};
use longshore::{Scope, UnitId};
use longshore_ai::Code;
use serde_json::json;

use super::fixture::{InferenceFixture, request, tenant};

const FINE: &str = "[[answer]]\nreply = 'fine'\ntokens_out = 10";

async fn allow(fixture: &InferenceFixture, tokens: u64) {
    let budget = Budget { tokens: Some(tokens), cost_picos: None, warn_at: 0.8 };
    fixture.store.put_budget(&Scope::All, &tenant("acme"), Some(budget)).await.unwrap();
    fixture.inference.clear_cache();
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_is_used_up_stops_the_next_question_before_it_is_asked() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "fast", FINE, json!({})).await;
    // A question reserves 101 tokens and uses 11: after the first, one more fits.
    allow(&fixture, 112).await;
    let outcome = fixture.ask("acme", "fast", "one").await;
    outcome.result.unwrap();
    fixture.inference.record_calls(outcome.records).await;
    fixture.inference.flush_journal().await;
    let outcome = fixture.ask("acme", "fast", "two").await;
    outcome.result.unwrap();
    fixture.inference.record_calls(outcome.records).await;
    fixture.inference.flush_journal().await;
    let outcome = fixture.ask("acme", "fast", "three").await;
    assert_eq!(outcome.result.unwrap_err().code, Code::OverBudget);
    assert_eq!(outcome.attempts, 0);
    assert_eq!(fixture.reserved("acme").await, (0, 0), "nothing stays reserved");
}

#[tokio::test(start_paused = true)]
async fn many_at_once_never_use_more_than_the_budget() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "fast", FINE, json!({ "delay": 1 })).await;
    allow(&fixture, 101 * 5).await;
    let asks = (0..32).map(|n| {
        let fixture = &fixture;
        async move {
            let mut request = request("acme", "fast", &format!("q{n:02}"));
            request.unit = Some(UnitId::new());
            fixture.inference.ask(&request, None).await.result.is_ok()
        }
    });
    let good = futures_util::future::join_all(asks).await.into_iter().filter(|good| *good).count();
    assert_eq!(good, 5);
}
