//! A process that enqueues and sends is killed at every step: no message is lost or duplicated in the spool,
//! and only a message in flight is delivered twice.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longshore_mail::spool::{DeliveryOutcome, DeliveryPolicy, OnUnanswered, Share, Spool};
use tempfile::TempDir;

use super::{key, later, letter, states};

const ORDERS: &str = "LONGSHORE_MAIL_CRASH";
/// `a` and `b` are accepted at once, `later` at the second attempt, `never` at none.
const KEYS: [&str; 4] = ["a", "b", "later", "never"];

#[test]
fn none_is_lost_and_one_file_per_key_wherever_a_process_is_killed() {
    assert!(rage(OnUnanswered::Again, "again") > 25);
}

#[test]
fn none_arrives_twice_where_that_is_the_policy() {
    assert!(rage(OnUnanswered::Fail, "fail") > 25);
}

/// Kills the process at the first step, then at the second, and so on; returns the number of steps.
fn rage(policy: OnUnanswered, name: &str) -> usize {
    let soak = std::env::var_os("LONGSHORE_SOAK").is_some();
    let mut steps = 0;
    loop {
        steps += 1;
        // The recovering process is killed as well: at every step in a soak, else at one.
        let seconds = if soak { 0..40 } else { steps * 7 % 23..steps * 7 % 23 + 1 };
        let mut whole = false;
        for second in seconds {
            whole = kill_and_check(policy, name, steps, second);
            if whole {
                break;
            }
        }
        if whole {
            return steps - 1;
        }
    }
}

/// Returns whether the first process ended before it could be killed.
fn kill_and_check(policy: OnUnanswered, name: &str, first: usize, second: usize) -> bool {
    let folder = TempDir::new().expect("a folder");
    let whole = live(folder.path(), name, first, 1);
    let killed = usize::from(!whole) + usize::from(second > 0 && !live(folder.path(), name, second, 2));
    for run in 3..6 {
        assert!(live(folder.path(), name, 0, run), "it is not killed");
    }
    let context = format!("{name}, killed at step {first}, then at {second}");
    let (states, arrived) = (states(folder.path()), arrived(folder.path()));
    for text in KEYS {
        let times = arrived.iter().filter(|id| **id == key(text).message_id("example.org")).count();
        let state = states.get(text).unwrap_or_else(|| panic!("{text} is lost: {context}"));
        assert_eq!(state.len(), 1, "{text} is there more than once, {state:?}: {context}");
        match (policy, text) {
            (_, "never") => assert_eq!((times, &*state[0]), (0, "failed"), "{context}"),
            (OnUnanswered::Again, _) => {
                assert_eq!(state[0], "sent", "{text}: {context}");
                assert!((1..=1 + killed).contains(&times), "{text} arrived {times} times: {context}");
            }
            (OnUnanswered::Fail, _) => {
                assert!(times <= 1, "{text} arrived {times} times: {context}");
                assert!(times == 1 || state[0] == "failed", "{text} is gone without a word: {context}");
            }
        }
    }
    // One message is in flight at a time, so each kill can duplicate one.
    assert!(arrived.len() <= 3 + killed, "{arrived:?}: {context}");
    whole
}

/// Runs a process that kills itself at a step, or at none; returns whether it completed.
fn live(folder: &Path, policy: &str, die_at: usize, run: u64) -> bool {
    let mut command = Command::new(std::env::current_exe().expect("we are a file"));
    command.args(["--exact", "spool::crash::one_that_dies", "--ignored"]);
    command.env(ORDERS, format!("{die_at} {run} {policy} {}", folder.display()));
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("it ran");
    assert!(status.success() || die_at > 0, "it failed by itself in {}", folder.display());
    if !status.success() {
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(status.signal(), Some(9), "it failed by itself in {}", folder.display());
    }
    status.success()
}

fn arrived(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("arrived")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
#[ignore = "a process of the tests above, which start it"]
fn one_that_dies() {
    let orders = std::env::var(ORDERS).expect("orders");
    let mut orders = orders.splitn(4, ' ');
    let mut order = || orders.next().expect("an order");
    let die_at: usize = order().parse().expect("a number");
    let run: u64 = order().parse().expect("a number");
    let on_unanswered = if order() == "fail" { OnUnanswered::Fail } else { OnUnanswered::Again };
    let folder = Path::new(order());
    let steps = Arc::new(AtomicUsize::new(0));
    let step = move || {
        if steps.fetch_add(1, Ordering::SeqCst) + 1 == die_at {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::KILL).expect("killed");
            // Wait for the signal.
            std::thread::park();
        }
    };
    let tell = step.clone();
    let spool = Spool::open_with_failpoints(folder, move |_| tell()).expect("a spool");
    act(&spool, &DeliveryPolicy { on_unanswered, ..DeliveryPolicy::default() }, run, &step);
}

/// Enqueues all messages and sends the due ones.
fn act(spool: &Spool, policy: &DeliveryPolicy, run: u64, step: &dyn Fn()) {
    let now = later(run * 7200);
    let letters = KEYS.map(letter);
    spool.enqueue(&letters[..1], now).expect("kept");
    spool.enqueue(&letters, now).expect("kept");
    let shard = spool.shard(Share::ALL).expect("the one before is dead");
    shard.recover(policy, now).expect("recovered");
    for name in shard.due(now, 10).expect("listed").names {
        let mut leased = shard.claim(&name).expect("taken").expect("it is there");
        let outcome = match name.key.encoded() {
            "never" => DeliveryOutcome::Refused { why: "550 nobody".into() },
            "later" if leased.message().notes.is_empty() => {
                DeliveryOutcome::Deferred { why: "450 busy".into() }
            }
            _ => {
                leased.record_data(policy, now).expect("noted");
                step();
                arrives(spool.folder(), &leased.message().message_id);
                step();
                DeliveryOutcome::Accepted { answer: "250 fine".into() }
            }
        };
        leased.settle(outcome, policy, now).expect("settled");
    }
}

fn arrives(folder: &Path, id: &str) {
    let path = folder.join("arrived");
    let mut file = OpenOptions::new().create(true).append(true).open(path).expect("opened");
    file.write_all(format!("{id}\n").as_bytes()).expect("written");
}
