//! 4: claims that slow down as the backlog grows.
//!
//! Counts the pages that a claim reads: by the server's statistics for PostgreSQL, by the kernel's
//! for a whole worker process on SQLite.

use std::sync::Arc;
use std::time::Duration;

use longshore::unit::Dependencies;
use longshore::{Clock, Kind, NewUnit, Outcome, Store, SystemClock};
use tokio::task::block_in_place;

use super::fixture::{StoreFixture, claim, finish, send, session, unit, units};
use crate::support::{TIMEOUT, eventually, pick_size};

/// The number of claims that are measured.
const MEASURED_CLAIMS: u64 = 20;

/// Units in the store, by state.
struct Backlog {
    ready: usize,
    blocked: usize,
    scheduled: usize,
}

const SHALLOW: Backlog = Backlog { ready: 1_000, blocked: 0, scheduled: 0 };

fn deep_backlog() -> Backlog {
    let part = pick_size(10_000, 50_000);
    Backlog { ready: part * 2, blocked: part, scheduled: part }
}

/// Fills a store. `first` is the first ready unit.
async fn fill_store(store: &Arc<dyn Store>, first: NewUnit, backlog: &Backlog) {
    // No handler here has this kind.
    let needed = NewUnit::new(Kind::new("other").unwrap(), serde_json::json!(0));
    let needs = Dependencies { units: vec![needed.id], ..Dependencies::default() };
    send(store, vec![first, needed]).await;
    send(store, units(backlog.ready)).await;
    let blocked = units(backlog.blocked).into_iter();
    send(store, blocked.map(|unit| NewUnit { dependencies: needs.clone(), ..unit }).collect()).await;
    let later = Some(SystemClock.now() + Duration::from_secs(3_600));
    let scheduled = units(backlog.scheduled).into_iter();
    send(store, scheduled.map(|unit| NewUnit { not_before: later, ..unit }).collect()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn complaint_04_a_claim_reads_as_little_with_a_deep_backlog_as_with_a_shallow_one() {
    let shallow = pages_read_by_claims(&SHALLOW).await;
    let deep_read = pages_read_by_claims(&deep_backlog()).await;
    assert!(deep_read <= 2 * shallow, "{deep_read} pages, {shallow} when shallow");

    let shallow = bytes_read_by_a_worker(&SHALLOW).await;
    let deep_read = bytes_read_by_a_worker(&deep_backlog()).await;
    // The whole file is many times larger than that.
    assert!(deep_read <= shallow + 300_000, "{deep_read} bytes, {shallow} when shallow");
}

/// The pages that the server read, from memory or disk, for some claims and finishes of ten units
/// each.
async fn pages_read_by_claims(backlog: &Backlog) -> u64 {
    let fixture = block_in_place(|| StoreFixture::postgres_with(&[("autovacuum", "off")]));
    let store = fixture.open().await;
    fill_store(&store, unit(0), backlog).await;
    let id = session(&*store).await;
    drop(store);
    fixture.wait_for_disconnect().await;
    fixture.query("VACUUM ANALYZE");
    let (pages, scans) = (fixture.query_number(PAGES_READ), fixture.query_number(SEQUENTIAL_SCANS));
    let store = fixture.open().await;
    for _ in 0..MEASURED_CLAIMS {
        let held = claim(&*store, id, 10).await;
        assert_eq!(held.len(), 10);
        finish(&*store, id, &held, &Outcome::Done(None)).await;
    }
    drop(store);
    fixture.wait_for_disconnect().await;
    assert_eq!(fixture.query_number(SEQUENTIAL_SCANS), scans, "the whole table of units was read");
    fixture.query_number(PAGES_READ) - pages
}

const PAGES_READ: &str = "SELECT sum(heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit)
    FROM pg_statio_user_tables WHERE relname IN ('longshore_unit', 'longshore_ready')";
const SEQUENTIAL_SCANS: &str = "SELECT sum(seq_scan) FROM pg_stat_user_tables
    WHERE relname IN ('longshore_unit', 'longshore_ready')";

/// The bytes that a worker process has read when it runs its first unit, including its start and
/// maintenance.
async fn bytes_read_by_a_worker(backlog: &Backlog) -> u64 {
    let fixture = StoreFixture::sqlite();
    let store = fixture.open().await;
    let hangs = serde_json::json!({ "argv": ["sh", "-c", "echo > started; sleep 600"] });
    fill_store(&store, NewUnit::new(Kind::new("exec").unwrap(), hangs), backlog).await;
    drop(store);
    let dir = &fixture.dir;
    let worker = dir.start(&["worker", "--slots", "1", "--ttl", "1s"]);
    block_in_place(|| eventually(TIMEOUT, || dir.path("started").exists().then_some(())));
    let io = std::fs::read_to_string(format!("/proc/{}/io", worker.0.id())).unwrap();
    let read = io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap();
    read.parse().unwrap()
}
