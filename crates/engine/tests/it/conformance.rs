//! Runs the conformance suite on the memory store, plain and with every repeatable call made twice,
//! and tests the wrappers. Both wrappers forward by one list (testkit `forward!`), which the second
//! run covers.

use std::sync::Arc;

use longshore::{Enqueue, Kind, MemoryStore, NewUnit, Queries, Scope, Store};
use longshore_testkit::{Fault, FaultyStore, InstrumentedStore, ManualClock, StoreFixture};

pub(crate) async fn memory() -> StoreFixture {
    let clock = Arc::new(ManualClock::default());
    StoreFixture::new(Arc::new(MemoryStore::new(clock.clone())), clock)
}

mod bare {
    use super::memory;
    longshore_testkit::conformance_suite!(memory);
}

/// A call that arrives twice has the same result as a call that arrives once.
mod every_repeatable_verb_twice {
    async fn doubled() -> super::StoreFixture {
        super::memory().await.wrap_store(|store| super::Arc::new(super::doubling(store)))
    }
    longshore_testkit::conformance_suite!(doubled);
}

fn doubling(store: Arc<dyn Store>) -> FaultyStore {
    let store = FaultyStore::new(store);
    for method in [
        "send",
        "apply_batch_action",
        "open_session",
        "close_session",
        "start",
        "release",
        "checkpoint",
        "finish",
        "acquire_leadership",
        "change_settings",
        "put_tenant",
        "command_worker",
    ] {
        store.set_default_fault(method, Some(Fault::Duplicate));
    }
    store
}

#[test]
fn random_histories_keep_the_books_in_order() {
    longshore_testkit::model::compare_stores(200, || async { (memory().await, memory().await) });
}

#[test]
fn random_histories_end_the_same_when_calls_arrive_twice() {
    longshore_testkit::model::compare_stores(200, || async {
        let twice = memory().await.wrap_store(|store| {
            let store = doubling(store);
            // A refused unit is not stored, so a repeated send may be refused for another reason.
            store.set_default_fault("send", None);
            Arc::new(store)
        });
        (memory().await, twice)
    });
}

fn unit() -> NewUnit {
    NewUnit::new(Kind::new("work").unwrap(), b"{}".as_slice())
}

#[tokio::test]
async fn a_faulty_store_breaks_the_calls_that_were_named() {
    let store = FaultyStore::new(memory().await.store)
        .with_fault("send", 1, Fault::FailBefore)
        .with_fault("send", 2, Fault::FailAfter)
        .with_fault("send", 3, Fault::Duplicate);
    let unit = unit();
    let send = async || store.send(&Scope::All, vec![unit.clone()]).await;
    assert!(send().await.unwrap_err().is_retryable());
    assert!(store.unit(&Scope::All, unit.id).await.is_err(), "it never arrived");
    assert!(send().await.unwrap_err().is_retryable());
    assert!(store.unit(&Scope::All, unit.id).await.is_ok(), "only its answer was lost");
    assert!(send().await.is_ok());
    store.set_outage(true);
    assert!(send().await.is_err() && store.unit(&Scope::All, unit.id).await.is_err());
    store.set_outage(false);
    assert!(send().await.is_ok());
    assert_eq!(store.calls("send"), 5);
}

#[tokio::test(start_paused = true)]
async fn a_faulty_store_delays_a_call() {
    let by = std::time::Duration::from_secs(9);
    let store = FaultyStore::new(memory().await.store).with_fault("send", 1, Fault::Delay(by));
    let begun = tokio::time::Instant::now();
    store.send(&Scope::All, vec![unit()]).await.unwrap();
    assert_eq!(begun.elapsed(), by);
}

#[tokio::test]
async fn an_instrumented_store_counts_calls_and_errors() {
    let store = InstrumentedStore::new(memory().await.store);
    store.send(&Scope::All, vec![unit()]).await.unwrap();
    assert!(store.unit(&Scope::All, unit().id).await.is_err());
    assert_eq!((store.calls("send"), store.calls("finish")), (1, 0));
    let seen = store.stats()["unit"];
    assert_eq!((seen.calls, seen.errors), (1, 1));
    assert!(seen.max_time <= seen.total_time);
}
