//! An initiator that dies at any point: the next continues without gaps or repeats.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use longshore::{BatchId, Client, Store};
use longshore_batch::row_enqueuer::{FillEnd, FillProgress, RowEnqueuer};
use longshore_batch::rows::RowSource;
use longshore_sqlite::{SqliteOptions, SqliteStore, Synchronous};
use longshore_testkit::Fault;
use proptest::prelude::*;
use tempfile::TempDir;

use super::fake_table::FakeTable;
use super::{FillFixture, fill, numbers, options};
use crate::support::{Orders, definition};

/// Polls a future `polls` times, then drops it: `None` if it has not completed.
async fn live_for<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

/// Runs an initiator for some polls; returns whether it filled the batch. An error counts as a
/// crash.
pub(super) async fn life(initiator: &RowEnqueuer, id: &BatchId, polls: usize) -> bool {
    let filled = live_for(polls, async {
        let mut initiation = initiator.resume(id).await?;
        initiator.fill(&mut initiation, pending(), |_| ()).await
    });
    matches!(filled.await, Some(Ok(filled)) if filled.end == FillEnd::Sealed)
}

fn paused() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

fn faults() -> impl Strategy<Value = Vec<(&'static str, u64, Fault)>> {
    let method = prop::sample::select(vec!["add_to_batch", "apply_batch_action", "open_batch", "definition"]);
    let fault = prop::sample::select(vec![Fault::FailBefore, Fault::FailAfter, Fault::Duplicate]);
    prop::collection::vec((method, 1..8_u64, fault), 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_row_is_left_out_or_sent_twice_whenever_initiators_die(
        rows in 0..40_i64, page in 1..12_u32, chunk in 1..9_u32,
        lives in prop::collection::vec(0..9_usize, 0..20), faults in faults(),
    ) {
        let (keys, sealed) = paused().block_on(async {
            // The test itself opens the batch first.
            let faults: Vec<_> = faults.into_iter().filter(|(method, nth, _)| (*method, *nth) != ("open_batch", 1)).collect();
            let fixture = FillFixture::breaking(rows, &faults);
            let id = fixture.start().await.batch().id.clone();
            let initiator = fixture.initiator().with_sizes(page, chunk);
            for polls in lives {
                life(&initiator, &id, polls).await;
            }
            // Each fault ends at most one more run.
            let mut sealed = false;
            for _ in 0..10 {
                sealed = sealed || life(&initiator, &id, usize::MAX).await;
            }
            (fixture.keys(&id).await, sealed)
        });
        prop_assert!(sealed);
        prop_assert_eq!(keys, numbers(1..=rows));
    }
}

struct SqliteFixture {
    _dir: TempDir,
    store: Arc<dyn Store>,
    /// A second store on the same file, as in another process.
    other: Arc<dyn Store>,
}

fn sqlite_fixture() -> SqliteFixture {
    let dir = TempDir::new().unwrap();
    let options = SqliteOptions { synchronous: Synchronous::Normal, ..SqliteOptions::default() };
    let open = || SqliteStore::open(&dir.path().join("store.db"), options.clone()).unwrap();
    let (store, other) = (Arc::new(open()), Arc::new(open()));
    SqliteFixture { _dir: dir, store, other }
}

#[tokio::test]
async fn an_initiator_on_real_files_may_die_at_any_await() {
    let (sqlite_fixture, orders) = (sqlite_fixture(), Orders::new(200));
    let rows: Arc<dyn RowSource> = orders.rows();
    let initiator = |store: &Arc<dyn Store>| RowEnqueuer::new(Client::new(store.clone()), rows.clone());
    let first = initiator(&sqlite_fixture.store).with_sizes(11, 3);
    let id = first.start(definition(), options()).await.unwrap().batch().id.clone();
    // Runs of 1, 2, 3 … polls: each ends at another await, and a dropped call may still be carried
    // out. Two stores take turns.
    let stores = [&sqlite_fixture.store, &sqlite_fixture.other];
    let mut polls = 1;
    while !life(&initiator(stores[polls % 2]).with_sizes(11, 3), &id, polls).await {
        polls += 1;
    }
    assert!(polls > 3, "it must have died to mean something: {polls}");
    let keys = crate::support::keys(&sqlite_fixture.store, &id).await;
    assert_eq!(keys, numbers(1..=200));
    assert_eq!(sqlite_fixture.store.verify().await.unwrap(), []);
}

#[tokio::test]
async fn two_initiators_of_one_batch_share_the_work() {
    let (sqlite_fixture, orders) = (sqlite_fixture(), Orders::new(500));
    let rows: Arc<dyn RowSource> = orders.rows();
    let initiator = |store: &Arc<dyn Store>| RowEnqueuer::new(Client::new(store.clone()), rows.clone());
    let (one, two) = (initiator(&sqlite_fixture.store), initiator(&sqlite_fixture.other));
    let (one, two) = (one.with_sizes(50, 7), two.with_sizes(30, 11));
    let mut first = one.start(definition(), options()).await.unwrap();
    let id = first.batch().id.clone();
    let mut second = two.resume(&id).await.unwrap();
    let (first, second) = tokio::join!(fill(&one, &mut first), fill(&two, &mut second));
    let all = FillProgress { sent: 500, skipped: 0 };
    for filled in [first.unwrap(), second.unwrap()] {
        assert_eq!((filled.end, filled.progress), (FillEnd::Sealed, all));
    }
    assert_eq!(crate::support::keys(&sqlite_fixture.store, &id).await, numbers(1..=500));
    assert_eq!(sqlite_fixture.store.verify().await.unwrap(), []);
}

#[tokio::test]
async fn a_batch_is_resumed_behind_every_chunk() {
    for chunks in 0..=5 {
        let fixture = FillFixture::new(10);
        let initiator = fixture.initiator().with_sizes(2, 2);
        let mut initiation = fixture.start().await;
        let id = initiation.batch().id.clone();
        let (enough, stop) = tokio::sync::oneshot::channel::<()>();
        let mut enough = Some(enough);
        let stop = async {
            let _ = stop.await;
        };
        let report = |filling: FillProgress| {
            if filling.sent >= chunks * 2 {
                enough.take();
            }
        };
        if chunks > 0 {
            let filled = initiator.fill(&mut initiation, stop, report).await.unwrap();
            assert_eq!(filled.end, FillEnd::Stopped);
            assert_eq!(filled.progress.sent, chunks * 2);
        }
        let mut again = initiator.resume(&id).await.unwrap();
        assert_eq!(again.progress().sent, chunks * 2);
        let filled = fill(&initiator, &mut again).await.unwrap();
        assert_eq!((filled.end, filled.progress.sent), (FillEnd::Sealed, 10));
        assert_eq!(fixture.keys(&id).await, numbers(1..=10));
    }
}

#[tokio::test(start_paused = true)]
async fn a_database_that_is_away_is_waited_for() {
    let mut fixture = FillFixture::new(10);
    fixture.table = Arc::new(FakeTable { fails_at: Some(3), ..FakeTable::numbered(10) });
    let initiator = fixture.initiator().with_sizes(3, 3);
    let mut initiation = fixture.start().await;
    let filled = fill(&initiator, &mut initiation).await.unwrap();
    assert_eq!((filled.end, filled.progress.sent), (FillEnd::Sealed, 10));
    assert_eq!(fixture.keys(&initiation.batch().id).await, numbers(1..=10));
}
