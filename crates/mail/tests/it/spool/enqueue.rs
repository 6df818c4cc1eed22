//! Enqueueing: durable, once per key.

use std::fs;

use longshore_mail::spool::{DeliveryOutcome, DeliveryPolicy, EnqueueResult, Share, Spool, SpoolError};
use tempfile::TempDir;

use super::{NOW, entries, key, later, letter, states};

fn spool() -> (TempDir, Spool) {
    let folder = TempDir::new().expect("a folder");
    let spool = Spool::open(folder.path()).expect("a spool");
    (folder, spool)
}

#[test]
fn a_spool_that_other_users_can_read_or_replace_is_refused() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let (folder, _) = spool();
    let keys = folder.path().join("keys");
    for (path, mode) in [(folder.path(), 0o777), (&keys, 0o755)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
        let error = Spool::open(folder.path()).expect_err("it is open to others");
        assert!(matches!(error, SpoolError::Untrusted(_)) && !error.is_retryable(), "{error}");
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).expect("a mode");
    }
    Spool::open(folder.path()).expect("a spool");
    if chown(&keys, Some(61_234), None).is_err() {
        return eprintln!("SKIPPED: only root can give a folder to another user");
    }
    assert!(matches!(Spool::open(folder.path()), Err(SpoolError::Untrusted(_))));
}

#[test]
fn there_is_one_file_per_key_whoever_puts_it_how_often() {
    let (folder, _) = spool();
    let letters: Vec<_> = (0..40).map(|n| letter(&format!("digest/{n}"))).collect();
    let put = |part: usize| {
        // Each thread opens its own spool, as a process would, with another group size.
        let spool = Spool::open(folder.path()).expect("a spool");
        let groups = letters.chunks(part + 1);
        groups.flat_map(|group| spool.enqueue(group, NOW).expect("kept")).collect::<Vec<EnqueueResult>>()
    };
    let all: Vec<Vec<EnqueueResult>> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..6).map(|part| scope.spawn(move || put(part))).collect();
        writers.into_iter().map(|writer| writer.join().expect("it wrote")).collect()
    });
    for n in 0..letters.len() {
        let created = all.iter().filter(|puts| puts[n] == EnqueueResult::Created).count();
        assert_eq!(created, 1, "letter {n}");
    }
    let states = states(folder.path());
    assert_eq!(states.len(), 40);
    assert!(states.values().all(|state| *state == ["pending"]), "{states:?}");
    assert_eq!(entries(&folder.path().join("tmp")), Vec::<std::path::PathBuf>::new());
}

#[test]
fn a_key_is_one_message_even_with_another_due_time_and_text() {
    let (folder, spool) = spool();
    let mut other = letter("a");
    (other.due, other.body) = (later(60), b"other".to_vec());
    assert_eq!(
        spool.enqueue(&[letter("a"), other.clone()], NOW).expect("kept"),
        [EnqueueResult::Created, EnqueueResult::Existing]
    );
    assert_eq!(spool.enqueue(&[other], NOW).expect("kept"), [EnqueueResult::Existing]);
    assert_eq!(states(folder.path())["a"], ["pending"]);
}

#[test]
fn a_disk_that_kept_only_the_promise_is_put_right_by_whoever_comes() {
    let (folder, spool) = spool();
    spool.enqueue(&[letter("a"), letter("b")], NOW).expect("kept");
    for path in entries(&folder.path().join("pending")) {
        fs::remove_file(path).expect("removed");
    }
    assert_eq!(spool.enqueue(&[letter("a")], NOW).expect("kept"), [EnqueueResult::Existing]);
    assert_eq!(states(folder.path())["a"], ["pending"]);
    let shard = spool.shard(Share::ALL).expect("the lock is free");
    assert_eq!(shard.recover(&DeliveryPolicy::default(), NOW).expect("recovered").enqueued, 1);
    assert_eq!(states(folder.path())["b"], ["pending"]);
}

#[test]
fn what_somebody_removed_after_its_end_does_not_come_back() {
    let (folder, spool) = spool();
    spool.enqueue(&[letter("a")], NOW).expect("kept");
    super::state_machine::send_all(&spool, NOW);
    fs::remove_dir_all(entries(&folder.path().join("sent")).remove(0)).expect("removed");
    let shard = spool.shard(Share::ALL).expect("the lock is free");
    assert_eq!(shard.recover(&DeliveryPolicy::default(), NOW).expect("recovered").enqueued, 0);
    assert_eq!(spool.enqueue(&[letter("a")], NOW).expect("kept"), [EnqueueResult::Existing]);
    assert!(states(folder.path()).is_empty(), "its key is known, and it was sent");
}

#[test]
fn what_was_never_promised_is_forgotten_when_it_is_old() {
    let (folder, spool) = spool();
    fs::write(folder.path().join("tmp/dead.0"), "half a mess").expect("written");
    let now = longshore::Clock::now(&longshore::SystemClock);
    assert_eq!(spool.move_committed(now).expect("looked").removed, 0);
    let later = now + std::time::Duration::from_secs(2 * 3600);
    assert_eq!(spool.move_committed(later).expect("looked").removed, 1);
}

#[test]
fn a_key_is_forgotten_with_the_day_on_which_it_was_sent() {
    let (folder, spool) = spool();
    let day = 24 * 3600;
    for (n, at) in [(1, NOW), (2, later(day)), (3, later(2 * day))] {
        spool.enqueue(&[letter(&n.to_string())], at).expect("kept");
        super::state_machine::send_all(&spool, at);
    }
    let keep = std::time::Duration::from_secs(day);
    let pruned = spool.prune(keep, later(2 * day)).expect("pruned");
    assert_eq!((pruned.messages, pruned.days), (1, 1));
    assert_eq!(states(folder.path()).len(), 2);
    assert!(!folder.path().join("keys").join(key("1").encoded()).exists());
    assert_eq!(
        spool.enqueue(&[letter("1"), letter("2")], NOW).expect("kept"),
        [EnqueueResult::Created, EnqueueResult::Existing]
    );
    // A foreign file among the day folders is ignored.
    fs::write(folder.path().join("sent/0 notes"), "").expect("written");
    assert_eq!(spool.prune(keep, later(2 * day)).expect("pruned").days, 0);
    assert_eq!(spool.stats(later(2 * day)).expect("counted").failed, 0);
}

#[test]
fn what_failed_is_forgotten_after_its_time_and_not_before() {
    let (folder, spool) = spool();
    spool.enqueue(&[letter("a")], NOW).expect("kept");
    let shard = spool.shard(Share::ALL).expect("the lock is free");
    let due = shard.due(later(1), 10).expect("listed").names;
    let leased = shard.claim(&due[0]).expect("taken").expect("there");
    leased
        .settle(DeliveryOutcome::Refused { why: "550".into() }, &DeliveryPolicy::default(), NOW)
        .expect("settled");
    // The time of failure counts, not the file's modification time, which is now.
    let month = std::time::Duration::from_secs(30 * 86_400);
    assert_eq!(spool.prune_failed(month, later(30 * 86_400)).expect("pruned"), 0);
    assert_eq!(states(folder.path())["a"], ["failed"]);
    assert_eq!(spool.prune_failed(month, later(31 * 86_400)).expect("pruned"), 1);
    assert!(states(folder.path()).is_empty() && !folder.path().join("keys/a").exists());
}

#[test]
fn a_new_message_keeps_its_key_when_its_forerunner_is_forgotten() {
    let (folder, spool) = spool();
    spool.enqueue(&[letter("a")], NOW).expect("kept");
    super::state_machine::send_all(&spool, NOW);
    // The pruning process crashed between removing the key and the message.
    fs::remove_file(folder.path().join("keys/a")).expect("removed");
    spool.enqueue(&[letter("a")], later(100 * 86_400)).expect("kept");
    spool.prune(std::time::Duration::from_secs(86_400), later(100 * 86_400)).expect("pruned");
    assert_eq!(states(folder.path())["a"], ["pending"]);
    assert!(folder.path().join("keys/a").exists());
}
