//! Group commit: concurrent enqueues share a disk sync.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use futures_util::future::join_all;
use futures_util::poll;
use longshore::SystemClock;
use longshore_mail::group_commit::GroupCommitQueue;
use longshore_mail::spool::{EnqueueResult, Spool, SpoolError};
use serde_json::json;
use tempfile::TempDir;

use super::{letter, states};

#[tokio::test]
async fn letters_that_gather_are_kept_with_one_wait_for_the_disk() {
    let folder = TempDir::new().expect("a folder");
    let waits = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&waits);
    let spool = Spool::open_with_failpoints(folder.path(), move |step| {
        counted.fetch_add(usize::from(step == "sync files"), Ordering::Relaxed);
    });
    let queue = GroupCommitQueue::new(spool.expect("a spool"), Arc::new(SystemClock));
    let puts = (0..100).map(|n| queue.put(letter(&format!("digest/{n}"))));
    let kept = join_all(puts).await;
    assert!(kept.iter().all(|one| one.as_ref().is_ok_and(|one| one.result == EnqueueResult::Created)));
    // The first is written alone, the others in later groups; how many groups depends on the disk.
    let waits = waits.load(Ordering::Relaxed);
    assert!((2..50).contains(&waits), "{waits} for a hundred");
    assert_eq!(states(folder.path()).len(), 100);
}

#[tokio::test]
async fn who_puts_a_key_again_hears_what_is_in_the_message_that_is_kept() {
    let folder = TempDir::new().expect("a folder");
    let spool = Spool::open(folder.path()).expect("a spool");
    let queue = GroupCommitQueue::new(spool, Arc::new(SystemClock));
    let mut first = letter("digest/1");
    first.metadata = Some(json!({ "last": 7 }));
    let mut second = letter("digest/1");
    second.metadata = Some(json!({ "last": 9 }));
    let kept = queue.put(first).await.expect("kept");
    assert_eq!((kept.result, kept.metadata), (EnqueueResult::Created, Some(json!({ "last": 7 }))));
    let kept = queue.put(second).await.expect("kept");
    assert_eq!((kept.result, kept.metadata), (EnqueueResult::Existing, Some(json!({ "last": 7 }))));
}

/// A queue that blocks each group until the test lets it continue, and a counter of its groups.
fn slow(
    folder: &std::path::Path,
    then: impl Fn(usize) + Send + Sync + 'static,
) -> (GroupCommitQueue, std::sync::mpsc::Sender<()>, Arc<AtomicUsize>) {
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let (gate, waits) = (std::sync::Mutex::new(gate), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&waits);
    let spool = Spool::open_with_failpoints(folder, move |step| match step {
        "sync files" => gate.lock().expect("no panic").recv().expect("the test continues it"),
        "sync folders" => then(counted.fetch_add(1, Ordering::SeqCst)),
        _ => {}
    });
    (GroupCommitQueue::new(spool.expect("a spool"), Arc::new(SystemClock)), go, waits)
}

#[tokio::test]
async fn who_is_dropped_while_a_group_is_kept_leaves_the_others_waiting_for_that_group() {
    let folder = TempDir::new().expect("a folder");
    let (queue, go, waits) = slow(folder.path(), |_| {});
    let mut first = Box::pin(queue.put(letter("first")));
    let mut dropped = Box::pin(queue.put(letter("dropped")));
    let mut last = Box::pin(queue.put(letter("last")));
    assert!(poll!(first.as_mut()).is_pending());
    assert!(poll!(dropped.as_mut()).is_pending() && poll!(last.as_mut()).is_pending());
    go.send(()).expect("it waits");
    first.await.expect("kept");
    // It writes the group with both messages.
    assert!(poll!(dropped.as_mut()).is_pending());
    drop(dropped);
    assert!(poll!(last.as_mut()).is_pending());
    go.send(()).expect("it waits");
    // If the running group were not waited for, another group would block for ever.
    drop(go);
    last.await.expect("kept");
    assert_eq!(waits.load(Ordering::SeqCst), 2, "one group each, and none of nothing");
}

#[tokio::test]
async fn who_was_in_a_group_that_came_to_no_end_is_told() {
    let folder = TempDir::new().expect("a folder");
    let (queue, go, _) = slow(folder.path(), |group| assert_ne!(group, 1, "the disk is gone"));
    let put = |text: &'static str| {
        let queue = queue.clone();
        async move { queue.put(letter(text)).await }
    };
    let mut first = Box::pin(put("first"));
    assert!(poll!(first.as_mut()).is_pending());
    let (mut one, mut other) = (Box::pin(put("one")), Box::pin(put("other")));
    assert!(poll!(one.as_mut()).is_pending() && poll!(other.as_mut()).is_pending());
    go.send(()).expect("it waits");
    go.send(()).expect("it waits");
    first.await.expect("kept");
    let panicked = std::panic::AssertUnwindSafe(one).catch_unwind().await;
    assert!(panicked.is_err(), "the caller that ran the group panics with it");
    let error = other.await.expect_err("the result is unknown");
    assert!(matches!(*error, SpoolError::WriterCrashed), "{error}");
}
