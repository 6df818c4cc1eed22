//! Leader election: one leader at a time; a successor at the next poll after a clean stop, after a
//! term otherwise.

use std::time::Duration;

use longshore::services::{Elector, LEADERSHIP_TERM, Leadership, POLL_INTERVAL};
use longshore::store::{Queries, WorkerApi};
use longshore::{SessionId, worker_session::NewSession};
use longshore_testkit::Fault;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::harness::Harness;

/// A candidate for the role, until its task is dropped.
struct Candidate {
    id: SessionId,
    leads: Leadership,
    _task: JoinSet<()>,
}

impl Candidate {
    async fn new(harness: &Harness) -> Self {
        let id = SessionId::new();
        let session = NewSession::new(id, "candidate");
        harness.store.open_session(session).await.unwrap();
        let (elector, leads) = Elector::new(harness.store.clone(), "role");
        let mut task = JoinSet::new();
        task.spawn(elector.campaign(move || Some(id)));
        Self { id, leads, _task: task }
    }
}

#[tokio::test(start_paused = true)]
async fn one_of_several_leads_and_goes_on_leading() {
    let harness = Harness::new();
    let mut first = Candidate::new(&harness).await;
    first.leads.wait_gained().await;
    let second = Candidate::new(&harness).await;
    let lost = timeout(Duration::from_secs(600), first.leads.wait_lost()).await;
    assert!(lost.is_err(), "it is renewed for as long as it stands");
    assert!(first.leads.is_leader() && !second.leads.is_leader());
}

#[tokio::test(start_paused = true)]
async fn a_stopped_leaders_successor_begins_with_its_next_look() {
    let harness = Harness::new();
    let mut first = Candidate::new(&harness).await;
    first.leads.wait_gained().await;
    let mut second = Candidate::new(&harness).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let (id, began) = (first.id, Instant::now());
    drop(first);
    harness.store.close_session(id).await.unwrap();
    second.leads.wait_gained().await;
    assert!(began.elapsed() <= POLL_INTERVAL, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_killed_leaders_successor_begins_after_its_term() {
    let harness = Harness::new();
    let mut first = Candidate::new(&harness).await;
    first.leads.wait_gained().await;
    let mut second = Candidate::new(&harness).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let began = Instant::now();
    drop(first);
    second.leads.wait_gained().await;
    let took = began.elapsed();
    assert!(took >= LEADERSHIP_TERM / 2 && took <= LEADERSHIP_TERM + POLL_INTERVAL, "{took:?}");
    assert!(LEADERSHIP_TERM + POLL_INTERVAL <= Duration::from_secs(6), "a role does not rest for longer");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_before_another_begins() {
    let harness = Harness::new();
    let mut first = Candidate::new(&harness).await;
    first.leads.wait_gained().await;
    harness.store.set_default_fault("acquire_leadership", Some(Fault::FailBefore));
    let began = Instant::now();
    first.leads.wait_lost().await;
    assert!(began.elapsed() <= LEADERSHIP_TERM, "by its own clock, without a word from the store");
    assert!(!first.leads.is_leader());
    harness.store.set_default_fault("acquire_leadership", None);
    first.leads.wait_gained().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_follower_asks_seldom() {
    let harness = Harness::new();
    let mut first = Candidate::new(&harness).await;
    first.leads.wait_gained().await;
    let _second = Candidate::new(&harness).await;
    let before = harness.store.calls("acquire_leadership");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let asked = harness.store.calls("acquire_leadership") - before;
    assert!(asked <= 30 + 60, "{asked} in a minute by two");
    assert_eq!(harness.store.sessions().await.unwrap().len(), 2);
}
