//! A real network between the server and two workers, which is cut and healed.
//!
//! The hosts are network namespaces of this machine, so this needs root and iproute2.

use std::fs::File;
use std::process::Stdio;

use longshore_testkit::servers::PrivateNetwork;

use super::base::Local;
use super::kit::{LONG, Pool, counted};
use crate::support::{Running, SOON, eventually};

const SCRIPTS: usize = 120;

struct Site {
    pool: Pool,
    network: PrivateNetwork,
}

impl Site {
    /// A pool with a server that launches no workers.
    fn new() -> Self {
        let network = PrivateNetwork::start(2).expect("network namespaces");
        let address = network.address().to_string();
        let args = ["--workers", "0", "--max-workers", "0", "--listen", &address];
        let pool = Pool::start_on(Box::new(Local), &args);
        Self { pool, network }
    }

    /// Starts a worker on a host.
    fn worker(&self, host: u8) -> Running {
        let folder = self.pool.place.path("pool");
        let args = ["worker", "--nthr", "4", "--server", folder.to_str().unwrap()];
        let outside = self.pool.command(&args);
        let mut inside = self.network.command(host, outside.get_program());
        inside.args(outside.get_args()).current_dir(self.pool.place.path(""));
        for (name, value) in outside.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        let log = File::create(self.pool.place.path(&format!("worker-{host}.log"))).unwrap();
        inside.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Running(inside.spawn().unwrap())
    }

    /// Stops both workers and checks the counts: every script is done once, on either worker.
    fn settle(self, cut_off: &mut Running, other: &mut Running) {
        let status = self.pool.at_rest();
        assert_eq!((&status["done"], &status["failed"]), (&SCRIPTS.into(), &0.into()));
        self.pool.run(&["dispatch", "stop"]).ok();
        assert_eq!((cut_off.ends_within(SOON), other.ends_within(SOON)), (0, 0));
        self.pool.assert_nothing_left();
    }
}

#[test]
fn a_short_cut_costs_nothing() {
    let site = Site::new();
    let (mut cut_off, mut other) = (site.worker(1), site.worker(2));
    site.pool.until_workers(2);
    site.pool.submit(
        "job.sh",
        "echo $LONGSHORE_ARRAY_INDEX >> runs; sleep 0.2",
        &["--array", "1-120"],
    );
    site.pool.until_lines("runs", 10);
    site.network.cut(1).unwrap();
    // The other worker goes on, and so do the scripts that the first has started.
    site.pool.until_lines("runs", 20);
    site.network.heal(1).unwrap();
    site.pool.at_rest();
    let runs = site.pool.lines("runs");
    assert!(counted(&runs).values().all(|times| *times == 1), "{runs:?}");
    assert_eq!(site.pool.workers().len(), 2);
    site.settle(&mut cut_off, &mut other);
}

#[test]
fn a_long_cut_loses_no_script_and_finishes_none_twice() {
    let site = Site::new();
    let (mut cut_off, mut other) = (site.worker(1), site.worker(2));
    site.pool.until_workers(2);
    let text = "echo $LONGSHORE_ARRAY_INDEX >> runs; sleep 0.2";
    site.pool.submit("job.sh", text, &["--array", "1-120"]);
    site.pool.until_lines("runs", 10);
    site.network.cut(1).unwrap();
    site.pool.until_workers(1);
    site.network.heal(1).unwrap();
    let back = || (site.pool.workers().len() == 2).then_some(());
    eventually(LONG, back);
    site.pool.at_rest();
    let runs = site.pool.lines("runs");
    let counts = counted(&runs);
    let repeated = counts.values().filter(|times| **times > 1).count();
    assert_eq!(counts.len(), SCRIPTS);
    assert!(repeated <= 8, "only what the first had in its hands ran again: {counts:?}");
    site.settle(&mut cut_off, &mut other);
}
