use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use longshore::accounts::{Budget, Ledger, Limits};
use longshore::{ProfileName, Scope};
use longshore_ai::{
    Answer, AskError, Code, Headroom, Http, Inference, Provider, Question, RemainingLimit, Vault,
};
use longshore_testkit::crash_points::{CrashPoint, CrashPointLedger, CrashTiming};
use serde_json::json;
use tokio::time::Instant;

use super::fixture::{InferenceFixture, request, tenant};

const FINE: &str = "[[answer]]\nreply = 'fine'";

/// Admits one request per second, and reports with each answer what is left.
struct RationedProvider {
    /// When the next request is admitted, and how many came sooner.
    state: Mutex<(Instant, usize)>,
}

#[async_trait]
impl Provider for RationedProvider {
    async fn ask(&self, _: &Question) -> Result<Answer, AskError> {
        let now = Instant::now();
        let (next, too_soon) = &mut *self.state.lock().unwrap();
        *too_soon += usize::from(now + Duration::from_millis(50) < *next);
        *next = now + Duration::from_secs(1);
        let reset = Some(Duration::from_secs(60));
        let requests = Some(RemainingLimit { limit: Some(60), left: 0, reset });
        let headroom = Headroom { requests, tokens: None };
        Ok(Answer { text: "fine".to_owned(), tokens_in: 1, tokens_out: 10, headroom, ..Answer::default() })
    }
}

#[tokio::test(start_paused = true)]
async fn five_requests_get_their_share_of_a_lent_keys_rate_limit_beside_sixty_of_another_tenant() {
    let (fixture, key) = (InferenceFixture::new(), tempfile::NamedTempFile::new().unwrap());
    std::fs::write(&key, "secret").unwrap();
    let lent = json!({
        "template": true, "provider": "openai", "model": "m", "endpoint": "http://127.0.0.1:9",
        "key": format!("file:{}", key.path().display()), "prices": { "input": 1, "output": 10 },
    });
    fixture.profile("default", "house", lent).await;
    let provider = Arc::new(RationedProvider { state: Mutex::new((Instant::now(), 0)) });
    fixture.inference.override_provider(ProfileName::new("p").unwrap(), Arc::clone(&provider) as _);
    for owner in ["big", "small"] {
        fixture.profile(owner, "p", json!({ "extends": "house" })).await;
    }
    // One of the small tenant's calls at a time may be reserved: a call reserves 375 tokens, and uses 11.
    let budget = Some(Budget { tokens: Some(500), cost_picos: None, warn_at: 1.0 });
    fixture.store.put_budget(&Scope::All, &tenant("small"), budget).await.unwrap();
    fixture.ask("big", "p", "the provider reports its limit").await.result.unwrap();
    let started = Instant::now();
    let ask_all = async |owner: &'static str, count: usize| {
        let asks = (0..count).map(|number| {
            let mut request = request(owner, "p", &format!("q{number:02}"));
            request.question.until += Duration::from_secs(600);
            let inference = &fixture.inference;
            async move {
                let outcome = inference.ask(&request, None).await;
                inference.record_calls(outcome.records).await;
                outcome.result.unwrap();
                started.elapsed()
            }
        });
        join_all(asks).await.into_iter().max().unwrap()
    };
    let small = async {
        // All of the big tenant's requests wait already.
        tokio::time::sleep(Duration::from_millis(10)).await;
        ask_all("small", 5).await
    };
    let (big, small) = tokio::join!(ask_all("big", 60), small);
    assert!(small <= Duration::from_secs(12), "every second request is the small tenant's: {small:?}");
    assert!(big <= Duration::from_secs(70), "the limit is used: {big:?}");
    assert_eq!(provider.state.lock().unwrap().1, 0, "the provider would have rejected some");
}

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
