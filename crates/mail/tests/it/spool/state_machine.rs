//! A message's states from pending to sent or failed.

use std::fs;

use longshore_mail::spool::{
    DeliveryOutcome, DeliveryPolicy, HealthThresholds, NextState, Note, Share, Spool, SpoolError, SpoolHealth,
};
use tempfile::TempDir;

use super::{NOW, entries, key, later, letter, states};

pub(super) fn taken() -> DeliveryOutcome {
    DeliveryOutcome::Accepted { answer: "250 fine".into() }
}

/// Sends all due messages.
pub(super) fn send_all(spool: &Spool, now: longshore::Timestamp) {
    let shard = spool.shard(Share::ALL).expect("the lock is free");
    for name in shard.due(now, 100).expect("listed").names {
        let mut leased = shard.claim(&name).expect("taken").expect("it is there");
        leased.record_data(&DeliveryPolicy::default(), now).expect("noted");
        leased.settle(taken(), &DeliveryPolicy::default(), now).expect("settled");
    }
}

#[test]
fn a_message_that_is_taken_is_sent_and_its_file_tells_its_story() {
    let folder = TempDir::new().expect("a folder");
    let spool = Spool::open(folder.path()).expect("a spool");
    spool.enqueue(&[letter("a")], NOW).expect("kept");
    send_all(&spool, later(5));
    assert_eq!(states(folder.path())["a"], ["sent"]);
    let stats = spool.stats(later(5)).expect("counted");
    assert_eq!(stats.sent.values().sum::<usize>(), 1);
    let day = entries(&folder.path().join("sent"));
    let text = fs::read_to_string(&entries(&day[0])[0]).expect("read");
    assert!(
        text.contains("hello a") && text.contains("\"note\":\"data\"") && text.contains("250 fine"),
        "{text}"
    );
}

#[test]
fn what_is_deferred_comes_again_and_what_is_refused_waits_for_somebody() {
    let folder = TempDir::new().expect("a folder");
    let spool = Spool::open(folder.path()).expect("a spool");
    spool.enqueue(&[letter("a"), letter("b")], NOW).expect("kept");
    let policy = DeliveryPolicy::default();
    let shard = spool.shard(Share::ALL).expect("the lock is free");
    for name in shard.due(NOW, 10).expect("listed").names {
        let leased = shard.claim(&name).expect("taken").expect("it is there");
        let outcome = match name.key.encoded() {
            "a" => DeliveryOutcome::Deferred { why: "450 busy".into() },
            _ => DeliveryOutcome::Refused { why: "550 nobody".into() },
        };
        leased.settle(outcome, &policy, NOW).expect("settled");
    }
    let due = shard.due(NOW, 10).expect("listed");
    assert_eq!(due.names, []);
    let next = due.next.expect("it comes again");
    assert_eq!(states(folder.path())["b"], ["failed"]);
    assert!(spool.retry(&key("b"), next).expect("retried"));
    assert!(!spool.retry(&key("b"), next).expect("there is none"));
    let names = shard.due(next, 10).expect("listed").names;
    assert_eq!(names.len(), 2);
    let leased = shard.claim(&names[0]).expect("taken").expect("it is there");
    assert_eq!(leased.message().notes.len(), if names[0].key == key("b") { 2 } else { 1 });
}

#[test]
fn a_sender_that_puts_back_leaves_no_trace() {
    let folder = TempDir::new().expect("a folder");
    let spool = Spool::open(folder.path()).expect("a spool");
    spool.enqueue(&[letter("a")], NOW).expect("kept");
    let shard = spool.shard(Share::ALL).expect("the lock is free");
    let names = shard.due(NOW, 10).expect("listed").names;
    shard.claim(&names[0]).expect("taken").expect("it is there").release().expect("back");
    assert_eq!(shard.due(NOW, 10).expect("listed").names, names);
    let leased = shard.claim(&names[0]).expect("taken").expect("it is there");
    assert_eq!(leased.message().notes, Vec::<Note>::new());
    assert_eq!(leased.settle(taken(), &DeliveryPolicy::default(), NOW).expect("settled"), NextState::Sent);
    assert!(shard.claim(&names[0]).expect("looked").is_none(), "it is gone");
}

#[test]
fn a_share_has_one_sender_and_shares_cut_otherwise_are_refused_too() {
    let folder = TempDir::new().expect("a folder");
    let spool = Spool::open(folder.path()).expect("a spool");
    let letters: Vec<_> = (0..60).map(|n| letter(&n.to_string())).collect();
    spool.enqueue(&letters, NOW).expect("kept");
    let share = |part, of| Share::new(part, of).expect("a share");
    let half = spool.shard(share(0, 2)).expect("the lock is free");
    let other = Spool::open(folder.path()).expect("as another process");
    for refused in [share(0, 2), Share::ALL, share(0, 4), share(2, 4), share(0, 3)] {
        assert!(matches!(other.shard(refused), Err(SpoolError::Locked { .. })), "{refused:?}");
    }
    let rest = other.shard(share(1, 2)).expect("the lock is free");
    let names = |shard: &longshore_mail::spool::Shard| shard.due(NOW, 100).expect("listed").names;
    assert_eq!(names(&half).len() + names(&rest).len(), 60);
    assert!(names(&half).iter().all(|name| !names(&rest).contains(name)));
    drop((half, rest));
    other.shard(Share::ALL).expect("both are gone");
}

#[test]
fn what_is_damaged_is_set_aside_and_holds_up_nobody() {
    let folder = TempDir::new().expect("a folder");
    let spool = Spool::open(folder.path()).expect("a spool");
    spool.enqueue(&[letter("a"), letter("b")], NOW).expect("kept");
    let pending = entries(&folder.path().join("pending"));
    let damaged = pending.iter().find(|path| path.to_str().is_some_and(|path| path.ends_with("-a")));
    fs::write(damaged.expect("it is there"), "{").expect("damaged");
    fs::write(folder.path().join("pending/README"), "not a message").expect("written");
    let shard = spool.shard(Share::ALL).expect("the lock is free");
    for name in shard.due(NOW, 10).expect("listed").names {
        if let Some(leased) = shard.claim(&name).expect("taken") {
            leased.settle(taken(), &DeliveryPolicy::default(), NOW).expect("settled");
        }
    }
    fs::remove_file(folder.path().join("pending/README")).expect("removed");
    let states = states(folder.path());
    assert_eq!((&states["a"][..], &states["b"][..]), (&["failed".to_owned()][..], &["sent".to_owned()][..]));
    assert_eq!(spool.retry_all(NOW).expect("looked"), 0, "it would fail again");
}

#[test]
fn a_spool_that_grows_old_or_long_is_not_well() {
    let folder = TempDir::new().expect("a folder");
    let spool = Spool::open(folder.path()).expect("a spool");
    let health = |now| spool.stats(now).expect("counted").health(&HealthThresholds::default());
    assert_eq!(health(NOW), SpoolHealth::Good);
    let letters: Vec<_> = (0..101).map(|n| letter(&n.to_string())).collect();
    spool.enqueue(&letters[..100], NOW).expect("kept");
    assert_eq!(
        [health(NOW), health(later(901)), health(later(3601))],
        [SpoolHealth::Good, SpoolHealth::Warning, SpoolHealth::Critical]
    );
    spool.enqueue(&letters[100..], NOW).expect("kept");
    assert_eq!(health(NOW), SpoolHealth::Warning);
}

/// Settles all due messages with this outcome.
fn settle_all(spool: &Spool, outcome: &DeliveryOutcome, now: longshore::Timestamp) {
    let shard = spool.shard(Share::ALL).expect("the lock is free");
    for name in shard.due(now, 100).expect("listed").names {
        let leased = shard.claim(&name).expect("taken").expect("it is there");
        leased.settle(outcome.clone(), &DeliveryPolicy::default(), now).expect("settled");
    }
}

#[test]
fn while_the_server_is_away_a_spool_is_not_well_and_one_full_mailbox_is_no_alarm() {
    let folder = TempDir::new().expect("a folder");
    let spool = Spool::open(folder.path()).expect("a spool");
    let health = |now| spool.stats(now).expect("counted").health(&HealthThresholds::default());
    spool.enqueue(&[letter("a")], NOW).expect("kept");
    let away = DeliveryOutcome::Deferred { why: "nobody answers".into() };
    for minutes in 0..90 {
        settle_all(&spool, &away, later(minutes * 60));
    }
    let stats = spool.stats(later(5400)).expect("counted");
    assert_eq!((stats.due, stats.postponed), (1, 1));
    assert_eq!(stats.oldest_put_off, std::time::Duration::from_secs(5400));
    assert_eq!(health(later(60)), SpoolHealth::Good);
    assert_eq!((health(later(1000)), health(later(5400))), (SpoolHealth::Warning, SpoolHealth::Critical));
    // Another message was sent ten seconds ago: only this mailbox has a problem.
    let day = folder.path().join("sent/2025-11-16");
    fs::create_dir(&day).expect("a folder");
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_micros(1_763_305_390_000_000);
    fs::File::open(&day).and_then(|folder| folder.set_modified(at)).expect("changed then");
    assert_eq!(health(later(5400)), SpoolHealth::Good);
    assert_eq!(health(later(5390 + 901)), SpoolHealth::Warning);
}

#[test]
fn failures_of_the_last_day_are_a_reason_to_look() {
    let folder = TempDir::new().expect("a folder");
    let spool = Spool::open(folder.path()).expect("a spool");
    let health = |now| spool.stats(now).expect("counted").health(&HealthThresholds::default());
    let letters: Vec<_> = (0..11).map(|n| letter(&n.to_string())).collect();
    let refused = DeliveryOutcome::Refused { why: "554 no".into() };
    spool.enqueue(&letters[..10], NOW).expect("kept");
    settle_all(&spool, &refused, later(7200));
    assert_eq!(health(later(7200)), SpoolHealth::Good);
    spool.enqueue(&letters[10..], NOW).expect("kept");
    settle_all(&spool, &refused, later(7200));
    assert_eq!(health(later(7200)), SpoolHealth::Warning);
    // The time of the failure counts, not the due time.
    assert_eq!(health(later(86_400 + 7100)), SpoolHealth::Warning);
    assert_eq!(health(later(86_400 + 7300)), SpoolHealth::Good);
}
