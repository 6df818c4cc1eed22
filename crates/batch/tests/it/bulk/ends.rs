//! Batches that do not come to a good end: cancelled, too late, without money, without a profile.

use std::sync::Arc;
use std::time::Duration;

use longshore::batch::BatchAction;
use longshore::ledger::{Budget, CallStatus};
use longshore::{BatchId, BatchStatus, Clock, Scope, SystemClock, TenantId};
use longshore_ai::ProviderName;
use longshore_batch::definition::Definition;
use longshore_testkit::ManualClock;
use longshore_testkit::fake_ai::{Act, BatchPlan, Fate};
use longshore_testkit::standstill::{Kill, Tripwire};

use super::kit::{BOTH, Port};

fn endless() -> BatchPlan {
    BatchPlan { polls: u32::MAX, ..BatchPlan::default() }
}

async fn all_are_out(port: &Port, rows: u64) {
    let id = longshore::BatchId::new("b-1").unwrap();
    port.until(async || port.ledger.parked(&id).await.unwrap().out == rows).await;
    port.until(async || port.batch(&id).await.counts.scheduled == rows).await;
}

/// They are out, and it is known what the provider calls them: one that died before would look for them, with
/// some providers until their batch is over.
async fn all_are_taken(port: &Port, rows: u64) {
    all_are_out(port, rows).await;
    let id = longshore::BatchId::new("b-1").unwrap();
    let known = async || port.ledger.shipments(&id).await.unwrap();
    port.until(async || known().await.iter().all(|one| one.ticket.is_some())).await;
}

#[tokio::test]
async fn a_cancelled_batch_is_cancelled_with_the_provider_and_what_was_answered_is_in_the_books() {
    for provider in BOTH {
        let port = Port::new(provider, 4).await;
        port.fake.plan(vec![endless(); 10]);
        let id = port.start("b-1", &port.definition()).await;
        port.work_until(async {
            all_are_out(&port, 4).await;
            port.store.operate_batch(&Scope::All, &id, BatchAction::Cancel).await.unwrap();
            port.over(&id).await;
        })
        .await;
        let batch = port.batch(&id).await;
        assert_eq!((batch.status, batch.counts.cancelled), (BatchStatus::Cancelled, 4));
        let cancels = port.fake.seen().iter().filter(|seen| seen.path.ends_with("/cancel")).count();
        assert_eq!(cancels, port.fake.batches().len(), "{provider}");
        // The fake answers what it has when it is cancelled.
        let calls = port.calls(&id).await;
        assert_eq!(calls.len(), 4);
        assert!(calls.iter().all(|call| call.status == CallStatus::Success), "{calls:#?}");
        assert_eq!(port.number("SELECT count(*) FROM rows WHERE seen > 0"), 0, "and no POST");
        port.assert_nothing_is_left(&id).await;
    }
}

#[tokio::test]
async fn a_cancelled_batch_whose_profile_is_gone_may_have_been_billed() {
    let port = Port::new(ProviderName::Openai, 3).await;
    port.fake.plan(vec![endless(); 10]);
    let id = port.start("b-1", &port.definition()).await;
    port.work_until(async {
        all_are_out(&port, 3).await;
        port.put(None, Some(true)).await;
        port.store.operate_batch(&Scope::All, &id, BatchAction::Cancel).await.unwrap();
        port.over(&id).await;
    })
    .await;
    let calls = port.calls(&id).await;
    assert_eq!(calls.len(), 3);
    assert!(calls.iter().all(|call| call.status == CallStatus::MaybeBilled), "{calls:#?}");
    port.assert_nothing_is_left(&id).await;
}

#[tokio::test]
async fn a_batch_that_is_too_late_is_cancelled_with_the_provider_and_its_rows_are_told() {
    let port = Port::new(ProviderName::Anthropic, 3).await;
    port.fake.plan(vec![endless(); 10]);
    let deadline = Some(SystemClock.now() + Duration::from_secs(5));
    let id = port.start("b-1", &Definition { deadline, ..port.definition() }).await;
    port.work_until_over(&id).await;
    let counts = port.batch(&id).await.counts;
    // What the fake answers when it is cancelled is used: it was paid for.
    assert_eq!((counts.done, counts.total()), (3, 3));
    port.assert_nothing_is_left(&id).await;
}

/// Every row was told that its time was over, and nobody else was asked.
async fn assert_timed_out(port: &Port, id: &BatchId, rows: u64) {
    let units = port.units(id).await;
    assert_eq!(units.len() as u64, rows);
    for unit in units {
        assert_eq!(unit.failure.unwrap().code, "timeout");
    }
    for call in port.calls(id).await {
        let end = call.end.unwrap();
        assert_eq!((call.status, end.code.as_deref()), (CallStatus::Error, Some("TIMEOUT")));
        assert_eq!(end.cost_picos, 0);
    }
    port.assert_nothing_is_left(id).await;
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A batch that has a day.
fn due_tomorrow(port: &Port) -> Definition {
    Definition { deadline: Some(SystemClock.now() + DAY), ..port.definition() }
}

/// From now on conductors live this much later.
fn later(port: &mut Port, by: Duration) -> Arc<ManualClock> {
    let clock = Arc::new(ManualClock::at(SystemClock.now() + by));
    port.clock = Arc::clone(&clock) as _;
    clock
}

#[tokio::test]
async fn rows_whose_questions_still_wait_at_the_deadline_are_told_timeout() {
    let mut port = Port::new(ProviderName::Openai, 3).await;
    let mut definition = due_tomorrow(&port);
    if let Some(patient) = &mut definition.ai.provider_batch {
        patient.gather = 10 * DAY;
    }
    // More rows may come, so that those that are there wait for them.
    let id = port.open("b-1", &definition).await;
    let all_wait = async || port.ledger.parked(&id).await.unwrap().waiting == 3;
    port.work_until(port.until(all_wait)).await;
    later(&mut port, 2 * DAY);
    port.wake_conductors().await;
    port.work_until(port.until(async || port.batch(&id).await.counts.failed == 3)).await;
    assert!(port.fake.batches().is_empty(), "nobody was asked");
    assert_timed_out(&port, &id, 3).await;
}

#[tokio::test]
async fn rows_whose_questions_are_out_and_unanswered_at_the_deadline_are_told_timeout() {
    for provider in BOTH {
        let mut port = Port::new(provider, 3).await;
        port.fake.plan(vec![endless(); 10]);
        let id = port.start("b-1", &due_tomorrow(&port)).await;
        for unit in port.units(&id).await {
            port.fake.doom(&format!("{}-1", unit.id), Fate::Missing);
        }
        port.work_until(all_are_taken(&port, 3)).await;
        let clock = later(&mut port, 2 * DAY);
        port.work_until(async {
            port.until(async || {
                clock.advance(Duration::from_secs(1));
                port.batch(&id).await.status.is_final()
            })
            .await;
            port.over(&id).await;
        })
        .await;
        assert!(port.sent().values().all(|times| *times == 1), "{provider}: {:?}", port.sent());
        assert_timed_out(&port, &id, 3).await;
    }
}

#[tokio::test]
async fn a_provider_that_does_not_say_what_became_of_a_batch_is_waited_for_three_days() {
    for provider in BOTH {
        let mut port = Port::new(provider, 2).await;
        port.fake.plan(vec![endless(); 10]);
        let id = port.start("b-1", &due_tomorrow(&port)).await;
        port.work_until(all_are_out(&port, 2)).await;
        // From now on it says nothing.
        port.fake.usually(Act::refuse(500));
        let clock = later(&mut port, DAY + DAY / 2);
        port.work_until(async {
            let before = port.fake.seen().len();
            port.until(async || {
                clock.advance(Duration::from_secs(60));
                port.fake.seen().len() > before + 3
            })
            .await;
            assert_eq!(port.ledger.parked(&id).await.unwrap().out, 2, "it may still say");
            clock.advance(2 * DAY);
            port.over(&id).await;
        })
        .await;
        for unit in port.units(&id).await {
            assert_eq!(unit.failure.unwrap().code, "provider-error");
        }
        let calls = port.calls(&id).await;
        assert_eq!(calls.len(), 2, "what may have been billed is not asked again by itself");
        for call in calls {
            assert_eq!(call.status, CallStatus::MaybeBilled, "{provider}");
            assert!(call.end.unwrap().cost_picos > 0, "it counts as spent");
        }
        port.assert_nothing_is_left(&id).await;
    }
}

#[tokio::test]
async fn rows_beyond_the_budget_are_told_and_those_within_it_are_asked() {
    for provider in BOTH {
        let port = Port::new(provider, 10).await;
        let definition = port.definition();
        let most = u64::from(definition.ai.max_tokens) * 4 + 200;
        let budget = Budget { tokens: Some(most), cost_picos: None, warn_at: 1.0 };
        let tenant = TenantId::default();
        port.ledger.put_budget(&Scope::All, &tenant, Some(budget)).await.unwrap();
        port.fake.plan(vec![endless(); 10]);
        let id = port.start("b-1", &definition).await;
        port.work_until(async {
            port.until(async || {
                let counts = port.batch(&id).await.counts;
                counts.failed + counts.scheduled == 10 && counts.failed > 0
            })
            .await;
        })
        .await;
        let counts = port.batch(&id).await.counts;
        assert!(counts.scheduled > 0, "{provider}: {counts:?}");
        let month = port.ledger.budget(&Scope::All, &tenant).await.unwrap();
        assert!(month.reserved_tokens <= most, "{provider}: {month:?}");
        let calls = port.calls(&id).await;
        let refused = calls.iter().filter(|call| call.status == CallStatus::Error);
        let codes: Vec<_> = refused.map(|call| call.end.clone().unwrap().code.unwrap()).collect();
        assert_eq!(codes.len() as u64, counts.failed);
        assert!(codes.iter().all(|code| code == "OVER_BUDGET"), "{provider}: {codes:?}");
    }
}

#[tokio::test]
async fn rows_of_an_unusable_profile_are_told_what_they_are_told_directly() {
    let port = Port::new(ProviderName::Openai, 2).await;
    let cases = [
        (None, Some(true), "profile-disabled"),
        (Some(serde_json::json!({ "provider": "echo" })), Some(false), "invalid-request"),
    ];
    for (at, (body, suspended, code)) in cases.into_iter().enumerate() {
        port.put(body, suspended).await;
        let id = port.start(&format!("b-{at}"), &port.definition()).await;
        port.work_until(port.until(async || port.batch(&id).await.status.is_final())).await;
        for unit in port.units(&id).await {
            assert_eq!(unit.failure.unwrap().code, code);
        }
        assert!(port.fake.batches().is_empty(), "nobody was asked");
        port.assert_nothing_is_left(&id).await;
    }
}

#[tokio::test]
async fn questions_that_wait_when_their_profile_is_suspended_are_told_so() {
    let port = Port::new(ProviderName::Openai, 2).await;
    let mut definition = port.definition();
    if let Some(patient) = &mut definition.ai.provider_batch {
        patient.gather = Duration::from_secs(3600);
    }
    // More rows may come, so that those that are there wait for them.
    let id = port.open("b-1", &definition).await;
    port.work_until(async {
        port.until(async || port.ledger.parked(&id).await.unwrap().waiting == 2).await;
        port.put(None, Some(true)).await;
        // One that is awake just then goes to sleep knowing nothing: it is woken until it knows.
        port.until(async || {
            port.wake_conductors().await;
            port.batch(&id).await.counts.failed == 2
        })
        .await;
    })
    .await;
    for unit in port.units(&id).await {
        assert_eq!(unit.failure.unwrap().code, "profile-disabled");
    }
    assert!(port.fake.batches().is_empty(), "nobody was asked");
    port.assert_nothing_is_left(&id).await;
}

#[tokio::test]
async fn what_a_cancelled_batch_never_sent_costs_nothing() {
    for provider in BOTH {
        let port = Port::new(provider, 3).await;
        port.fake.usually(longshore_testkit::fake_ai::Act::refuse(429));
        let id = port.start("b-1", &port.definition()).await;
        port.work_until(async {
            all_are_out(&port, 3).await;
            port.store.operate_batch(&Scope::All, &id, BatchAction::Cancel).await.unwrap();
            port.fake.usually(longshore_testkit::fake_ai::Act::default());
            port.over(&id).await;
        })
        .await;
        for call in port.calls(&id).await {
            let end = call.end.unwrap();
            assert_eq!((end.code.as_deref(), end.cost_picos), (Some("CANCELLED"), 0), "{provider}");
        }
        assert!(port.fake.batches().is_empty(), "{provider}");
        port.assert_nothing_is_left(&id).await;
    }
}

#[tokio::test]
async fn a_row_that_died_between_the_books_and_the_parking_place_owes_nothing_once_it_is_cancelled()
{
    let port = Port::new(ProviderName::Openai, 2).await;
    port.fake.plan(vec![endless(); 10]);
    let id = port.start("b-1", &port.definition()).await;
    let wire = Tripwire::at(1, Kill::After, |verb| verb == "admit_calls");
    let (worker, desk) = port.worker_with(&wire);
    tokio::select! {
        ended = worker.run() => panic!("{ended:?}"),
        () = desk.keep_books() => {}
        () = async {
            wire.tripped.notified().await;
            port.until(async || port.conductors().await == 1).await;
        } => {}
    }
    port.bury().await;
    port.store.operate_batch(&Scope::All, &id, BatchAction::Cancel).await.unwrap();
    port.work_until_over(&id).await;
    let calls = port.calls(&id).await;
    assert_eq!(calls.len(), 2);
    let ends: Vec<_> = calls.into_iter().map(|call| call.end.unwrap()).collect();
    assert!(ends.iter().any(|end| end.code.as_deref() == Some("CANCELLED")), "{ends:#?}");
    port.assert_nothing_is_left(&id).await;
}
