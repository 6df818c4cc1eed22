//! Who leads: one at a time, soon after a clean stop, after a term otherwise.

use std::time::Duration;

use longshore::services::{Elector, LOOK, Leadership, TERM};
use longshore::store::{Inspect, Leases};
use longshore::{SessionId, session::NewSession};
use longshore_testkit::Fault;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::harbour::Harbour;

/// One who stands for the role, until its task is dropped.
struct Candidate {
    id: SessionId,
    leads: Leadership,
    _task: JoinSet<()>,
}

impl Candidate {
    async fn new(harbour: &Harbour) -> Self {
        let id = SessionId::new();
        let session = NewSession {
            id,
            label: "candidate".into(),
            version: "0".into(),
            kinds: Default::default(),
            slots: 1,
            ttl: Duration::from_secs(15),
        };
        harbour.store.open_session(session).await.unwrap();
        let (elector, leads) = Elector::new(harbour.store.clone(), "role");
        let mut task = JoinSet::new();
        task.spawn(elector.stand(move || Some(id)));
        Self { id, leads, _task: task }
    }
}

#[tokio::test(start_paused = true)]
async fn one_of_several_leads_and_goes_on_leading() {
    let harbour = Harbour::new();
    let mut first = Candidate::new(&harbour).await;
    first.leads.gained().await;
    let second = Candidate::new(&harbour).await;
    let lost = timeout(Duration::from_secs(600), first.leads.lost()).await;
    assert!(lost.is_err(), "it is renewed for as long as it stands");
    assert!(first.leads.leads() && !second.leads.leads());
}

#[tokio::test(start_paused = true)]
async fn a_stopped_leaders_successor_begins_with_its_next_look() {
    let harbour = Harbour::new();
    let mut first = Candidate::new(&harbour).await;
    first.leads.gained().await;
    let mut second = Candidate::new(&harbour).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let (id, began) = (first.id, Instant::now());
    drop(first);
    harbour.store.close_session(id).await.unwrap();
    second.leads.gained().await;
    assert!(began.elapsed() <= LOOK, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_killed_leaders_successor_begins_after_its_term() {
    let harbour = Harbour::new();
    let mut first = Candidate::new(&harbour).await;
    first.leads.gained().await;
    let mut second = Candidate::new(&harbour).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let began = Instant::now();
    drop(first);
    second.leads.gained().await;
    let took = began.elapsed();
    assert!(took >= TERM / 2 && took <= TERM + LOOK, "{took:?}");
    assert!(TERM + LOOK <= Duration::from_secs(6), "a role does not rest for longer");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_before_another_begins() {
    let harbour = Harbour::new();
    let mut first = Candidate::new(&harbour).await;
    first.leads.gained().await;
    harbour.store.always("lead", Some(Fault::FailBefore));
    let began = Instant::now();
    first.leads.lost().await;
    assert!(began.elapsed() <= TERM, "by its own clock, without a word from the store");
    assert!(!first.leads.leads());
    harbour.store.always("lead", None);
    first.leads.gained().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_follower_asks_seldom() {
    let harbour = Harbour::new();
    let mut first = Candidate::new(&harbour).await;
    first.leads.gained().await;
    let _second = Candidate::new(&harbour).await;
    let before = harbour.store.calls("lead");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let asked = harbour.store.calls("lead") - before;
    assert!(asked <= 30 + 60, "{asked} in a minute by two");
    assert_eq!(harbour.store.sessions().await.unwrap().len(), 2);
}
