//! 2: batches that never end, and callbacks that run twice or never.

use std::sync::Arc;
use std::time::Instant;

use longshore::batch::{BatchAction, Callback};
use longshore::store::{ClaimRequest, FinishRequest, LeasedUnit};
use longshore::{
    BatchId, BatchStatus, Client, Failure, Kind, NewBatch, Outcome, QueueName, SessionId, Store,
};
use serde_json::Value;
use tokio::sync::Barrier;
use tokio::task::{JoinSet, block_in_place};

use super::fixture::{ALL, StoreFixture, assert_consistent, claim, claim_request, finish, session, units};
use crate::support::{TIMEOUT, pick_size};

/// Units of a batch; a task of its own finishes each.
const BATCH_UNITS: usize = 32;

fn callback_kind() -> Kind {
    Kind::new("after").unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn complaint_02_a_batch_ends_and_calls_back_exactly_once_however_its_last_units_end() {
    for fixture in block_in_place(StoreFixture::both) {
        let stores = [fixture.open().await, fixture.open().await];
        let sessions = [session(&*stores[0]).await, session(&*stores[1]).await];
        for round in 0..pick_size(8, 200) {
            let id = BatchId::new(format!("b{round}")).unwrap();
            enqueue_batch(&stores[0], &id).await;
            finish_concurrently(&stores, &sessions, true).await;
            assert_ended(&*stores[0], sessions[0], &id, 1).await;
            // The failed half runs again: a new generation with its own end and callback.
            stores[1].apply_batch_action(&ALL, &id, BatchAction::RetryFailed).await.unwrap();
            finish_concurrently(&stores, &sessions, false).await;
            assert_ended(&*stores[0], sessions[0], &id, 2).await;
        }
        assert_consistent(&*stores[0]).await;
    }
}

async fn enqueue_batch(store: &Arc<dyn Store>, id: &BatchId) {
    let callback = Callback::new(QueueName::default(), callback_kind(), Value::Null);
    let new = NewBatch { callback: Some(callback), ..NewBatch::new(id.clone()) };
    let mut writer = Client::new(Arc::clone(store)).open_batch(new).await.unwrap();
    writer.add(units(BATCH_UNITS), "all".to_owned()).await.unwrap();
    writer.seal().await.unwrap();
}

/// Two sessions hold half of the units each; one task per unit finishes it, all at the same moment.
/// If `fail`, every other unit fails.
async fn finish_concurrently(stores: &[Arc<dyn Store>; 2], sessions: &[SessionId; 2], fail: bool) {
    let mut held: Vec<(usize, LeasedUnit)> = Vec::new();
    let expected = if fail { BATCH_UNITS } else { BATCH_UNITS / 2 };
    // A claim skips rows that another transaction has locked, and is repeated.
    let deadline = Instant::now() + TIMEOUT;
    while held.len() < expected {
        assert!(Instant::now() < deadline, "{} of {expected} units can be claimed", held.len());
        let at = held.len() % 2;
        held.extend(claim(&*stores[at], sessions[at], 1).await.pop().map(|one| (at, one)));
    }
    assert!(claim(&*stores[0], sessions[0], 1).await.is_empty());
    let (barrier, mut finishers) = (Arc::new(Barrier::new(held.len())), JoinSet::new());
    for (nth, (at, one)) in held.into_iter().enumerate() {
        let (store, session) = (Arc::clone(&stores[at]), sessions[at]);
        let barrier = Arc::clone(&barrier);
        let outcome = match fail && nth % 2 == 0 {
            true => Outcome::Fail(Failure::new("test", "as told")),
            false => Outcome::Done(None),
        };
        finishers.spawn(async move {
            barrier.wait().await;
            store.finish(session, vec![FinishRequest::new(one.lease, outcome)]).await.unwrap();
        });
    }
    finishers.join_all().await;
}

/// The batch is complete, and one callback of this generation can be claimed.
async fn assert_ended(store: &dyn Store, session: SessionId, id: &BatchId, generation: u32) {
    let batch = store.batch(&ALL, id).await.unwrap();
    assert_eq!((batch.status, batch.generation), (BatchStatus::Complete, generation));
    assert_eq!((batch.announced, batch.counts.finished()), (generation, BATCH_UNITS as u64));
    let asked = ClaimRequest { kinds: vec![callback_kind()], ..claim_request(session, 100) };
    let callbacks = store.claim(asked).await.unwrap().units;
    assert_eq!(callbacks.len(), 1, "callbacks of generation {generation}");
    let payload: Value = callbacks[0].unit.payload.parse().unwrap();
    assert_eq!((&payload["batch"], &payload["generation"]), (&id.as_str().into(), &generation.into()));
    finish(store, session, &callbacks, &Outcome::Done(None)).await;
}
