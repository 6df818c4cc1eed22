//! Script pools: the link between server and worker behind a proxy, and a batch system with commands that fail.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::rc::Rc;

use longshore_testkit::fault_proxy::FaultProxy;
use longshore_testkit::servers::{DaemonState, FakeBatchSystem};
use serde_json::{Value, json};

use super::cell::{Bystanders, CellReport, Fault, freeze, recovery};
use crate::dispatch::fixture::{PoolFixture, count_lines};
use crate::dispatch::launcher::{LocalLauncher, TestLauncher};
use crate::dispatch_clusters::schedulers::FakeScheduler;
use crate::support::{ChildGuard, CliOutput, TIMEOUT, TestDir};

const SCRIPTS: usize = 80;
const SCRIPT: &str = "echo $LONGSHORE_ARRAY_INDEX >> runs; sleep 0.2";

/// The only worker of a pool reaches its server through a proxy, after an address at which nothing answers.
pub fn link(fault: Fault) -> CellReport {
    let args = ["--workers", "0", "--max-workers", "0", "--listen", "127.0.0.1"];
    let pool = PoolFixture::start_on(Box::new(LocalLauncher), &args);
    let access: Value = serde_json::from_str(&pool.dir.read("pool/worker.json")).unwrap();
    let proxy = FaultProxy::start(access["addresses"][0].as_str().unwrap()).unwrap();
    // It takes connections and says nothing.
    let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addresses = [dead.local_addr().unwrap(), proxy.address()];
    let folder = with_addresses(&pool.dir, access, addresses);
    let mut command = pool.command(&["worker", "--nthr", "4", "--server", &folder]);
    let log = std::fs::File::create(pool.dir.path("worker.log")).unwrap();
    let mut worker = ChildGuard(command.stderr(log).spawn().unwrap());
    pool.wait_for_workers(1);
    submit(&pool);
    let bystanders = Bystanders::new([&worker]);
    fault.inject(&proxy);
    let recovery = recovery(|| pool.lines("runs").len(), SCRIPTS);
    assert_exact(&pool);
    bystanders.assert_alive_and_bounded();
    pool.run(&["dispatch", "stop"]).ok();
    assert_eq!(worker.ends_within(TIMEOUT), 0);
    pool.assert_nothing_left();
    CellReport { recovery, notes: String::new(), skipped: None }
}

/// The server of a pool is frozen for a while, again and again, or killed and started again.
pub fn server(fault: Fault) -> CellReport {
    let pool = PoolFixture::start(&["--workers", "2", "--nthr", "2"]);
    let workers = pool.worker_pids();
    submit(&pool);
    let server = pool.server_pid();
    match fault {
        Fault::Restart => {
            pool.kill_server();
            pool.start_server().ok();
        }
        _ => freeze(server, fault),
    }
    let recovery = recovery(|| pool.lines("runs").len(), SCRIPTS);
    assert_exact(&pool);
    assert_eq!(pool.worker_pids(), workers, "healthy workers were replaced");
    pool.stop();
    CellReport { recovery, notes: String::new(), skipped: None }
}

/// Writes the workers' access file again, with these addresses, into a folder of its own.
fn with_addresses(dir: &TestDir, mut access: Value, addresses: [SocketAddr; 2]) -> String {
    let folder = dir.path("behind");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).unwrap();
    access["addresses"] = json!(addresses.map(|address| address.to_string()));
    let file = dir.write("behind/worker.json", access.to_string());
    std::fs::set_permissions(file, PermissionsExt::from_mode(0o600)).unwrap();
    folder.to_str().unwrap().to_owned()
}

fn submit(pool: &PoolFixture) {
    pool.submit("job.sh", SCRIPT, &["--array", &format!("1-{SCRIPTS}")]);
    pool.wait_for_lines("runs", SCRIPTS / 10);
}

fn assert_exact(pool: &PoolFixture) {
    let status = pool.wait_until_idle();
    assert_eq!((&status["done"], &status["failed"]), (&SCRIPTS.into(), &0.into()), "{status}");
    let runs = pool.lines("runs");
    let counts = count_lines(&runs);
    assert!(counts.len() == SCRIPTS && runs.len() == SCRIPTS, "scripts ran twice: {counts:?}");
}

/// A batch system with commands that a file delays.
struct SlowScheduler {
    inner: FakeScheduler,
    bin: TestDir,
}

impl SlowScheduler {
    fn start() -> Self {
        let batch = FakeBatchSystem::start().unwrap();
        let bin = TestDir::new();
        for name in ["qsub", "qstat", "qdel"] {
            // While a delay is set, each command waits that long; `stalled` holds it for as long as the file exists.
            let script = format!(
                "#!/bin/sh\nhere=$(dirname \"$0\")\n[ ! -e \"$here/delay\" ] || sleep \"$(cat \"$here/delay\")\"\n\
                 while [ -e \"$here/stalled\" ]; do sleep 0.1; done\nexec {}/{name} \"$@\"\n",
                batch.bin().display()
            );
            std::fs::set_permissions(bin.write(name, script), PermissionsExt::from_mode(0o755)).unwrap();
        }
        Self { inner: FakeScheduler { batch, qsys: "pbs_worker", kill: &["qdel"] }, bin }
    }

    fn inject(&self, fault: Fault) {
        let remove = |name: &str| std::fs::remove_file(self.bin.path(name)).unwrap();
        match fault {
            Fault::Latency => drop(self.bin.write("delay", Fault::latency().as_secs_f64().to_string())),
            Fault::Stall => drop(self.bin.write("stalled", "")),
            _ => self.inner.batch.set_daemon_state(DaemonState::Yes).unwrap(),
        }
        std::thread::sleep(Fault::duration());
        match fault {
            Fault::Latency => remove("delay"),
            Fault::Stall => remove("stalled"),
            _ => self.inner.batch.set_daemon_state(DaemonState::No).unwrap(),
        }
    }
}

impl TestLauncher for Rc<SlowScheduler> {
    fn qsys(&self) -> &'static str {
        self.inner.qsys()
    }

    fn env(&self) -> Vec<(String, String)> {
        let mut env = self.inner.env();
        for (name, value) in &mut env {
            if name == "PATH" {
                *value = format!("{}:{value}", self.bin.path("").display());
            }
        }
        env
    }

    fn cancel(&self, job: &str) {
        self.inner.cancel(job);
    }
}

/// The pool is enlarged while the batch system's commands fail.
pub fn scheduler_commands(fault: Fault) -> CellReport {
    let scheduler = Rc::new(SlowScheduler::start());
    let args = ["--workers", "2", "--nthr", "2", "--time", "1h"];
    let pool = PoolFixture::start_on(Box::new(Rc::clone(&scheduler)), &args);
    let workers = pool.worker_pids();
    submit(&pool);
    let grow = pool.command(&["dispatch", "scale", "3"]).spawn().unwrap();
    scheduler.inject(fault);
    CliOutput::of(grow).ok();
    let recovery = recovery(|| pool.lines("runs").len(), SCRIPTS);
    pool.wait_for_workers(3);
    let now = pool.worker_pids();
    assert!(workers.iter().all(|worker| now.contains(worker)), "healthy workers were replaced");
    assert_exact(&pool);
    pool.stop();
    CellReport { recovery, notes: String::new(), skipped: None }
}
