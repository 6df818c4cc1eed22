//! Rows in the store.

use longshore::Scope;
use longshore::batch::BatchAction;
use longshore_batch::row_listing::count_ended;

use super::{FillFixture, fill};

#[tokio::test]
async fn ended_rows_are_counted_without_reading_each() {
    let fixture = FillFixture::new(30);
    let mut batch = fixture.start().await;
    fill(&fixture.initiator(), &mut batch).await.unwrap();
    let (store, id) = (&fixture.store, &batch.batch().id);
    assert_eq!(count_ended(&**store, &Scope::All, id).await.unwrap(), 0);
    store.apply_batch_action(&Scope::All, id, BatchAction::Cancel).await.unwrap();
    store.promote(1_000).await.unwrap();
    assert_eq!(count_ended(&**store, &Scope::All, id).await.unwrap(), 30);
    assert_eq!(fixture.faulty.calls("unit"), 0);
}
