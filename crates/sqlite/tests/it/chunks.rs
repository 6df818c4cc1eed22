//! Work on many units is several transactions, so that other writers wait for none of them long.

use longshore::batch::BatchAction;
use longshore::store::{BatchChunk, UnitAction, UnitSelection};
use longshore::{BatchId, Kind, NewBatch, NewUnit, Scope, Timestamp};
use longshore_sqlite::rusqlite::Connection;

use crate::helpers::fixture_at;

fn unit() -> NewUnit {
    NewUnit::new(Kind::new("k").unwrap(), serde_json::json!(0))
}

#[tokio::test]
async fn a_retry_of_many_failed_units_is_several_transactions() {
    const UNITS: u64 = 5_010;
    let (fixture, path) = fixture_at().await;
    let id = BatchId::new("rows").unwrap();
    fixture.store.open_batch(&Scope::All, NewBatch::new(id.clone())).await.unwrap();
    let expired = |_| NewUnit { deadline: Some(Timestamp::ZERO), ..unit() };
    let units = (0..UNITS).map(expired).collect();
    let chunk = BatchChunk { expected: String::new(), next: "end".to_owned(), units };
    fixture.store.add_to_batch(&Scope::All, &id, chunk).await.unwrap();
    fixture.store.seal_batch(&Scope::All, &id).await.unwrap();
    fixture.store.promote(10_000).await.unwrap();
    assert_eq!(fixture.store.batch(&Scope::All, &id).await.unwrap().counts.failed, UNITS);
    let db = Connection::open(path).unwrap();
    let commits = || -> i64 {
        let sql = "SELECT count(*) FROM longshore_change WHERE topic = 'batch'";
        db.query_row(sql, [], |row| row.get(0)).unwrap()
    };
    let before = commits();
    let batch = fixture.store.apply_batch_action(&Scope::All, &id, BatchAction::RetryFailed).await.unwrap();
    assert_eq!((batch.counts.ready, batch.counts.failed, batch.generation), (UNITS, 0, 2));
    assert!(commits() - before >= 2, "{} transactions", commits() - before);
    assert_eq!(fixture.store.verify().await.unwrap(), []);
}

#[tokio::test]
async fn a_unit_with_many_dependants_ends_in_several_transactions() {
    const UNITS: u64 = 2_500;
    let (fixture, _path) = fixture_at().await;
    let first = unit();
    let mut units = vec![first.clone()];
    for _ in 0..UNITS {
        let mut dependant = unit();
        dependant.dependencies.units = vec![first.id];
        units.push(dependant);
    }
    fixture.store.send(&Scope::All, units).await.unwrap();
    let only = UnitSelection::Ids(vec![first.id]);
    fixture.store.apply_unit_action(&Scope::All, only, UnitAction::Cancel).await.unwrap();
    let counts = async || fixture.store.queues(&Scope::All).await.unwrap()[0].counts;
    let after = counts().await;
    assert!(after.cancelled > 1 && after.blocked > 0, "{after:?}");
    while fixture.store.promote(100).await.unwrap().more {}
    let after = counts().await;
    assert_eq!((after.cancelled, after.blocked), (UNITS + 1, 0));
    assert_eq!(fixture.store.verify().await.unwrap(), []);
}
