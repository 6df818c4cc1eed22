//! 5 and 6: tenants that crowd out others, and unbounded queues.

use std::sync::Arc;
use std::time::Duration;

use longshore::batch::Callback;
use longshore::store::{Capacity, QueueChange, SendRejection, SendResult};
use longshore::{
    BatchId, Client, Context, Failure, Kind, NewBatch, NewUnit, Outcome, QueueName, Store, TenantId,
    WhenFull, Worker,
};
use tokio::task::{JoinSet, block_in_place};

use super::fixture::{
    ALL, StoreFixture, assert_consistent, claim, claim_request, counts, fast_retry, finish, kind, send,
    session, unit, units, wait_until,
};

fn of_tenant(name: &str, units: Vec<NewUnit>) -> Vec<NewUnit> {
    let tenant = TenantId::new(name).unwrap();
    units.into_iter().map(|unit| NewUnit { tenant: tenant.clone(), ..unit }).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn complaint_05_a_tenant_with_many_units_does_not_delay_one_with_few() {
    for fixture in block_in_place(StoreFixture::both) {
        let store = fixture.open().await;
        send(&store, of_tenant("large", units(50_000))).await;
        let session = session(&*store).await;
        // The large tenant has the queue to itself for a while; the small tenant must not be delayed
        // for that.
        let held = claim(&*store, session, 100).await;
        finish(&*store, session, &held, &Outcome::Done(None)).await;
        send(&store, of_tenant("small", units(10))).await;
        let (mut turns, mut small) = (0, 0);
        // Claims of one unit and of four in turn.
        for asked in [1, 4].into_iter().cycle() {
            if small == 10 {
                break;
            }
            let held = claim(&*store, session, asked).await;
            turns += held.len();
            small += held.iter().filter(|held| held.unit.tenant.as_str() == "small").count();
            finish(&*store, session, &held, &Outcome::Done(None)).await;
        }
        assert!(turns <= 25, "{}: the small tenant's ten units took {turns} claims", fixture.name());
        assert_consistent(&*store).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn complaint_06_a_full_queue_refuses_or_keeps_senders_waiting_and_never_its_consumers() {
    for fixture in block_in_place(StoreFixture::both) {
        let store = fixture.open().await;
        set_queue_limit(&*store, 10).await;
        let client = Client::new(Arc::clone(&store));
        let callback =
            Callback::new(QueueName::default(), Kind::new("after").unwrap(), serde_json::Value::Null);
        let batch = NewBatch::new(BatchId::new("b").unwrap());
        let batch = NewBatch { callback: Some(callback), ..batch };
        let mut writer = client.open_batch(batch).await.unwrap();
        writer.add(units(5), "all".to_owned()).await.unwrap();
        writer.seal().await.unwrap();
        let sent = client.send_many(units(6), WhenFull::Reject).await.unwrap();
        let full = |sent: &&SendResult| matches!(sent, SendResult::Rejected(SendRejection::Full { .. }));
        assert_eq!(sent.iter().filter(full).count(), 1, "{}", fixture.name());

        // The queue is above its limit: no unit may be added, yet the batch's five units are retried
        // and finished, and the callback is enqueued.
        set_queue_limit(&*store, 1).await;
        consume_the_batch(&*store).await;
        assert_eq!(counts(&*store).await.live(), 6, "five others and the callback");

        // A sender waits for room until consumers make it.
        let mut waiting = JoinSet::new();
        waiting.spawn(async move { client.send(unit(99)).await.unwrap() });
        let worker = Worker::builder(Arc::clone(&store))
            .slots(2)
            .handle_fn(kind(), fast_retry(), |_: Context, _: u64| async { Ok::<(), String>(()) })
            .handle_fn(Kind::new("after").unwrap(), fast_retry(), |_: Context, _: serde_json::Value| async {
                Ok::<(), String>(())
            })
            .build()
            .unwrap();
        let control = worker.control();
        let end = async {
            waiting.join_next().await.unwrap().unwrap();
            wait_until(async || counts(&*store).await.live() == 0).await;
            control.drain();
        };
        let (report, ()) = tokio::join!(worker.run(), end);
        assert_eq!(report.unwrap().done, 7, "five others, the callback, and the waiting unit");
        assert_consistent(&*store).await;
    }
}

async fn set_queue_limit(store: &dyn Store, units: u64) {
    let capacity = Some(Capacity { units: Some(units), bytes: None });
    let change = QueueChange { capacity, ..QueueChange::default() };
    store.change_queue(&ALL, &QueueName::default(), change).await.unwrap();
}

/// Each unit of the batch fails once and then succeeds.
async fn consume_the_batch(store: &dyn Store) {
    let session = session(store).await;
    let asked = || longshore::store::ClaimRequest {
        batch: Some(BatchId::new("b").unwrap()),
        ..claim_request(session, 5)
    };
    let first = store.claim(asked()).await.unwrap().units;
    assert_eq!(first.len(), 5);
    let failure = Failure::new("test", "as told");
    let again = Outcome::Retry { failure, after: Some(Duration::ZERO) };
    finish(store, session, &first, &again).await;
    let mut ended = 0;
    while ended < 5 {
        store.promote(100).await.unwrap();
        let second = store.claim(asked()).await.unwrap().units;
        finish(store, session, &second, &Outcome::Done(None)).await;
        ended += second.len();
    }
    store.close_session(session).await.unwrap();
}
