//! Batches that fail: cancelled, too late, without budget, without a usable profile.

use std::sync::Arc;
use std::time::Duration;

use longshore::accounts::{Budget, CallStatus};
use longshore::batch::BatchAction;
use longshore::{BatchId, BatchStatus, Clock, Scope, SystemClock, TenantId};
use longshore_ai::ProviderName;
use longshore_batch::definition::Definition;
use longshore_testkit::ManualClock;
use longshore_testkit::crash_points::{CrashPoint, CrashTiming};
use longshore_testkit::fake_ai::{BatchItemFailure, BatchPlan, FakeBehaviour};

use super::fixture::{BulkFixture, PROVIDERS};
use crate::support;

fn endless() -> BatchPlan {
    BatchPlan { polls: u32::MAX, ..BatchPlan::default() }
}

async fn all_are_out(fixture: &BulkFixture, rows: u64) {
    let id = longshore::BatchId::new("b-1").unwrap();
    fixture.until(async || fixture.parked(&id).await.out == rows).await;
    fixture.until(async || fixture.batch(&id).await.counts.scheduled == rows).await;
}

/// Waits until all questions are submitted and the provider's batch id is stored: a runner that
/// died before would search for the batch, with some providers until that batch is over.
async fn all_are_taken(fixture: &BulkFixture, rows: u64) {
    all_are_out(fixture, rows).await;
    let id = longshore::BatchId::new("b-1").unwrap();
    let known = async || fixture.ledger.provider_batches(&id).await.unwrap().0;
    fixture.until(async || known().await.iter().all(|one| one.provider_id.is_some())).await;
}

#[tokio::test]
async fn a_cancelled_batch_is_cancelled_with_the_provider_and_what_was_answered_is_in_the_books() {
    for provider in PROVIDERS {
        let fixture = BulkFixture::new(provider, 4).await;
        fixture.fake.push_batch_plans(vec![endless(); 10]);
        let id = fixture.start("b-1", &fixture.definition()).await;
        fixture
            .work_until(async {
                all_are_out(&fixture, 4).await;
                fixture.store.apply_batch_action(&Scope::All, &id, BatchAction::Cancel).await.unwrap();
                fixture.over(&id).await;
            })
            .await;
        let batch = fixture.batch(&id).await;
        assert_eq!((batch.status, batch.counts.cancelled), (BatchStatus::Cancelled, 4));
        let cancels = fixture.fake.requests().iter().filter(|seen| seen.path.ends_with("/cancel")).count();
        assert_eq!(cancels, fixture.fake.batches().len(), "{provider}");
        // When cancelled, the fake returns the answers that it has.
        let calls = fixture.calls(&id).await;
        assert_eq!(calls.len(), 4);
        assert!(calls.iter().all(|call| call.status == CallStatus::Success), "{calls:#?}");
        assert_eq!(fixture.number("SELECT count(*) FROM rows WHERE seen > 0"), 0, "and no POST");
        fixture.assert_nothing_is_left(&id).await;
    }
}

#[tokio::test]
async fn a_cancelled_batch_whose_profile_is_gone_may_have_been_billed() {
    let fixture = BulkFixture::new(ProviderName::Openai, 3).await;
    fixture.fake.push_batch_plans(vec![endless(); 10]);
    let id = fixture.start("b-1", &fixture.definition()).await;
    fixture
        .work_until(async {
            all_are_out(&fixture, 3).await;
            fixture.put(None, Some(true)).await;
            fixture.store.apply_batch_action(&Scope::All, &id, BatchAction::Cancel).await.unwrap();
            fixture.over(&id).await;
        })
        .await;
    let calls = fixture.calls(&id).await;
    assert_eq!(calls.len(), 3);
    assert!(calls.iter().all(|call| call.status == CallStatus::MaybeBilled), "{calls:#?}");
    fixture.assert_nothing_is_left(&id).await;
}

#[tokio::test]
async fn a_batch_that_is_too_late_is_cancelled_with_the_provider_and_its_rows_are_told() {
    let fixture = BulkFixture::new(ProviderName::Anthropic, 3).await;
    fixture.fake.push_batch_plans(vec![endless(); 10]);
    let deadline = Some(SystemClock.now() + Duration::from_secs(5));
    let id = fixture.start("b-1", &Definition { deadline, ..fixture.definition() }).await;
    fixture.work_until_over(&id).await;
    let counts = fixture.batch(&id).await.counts;
    // Answers that the fake returns when cancelled are used: they were paid for.
    assert_eq!((counts.done, counts.total()), (3, 3));
    fixture.assert_nothing_is_left(&id).await;
}

/// Asserts that every row failed with a timeout and that nothing else was sent.
async fn assert_timed_out(fixture: &BulkFixture, id: &BatchId, rows: u64) {
    let units = fixture.units(id).await;
    assert_eq!(units.len() as u64, rows);
    for unit in units {
        assert_eq!(unit.failure.unwrap().code, "timeout");
    }
    for call in fixture.calls(id).await {
        let end = call.end.unwrap();
        assert_eq!((call.status, end.code.as_deref()), (CallStatus::Error, Some("TIMEOUT")));
        assert_eq!(end.cost_picos, 0);
    }
    fixture.assert_nothing_is_left(id).await;
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A definition with a deadline in a day.
fn due_tomorrow(fixture: &BulkFixture) -> Definition {
    Definition { deadline: Some(SystemClock.now() + DAY), ..fixture.definition() }
}

/// Advances the runners' clock.
fn later(fixture: &mut BulkFixture, by: Duration) -> Arc<ManualClock> {
    let clock = Arc::new(ManualClock::at(SystemClock.now() + by));
    fixture.clock = Arc::clone(&clock) as _;
    clock
}

#[tokio::test]
async fn rows_whose_questions_still_wait_at_the_deadline_are_told_timeout() {
    let mut fixture = BulkFixture::new(ProviderName::Openai, 3).await;
    let mut definition = due_tomorrow(&fixture);
    if let Some(patient) = &mut support::ai(&mut definition).provider_batch {
        patient.gather = 10 * DAY;
    }
    // The batch is not sealed, so its questions wait for more rows.
    let id = fixture.open("b-1", &definition).await;
    let all_wait = async || fixture.parked(&id).await.waiting == 3;
    fixture.work_until(fixture.until(all_wait)).await;
    later(&mut fixture, 2 * DAY);
    fixture.wake_runners().await;
    fixture.work_until(fixture.until(async || fixture.batch(&id).await.counts.failed == 3)).await;
    assert!(fixture.fake.batches().is_empty(), "no provider was asked");
    assert_timed_out(&fixture, &id, 3).await;
}

#[tokio::test]
async fn rows_whose_questions_are_out_and_unanswered_at_the_deadline_are_told_timeout() {
    for provider in PROVIDERS {
        let mut fixture = BulkFixture::new(provider, 3).await;
        fixture.fake.push_batch_plans(vec![endless(); 10]);
        let id = fixture.start("b-1", &due_tomorrow(&fixture)).await;
        for unit in fixture.units(&id).await {
            fixture.fake.fail_in_batch(&format!("{}-1", unit.id), BatchItemFailure::Missing);
        }
        fixture.work_until(all_are_taken(&fixture, 3)).await;
        let clock = later(&mut fixture, 2 * DAY);
        fixture
            .work_until(async {
                fixture
                    .until(async || {
                        clock.advance(Duration::from_secs(1));
                        fixture.batch(&id).await.status.is_final()
                    })
                    .await;
                fixture.over(&id).await;
            })
            .await;
        assert!(fixture.sent().values().all(|times| *times == 1), "{provider}: {:?}", fixture.sent());
        assert_timed_out(&fixture, &id, 3).await;
    }
}

#[tokio::test]
async fn a_provider_that_does_not_say_what_became_of_a_batch_is_waited_for_three_days() {
    for provider in PROVIDERS {
        let mut fixture = BulkFixture::new(provider, 2).await;
        fixture.fake.push_batch_plans(vec![endless(); 10]);
        let id = fixture.start("b-1", &due_tomorrow(&fixture)).await;
        fixture.work_until(all_are_out(&fixture, 2)).await;
        // From now on the provider does not answer.
        fixture.fake.set_default(FakeBehaviour::error(500));
        let clock = later(&mut fixture, DAY + DAY / 2);
        fixture
            .work_until(async {
                let before = fixture.fake.requests().len();
                fixture
                    .until(async || {
                        clock.advance(Duration::from_secs(60));
                        fixture.fake.requests().len() > before + 3
                    })
                    .await;
                assert_eq!(fixture.parked(&id).await.out, 2, "it may still say");
                clock.advance(2 * DAY);
                fixture.over(&id).await;
            })
            .await;
        for unit in fixture.units(&id).await {
            assert_eq!(unit.failure.unwrap().code, "provider-error");
        }
        let calls = fixture.calls(&id).await;
        assert_eq!(calls.len(), 2, "what may have been billed is not asked again by itself");
        for call in calls {
            assert_eq!(call.status, CallStatus::MaybeBilled, "{provider}");
            assert!(call.end.unwrap().cost_picos > 0, "it counts as spent");
        }
        fixture.assert_nothing_is_left(&id).await;
    }
}

#[tokio::test]
async fn rows_beyond_the_budget_are_told_and_those_within_it_are_asked() {
    for provider in PROVIDERS {
        let fixture = BulkFixture::new(provider, 10).await;
        let definition = fixture.definition();
        // A reservation covers tokens that a provider adds by itself.
        let most = (u64::from(definition.ai().unwrap().max_tokens) + 1_500) * 4;
        let budget = Budget { tokens: Some(most), cost_picos: None, warn_at: 1.0 };
        let tenant = TenantId::default();
        fixture.ledger.put_budget(&Scope::All, &tenant, Some(budget)).await.unwrap();
        fixture.fake.push_batch_plans(vec![endless(); 10]);
        let id = fixture.start("b-1", &definition).await;
        fixture
            .work_until(async {
                fixture
                    .until(async || {
                        let counts = fixture.batch(&id).await.counts;
                        counts.failed + counts.scheduled == 10 && counts.failed > 0
                    })
                    .await;
            })
            .await;
        let counts = fixture.batch(&id).await.counts;
        assert!(counts.scheduled > 0, "{provider}: {counts:?}");
        let month = fixture.ledger.budget(&Scope::All, &tenant).await.unwrap();
        assert!(month.reserved_tokens <= most, "{provider}: {month:?}");
        let calls = fixture.calls(&id).await;
        let refused = calls.iter().filter(|call| call.status == CallStatus::Error);
        let codes: Vec<_> = refused.map(|call| call.end.clone().unwrap().code.unwrap()).collect();
        assert_eq!(codes.len() as u64, counts.failed);
        assert!(codes.iter().all(|code| code == "OVER_BUDGET"), "{provider}: {codes:?}");
    }
}

#[tokio::test]
async fn rows_of_an_unusable_profile_are_told_what_they_are_told_directly() {
    let fixture = BulkFixture::new(ProviderName::Openai, 2).await;
    let cases = [
        (None, Some(true), "profile-disabled"),
        (Some(serde_json::json!({ "provider": "echo" })), Some(false), "invalid-request"),
    ];
    for (at, (body, suspended, code)) in cases.into_iter().enumerate() {
        fixture.put(body, suspended).await;
        let id = fixture.start(&format!("b-{at}"), &fixture.definition()).await;
        fixture.work_until(fixture.until(async || fixture.batch(&id).await.status.is_final())).await;
        for unit in fixture.units(&id).await {
            assert_eq!(unit.failure.unwrap().code, code);
        }
        assert!(fixture.fake.batches().is_empty(), "no provider was asked");
        fixture.assert_nothing_is_left(&id).await;
    }
}

#[tokio::test]
async fn questions_that_wait_when_their_profile_is_suspended_are_told_so() {
    let fixture = BulkFixture::new(ProviderName::Openai, 2).await;
    let mut definition = fixture.definition();
    if let Some(patient) = &mut support::ai(&mut definition).provider_batch {
        patient.gather = Duration::from_secs(3600);
    }
    // The batch is not sealed, so its questions wait for more rows.
    let id = fixture.open("b-1", &definition).await;
    fixture
        .work_until(async {
            fixture.until(async || fixture.parked(&id).await.waiting == 2).await;
            fixture.put(None, Some(true)).await;
            // A row that runs just then snoozes without an answer, so it is woken until it has one.
            fixture
                .until(async || {
                    fixture.wake_runners().await;
                    fixture.batch(&id).await.counts.failed == 2
                })
                .await;
        })
        .await;
    for unit in fixture.units(&id).await {
        assert_eq!(unit.failure.unwrap().code, "profile-disabled");
    }
    assert!(fixture.fake.batches().is_empty(), "no provider was asked");
    fixture.assert_nothing_is_left(&id).await;
}

#[tokio::test]
async fn what_a_cancelled_batch_never_sent_costs_nothing() {
    for provider in PROVIDERS {
        // The worker may send the rows in the moment before it sees the cancel.
        let mut tries = 0;
        while !is_cancelled_unsent(provider).await {
            tries += 1;
            assert!(tries < 10, "{provider}: sent each time");
        }
    }
}

/// Cancels a batch that the provider refused so far. Returns false if its rows were sent all the same.
async fn is_cancelled_unsent(provider: ProviderName) -> bool {
    let fixture = BulkFixture::new(provider, 3).await;
    fixture.fake.set_default(longshore_testkit::fake_ai::FakeBehaviour::error(429));
    let id = fixture.start("b-1", &fixture.definition()).await;
    fixture
        .work_until(async {
            all_are_out(&fixture, 3).await;
            fixture.store.apply_batch_action(&Scope::All, &id, BatchAction::Cancel).await.unwrap();
            fixture.fake.set_default(longshore_testkit::fake_ai::FakeBehaviour::default());
            fixture.over(&id).await;
        })
        .await;
    fixture.assert_nothing_is_left(&id).await;
    if !fixture.fake.batches().is_empty() {
        return false;
    }
    for call in fixture.calls(&id).await {
        let end = call.end.unwrap();
        assert_eq!((end.code.as_deref(), end.cost_picos), (Some("CANCELLED"), 0), "{provider}");
    }
    true
}

#[tokio::test]
async fn a_row_that_died_between_the_books_and_the_parking_place_owes_nothing_once_it_is_cancelled() {
    let fixture = BulkFixture::new(ProviderName::Openai, 2).await;
    fixture.fake.push_batch_plans(vec![endless(); 10]);
    let id = fixture.start("b-1", &fixture.definition()).await;
    let wire = CrashPoint::at(1, CrashTiming::After, &["admit_calls"]);
    let (worker, inference) = fixture.worker_with(&wire);
    tokio::select! {
        ended = worker.run() => panic!("{ended:?}"),
        () = inference.run_journal() => {}
        () = async {
            wire.reached.notified().await;
            fixture.until(async || fixture.runners().await == 1).await;
        } => {}
    }
    fixture.reclaim_dead().await;
    fixture.store.apply_batch_action(&Scope::All, &id, BatchAction::Cancel).await.unwrap();
    fixture.work_until_over(&id).await;
    let calls = fixture.calls(&id).await;
    assert_eq!(calls.len(), 2);
    let ends: Vec<_> = calls.into_iter().map(|call| call.end.unwrap()).collect();
    assert!(ends.iter().any(|end| end.code.as_deref() == Some("CANCELLED")), "{ends:#?}");
    fixture.assert_nothing_is_left(&id).await;
}
