//! The runner, from parked questions to delivered answers, killed at every step.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use longshore::accounts::{NewPendingRequest, PendingChange, PendingFilter, PendingRequests};
use longshore::{BatchId, Clock, MemoryStore, UnitId};
use longshore_ai::batches::{BatchReply, BatchRunReport, BatchRunner, IntakeState};
use longshore_ai::{Code, ProviderName, Question};
use longshore_testkit::ManualClock;
use longshore_testkit::fake_ai::{BatchItemFailure, BatchPlan, FakeBehaviour};
use tokio::time::Instant;

use super::crash_points::{Kill, Killable, Tripwire};
use super::fixture::{BOTH, BatchFixture};

const IDS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// A batch with five parked questions, and its provider.
struct RunnerFixture {
    fixture: BatchFixture,
    clock: Arc<ManualClock>,
    store: Arc<MemoryStore>,
    wire: Arc<Tripwire>,
    batch: BatchId,
}

impl RunnerFixture {
    async fn of(name: ProviderName, wire: Arc<Tripwire>) -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let batch = BatchId::new("b-1").unwrap();
        let items = IDS.map(|id| NewPendingRequest {
            custom_id: id.into(),
            unit: UnitId::new(),
            prompt: format!("about {id}"),
        });
        store.change_pending(&batch, PendingChange::Add(items.into())).await.unwrap();
        Self { fixture: BatchFixture::of(name).await, clock, store, wire, batch }
    }

    fn conductor(&self) -> BatchRunner {
        let wire = || self.wire.clone();
        let parking = Arc::new(Killable { wire: wire(), inner: self.store.clone() });
        let provider = Arc::new(Killable { wire: wire(), inner: self.fixture.provider.clone() });
        let until = Instant::now() + Duration::from_secs(60);
        let ask = move |parked: &longshore::accounts::PendingRequest| {
            Question::new(parked.new.custom_id.as_str(), parked.new.prompt.as_str(), until)
        };
        BatchRunner::new(self.batch.clone(), parking, provider, Arc::new(ask), self.clock.clone())
    }

    /// One turn; `None` if it was killed.
    async fn turn(&self, conductor: &mut BatchRunner) -> Option<BatchRunReport> {
        tokio::select! {
            turn = conductor.run_once(IntakeState::Complete) => Some(turn.unwrap()),
            () = self.wire.tripped.notified() => None,
        }
    }

    /// Turns until nothing is pending or submitted, with a new runner after each kill.
    async fn play(&self) {
        let mut conductor = self.conductor();
        let mut turns = 0;
        loop {
            turns += 1;
            assert!(turns < 200, "it does not come to an end");
            match self.turn(&mut conductor).await {
                None => conductor = self.conductor(),
                Some(BatchRunReport { next_run: None, .. }) => return,
                Some(BatchRunReport { next_run: Some(until), .. }) => {
                    self.clock.set(until.max(self.clock.now() + Duration::from_millis(1)));
                }
            }
        }
    }

    async fn replies(&self) -> BTreeMap<&'static str, BatchReply> {
        let mut replies = BTreeMap::new();
        for id in IDS {
            let asked = PendingFilter::CustomId(id.to_owned());
            let parked = self.store.pending_requests(&self.batch, &asked, 1).await.unwrap().remove(0);
            replies.insert(id, parked.reply.expect(id).parse().unwrap());
        }
        replies
    }

    /// How often each question was submitted.
    fn sent(&self) -> BTreeMap<String, usize> {
        let mut sent = BTreeMap::new();
        for id in self.fixture.fake.batches().into_iter().flat_map(|batch| batch.ids) {
            *sent.entry(id).or_default() += 1;
        }
        sent
    }
}

fn never() -> Arc<Tripwire> {
    Tripwire::at(usize::MAX - 1, Kill::Before)
}

fn once_each(but: &[(&str, usize)]) -> BTreeMap<String, usize> {
    let mut sent: BTreeMap<String, usize> = IDS.map(|id| (id.to_owned(), 1)).into();
    sent.extend(but.iter().map(|(id, times)| ((*id).to_owned(), *times)));
    sent
}

fn is_answer_to(id: &str, reply: &BatchReply) -> bool {
    matches!(reply, BatchReply::Answer { answer, .. } if answer.text.contains(&format!("about {id}")))
}

#[tokio::test]
async fn a_conductor_killed_at_every_step_pays_once_and_loses_nothing() {
    for name in BOTH {
        for kill in [Kill::Before, Kill::After] {
            let mut calls = 0;
            loop {
                let fixture = RunnerFixture::of(name, Tripwire::at(calls, kill)).await;
                fixture
                    .fixture
                    .fake
                    .push_batch_plans(vec![BatchPlan { polls: 1, ..BatchPlan::default() }; 3]);
                fixture.fixture.fake.fail_in_batch("b", BatchItemFailure::Expired);
                fixture.play().await;
                let place = format!("{name}, killed {kill:?} call {calls}");
                for (id, reply) in fixture.replies().await {
                    assert!(is_answer_to(id, &reply), "{place}: {id}: {reply:?}");
                }
                assert_eq!(fixture.sent(), once_each(&[("b", 2)]), "{place}");
                let (provider_batches, _) = fixture.store.provider_batches(&fixture.batch).await.unwrap();
                assert!(provider_batches.is_empty(), "{place}: {provider_batches:?}");
                if !fixture.wire.is_spent() {
                    break;
                }
                calls += 1;
            }
            assert!(calls > 30, "{name}: only {calls} calls were tried");
        }
    }
}

#[tokio::test]
async fn what_the_provider_refuses_is_told_and_what_it_forgot_is_asked_again() {
    for name in BOTH {
        let fixture = RunnerFixture::of(name, never()).await;
        fixture.fixture.fake.push_batch_plans([
            BatchPlan::with([("a", BatchItemFailure::Error(400)), ("b", BatchItemFailure::Error(529))]),
            BatchPlan::with([("d", BatchItemFailure::Missing)]),
        ]);
        fixture.play().await;
        let replies = fixture.replies().await;
        let refused = &replies["a"];
        assert!(
            matches!(refused, BatchReply::Error { code: Code::InvalidRequest, .. }),
            "{name}: {refused:?}"
        );
        for id in ["b", "c", "d", "e"] {
            assert!(is_answer_to(id, &replies[id]), "{name}: {id}");
        }
        assert_eq!(fixture.sent(), once_each(&[("b", 2), ("d", 2)]), "{name}");
    }
}

#[tokio::test]
async fn a_question_that_is_never_answered_is_given_up() {
    for name in BOTH {
        let fixture = RunnerFixture::of(name, never()).await;
        fixture.fixture.fake.push_batch_plans(vec![BatchPlan::with([("a", BatchItemFailure::Expired)]); 12]);
        fixture.play().await;
        let replies = fixture.replies().await;
        assert!(matches!(&replies["a"], BatchReply::Error { .. }), "{name}: {:?}", replies["a"]);
        assert_eq!(fixture.sent(), once_each(&[("a", 5)]), "{name}");
    }
}

#[tokio::test]
async fn a_submission_that_nobody_heard_of_is_not_repeated() {
    for name in BOTH {
        let fixture = RunnerFixture::of(name, never()).await;
        let heard = if name == ProviderName::Openai { vec![FakeBehaviour::default()] } else { Vec::new() };
        fixture.fixture.fake.push_behaviours(heard.into_iter().chain([FakeBehaviour::ExecuteThenClose]));
        fixture.play().await;
        assert_eq!(fixture.replies().await.len(), IDS.len());
        assert_eq!(fixture.sent(), once_each(&[]), "{name}");
    }
}

#[tokio::test]
async fn a_provider_that_is_full_is_asked_again_and_uses_up_no_tries() {
    let fixture = RunnerFixture::of(ProviderName::Openai, never()).await;
    let full = BatchPlan { fails_with: Some("token_limit_exceeded".into()), ..BatchPlan::default() };
    fixture.fixture.fake.push_batch_plans(vec![full; 20]);
    fixture.play().await;
    for (id, reply) in fixture.replies().await {
        assert!(is_answer_to(id, &reply), "{id}: {reply:?}");
    }
}

#[tokio::test]
async fn questions_wait_a_while_for_others_unless_all_are_there() {
    let fixture = RunnerFixture::of(ProviderName::Anthropic, never()).await;
    let mut conductor = fixture.conductor();
    let began = fixture.clock.now();
    let turn = conductor.run_once(IntakeState::Open).await.unwrap();
    // Two full provider batches of two were submitted; the last question waits.
    assert_eq!(fixture.fixture.fake.batches().len(), 2);
    assert!(turn.next_run.unwrap() <= began + Duration::from_secs(60));
    fixture.clock.advance(Duration::from_secs(60));
    conductor.run_once(IntakeState::Open).await.unwrap();
    assert_eq!(fixture.sent(), once_each(&[]));
}

#[tokio::test]
async fn whoever_waits_for_an_answer_is_woken() {
    let fixture = RunnerFixture::of(ProviderName::Anthropic, never()).await;
    let mut conductor = fixture.conductor();
    let mut woken = 0;
    loop {
        let turn = conductor.run_once(IntakeState::Complete).await.unwrap();
        woken += turn.answered_units.len();
        let Some(until) = turn.next_run else { break };
        fixture.clock.set(until.max(fixture.clock.now() + Duration::from_millis(1)));
    }
    assert_eq!(woken, IDS.len());
}

#[tokio::test]
async fn what_is_on_hold_is_not_sent_and_what_is_out_still_comes_back() {
    let fixture = RunnerFixture::of(ProviderName::Anthropic, never()).await;
    let mut conductor = fixture.conductor();
    conductor.run_once(IntakeState::Paused).await.unwrap();
    assert!(fixture.sent().is_empty(), "nothing was sealed or sent");
    fixture.fixture.fake.push_batch_plans(vec![BatchPlan { polls: 1, ..BatchPlan::default() }]);
    let turn = conductor.run_once(IntakeState::Complete).await.unwrap();
    assert_eq!(fixture.sent(), once_each(&[]));
    let mut rest = turn.next_run;
    while let Some(until) = rest {
        fixture.clock.set(until.max(fixture.clock.now() + Duration::from_millis(1)));
        rest = conductor.run_once(IntakeState::Paused).await.unwrap().next_run;
    }
    for (id, reply) in fixture.replies().await {
        assert!(is_answer_to(id, &reply), "{id}: {reply:?}");
    }
}
