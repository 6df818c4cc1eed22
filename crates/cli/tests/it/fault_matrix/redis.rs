//! Units that hold permits of a pool on a Redis behind a proxy.

use std::time::Duration;

use longshore_testkit::fault_proxy::FaultProxy;
use longshore_testkit::servers::{PrivateRedis, RedisPersistence};

use super::cell::{AlertReceiver, Bystanders, CellReport, Fault, count_log_lines, recovery};
use super::shim::Shim;
use crate::support::{ChildGuard, TIMEOUT, TestDir, eventually, stretch};

const UNITS: usize = 60;
/// Fails if two run at once: `mkdir` succeeds for one at a time.
const EXCLUSIVE: &str = "mkdir busy && sleep SECONDS && rmdir busy && echo >> done";
/// Longer than a fault, so that holders keep their permits.
const LEASE: &str = "30s";

pub fn run(fault: Fault) -> CellReport {
    let dir = TestDir::new();
    // Remembers its permits, so that a restart loses none.
    let mut server = PrivateRedis::start(RedisPersistence::Always).unwrap();
    let proxy = FaultProxy::start(format!("127.0.0.1:{}", server.port())).unwrap();
    let receiver = AlertReceiver::start();
    let config = format!(
        "permits = \"{}\"\n{}[worker.pools]\nexec = \"licence\"\n\
         [pools.licence]\nmax = 1\nlease = \"{LEASE}\"\n",
        server.url_at(proxy.address().port()),
        receiver.config(),
    );
    dir.write("longshore.toml", config);
    let seconds = fault.unit_time(u32::try_from(UNITS).unwrap(), Duration::from_millis(100)).as_secs_f64();
    let script = EXCLUSIVE.replace("SECONDS", &seconds.to_string());
    let lines = format!("{}\n", serde_json::json!({ "argv": ["sh", "-c", script] })).repeat(UNITS);
    dir.run_with(&["submit", "exec", "--lines", "-", "--batch", "b", "--max-attempts", "1"], lines).ok();
    let shim = (fault == Fault::Clock).then(|| Shim::build(&dir, "none"));
    let args = ["worker", "--slots", "2"];
    let mut workers: Vec<ChildGuard> = (0..2)
        .map(|_| {
            dir.start_with(&args, |command| {
                shim.iter().for_each(|shim| shim.load(command));
            })
        })
        .collect();
    let done = || dir.read("done").lines().count();
    eventually(TIMEOUT, || (done() >= UNITS / 10).then_some(()));
    let bystanders = Bystanders::new(&workers);
    match fault {
        Fault::Restart => server.restart().unwrap(),
        Fault::Full => {
            let set = |limit| drop(server.run(&["CONFIG", "SET", "maxmemory", limit]).unwrap());
            set("1");
            std::thread::sleep(Fault::duration());
            set("0");
        }
        // A master that is demoted answers READONLY to every write.
        Fault::ReadOnly => {
            let replicate = |host, port| drop(server.run(&["REPLICAOF", host, port]).unwrap());
            replicate("127.0.0.1", "1");
            std::thread::sleep(Fault::duration());
            replicate("NO", "ONE");
        }
        _ => match &shim {
            Some(shim) => shim.jump(Fault::duration(), done),
            None => fault.inject(&proxy),
        },
    }
    let recovery = recovery(done, UNITS);
    eventually(stretch(Duration::from_secs(120)), || (dir.batch("b")["done"] == UNITS).then_some(()));
    bystanders.assert_alive_and_bounded();
    for worker in &mut workers {
        worker.signal("TERM");
        assert_eq!(worker.ends_within(TIMEOUT), 0, "{}", dir.read("stderr"));
    }
    assert_eq!(done(), UNITS, "each unit ran once");
    assert!(dir.units("done").iter().all(|unit| unit["attempt"] == 1 && unit["lost"] == 0));
    dir.run(&["verify"]).ok();
    CellReport { recovery, notes: check_alerts(fault, &dir, &receiver), skipped: None }
}

/// The processes cannot agree on one alert while the back end is away: each raises its own, once.
fn check_alerts(fault: Fault, dir: &TestDir, receiver: &AlertReceiver) -> String {
    let least = usize::from(matches!(fault, Fault::Cut | Fault::Full | Fault::ReadOnly));
    let lost = receiver.count("back-end-lost", least);
    let log = dir.read("stderr");
    let logged = count_log_lines(&log, "the backend of a bounded pool does not answer");
    assert!((least..=2).contains(&lost) && logged == lost, "{lost} alerts, {logged} log lines:\n{log}");
    format!("{lost} alerts, as many log lines")
}
