//! A pool's alerts and a webhook behind a proxy: alerts are dropped while it is away, and nothing else waits for it.

use std::time::{Duration, Instant};

use longshore_testkit::fault_proxy::{Direction, FaultProxy, LinkFault};

use super::cell::{Bystanders, CellReport, Fault, RECOVERY_LIMIT};
use crate::http::server::{HttpServer, answer};
use crate::support::{TIMEOUT, TestDir, eventually};

/// The wait of a command that gets no permit.
const WAIT: Duration = Duration::from_millis(500);

pub fn run(fault: Fault) -> CellReport {
    let (dir, receiver) = (TestDir::new(), HttpServer::answering(&[answer(204, "", "")]));
    let sentry = HttpServer::answering(&[answer(200, "", "{}")]);
    let address = receiver.url.trim_start_matches("http://").to_owned();
    let proxy = FaultProxy::start(address).unwrap();
    let config = format!(
        "[alerts]\nwebhook = \"http://{}\"\nsentry = \"http://key@{}/1\"\n[pools.licence]\nmax = 1\nalert_every = \"1s\"\n",
        proxy.address(),
        sentry.url.trim_start_matches("http://"),
    );
    dir.write("longshore.toml", config);
    let holder = dir.start(&["pool", "exec", "licence", "--", "sleep", "600"]);
    eventually(TIMEOUT, || {
        let status = dir.run(&["pool", "status", "licence", "--json"]);
        (status.code == 0 && status.json()["in_use"] == 1).then_some(())
    });
    let bystanders = Bystanders::new([&holder]);
    let (mut log, mut slowest) = (String::new(), Duration::ZERO);
    std::thread::scope(|scope| {
        let injected = scope.spawn(|| match fault {
            // The receiver has no process of its own: to restart it is to cut its connections for a moment.
            Fault::Restart => Fault::Cut.inject(&proxy),
            // A command connects for one alert only: its connection is held, and then becomes half-open.
            Fault::HalfOpen => {
                let began = Instant::now();
                while began.elapsed() < Fault::duration() {
                    proxy.set(LinkFault::Stall(Direction::Both));
                    std::thread::sleep(WAIT);
                    proxy.set(LinkFault::HalfOpen);
                }
                proxy.heal();
            }
            _ => fault.inject(&proxy),
        });
        while !injected.is_finished() {
            let (words, took) = wait_in_vain(&dir);
            log += &words;
            slowest = slowest.max(took);
        }
    });
    // The command's own wait, its last alert's time limit, and a slow machine.
    assert!(slowest < Duration::from_secs(30), "a command waited {slowest:?} for the webhook");
    if matches!(fault, Fault::Cut | Fault::HalfOpen | Fault::Restart) {
        assert!(log.contains("cannot post an alert to the webhook"), "{log}");
    }
    // The other receiver gets the alerts meanwhile.
    assert!(sentry.take_request().is_some(), "{log}");
    while receiver.take_request().is_some() {}
    let healed = Instant::now();
    eventually(RECOVERY_LIMIT, || {
        wait_in_vain(&dir);
        receiver.take_request().map(drop)
    });
    bystanders.assert_alive_and_bounded();
    let status = dir.run(&["pool", "status", "licence", "--json"]).ok().json();
    assert_eq!(status["in_use"], 1, "the holder keeps its permit: {status}");
    CellReport {
        recovery: healed.elapsed(),
        notes: format!("slowest command {:.1} s", slowest.as_secs_f64()),
        skipped: None,
    }
}

/// Runs a command that gets no permit: two alerts are due. Returns its log and how long it took.
fn wait_in_vain(dir: &TestDir) -> (String, Duration) {
    let (wait, began) = (format!("{}ms", WAIT.as_millis()), Instant::now());
    let run = dir.run(&["pool", "exec", "licence", "--wait", &wait, "--", "true"]).ends(75);
    (run.err, began.elapsed())
}
