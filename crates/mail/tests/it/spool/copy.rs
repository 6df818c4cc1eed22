//! A spool that was copied without hard links: no message is sent twice.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use longshore_mail::spool::{DeliveryOutcome, DeliveryPolicy, EnqueueResult, Share, Spool};
use tempfile::TempDir;

use super::state_machine::{send_all, taken};
use super::{NOW, entries, later, letter, states};

/// Copies as `cp -r` does: folders keep their mode, and each link becomes a separate file.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    fs::set_permissions(to, fs::metadata(from).expect("a folder").permissions()).expect("a mode");
    for path in entries(from) {
        let to = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy(&path, &to);
        } else {
            fs::copy(&path, &to).expect("copied");
        }
    }
}

fn recover(spool: &Spool) -> longshore_mail::spool::RecoveryReport {
    let shard = spool.shard(Share::ALL).expect("the lock is free");
    shard.recover(&DeliveryPolicy::default(), NOW).expect("recovered")
}

/// A spool with a message in each state: `sent`, `later`, `off`, `failed` and `new`, by their keys.
fn lived(folder: &Path) -> Spool {
    let spool = Spool::open(folder).expect("a spool");
    spool.enqueue(&["sent", "later", "off", "failed"].map(letter), NOW).expect("kept");
    let shard = spool.shard(Share::ALL).expect("the lock is free");
    for name in shard.due(NOW, 10).expect("listed").names {
        let leased = shard.claim(&name).expect("taken").expect("it is there");
        let outcome = match name.key.encoded() {
            "off" => {
                leased.postpone(later(60)).expect("put off");
                continue;
            }
            "later" => DeliveryOutcome::Deferred { why: "450 busy".into() },
            "failed" => DeliveryOutcome::Refused { why: "550 nobody".into() },
            _ => taken(),
        };
        leased.settle(outcome, &DeliveryPolicy::default(), NOW).expect("settled");
    }
    drop(shard);
    spool.enqueue(&[letter("new")], NOW).expect("kept");
    spool
}

fn assert_one_each(folder: &Path, expected: [(&str, &str); 5]) {
    let found = states(folder);
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (key, state) in expected {
        assert_eq!(found[key], [state], "{key}");
    }
}

#[test]
fn what_was_sent_from_a_plain_copy_is_not_sent_again_at_the_next_start() {
    let (from, to) = (TempDir::new().expect("a folder"), TempDir::new().expect("a folder"));
    lived(from.path());
    copy(from.path(), to.path());
    let spool = Spool::open(to.path()).expect("a spool");
    let found = recover(&spool);
    assert_eq!((found.relinked, found.enqueued), (4, 0), "all that are in some state");
    for path in entries(&to.path().join("keys")) {
        assert_eq!(fs::metadata(&path).expect("there").nlink(), 2, "{}", path.display());
    }
    send_all(&spool, later(7200));
    let found = recover(&spool);
    assert_eq!((found.relinked, found.enqueued), (0, 0), "nothing is left to be put right");
    let all = ["sent", "later", "off", "new", "failed"];
    let state = |key| (key, if key == "failed" { "failed" } else { "sent" });
    assert_one_each(to.path(), all.map(state));
    assert_eq!(spool.enqueue(&all.map(letter), NOW).expect("looked"), [EnqueueResult::Existing; 5]);
    assert_one_each(to.path(), all.map(state));
}

#[test]
fn what_was_sent_from_a_plain_copy_before_anybody_put_it_right_stays_sent() {
    let (from, to) = (TempDir::new().expect("a folder"), TempDir::new().expect("a folder"));
    lived(from.path());
    copy(from.path(), to.path());
    let spool = Spool::open(to.path()).expect("a spool");
    // As earlier versions of the sender did: only one of the two files gets the note.
    send_all(&spool, later(7200));
    assert_eq!(recover(&spool).enqueued, 0);
    let all = ["sent", "later", "off", "new", "failed"];
    assert_one_each(to.path(), all.map(|key| (key, if key == "failed" { "failed" } else { "sent" })));
    // Pruning removes its key too.
    let day = std::time::Duration::from_secs(86_400);
    assert_eq!(spool.prune(day, NOW + 9 * day).expect("pruned").messages, 4);
    assert_eq!(entries(&to.path().join("keys")), [to.path().join("keys/failed")]);
}

#[test]
fn who_puts_into_a_plain_copy_before_its_sender_begins_makes_nothing_pending_twice() {
    let (from, to) = (TempDir::new().expect("a folder"), TempDir::new().expect("a folder"));
    lived(from.path());
    copy(from.path(), to.path());
    let spool = Spool::open(to.path()).expect("a spool");
    let all = ["sent", "later", "off", "new", "failed"];
    assert_eq!(spool.enqueue(&all.map(letter), NOW).expect("looked"), [EnqueueResult::Existing; 5]);
    let state = |key| match key {
        "sent" | "failed" => (key, key),
        _ => (key, "pending"),
    };
    assert_one_each(to.path(), all.map(state));
}

#[test]
fn of_a_copy_that_was_made_while_a_message_was_sent_what_knows_more_counts() {
    let (from, to) = (TempDir::new().expect("a folder"), TempDir::new().expect("a folder"));
    let spool = Spool::open(from.path()).expect("a spool");
    spool.enqueue(&[letter("a")], NOW).expect("kept");
    copy(&from.path().join("pending"), &to.path().join("pending"));
    send_all(&spool, NOW);
    copy(&from.path().join("keys"), &to.path().join("keys"));
    let spool = Spool::open(to.path()).expect("a spool");
    assert_eq!(recover(&spool).sent, 1);
    assert_eq!(states(to.path())["a"], ["sent"]);
}

#[test]
fn a_message_without_its_key_gets_it_back() {
    let folder = TempDir::new().expect("a folder");
    let spool = Spool::open(folder.path()).expect("a spool");
    spool.enqueue(&[letter("a")], NOW).expect("kept");
    fs::remove_file(folder.path().join("keys/a")).expect("removed");
    assert_eq!(recover(&spool).relinked, 1);
    assert_eq!(spool.enqueue(&[letter("a")], NOW).expect("looked"), [EnqueueResult::Existing]);
    assert_eq!(states(folder.path())["a"], ["pending"]);
}
