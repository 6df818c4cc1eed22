//! Two hosts and a PostgreSQL, with a real network between them that is cut. The cut-off worker loses
//! its units to the other, learns of it once the network is healed, and goes on.
//!
//! The hosts are network namespaces of this machine, so this needs root and iproute2.

use std::fs::File;
use std::process::Stdio;

use longshore_testkit::servers::{PrivateNetwork, PrivatePostgres};
use serde_json::Value;

use crate::support::{ChildGuard, TIMEOUT, TestDir, eventually};

const SLOTS: u64 = 4;
/// How long a long unit runs, in milliseconds. It writes its line halfway, so there is time to cut
/// the network.
const LONG_UNIT_MS: u64 = 3_000;

/// A server, and a directory that both hosts share.
struct TwoHosts {
    network: PrivateNetwork,
    _server: PrivatePostgres,
    dir: TestDir,
}

impl TwoHosts {
    fn new() -> Self {
        let network = PrivateNetwork::start(2).expect("network namespaces");
        let mut server = PrivatePostgres::start().unwrap();
        server.listen(&[network.address()]).unwrap();
        let dir = TestDir::new();
        let url = server.url_at(network.address(), server.name());
        dir.write("longshore.toml", format!("store = \"{url}\"\n"));
        Self { network, _server: server, dir }
    }

    /// Starts a worker on a host. It writes `runs-HOST`, `stderr-HOST` and at its end `report-HOST`.
    fn worker(&self, host: u8) -> ChildGuard {
        let (slots, log) = (SLOTS.to_string(), format!("runs-{host}"));
        let args = ["worker", "--ttl", "2s", "--slots", &slots, "--chaos-log", &log, "--json"];
        let outside = self.dir.command(&args);
        let mut inside = self.network.command(host, outside.get_program());
        inside.args(outside.get_args()).current_dir(self.dir.path(""));
        for (name, _) in outside.get_envs() {
            inside.env_remove(name);
        }
        let file = |name: &str| File::create(self.dir.path(&format!("{name}-{host}"))).unwrap();
        inside.stdin(Stdio::null()).stdout(file("report")).stderr(file("stderr"));
        ChildGuard(inside.spawn().unwrap())
    }

    /// Sends units with these numbers from outside, and seals the batch.
    fn submit(&self, batch: &str, numbers: std::ops::Range<u64>, ms: u64) {
        let lines: String = numbers.map(|n| format!("{{\"n\":{n},\"ms\":{ms}}}\n")).collect();
        let args = ["submit", "chaos", "--lines", "-", "--batch", batch];
        self.dir.run_with(&args, lines).ok();
    }

    fn sessions(&self) -> Vec<Value> {
        let run = self.dir.run(&["workers", "--json"]).ok();
        run.json().as_array().unwrap().clone()
    }

    /// The units for which a host's worker has written a line.
    fn runs(&self, host: u8) -> Vec<u64> {
        self.dir.read(&format!("runs-{host}")).lines().map(|line| line.parse().unwrap()).collect()
    }

    fn wait_for_batch(&self, batch: &str) {
        let complete = || self.dir.batch(batch)["status"] == "complete";
        eventually(2 * TIMEOUT, || complete().then_some(()));
    }

    fn wait_for_log(&self, host: u8, words: &str) {
        let logged = || self.dir.read(&format!("stderr-{host}")).contains(words);
        eventually(2 * TIMEOUT, || logged().then_some(()));
    }

    /// Drains a worker; returns its report.
    fn drain(&self, host: u8, mut worker: ChildGuard) -> Value {
        worker.signal("TERM");
        let code = worker.ends_within(TIMEOUT);
        assert_eq!(code, 0, "{}", self.dir.read(&format!("stderr-{host}")));
        serde_json::from_str(&self.dir.read(&format!("report-{host}"))).unwrap()
    }
}

#[test]
fn a_host_that_is_cut_off_loses_its_units_to_the_other_and_goes_on_when_healed() {
    const SHORT_UNITS: u64 = 40;
    let hosts = TwoHosts::new();
    // Alone at first, so it holds the long units and is elected.
    let mut cut_off = hosts.worker(1);
    hosts.submit("long", 0..SLOTS, LONG_UNIT_MS);
    let holds = |session: &Value| session["held"] == SLOTS;
    let first = eventually(TIMEOUT, || hosts.sessions().into_iter().find(holds));
    let other = hosts.worker(2);
    hosts.submit("short", 100..100 + SHORT_UNITS, 50);
    eventually(TIMEOUT, || (hosts.runs(1).len() as u64 >= SLOTS).then_some(()));
    hosts.network.cut(1).unwrap();

    // The other worker takes over all units, while the first finds the store unavailable.
    hosts.wait_for_batch("long");
    hosts.wait_for_batch("short");
    hosts.wait_for_log(1, "the store is unavailable");
    assert!(hosts.sessions().iter().all(|session| session["id"] != first["id"]));
    for unit in 0..SLOTS {
        assert!(hosts.runs(2).contains(&unit), "unit {unit} ran again at the other host");
    }
    assert_eq!(cut_off.0.try_wait().unwrap(), None, "the cut-off worker keeps running");

    hosts.network.heal(1).unwrap();
    hosts.wait_for_log(1, "another process ended the session");
    eventually(TIMEOUT, || (hosts.sessions().len() == 2).then_some(()));
    let other = hosts.drain(2, other);
    hosts.submit("after", 200..200 + SHORT_UNITS, 50);
    hosts.wait_for_batch("after");
    let cut_off = hosts.drain(1, cut_off);

    // Both together have finished every unit once; the first worker's late finishes were refused.
    let done = |report: &Value| report["done"].as_u64().unwrap();
    assert_eq!(done(&other) + done(&cut_off), SLOTS + 2 * SHORT_UNITS, "{other} {cut_off}");
    assert!(cut_off["lost"].as_u64().unwrap() >= SLOTS, "{cut_off}");
    assert!(done(&cut_off) >= SHORT_UNITS, "the cut-off worker resumed: {cut_off}");
    for (batch, units) in [("long", SLOTS), ("short", SHORT_UNITS), ("after", SHORT_UNITS)] {
        let batch = hosts.dir.batch(batch);
        assert_eq!((&batch["done"], &batch["total"]), (&units.into(), &units.into()), "{batch}");
        assert_eq!((&batch["failed"], &batch["leased"]), (&0.into(), &0.into()), "{batch}");
    }
    hosts.dir.run(&["verify"]).ok();
}
