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
    let error = outcome.result.unwrap_err();
    assert_eq!(error.code, Code::OverBudget);
    let left = " tokens, and 90 of the budget of tenant `acme` for ";
    assert!(error.message.starts_with("this call may use 10") && error.message.contains(left), "{error}");
    assert!(error.message.ends_with(" are left: lower max_tokens"), "{error}");
    assert_eq!(outcome.attempts, 0);
    allow(&fixture, 22).await;
    let error = fixture.ask("acme", "fast", "four").await.result.unwrap_err();
    assert!(error.message.ends_with(" is used up"), "{error}");
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

#[tokio::test(start_paused = true)]
async fn whoever_is_turned_away_only_by_reservations_of_others_waits_for_them() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "fast", FINE, json!({ "delay": 0.1 })).await;
    // A question reserves 101 tokens and uses 11: seven are reserved at once, and all 64 fit.
    allow(&fixture, 64 * 11 + 101).await;
    let asks = (0..64).map(|n| {
        let fixture = &fixture;
        async move {
            let outcome = fixture.ask("acme", "fast", &format!("q{n:02}")).await;
            fixture.inference.record_calls(outcome.records).await;
            outcome.result.map(drop)
        }
    });
    for result in futures_util::future::join_all(asks).await {
        assert_eq!(result, Ok(()));
    }
    fixture.inference.flush_journal().await;
    let month = fixture.store.budget(&Scope::All, &tenant("acme")).await.unwrap();
    assert_eq!((month.spent_tokens, month.reserved_tokens), (64 * 11, 0));
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_reservations_in_vain_may_try_again() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "fast", FINE, json!({})).await;
    allow(&fixture, 101).await;
    // Its unit does not finish, and so its call does not either.
    let mut first = request("acme", "fast", "one");
    first.unit = Some(UnitId::new());
    fixture.inference.ask(&first, None).await.result.unwrap();
    let started = tokio::time::Instant::now();
    let error = fixture.ask("acme", "fast", "two").await.result.unwrap_err();
    assert_eq!(error.code, Code::RateLimited, "{error}");
    assert!(
        error.retry_after.is_some() && error.message.contains("other calls in flight reserve"),
        "{error}"
    );
    assert_eq!(started.elapsed().as_secs(), 30, "not until its deadline");
}

#[tokio::test(start_paused = true)]
async fn a_fallback_may_use_what_the_first_profile_had_reserved() {
    let fixture = InferenceFixture::new();
    let down = "[[answer]]\nerror = 'PROVIDER_AUTH'";
    fixture.scripted("acme", "down", down, json!({ "fallback": ["fast"] })).await;
    fixture.scripted("acme", "fast", FINE, json!({})).await;
    allow(&fixture, 101).await;
    let mut request = request("acme", "down", "hi");
    request.unit = Some(UnitId::new());
    assert_eq!(fixture.inference.ask(&request, None).await.result.unwrap().text, "fine");
}
