//! Monitoring the batches of a store: each alert runs its action once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use longshore::batch::BatchAction;
use longshore::{Admin, BatchId, MemoryStore, NewBatch, Payload, Scope, Store, Timestamp};
use longshore_batch::AlertMonitor;
use longshore_batch::alerts::AlertCode;
use longshore_batch::completion::{ActionError, ActionRunner};
use longshore_batch::definition::{Action, Alerts};
use longshore_batch::rows::Sources;
use serde_json::Value;

use crate::support::definition;

#[derive(Default)]
struct RecordingActions(Mutex<Vec<Value>>);

#[async_trait]
impl ActionRunner for RecordingActions {
    async fn run(&self, _action: &Action, facts: &Value) -> Result<(), ActionError> {
        self.0.lock().unwrap().push(facts.clone());
        Err(ActionError { message: "the action failed".to_owned(), retryable: true })
    }
}

async fn open(store: &MemoryStore, name: &str, has_definition: bool) -> BatchId {
    let mut definition = definition();
    let action = Some(Action::Command(vec!["./page".to_owned()]));
    definition.alerts = Alerts { no_progress: Duration::from_secs(60), action };
    let id = BatchId::new(name).unwrap();
    let definition = has_definition.then(|| Payload::json(&definition).unwrap());
    let new = NewBatch { definition, ..NewBatch::new(id.clone()) };
    longshore::Enqueue::open_batch(store, &Scope::All, new).await.unwrap();
    id
}

fn second(seconds: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs(seconds)
}

#[tokio::test]
async fn every_batch_of_rows_is_watched_to_its_end() {
    let (store, noted) = (Arc::new(MemoryStore::default()), Arc::new(RecordingActions::default()));
    let stuck = open(&store, "stuck", true).await;
    open(&store, "of-other-units", false).await;
    let sources = Arc::new(Sources::new(None, |_| None));
    let act: Arc<RecordingActions> = Arc::clone(&noted);
    let mut monitor = AlertMonitor::new(Arc::clone(&store) as Arc<dyn Store>, Scope::All, sources, act);
    assert_eq!(monitor.check_all(second(0)).await, []);
    let alerts = monitor.check_all(second(61)).await;
    assert_eq!(alerts.len(), 1, "{alerts:?}");
    assert_eq!((alerts[0].code, &alerts[0].batch), (AlertCode::NoProgress, &stuck));
    assert_eq!(
        monitor.check_all(second(90)).await,
        [],
        "the alert was raised once, though its action failed"
    );
    assert_eq!(noted.0.lock().unwrap().len(), 1);
    assert_eq!(noted.0.lock().unwrap()[0]["code"], "no-progress");

    // The cancelled batch leaves one unit, which is reported after its end.
    let unit = longshore::NewUnit::new(longshore::Kind::new("k").unwrap(), b"{}".as_slice());
    let chunk =
        longshore::store::BatchChunk { expected: String::new(), next: "1".to_owned(), units: vec![unit] };
    longshore::Enqueue::add_to_batch(&*store, &Scope::All, &stuck, chunk).await.unwrap();
    store.apply_batch_action(&Scope::All, &stuck, BatchAction::Cancel).await.unwrap();
    let alerts = monitor.check_all(second(120)).await;
    assert_eq!(alerts.iter().map(|alert| alert.code).collect::<Vec<_>>(), [AlertCode::WorkLeft]);
    assert_eq!(monitor.check_all(second(500)).await, []);
}
