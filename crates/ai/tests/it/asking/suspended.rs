//! A tenant that is suspended asks nobody, on whichever way.

use std::time::Duration;

use longshore_ai::{Again, Code, Profile, ProviderName};
use serde_json::json;

use super::rig::{Rig, errand, tenant};

const FINE: &str = "[[answer]]\nreply = 'fine'";

#[tokio::test(start_paused = true)]
async fn a_suspended_tenant_is_told_so_until_it_is_resumed_and_nobody_else_is() {
    let rig = Rig::new();
    rig.scripted("acme", "fast", FINE, json!({})).await;
    rig.scripted("other", "fast", FINE, json!({})).await;
    rig.suspend("acme", true).await;
    let error = rig.ask("acme", "fast", "hi").await.result.unwrap_err();
    assert_eq!((error.code, error.again), (Code::ProfileDisabled, Again::Resumed));
    assert_eq!(error.message, "tenant `acme` is suspended");
    rig.ask("other", "fast", "hi").await.result.unwrap();
    rig.suspend("acme", false).await;
    rig.desk.clear();
    rig.ask("acme", "fast", "hi").await.result.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_profile_that_is_written_elsewhere_is_no_way_around_that() {
    let rig = Rig::new();
    rig.suspend("acme", true).await;
    let script = Some(FINE.to_owned());
    let written = Profile { script, ..Profile::new("own", ProviderName::Scripted) };
    let settled = rig.desk.ask_by(&written, &errand("acme", "own", "hi")).await;
    assert_eq!(settled.result.unwrap_err().again, Again::Resumed);
    let parked = rig.desk.admit_bulk(&errand("acme", "own", "hi"), Some(&written)).await;
    assert_eq!(parked.unwrap_err().result.unwrap_err().again, Again::Resumed);
}

#[tokio::test(start_paused = true)]
async fn a_desk_that_has_asked_for_it_hears_of_the_suspension() {
    let rig = Rig::new();
    rig.scripted("acme", "fast", FINE, json!({})).await;
    let asking = async {
        // It listens from now on.
        tokio::task::yield_now().await;
        rig.ask("acme", "fast", "before").await.result.unwrap();
        rig.suspend("acme", true).await;
        // Long before it would be read anew by itself.
        tokio::time::sleep(Duration::from_secs(2)).await;
        rig.ask("acme", "fast", "after").await.result.unwrap_err().again
    };
    let again = tokio::select! {
        biased;
        ended = rig.desk.hear_of_changes(&*rig.store) => panic!("{ended:?}"),
        again = asking => again,
    };
    assert_eq!(again, Again::Resumed);
}

#[tokio::test(start_paused = true)]
async fn who_does_not_hear_of_it_looks_again_after_half_a_minute() {
    let rig = Rig::new();
    rig.scripted("acme", "fast", FINE, json!({})).await;
    rig.ask("acme", "fast", "before").await.result.unwrap();
    rig.suspend("acme", true).await;
    rig.ask("acme", "fast", "still believed").await.result.unwrap();
    tokio::time::sleep(Duration::from_secs(31)).await;
    rig.ask("acme", "fast", "after").await.result.unwrap_err();
    rig.suspend("acme", false).await;
    // What is known of a suspended tenant is remembered too: it costs no read per question.
    rig.ask("acme", "fast", "still refused").await.result.unwrap_err();
    assert!(rig.desk.profile(&tenant("acme"), None).await.is_err());
}
