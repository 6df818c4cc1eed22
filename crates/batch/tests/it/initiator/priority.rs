//! Rows enter a batch in the order of their priority over all candidates, not only over those in the
//! store.

use std::sync::Arc;

use longshore::{Client, MemoryStore, Store};
use longshore_batch::row_enqueuer::RowEnqueuer;
use longshore_batch::rows::RowSource;
use serde_json::Value;

use super::crashes::life;
use super::{fill, options};
use crate::support::{Orders, definition, keys};

/// 90 lines: in each ten, one is urgent by name, one by number, one comes last, one has an invalid
/// priority, and the others have none.
fn orders() -> Orders {
    let orders = Orders::new(90);
    orders.run(
        "UPDATE line SET priority = CASE id % 10 WHEN 3 THEN 'High' WHEN 5 THEN 2 WHEN 7 THEN ' low '
         WHEN 8 THEN 'soon' WHEN 9 THEN 5.0 END",
    );
    orders
}

/// The keys by level and key.
fn expected() -> Vec<Value> {
    let level = |id: &i64| match id % 10 {
        3 => 1,
        5 => 2,
        7 => 9,
        8 => 10,
        _ => 5,
    };
    let mut ids: Vec<i64> = (1..=90).collect();
    ids.sort_by_key(|id| (level(id), *id));
    ids.into_iter().map(Value::from).collect()
}

#[tokio::test]
async fn the_most_urgent_of_all_candidates_go_first() {
    let (orders, store) = (orders(), Arc::new(MemoryStore::default()) as Arc<dyn Store>);
    let rows: Arc<dyn RowSource> = orders.rows();
    let initiator = RowEnqueuer::new(Client::new(Arc::clone(&store)), rows).with_sizes(7, 4);
    let mut initiation = initiator.start(definition(), options()).await.unwrap();
    fill(&initiator, &mut initiation).await.unwrap();
    assert_eq!(keys(&store, &initiation.batch().id).await, expected());
}

#[tokio::test]
async fn an_initiator_that_dies_continues_at_the_same_level_and_key() {
    let (orders, store) = (orders(), Arc::new(MemoryStore::default()) as Arc<dyn Store>);
    let rows: Arc<dyn RowSource> = orders.rows();
    let initiator = || RowEnqueuer::new(Client::new(Arc::clone(&store)), Arc::clone(&rows)).with_sizes(7, 4);
    let id = initiator().start(definition(), options()).await.unwrap().batch().id.clone();
    let mut polls = 1;
    while !life(&initiator(), &id, polls).await {
        polls += 1;
    }
    assert!(polls > 3, "it must have died to mean something: {polls}");
    assert_eq!(keys(&store, &id).await, expected());
}

#[tokio::test]
async fn a_batch_that_an_older_version_began_to_fill_continues_in_key_order() {
    let (orders, store) = (orders(), Arc::new(MemoryStore::default()) as Arc<dyn Store>);
    let rows: Arc<dyn RowSource> = orders.rows();
    let client = Client::new(Arc::clone(&store));
    let initiator = RowEnqueuer::new(client.clone(), rows).with_sizes(7, 4);
    let id = initiator.start(definition(), options()).await.unwrap().batch().id.clone();
    let mut writer = client.open_batch(longshore::NewBatch::new(id.clone())).await.unwrap();
    writer.add(Vec::new(), r#"{"key":80,"rows":80}"#.to_owned()).await.unwrap();
    let mut initiation = initiator.resume(&id).await.unwrap();
    fill(&initiator, &mut initiation).await.unwrap();
    assert_eq!(keys(&store, &id).await, (81..=90).map(Value::from).collect::<Vec<_>>());
}

/// Nothing else keeps a row of a batch without a claim from being sent again.
#[tokio::test]
async fn a_row_whose_priority_changes_while_the_batch_fills_is_sent_once() {
    for claim in [None, Some("orders".to_owned())] {
        let (orders, store) = (orders(), Arc::new(MemoryStore::default()) as Arc<dyn Store>);
        let rows: Arc<dyn RowSource> = orders.rows();
        let initiator =
            || RowEnqueuer::new(Client::new(Arc::clone(&store)), Arc::clone(&rows)).with_sizes(7, 4);
        let mut definition = definition();
        definition.candidates.claim = claim;
        let id = initiator().start(definition, options()).await.unwrap().batch().id.clone();
        let mut polls = 1;
        while keys(&store, &id).await.is_empty() {
            assert!(!life(&initiator(), &id, polls).await);
            polls += 1;
        }
        // The first rows were sent at the first level; now they have the last one.
        orders.run("UPDATE line SET priority = 'low' WHERE id % 10 = 3");
        while !life(&initiator(), &id, polls).await {
            polls += 1;
        }
        let mut sent: Vec<i64> = keys(&store, &id).await.iter().filter_map(Value::as_i64).collect();
        sent.sort_unstable();
        assert_eq!(sent, (1..=90).collect::<Vec<_>>());
    }
}
