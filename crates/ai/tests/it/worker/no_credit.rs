//! Requests with a key that has no credit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use longshore::{ProfileName, UnitState};
use longshore_ai::{Answer, AskError, Code, Provider, Question, Retryability};
use serde_json::json;

use super::fixture::{WorkerFixture, request};

/// Has no credit for the first question.
#[derive(Default)]
struct NoCreditOnce {
    asked: AtomicU32,
}

#[async_trait]
impl Provider for NoCreditOnce {
    async fn ask(&self, _: &Question) -> Result<Answer, AskError> {
        match self.asked.fetch_add(1, Ordering::Relaxed) {
            0 => Err(AskError {
                retry: Retryability::AfterTopUp,
                ..AskError::new(Code::OverBudget, "your credit balance is too low")
            }),
            _ => Ok(Answer { text: "paid".into(), ..Answer::default() }),
        }
    }
}

async fn fixture(provider: &Arc<NoCreditOnce>) -> WorkerFixture {
    let fixture = WorkerFixture::new();
    fixture.setup.scripted("acme", "broke", "[[answer]]\nreply = 'x'", json!({})).await;
    let name = ProfileName::new("broke").unwrap();
    fixture.setup.inference.override_provider(name, Arc::clone(provider) as _);
    fixture
}

/// Runs a worker until the request has ended, at most an hour.
async fn ends(fixture: &WorkerFixture, timeout_ms: u64) -> serde_json::Value {
    let asked = request("r-1", "broke", &json!({ "timeout_ms": timeout_ms }));
    let id = fixture.send("acme", asked.to_string()).await;
    let worker = fixture.worker().build().unwrap();
    let control = worker.control();
    let waiting = async {
        let ended = fixture.client.wait(id, Some(Duration::from_secs(3600))).await;
        control.drain();
        ended.unwrap()
    };
    let (ran, unit) = tokio::join!(worker.run(), waiting);
    ran.unwrap();
    assert_eq!(unit.state, UnitState::Done);
    serde_json::from_slice(unit.result.unwrap().as_bytes()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_request_that_has_the_time_waits_until_somebody_has_paid() {
    let provider = Arc::new(NoCreditOnce::default());
    let fixture = fixture(&provider).await;
    let reply = ends(&fixture, 3_000_000).await;
    assert_eq!(reply["response"], "paid", "{reply}");
    assert_eq!(provider.asked.load(Ordering::Relaxed), 2, "the key rests meanwhile");
}

#[tokio::test(start_paused = true)]
async fn one_that_has_not_is_told_so_at_once() {
    let provider = Arc::new(NoCreditOnce::default());
    let fixture = fixture(&provider).await;
    let reply = ends(&fixture, 60_000).await;
    assert_eq!(reply["error_code"], "OVER_BUDGET", "{reply}");
    assert_eq!(provider.asked.load(Ordering::Relaxed), 1);
}
