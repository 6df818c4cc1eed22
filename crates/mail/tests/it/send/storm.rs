//! Writers and senders that are killed repeatedly, against a real mail server.

use std::collections::HashMap;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use longshore::{RetryPolicy, SystemClock};
use longshore_mail::send::{Security, Sender, SenderSettings, Smtp, SmtpSettings};
use longshore_mail::spool::{DeliveryPolicy, Share, Spool, SpoolError};
use longshore_testkit::servers::{MailSecurity, PrivateSmtp};
use tempfile::TempDir;

use super::{letter, now};

const ORDERS: &str = "LONGSHORE_MAIL_STORM";
const CONNECTIONS: usize = 4;

#[test]
fn a_storm_on_a_spool_loses_none_and_repeats_only_what_was_in_hand() {
    let soak = std::env::var_os("LONGSHORE_SOAK").is_some();
    let (letters, kills) = if soak { (20_000, 40) } else { (600, 8) };
    let server = PrivateSmtp::start(MailSecurity::None).expect("a server");
    let folder = TempDir::new().expect("a folder");
    let start = |what: &str| -> Child {
        let mut command = Command::new(std::env::current_exe().expect("we are a file"));
        command.args(["--exact", "send::storm::one_of_many", "--ignored"]);
        command.env(ORDERS, format!("{what} {letters} {} {}", server.port(), folder.path().display()));
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
    };
    let sent = || {
        let spool = Spool::open(folder.path()).expect("a spool");
        spool.stats(now()).expect("counted").sent.values().sum::<usize>()
    };
    for _ in 0..kills {
        let mut both = [start("write"), start("send")];
        // Further each time, measured by messages sent and not by time.
        let enough = sent() + letters / (2 * kills);
        eventually(|| {
            let ended = both.iter_mut().any(|child| child.try_wait().expect("asked").is_some());
            ended || sent() >= enough
        });
        for child in &mut both {
            child.kill().expect("killed");
            child.wait().expect("it ended");
        }
    }
    for what in ["write", "send"] {
        assert!(start(what).wait().expect("it ended").success(), "{what} is not killed");
    }
    check(&server, folder.path(), letters, kills);
}

fn check(server: &PrivateSmtp, folder: &std::path::Path, letters: usize, sender_kills: usize) {
    let spool = Spool::open(folder).expect("a spool");
    let stats = spool.stats(now()).expect("counted");
    let sent: usize = stats.sent.values().sum();
    assert_eq!((sent, stats.pending, stats.sending, stats.failed), (letters, 0, 0, 0), "one file per letter");
    let mut times: HashMap<String, usize> = HashMap::new();
    for one in server.messages().expect("read") {
        *times.entry(one["id"].as_str().expect("an id").to_owned()).or_default() += 1;
    }
    assert_eq!(times.len(), letters, "none is lost, and all are known by their ids");
    let repeats: usize = times.values().map(|times| times - 1).sum();
    assert!(repeats <= sender_kills * CONNECTIONS, "{repeats} repeats after {sender_kills} kills");
}

/// Polls a condition: the child processes do not report their progress.
fn eventually(mut so: impl FnMut() -> bool) {
    let until = std::time::Instant::now() + Duration::from_secs(120);
    while !so() {
        assert!(std::time::Instant::now() < until, "it never came to that");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a process of the storm above, which starts it"]
async fn one_of_many() {
    let orders = std::env::var(ORDERS).expect("orders");
    let mut orders = orders.splitn(4, ' ');
    let mut order = || orders.next().expect("an order");
    let (what, letters) = (order(), order().parse::<usize>().expect("a number"));
    let port: u16 = order().parse().expect("a port");
    let spool = Spool::open(std::path::Path::new(order())).expect("a spool");
    match what {
        "write" => write(&spool, letters),
        _ => send(&spool, letters, port).await,
    }
}

/// Enqueues all messages each time; existing ones are skipped.
fn write(spool: &Spool, letters: usize) {
    let all: Vec<usize> = (0..letters).collect();
    for group in all.chunks(50) {
        let group: Vec<_> = group
            .iter()
            .map(|n| letter(&format!("u{n}@example.org"), &format!("digest/daily/{n}")))
            .collect();
        spool.enqueue(&group, now()).expect("kept");
    }
}

/// Sends until all messages are sent.
async fn send(spool: &Spool, letters: usize, port: u16) {
    let settings = SmtpSettings { security: Security::None, ..SmtpSettings::new("127.0.0.1", port) };
    let carrier = Arc::new(Smtp::new(settings).expect("no TLS"));
    let retry = RetryPolicy { base: Duration::from_millis(10), ..DeliveryPolicy::default().retry };
    let policy = DeliveryPolicy { retry, ..DeliveryPolicy::default() };
    let settings = SenderSettings { connections: CONNECTIONS, policy, scan_limit: 200, ..Default::default() };
    let shard = loop {
        match spool.shard(Share::ALL) {
            Err(SpoolError::Locked { .. }) => tokio::time::sleep(Duration::from_millis(1)).await,
            shard => break shard.expect("a shard"),
        }
    };
    let sender = Sender::new(shard, carrier, settings, Arc::new(SystemClock)).await.expect("it begins");
    while spool.stats(now()).expect("counted").sent.values().sum::<usize>() < letters {
        sender.round(&|| false).await.expect("it sends");
    }
}
