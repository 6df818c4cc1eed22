//! Batches over the same rows at the same time: no row runs twice.

use std::sync::Arc;

use longshore::{Client, Store, TenantId};
use longshore_batch::Definition;
use longshore_batch::row_enqueuer::{FillProgress, RowEnqueuer};
use longshore_batch::rows::RowSource;
use longshore_sqlite::{SqliteOptions, SqliteStore};
use serde_json::Value;

use super::{FillFixture, fill, numbers, options, worker};
use crate::support::{Orders, definition, keys};

fn sorted(mut keys: Vec<Value>) -> Vec<Value> {
    keys.sort_by_key(Value::as_i64);
    keys
}

fn with(change: impl FnOnce(&mut Definition)) -> Definition {
    let mut definition = definition();
    change(&mut definition);
    definition
}

#[tokio::test]
async fn two_batches_over_the_same_rows_never_have_the_same_row() {
    let (dir, orders) = (tempfile::tempdir().unwrap(), Orders::new(300));
    let store = SqliteStore::open(&dir.path().join("store.db"), SqliteOptions::default()).unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    let rows: Arc<dyn RowSource> = orders.rows();
    let initiator = RowEnqueuer::new(Client::new(store.clone()), rows).with_sizes(40, 10);
    let mut one = initiator.start(definition(), options()).await.unwrap();
    let mut two = initiator.start(definition(), options()).await.unwrap();
    // The worker finishes rows while the other batch still has them on a page that it read before.
    let worker = worker(&store, 8);
    let (first, second, report) =
        tokio::join!(fill(&initiator, &mut one), fill(&initiator, &mut two), worker.run());
    let (first, second) = (first.unwrap().progress, second.unwrap().progress);
    assert_eq!((first.sent + second.sent, first.skipped + second.skipped), (300, 300));
    assert_eq!(report.unwrap().done, 302);
    let mut all = keys(&store, &one.batch().id).await;
    all.extend(keys(&store, &two.batch().id).await);
    assert_eq!(sorted(all), numbers(1..=300));
    assert_eq!(store.verify().await.unwrap(), []);
}

#[tokio::test]
async fn a_row_that_ended_since_a_batch_was_started_is_not_taken_again() {
    let fixture = FillFixture::new(3);
    let (mut one, mut two) = (fixture.start().await, fixture.start().await);
    fill(&fixture.initiator(), &mut one).await.unwrap();
    let (initiator, worker) = (fixture.initiator(), worker(&fixture.store, 2));
    // The first batch's rows are still candidates: nothing marks them. The second is filled only
    // when they have ended.
    let late = async {
        fixture.client().wait_batch(&one.batch().id, None, |_| ()).await.unwrap();
        fill(&initiator, &mut two).await
    };
    let (_, late) = tokio::join!(worker.run(), late);
    assert_eq!(late.unwrap().progress, FillProgress { sent: 0, skipped: 3 });
    // A batch that is started afterwards may run them.
    let mut three = fixture.start().await;
    let filled = fill(&fixture.initiator(), &mut three).await.unwrap();
    assert_eq!(filled.progress, FillProgress { sent: 3, skipped: 0 });
}

#[tokio::test]
async fn rows_are_shared_only_with_the_same_claim_of_the_same_tenant() {
    let fixture = FillFixture::new(3);
    let all = FillProgress { sent: 3, skipped: 0 };
    let none = FillProgress { sent: 0, skipped: 3 };
    for (definition, expected) in [
        (definition(), all),
        (definition(), none),
        (with(|definition| definition.candidates.claim = None), all),
        (with(|definition| definition.candidates.claim = Some("other".to_owned())), all),
        (with(|definition| definition.tenant = TenantId::new("acme").unwrap()), all),
    ] {
        let mut initiation = fixture.start_with(definition).await;
        let filled = fill(&fixture.initiator(), &mut initiation).await.unwrap();
        assert_eq!(filled.progress, expected);
    }
}
