//! The letterbox: one by one they come, together they are kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use longshore::SystemClock;
use longshore_mail::letterbox::Letterbox;
use longshore_mail::spool::{Put, Spool};
use serde_json::json;
use tempfile::TempDir;

use super::{letter, states};

#[tokio::test]
async fn letters_that_gather_are_kept_with_one_wait_for_the_disk() {
    let folder = TempDir::new().expect("a folder");
    let waits = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&waits);
    let spool = Spool::open_watched(folder.path(), move |step| {
        counted.fetch_add(usize::from(step == "sync files"), Ordering::Relaxed);
    });
    let letterbox = Letterbox::new(spool.expect("a spool"), Arc::new(SystemClock));
    let puts = (0..100).map(|n| letterbox.put(letter(&format!("digest/{n}"))));
    let kept = join_all(puts).await;
    assert!(kept.iter().all(|one| one.as_ref().is_ok_and(|one| one.put == Put::Created)));
    // The first alone, and the others with the next ones: how many of those there are is the disk's business.
    let waits = waits.load(Ordering::Relaxed);
    assert!((2..50).contains(&waits), "{waits} for a hundred");
    assert_eq!(states(folder.path()).len(), 100);
}

#[tokio::test]
async fn who_puts_a_key_again_hears_what_is_in_the_message_that_is_kept() {
    let folder = TempDir::new().expect("a folder");
    let spool = Spool::open(folder.path()).expect("a spool");
    let letterbox = Letterbox::new(spool, Arc::new(SystemClock));
    let mut first = letter("digest/1");
    first.about = Some(json!({ "last": 7 }));
    let mut second = letter("digest/1");
    second.about = Some(json!({ "last": 9 }));
    let kept = letterbox.put(first).await.expect("kept");
    assert_eq!((kept.put, kept.about), (Put::Created, Some(json!({ "last": 7 }))));
    let kept = letterbox.put(second).await.expect("kept");
    assert_eq!((kept.put, kept.about), (Put::Existing, Some(json!({ "last": 7 }))));
}
