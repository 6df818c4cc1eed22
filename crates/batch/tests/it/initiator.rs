//! Starting and filling batches.

mod bounds;
mod crashes;
mod fake_table;
mod keys;
mod listing;
mod overlap;
mod priority;
mod start;

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use longshore::{BatchId, Client, Kind, MemoryStore, Policy, Scope, Store, Timestamp, Worker};
use longshore_batch::Definition;
use longshore_batch::definition::{COMPLETION_KIND, ROW_KIND};
use longshore_batch::row_enqueuer::{BatchFill, FillError, FillResult, RowEnqueuer, StartOptions};
use longshore_batch::rows::RowSource;
use longshore_testkit::{Fault, FaultyStore};
use serde_json::Value;

use crate::support::definition;
use fake_table::FakeTable;

/// A store, a table, and an initiator between them.
struct FillFixture {
    store: Arc<dyn Store>,
    faulty: Arc<FaultyStore>,
    table: Arc<FakeTable>,
}

impl FillFixture {
    /// A table with `rows` rows, numbered from 1.
    fn new(rows: i64) -> Self {
        Self::breaking(rows, &[])
    }

    /// A table with `rows` rows, and a store that fails these calls.
    fn breaking(rows: i64, faults: &[(&'static str, u64, Fault)]) -> Self {
        let store = FaultyStore::new(Arc::new(MemoryStore::default()));
        let plan = |store: FaultyStore, fault: &(_, _, _)| store.with_fault(fault.0, fault.1, fault.2);
        let faulty = Arc::new(faults.iter().fold(store, plan));
        Self { store: faulty.clone(), faulty, table: Arc::new(FakeTable::numbered(rows)) }
    }

    fn client(&self) -> Client {
        Client::new(Arc::clone(&self.store)).with_retry_timeout(Duration::ZERO)
    }

    fn initiator(&self) -> RowEnqueuer {
        let source: Arc<dyn RowSource> = self.table.clone();
        RowEnqueuer::new(self.client(), source)
    }

    async fn start(&self) -> BatchFill {
        self.start_with(definition()).await
    }

    async fn start_with(&self, definition: Definition) -> BatchFill {
        self.initiator().start(definition, options()).await.unwrap()
    }

    async fn keys(&self, id: &BatchId) -> Vec<Value> {
        crate::support::keys(&self.store, id).await
    }

    async fn live(&self, id: &BatchId) -> u64 {
        self.store.batch(&Scope::All, id).await.unwrap().counts.live()
    }
}

fn options() -> StartOptions {
    let now = Timestamp::parse("2026-11-15T07:15:02Z").unwrap();
    StartOptions { now, initiated_by: "a test".to_owned(), notes: String::new() }
}

fn numbers(range: std::ops::RangeInclusive<i64>) -> Vec<Value> {
    range.map(Value::from).collect()
}

async fn fill(initiator: &RowEnqueuer, initiation: &mut BatchFill) -> Result<FillResult, FillError> {
    initiator.fill(initiation, pending(), |_| ()).await
}

/// Fills until the initiator only waits: with paused time, an hour is nothing.
async fn fill_until_it_waits(initiator: &RowEnqueuer, initiation: &mut BatchFill) -> FillResult {
    let hour = tokio::time::sleep(Duration::from_secs(3600));
    initiator.fill(initiation, hour, |_| ()).await.unwrap()
}

/// A worker that finishes every row as done, and stops when all batches have ended.
fn worker(store: &Arc<dyn Store>, slots: u32) -> Worker {
    let end = |kind| Kind::new(kind).unwrap();
    Worker::builder(Arc::clone(store))
        .slots(slots)
        .handle_fn(end(ROW_KIND), Policy::default(), |_, _: Value| async { Ok::<_, String>(()) })
        .handle_fn(end(COMPLETION_KIND), Policy::default(), |_, _: Value| async { Ok::<_, String>(()) })
        .until_idle(true)
        .build()
        .unwrap()
}
