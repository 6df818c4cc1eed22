//! A real network between the server and two workers, which is cut and healed.
//!
//! The hosts are network namespaces of this machine, so this needs root and iproute2.

use std::fs::File;
use std::process::Stdio;

use longshore_testkit::servers::PrivateNetwork;

use super::fixture::{POOL_TIMEOUT, PoolFixture, count_lines};
use super::launcher::LocalLauncher;
use crate::support::{ChildGuard, TIMEOUT, eventually};

const SCRIPTS: usize = 120;

struct NetworkFixture {
    pool: PoolFixture,
    network: PrivateNetwork,
}

impl NetworkFixture {
    /// A pool with a server that launches no workers.
    fn new() -> Self {
        let network = PrivateNetwork::start(2).expect("network namespaces");
        let address = network.address().to_string();
        let args = ["--workers", "0", "--max-workers", "0", "--listen", &address];
        let pool = PoolFixture::start_on(Box::new(LocalLauncher), &args);
        Self { pool, network }
    }

    /// Starts a worker on a host.
    fn worker(&self, host: u8) -> ChildGuard {
        let folder = self.pool.dir.path("pool");
        let args = ["worker", "--nthr", "4", "--server", folder.to_str().unwrap()];
        let outside = self.pool.command(&args);
        let mut inside = self.network.command(host, outside.get_program());
        inside.args(outside.get_args()).current_dir(self.pool.dir.path(""));
        for (name, value) in outside.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        let log = File::create(self.pool.dir.path(&format!("worker-{host}.log"))).unwrap();
        inside.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        ChildGuard(inside.spawn().unwrap())
    }

    /// Stops both workers and checks the counts: every script is done once, on either worker.
    fn stop_and_verify(self, cut_off: &mut ChildGuard, other: &mut ChildGuard) {
        let status = self.pool.wait_until_idle();
        assert_eq!((&status["done"], &status["failed"]), (&SCRIPTS.into(), &0.into()));
        self.pool.run(&["dispatch", "stop"]).ok();
        assert_eq!((cut_off.ends_within(TIMEOUT), other.ends_within(TIMEOUT)), (0, 0));
        self.pool.assert_nothing_left();
    }
}

#[test]
fn a_short_cut_costs_nothing() {
    let fixture = NetworkFixture::new();
    let (mut cut_off, mut other) = (fixture.worker(1), fixture.worker(2));
    fixture.pool.wait_for_workers(2);
    fixture.pool.submit("job.sh", "echo $LONGSHORE_ARRAY_INDEX >> runs; sleep 0.2", &["--array", "1-120"]);
    fixture.pool.wait_for_lines("runs", 10);
    fixture.network.cut(1).unwrap();
    // The other worker goes on, and so do the scripts that the first has started.
    fixture.pool.wait_for_lines("runs", 20);
    fixture.network.heal(1).unwrap();
    fixture.pool.wait_until_idle();
    let runs = fixture.pool.lines("runs");
    assert!(count_lines(&runs).values().all(|times| *times == 1), "{runs:?}");
    assert_eq!(fixture.pool.worker_pids().len(), 2);
    fixture.stop_and_verify(&mut cut_off, &mut other);
}

#[test]
fn a_long_cut_loses_no_script_and_finishes_none_twice() {
    let fixture = NetworkFixture::new();
    let (mut cut_off, mut other) = (fixture.worker(1), fixture.worker(2));
    fixture.pool.wait_for_workers(2);
    let text = "echo $LONGSHORE_ARRAY_INDEX >> runs; sleep 0.2";
    fixture.pool.submit("job.sh", text, &["--array", "1-120"]);
    fixture.pool.wait_for_lines("runs", 10);
    fixture.network.cut(1).unwrap();
    fixture.pool.wait_for_workers(1);
    fixture.network.heal(1).unwrap();
    let back = || (fixture.pool.worker_pids().len() == 2).then_some(());
    eventually(POOL_TIMEOUT, back);
    fixture.pool.wait_until_idle();
    let runs = fixture.pool.lines("runs");
    let counts = count_lines(&runs);
    let repeated = counts.values().filter(|times| **times > 1).count();
    assert_eq!(counts.len(), SCRIPTS);
    assert!(repeated <= 8, "only the cut-off worker's scripts ran again: {counts:?}");
    fixture.stop_and_verify(&mut cut_off, &mut other);
}
