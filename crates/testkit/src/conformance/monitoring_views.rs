//! The SQL views for people's own monitoring queries: the queries of operators run on every SQL store.

use longshore_core::batch::BatchAction;
use longshore_core::{BatchStatus, NewBatch};

use super::helpers::*;
use crate::StoreFixture;

/// A running batch with its progress.
const PROGRESS: &str = "
SELECT BATCH_ID, STATUS, TOTAL_UNITS,
       PROCESSED_UNITS + FAILED_UNITS AS DONE,
       (PROCESSED_UNITS + FAILED_UNITS) * 100 / NULLIF(TOTAL_UNITS, 0) AS PCT,
       FAILED_UNITS, SECONDS_RUNNING
  FROM longshore_batches
 WHERE STATUS = 'running'
 ORDER BY STARTED_AT DESC";

/// The workers.
const WORKERS: &str =
    "SELECT JOB_NAME, JOB_STATUS, FUNCTION FROM longshore_workers WHERE JOB_NAME LIKE 'case%'";

/// The depth of a queue.
const DEPTH: &str = "SELECT MESSAGES_ON_QUEUE, LEASED FROM longshore_queues WHERE QUEUE_NAME = 'default'";

/// A batch of 10 units of which 4 were sent, 2 are done and 1 failed; it ran 60 s and was paused for 40 s. `query` returns
/// rows as lines with tabs between the values.
pub async fn the_monitoring_queries_run_as_sql(fixture: &StoreFixture, query: impl Fn(&str) -> String) {
    let id = batch_id("nightly");
    let new =
        NewBatch { expected: Some(10), workers: Some(8), kind: "review".into(), ..NewBatch::new(id.clone()) };
    fixture.open_batch(new).await;
    fixture.add_chunk(&id, "", "4", units(4)).await;
    let session = fixture.session().await;
    fixture.claim_and_finish(session, 2, done()).await;
    fixture.claim_and_finish(session, 1, failed()).await;
    let row = query(PROGRESS);
    let values: Vec<&str> = row.trim_end().split('\t').collect();
    assert_eq!(values[..6], ["nightly", "running", "10", "3", "30", "1"], "{row}");
    assert!(values[6].parse::<u64>().is_ok(), "{row}");
    assert_eq!(query(WORKERS).trim_end(), "case\tactive\twork");
    assert_eq!(query(DEPTH).trim_end(), "1\t0");

    fixture.clock.advance(secs(30));
    fixture.act_on_batch(&id, BatchAction::Pause { reason: "lunch".into() }).await;
    fixture.clock.advance(secs(40));
    assert_eq!(fixture.batch(&id).await.paused_at, Some(fixture.now() - secs(40)));
    fixture.act_on_batch(&id, BatchAction::Resume).await;
    fixture.clock.advance(secs(30));
    fixture.store.seal_batch(&ALL, &id).await.unwrap();
    fixture.claim_and_finish(session, 1, done()).await;
    let batch = fixture.batch(&id).await;
    assert_eq!((batch.status, batch.paused_ms, batch.expected), (BatchStatus::Complete, 40_000, Some(10)));
    let ended = "SELECT BATCH_TYPE, TENANT, TOTAL_UNITS, PROCESSED_UNITS, FAILED_UNITS, CANCELLED_UNITS,
        WORKER_COUNT, PCT, SECONDS_RUNNING, SECONDS_PAUSED FROM longshore_batches WHERE BATCH_ID = 'nightly'";
    assert_eq!(query(ended).trim_end(), "review\tdefault\t4\t3\t1\t0\t8\t100\t60\t40");
}
