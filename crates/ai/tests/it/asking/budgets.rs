use longshore::ledger::{Budget, Limits};
use longshore::{Scope, UnitId};
use longshore_ai::Code;
use serde_json::json;

use super::rig::{Rig, errand, tenant};

const FINE: &str = "[[answer]]\nreply = 'fine'\ntokens_out = 10";

async fn allow(rig: &Rig, tokens: u64) {
    let budget = Budget { tokens: Some(tokens), cost_picos: None, warn_at: 0.8 };
    rig.store.put_budget(&Scope::All, &tenant("acme"), Some(budget)).await.unwrap();
    rig.desk.clear();
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_is_used_up_stops_the_next_question_before_it_is_asked() {
    let rig = Rig::new();
    rig.scripted("acme", "fast", FINE, json!({})).await;
    // A question reserves 101 tokens and uses 11: after the first there is room for one more.
    allow(&rig, 112).await;
    let settled = rig.ask("acme", "fast", "one").await;
    settled.result.unwrap();
    rig.desk.note(settled.records).await;
    rig.desk.books_kept().await;
    let settled = rig.ask("acme", "fast", "two").await;
    settled.result.unwrap();
    rig.desk.note(settled.records).await;
    rig.desk.books_kept().await;
    let settled = rig.ask("acme", "fast", "three").await;
    assert_eq!(settled.result.unwrap_err().code, Code::OverBudget);
    assert_eq!(settled.attempts, 0);
    assert_eq!(rig.reserved("acme").await, (0, 0), "nothing stays reserved");
}

#[tokio::test(start_paused = true)]
async fn many_at_once_never_use_more_than_the_budget() {
    let rig = Rig::new();
    rig.scripted("acme", "fast", FINE, json!({ "delay": { "secs": 1, "nanos": 0 } })).await;
    allow(&rig, 101 * 5).await;
    let asks = (0..32).map(|n| {
        let rig = &rig;
        async move {
            let mut errand = errand("acme", "fast", &format!("q{n:02}"));
            errand.unit = Some(UnitId::new());
            rig.desk.ask(&errand, None).await.result.is_ok()
        }
    });
    let good = futures_util::future::join_all(asks).await.into_iter().filter(|good| *good).count();
    assert_eq!(good, 5);
}
