//! How much space rows take in the file, and that pruning gives it back.

use std::path::Path;
use std::time::Duration;

use longshore::store::{BatchChunk, CheckpointRequest, ClaimRequest, FinishRequest, FinishResult, Retention};
use longshore::unit::{Dedup, DedupWindow, OnDuplicate};
use longshore::worker_session::NewSession;
use longshore::{BatchId, Kind, NewBatch, NewUnit, Outcome, Payload, Policy, Scope, SessionId, Timestamp};
use longshore_sqlite::rusqlite::Connection;
use longshore_testkit::StoreFixture;
use longshore_testkit::year::{Year, assert_flat};

use crate::helpers::fixture_at;

const ROWS: u64 = 3_000;
/// Rows that one call claims and finishes.
const CHUNK: u32 = 64;

/// A unit as `longshore-batch` makes it for a row.
fn row(i: u64) -> NewUnit {
    let key = format!("orders:{i}");
    let window = DedupWindow::Since(Timestamp::ZERO);
    NewUnit {
        policy: Some(Policy::default()),
        dedup: Some(Dedup { key, window, on_duplicate: OnDuplicate::Existing }),
        ..NewUnit::new(Kind::new("row").unwrap(), serde_json::json!({ "key": i }))
    }
}

/// An answer as `longshore-batch` saves it before POST.
fn answer(i: u64) -> Payload {
    Payload::json(&serde_json::json!({
        "version": 1,
        "answer": {
            "text": format!("{{\"verdict\":\"APPROVE\",\"reason\":\"Line {i} is as usual.\",\"confidence\":0.93}}"),
            "model": "a-model-2026-01-01", "tokens_in": 412, "tokens_out": 25, "tokens_cached": 0,
            "latency_ms": 1375, "attempts": 1, "simulated": false, "stop": "end"
        },
        "cost": 1_611_000_000, "asked": 1, "judged": false
    }))
    .unwrap()
}

/// The result of a row, as `longshore-batch` stores it.
fn result(i: u64) -> Payload {
    Payload::json(&serde_json::json!({
        "verdict": "SUCCESS", "model": "a-model-2026-01-01", "tokens_in": 412, "tokens_out": 25,
        "cost_usd": 0.001_611, "latency_ms": 1375, "simulated": false, "worker": format!("host-{}", i % 64)
    }))
    .unwrap()
}

/// Runs a batch of rows to its end.
async fn run_batch(fixture: &StoreFixture) {
    let id = BatchId::new("rows").unwrap();
    fixture.store.open_batch(&Scope::All, NewBatch::new(id.clone())).await.unwrap();
    let mut cursor = String::new();
    for start in (0..ROWS).step_by(1_000) {
        let (expected, next) = (cursor.clone(), start.to_string());
        cursor.clone_from(&next);
        let units = (start..start + 1_000).map(row).collect();
        let chunk = BatchChunk { expected, next, units };
        fixture.store.add_to_batch(&Scope::All, &id, chunk).await.unwrap();
    }
    fixture.store.seal_batch(&Scope::All, &id).await.unwrap();
    let session = open_session(fixture).await;
    let mut done = 0;
    while done < ROWS {
        done += run_rows(fixture, session, done).await;
    }
    assert_eq!(fixture.store.batch(&Scope::All, &id).await.unwrap().counts.done, ROWS);
    fixture.store.close_session(session).await.unwrap();
}

async fn open_session(fixture: &StoreFixture) -> SessionId {
    let id = SessionId::new();
    let kinds = [(Kind::new("row").unwrap(), Policy::default())].into();
    let ttl = Duration::from_secs(60);
    let new = NewSession { kinds, slots: CHUNK, ttl, ..NewSession::new(id, "test") };
    fixture.store.open_session(new).await.unwrap();
    id
}

/// Claims, checkpoints and finishes some rows.
async fn run_rows(fixture: &StoreFixture, session: SessionId, first: u64) -> u64 {
    let claim = ClaimRequest::new(session, vec![Kind::new("row").unwrap()], CHUNK);
    let held = fixture.store.claim(claim).await.unwrap().units;
    let leases = held.iter().map(|held| held.lease).zip(first..);
    let mut finishes = Vec::new();
    for (lease, i) in leases {
        let saved = CheckpointRequest::new(answer(i));
        assert!(fixture.store.checkpoint(session, lease, saved).await.unwrap());
        finishes.push(FinishRequest::new(lease, Outcome::Done(Some(result(i)))));
    }
    let ends = fixture.store.finish(session, finishes).await.unwrap();
    assert!(ends.iter().all(|end| matches!(end, FinishResult::Recorded(_))));
    ends.len() as u64
}

/// The size of the file without its log.
fn checkpointed_size(path: &Path) -> u64 {
    let db = Connection::open(path).unwrap();
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    std::fs::metadata(path).unwrap().len()
}

#[tokio::test]
async fn a_finished_row_of_a_batch_takes_at_most_450_bytes() {
    let (fixture, path) = fixture_at().await;
    let empty = checkpointed_size(&path);
    run_batch(&fixture).await;
    let per_row = (checkpointed_size(&path) - empty) / ROWS;
    assert!(per_row <= 450, "{per_row} bytes per row");
    assert_eq!(fixture.store.verify().await.unwrap(), []);
}

#[tokio::test]
async fn pruning_gives_space_back_to_the_file_system() {
    let (fixture, path) = fixture_at().await;
    let empty = checkpointed_size(&path);
    run_batch(&fixture).await;
    let full = checkpointed_size(&path);
    fixture.clock.advance(Duration::from_secs(365 * 24 * 3600));
    while fixture.store.prune(Retention::default(), 1_000).await.unwrap().more {}
    let pruned = checkpointed_size(&path);
    assert!(pruned - empty < (full - empty) / 10, "{empty} bytes empty, {full} full, {pruned} pruned");
    assert_eq!(fixture.store.verify().await.unwrap(), []);
}

#[tokio::test]
async fn a_year_of_queues_and_batches_leaves_a_store_as_small_and_fast_as_before() {
    let year = match std::env::var_os("LONGSHORE_SOAK") {
        Some(_) => Year { days: 365, units: 10_000_000, queues: 10_000, batches: 100_000 },
        None => Year { days: 15, units: 3_000, queues: 150, batches: 150 },
    };
    let (fixture, path) = fixture_at().await;
    assert_flat(&year.run(&fixture, || checkpointed_size(&path)).await);
}
