//! Rows with questions in a provider batch, from parking to POST, against a fake of the provider's
//! API.

mod ends;
mod fixture;
mod kills;

use longshore::UnitState;
use longshore::accounts::{CallMode, CallStatus};
use longshore_testkit::fake_ai::{BatchItemFailure, BatchPlan};

use self::fixture::{BulkFixture, PROVIDERS};

#[tokio::test]
async fn every_row_of_a_batch_gets_its_own_answer_at_half_the_price() {
    for provider in PROVIDERS {
        let fixture = BulkFixture::new(provider, 60).await;
        fixture.fake.push_batch_plans([BatchPlan { polls: 2, ..BatchPlan::default() }]);
        let id = fixture.start("b-1", &fixture.definition()).await;
        fixture.work_until_over(&id).await;

        let batch = fixture.batch(&id).await;
        assert_eq!((batch.counts.done, batch.counts.total()), (60, 60), "{provider}");
        assert_eq!(fixture.number("SELECT count(*) FROM rows WHERE seen = 1 AND said = 'v' || id"), 60);
        let sent: Vec<_> = fixture.fake.batches().into_iter().map(|batch| batch.ids.len()).collect();
        assert_eq!(sent.iter().sum::<usize>(), 60, "{provider}: each question once: {sent:?}");

        let calls = fixture.calls(&id).await;
        assert_eq!(calls.len(), 60, "one call per question");
        for call in &calls {
            let end = call.end.as_ref().unwrap();
            assert_eq!((call.status, end.mode), (CallStatus::Success, CallMode::Batch));
            assert_eq!(end.cost_picos, fixture::half_price(end), "{provider}: {end:?}");
            assert!(end.cost_picos > 0);
        }
        let cost: i64 = calls.iter().map(|call| call.end.as_ref().unwrap().cost_picos).sum();
        assert_eq!(batch.sums.get("cost_picos").copied(), Some(cost));
        fixture.assert_nothing_is_left(&id).await;
    }
}

#[tokio::test]
async fn rows_that_are_parked_hold_no_slot_and_use_no_attempt() {
    let fixture = BulkFixture::new(PROVIDERS[0], 5).await;
    fixture.fake.push_batch_plans(vec![BatchPlan { polls: u32::MAX, ..BatchPlan::default() }; 5]);
    let id = fixture.start("b-1", &fixture.definition()).await;
    fixture
        .work_until(async {
            fixture
                .until(async || {
                    fixture.fake.batches().iter().map(|batch| batch.ids.len()).sum::<usize>() == 5
                })
                .await;
            fixture.until(async || fixture.batch(&id).await.counts.scheduled == 5).await;
        })
        .await;
    for unit in fixture.units(&id).await {
        assert_eq!((unit.state, unit.attempt), (UnitState::Scheduled, 0));
    }
    let parked = fixture.parked(&id).await;
    assert_eq!((parked.waiting, parked.out, parked.answered), (0, 5, 0));
}

#[tokio::test]
async fn what_expired_or_came_to_nothing_is_sent_again_by_its_missing_ids_only() {
    for provider in PROVIDERS {
        let fixture = BulkFixture::new(provider, 6).await;
        let id = fixture.start("b-1", &fixture.definition()).await;
        let units = fixture.units(&id).await;
        let asked = |at: usize| format!("{}-1", units[at].id);
        fixture.fake.fail_in_batch(&asked(0), BatchItemFailure::Expired);
        fixture.fake.fail_in_batch(&asked(3), BatchItemFailure::Missing);
        fixture.fake.fail_in_batch(&asked(5), BatchItemFailure::Error(400));
        fixture.work_until_over(&id).await;
        let batch = fixture.batch(&id).await;
        assert_eq!((batch.counts.done, batch.counts.failed), (5, 1), "{provider}");
        let sent = fixture.sent();
        let times: Vec<usize> = (0..6).map(|at| sent[&asked(at)]).collect();
        assert_eq!(times, [2, 1, 1, 2, 1, 1], "{provider}");
        let refused = fixture.calls(&id).await;
        let refused = refused.iter().filter(|call| call.status == CallStatus::Error);
        let codes: Vec<_> = refused.map(|call| call.end.clone().unwrap().code).collect();
        assert_eq!(codes, [Some("INVALID_REQUEST".to_owned())], "{provider}");
        let failure = fixture.units(&id).await.remove(5).failure.unwrap().message;
        assert!(failure.contains("the fake says 400: [prompt]"), "{provider}: {failure}");
        fixture.assert_nothing_is_left(&id).await;
    }
}
