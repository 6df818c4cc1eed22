//! A suspended tenant cannot ask, by any path.

use std::time::Duration;

use longshore_ai::{Code, Profile, ProviderName, Retryability};
use serde_json::json;

use super::fixture::{InferenceFixture, request, tenant};

const FINE: &str = "[[answer]]\nreply = 'fine'";

#[tokio::test(start_paused = true)]
async fn a_suspended_tenant_is_told_so_until_it_is_resumed_and_nobody_else_is() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "fast", FINE, json!({})).await;
    fixture.scripted("other", "fast", FINE, json!({})).await;
    fixture.suspend("acme", true).await;
    let error = fixture.ask("acme", "fast", "hi").await.result.unwrap_err();
    assert_eq!((error.code, error.retry), (Code::ProfileDisabled, Retryability::AfterResume));
    assert_eq!(error.message, "tenant `acme` is suspended");
    fixture.ask("other", "fast", "hi").await.result.unwrap();
    fixture.suspend("acme", false).await;
    fixture.inference.clear_cache();
    fixture.ask("acme", "fast", "hi").await.result.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_profile_that_is_written_elsewhere_is_no_way_around_that() {
    let fixture = InferenceFixture::new();
    fixture.suspend("acme", true).await;
    let script = Some(FINE.to_owned());
    let written = Profile { script, ..Profile::new("own", ProviderName::Scripted) };
    let outcome = fixture.inference.ask_inline(&written, &request("acme", "own", "hi")).await;
    assert_eq!(outcome.result.unwrap_err().retry, Retryability::AfterResume);
    let parked = fixture.inference.admit_batch_call(&request("acme", "own", "hi"), Some(&written)).await;
    assert_eq!(parked.unwrap_err().result.unwrap_err().retry, Retryability::AfterResume);
}

#[tokio::test(start_paused = true)]
async fn a_desk_that_has_asked_for_it_hears_of_the_suspension() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "fast", FINE, json!({})).await;
    let asking = async {
        // The listener starts now.
        tokio::task::yield_now().await;
        fixture.ask("acme", "fast", "before").await.result.unwrap();
        fixture.suspend("acme", true).await;
        // Long before the cache expires.
        tokio::time::sleep(Duration::from_secs(2)).await;
        fixture.ask("acme", "fast", "after").await.result.unwrap_err().retry
    };
    let again = tokio::select! {
        biased;
        ended = fixture.inference.watch_changes(&*fixture.store) => panic!("{ended:?}"),
        again = asking => again,
    };
    assert_eq!(again, Retryability::AfterResume);
}

#[tokio::test(start_paused = true)]
async fn who_does_not_hear_of_it_looks_again_after_half_a_minute() {
    let fixture = InferenceFixture::new();
    fixture.scripted("acme", "fast", FINE, json!({})).await;
    fixture.ask("acme", "fast", "before").await.result.unwrap();
    fixture.suspend("acme", true).await;
    fixture.ask("acme", "fast", "still believed").await.result.unwrap();
    tokio::time::sleep(Duration::from_secs(31)).await;
    fixture.ask("acme", "fast", "after").await.result.unwrap_err();
    fixture.suspend("acme", false).await;
    // A suspension is cached, too: it costs no read per question.
    fixture.ask("acme", "fast", "still refused").await.result.unwrap_err();
    assert!(fixture.inference.profile(&tenant("acme"), None).await.is_err());
}
