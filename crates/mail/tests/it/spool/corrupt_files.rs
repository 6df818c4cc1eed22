//! A file that cannot be read does not affect others. Tests may run as root, which can read every file, so a
//! folder or a dangling link stands for such a file.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use longshore_mail::spool::{DeliveryPolicy, Share, Spool};
use tempfile::TempDir;

use super::state_machine::{send_all, taken};
use super::{NOW, entries, key, later, letter, states};

fn spool_with(keys: &[&str]) -> (TempDir, Spool) {
    let folder = TempDir::new().expect("a folder");
    let spool = Spool::open(folder.path()).expect("a spool");
    spool.enqueue(&keys.iter().map(|key| letter(key)).collect::<Vec<_>>(), NOW).expect("kept");
    (folder, spool)
}

fn of(folder: &Path, key: &str) -> PathBuf {
    let end = format!("-{key}");
    let is = |path: &PathBuf| path.to_str().is_some_and(|path| path.ends_with(&end));
    entries(folder).into_iter().find(is).expect("it is there")
}

fn make_folder(path: &Path) {
    fs::remove_file(path).expect("removed");
    fs::create_dir(path).expect("a folder");
}

fn make_link(path: &Path) {
    fs::remove_file(path).expect("removed");
    symlink("/nowhere/at/all", path).expect("a link");
}

#[test]
fn what_cannot_be_read_is_set_aside_and_the_others_are_sent() {
    let (folder, spool) = spool_with(&["a", "b", "c"]);
    let pending = folder.path().join("pending");
    make_folder(&of(&pending, "a"));
    make_link(&of(&pending, "b"));
    let shard = spool.shard(Share::ALL).expect("the lock is free");
    for name in shard.due(NOW, 10).expect("listed").names {
        if let Some(leased) = shard.claim(&name).expect("others are not affected") {
            leased.settle(taken(), &DeliveryPolicy::default(), NOW).expect("settled");
        }
    }
    let states = states(folder.path());
    assert_eq!([&states["a"], &states["b"], &states["c"]], [&["failed"], &["failed"], &["sent"]]);
    assert!(spool.retry(&key("a"), NOW).is_err(), "the user gets the error");
    assert_eq!(spool.retry_all(NOW).expect("others are not affected"), 0);
}

#[test]
fn what_a_dead_sender_left_and_cannot_be_read_is_set_aside_by_the_next() {
    let (folder, spool) = spool_with(&["a", "b", "c"]);
    let shard = spool.shard(Share::ALL).expect("the lock is free");
    for name in shard.due(NOW, 10).expect("listed").names {
        drop(shard.claim(&name).expect("taken").expect("it is there"));
    }
    let sending = folder.path().join("sending");
    make_folder(&of(&sending, "a"));
    make_link(&of(&sending, "b"));
    let found = shard.recover(&DeliveryPolicy::default(), NOW).expect("others are not affected");
    assert_eq!((found.failed, found.requeued), (2, 1));
    let again = shard.recover(&DeliveryPolicy::default(), NOW).expect("nothing is left");
    assert_eq!((again.failed, again.requeued), (0, 0));
    drop(shard);
    send_all(&spool, later(1));
    assert_eq!(states(folder.path())["c"], ["sent"]);
}

#[test]
fn what_cannot_be_read_among_promises_and_keys_holds_up_nobody() {
    let (folder, spool) = spool_with(&["lost"]);
    // A folder has two links or more, like a committed message.
    fs::create_dir(folder.path().join("tmp/dead.1")).expect("a folder");
    fs::remove_file(of(&folder.path().join("pending"), "lost")).expect("removed");
    make_link(&folder.path().join("keys/lost"));
    fs::write(folder.path().join("keys/other"), "no message").expect("written");
    spool.enqueue(&[letter("a")], NOW).expect("kept");
    let shard = spool.shard(Share::ALL).expect("the lock is free");
    shard.recover(&DeliveryPolicy::default(), NOW).expect("others are not affected");
    drop(shard);
    send_all(&spool, later(1));
    assert_eq!(states(folder.path())["a"], ["sent"]);
}
