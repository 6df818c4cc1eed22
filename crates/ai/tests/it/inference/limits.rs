use std::sync::Arc;
use std::time::Duration;

use longshore::Scope;
use longshore::accounts::{Budget, Ledger, Limits};
use longshore_ai::{Code, Http, Inference, Vault};
use longshore_testkit::crash_points::{CrashPoint, CrashPointLedger, CrashTiming};
use serde_json::json;
use tokio::time::Instant;

use super::fixture::{InferenceFixture, request, tenant};

const FINE: &str = "[[answer]]\nreply = 'fine'";

#[tokio::test(start_paused = true)]
async fn who_is_out_still_counts_when_the_profile_is_read_again() {
    let fixture = InferenceFixture::new();
    let slow = "[[answer]]\nreply = 'fine'\ndelay = '10s'";
    fixture.scripted("acme", "slow", slow, json!({ "limits": { "in_flight": 1 } })).await;
    let started = Instant::now();
    let again = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        fixture.inference.clear_cache();
        fixture.ask("acme", "slow", "second").await.result
    };
    let (first, second) = tokio::join!(fixture.ask("acme", "slow", "first"), again);
    assert!(first.result.is_ok() && second.is_ok());
    assert_eq!(started.elapsed(), Duration::from_secs(20), "one after the other");
}

#[tokio::test(start_paused = true)]
async fn a_further_try_is_a_request_like_the_first() {
    let fixture = InferenceFixture::new();
    let shaky = "[[answer]]\nwhen = 'n == 0'\nerror = 'PROVIDER_ERROR'\n\n[[answer]]\nreply = 'fine'";
    fixture.scripted("acme", "free", shaky, json!({})).await;
    assert_eq!(fixture.ask("acme", "free", "hi").await.attempts, 2);
    fixture.scripted("acme", "tight", shaky, json!({ "limits": { "requests": 1, "burst": 1 } })).await;
    let outcome = fixture.ask("acme", "tight", "hi").await;
    assert_eq!(outcome.result.unwrap_err().code, Code::ProviderError, "what the provider said");
    assert_eq!(outcome.attempts, 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_for_a_question_that_is_not_asked_is_given_back() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "tight", FINE, json!({ "limits": { "requests": 1, "burst": 1 } })).await;
    for budget in [Some(Budget { tokens: Some(0), cost_picos: None, warn_at: 1.0 }), None] {
        fixture.store.put_budget(&Scope::All, &tenant("acme"), budget).await.unwrap();
        fixture.inference.clear_cache();
        let result = fixture.ask("acme", "tight", "hi").await.result;
        match budget {
            Some(_) => assert_eq!(result.unwrap_err().code, Code::OverBudget),
            None => assert_eq!(result.unwrap().text, "fine"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_disconnects_while_its_call_is_admitted_leaves_the_limit_to_the_next() {
    let fixture = InferenceFixture::new();
    let limits = json!({ "requests": 1, "burst": 1, "when_full": "refuse" });
    fixture.scripted("acme", "tight", FINE, json!({ "limits": limits })).await;
    let budget = Some(Budget { tokens: Some(1_000_000), cost_picos: None, warn_at: 1.0 });
    fixture.store.put_budget(&Scope::All, &tenant("acme"), budget).await.unwrap();
    let wire = CrashPoint::at(0, CrashTiming::Before, &["admit_calls"]);
    let ledger: Arc<dyn Ledger> =
        Arc::new(CrashPointLedger::new(Arc::clone(&fixture.store) as _, Arc::clone(&wire)));
    let vault = Arc::new(Vault::new(Arc::clone(&fixture.store) as _, None));
    let inference = Inference::new(ledger, vault, Http::new(), "fixture".to_owned());
    let first = request("acme", "tight", "first");
    tokio::select! {
        outcome = inference.ask(&first, None) => panic!("not blocked: {outcome:?}"),
        () = wire.reached.notified() => {}
    }
    // The limiter returns credits to the store together, after a moment.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let second = inference.ask(&request("acme", "tight", "second"), None).await;
    assert_eq!(second.result.unwrap().text, "fine");
}
