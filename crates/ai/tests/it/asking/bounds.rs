use std::time::Duration;

use longshore::Scope;
use longshore::ledger::{Budget, Limits};
use longshore_ai::Code;
use serde_json::json;
use tokio::time::Instant;

use super::rig::{Rig, tenant};

const FINE: &str = "[[answer]]\nreply = 'fine'";

#[tokio::test(start_paused = true)]
async fn who_is_out_still_counts_when_the_profile_is_read_again() {
    let rig = Rig::new();
    let slow = "[[answer]]\nreply = 'fine'\ndelay = '10s'";
    rig.scripted("acme", "slow", slow, json!({ "limits": { "in_flight": 1 } })).await;
    let begun = Instant::now();
    let again = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        rig.desk.clear();
        rig.ask("acme", "slow", "second").await.result
    };
    let (first, second) = tokio::join!(rig.ask("acme", "slow", "first"), again);
    assert!(first.result.is_ok() && second.is_ok());
    assert_eq!(begun.elapsed(), Duration::from_secs(20), "one after the other");
}

#[tokio::test(start_paused = true)]
async fn a_further_try_is_a_request_like_the_first() {
    let rig = Rig::new();
    let shaky =
        "[[answer]]\nwhen = 'n == 0'\nerror = 'PROVIDER_ERROR'\n\n[[answer]]\nreply = 'fine'";
    rig.scripted("acme", "free", shaky, json!({})).await;
    assert_eq!(rig.ask("acme", "free", "hi").await.attempts, 2);
    rig.scripted("acme", "tight", shaky, json!({ "limits": { "requests": 1, "burst": 1 } })).await;
    let settled = rig.ask("acme", "tight", "hi").await;
    assert_eq!(settled.result.unwrap_err().code, Code::ProviderError, "what the provider said");
    assert_eq!(settled.attempts, 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_for_a_question_that_is_not_asked_is_given_back() {
    let rig = Rig::new();
    rig.scripted("acme", "tight", FINE, json!({ "limits": { "requests": 1, "burst": 1 } })).await;
    for budget in [Some(Budget { tokens: Some(0), cost_picos: None, warn_at: 1.0 }), None] {
        rig.store.put_budget(&Scope::All, &tenant("acme"), budget).await.unwrap();
        rig.desk.clear();
        let result = rig.ask("acme", "tight", "hi").await.result;
        match budget {
            Some(_) => assert_eq!(result.unwrap_err().code, Code::OverBudget),
            None => assert_eq!(result.unwrap().text, "fine"),
        }
    }
}
