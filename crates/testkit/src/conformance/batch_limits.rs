//! The number of batches of a tenant. Most of them are written as rows: ten thousand calls would be slow.

use longshore_core::admission::MAX_BATCHES;
use longshore_core::store::OpenBatchResult;
use longshore_core::{Error, NewBatch};

use super::helpers::*;
use crate::SqlStoreFixture;

pub(super) async fn a_tenant_has_a_bounded_number_of_batches(sql: &dyn SqlStoreFixture) {
    let (fixture, acme) = (sql.fixture(), tenant_scope("acme"));
    let new = |name: &str| NewBatch { tenant: tenant("acme"), ..NewBatch::new(batch_id(name)) };
    fixture.open_batch(new("acme/first")).await;
    sql.execute(&format!(
        "INSERT INTO longshore_batch (name, tenant, kind, status, initiated_by, initiated_at, notes)
         WITH RECURSIVE nth (i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM nth WHERE i < {MAX_BATCHES})
         SELECT 'acme/' || i, 'acme', '', 'complete', '', 0, '' FROM nth"
    ));
    let refused = fixture.store.open_batch(&acme, new("acme/last")).await;
    assert!(matches!(&refused, Err(Error::Invalid(why)) if why.contains("batches")), "{refused:?}");
    let existing = fixture.store.open_batch(&acme, new("acme/first")).await.unwrap();
    assert!(matches!(existing, OpenBatchResult::Existing(_)), "{existing:?}");
    fixture.open_batch(new("acme/by-an-operator")).await;
}
