//! Workers on a store that fails: SQLite by a foreign lock or a full disk, PostgreSQL behind a proxy.

use std::fs::File;
use std::process::Stdio;
use std::time::{Duration, Instant};

use longshore_sqlite::rusqlite::Connection;
use longshore_testkit::fault_proxy::FaultProxy;
use longshore_testkit::servers::{PrivatePostgres, SmallDisk};

use super::cell::{Bystanders, CellReport, Fault, count_log_lines, recovery};
use crate::support::{ChildGuard, TIMEOUT, TestDir, eventually};

const UNITS: usize = 800;
const WORKERS: usize = 2;
/// The most that the rest of the batch takes after a fault.
const RUN_LIMIT: Duration = Duration::from_secs(240);

pub fn sqlite(fault: Fault) -> CellReport {
    let dir = TestDir::new();
    if fault == Fault::Full {
        // Room for SQLite's log, which grows to 16 MB before it is reused.
        let disk = match SmallDisk::mount(&dir.path("disk"), 64) {
            Ok(disk) => disk,
            Err(error) => return CellReport::skipped(error),
        };
        let store = "sqlite:disk/longshore.db";
        dir.write("longshore.toml", format!("store = \"{store}\"\n"));
        return StoreCell::start(&dir, store).run(fault, || {
            disk.fill().unwrap();
            std::thread::sleep(Fault::duration());
            disk.free().unwrap();
        });
    }
    let cell = StoreCell::start(&dir, "sqlite:longshore.db");
    let other = Connection::open(dir.path("longshore.db")).unwrap();
    other.busy_timeout(TIMEOUT).unwrap();
    // How long the other program holds the lock, and how long it leaves the store to others.
    let (locked, free) = match fault {
        Fault::Latency => (Fault::latency(), Duration::from_millis(200)),
        Fault::Slow => (Duration::from_millis(90), Duration::from_millis(10)),
        _ => (Fault::duration(), Duration::ZERO),
    };
    cell.run(fault, || {
        let began = Instant::now();
        while began.elapsed() < Fault::duration() {
            other.execute_batch("BEGIN IMMEDIATE").unwrap();
            std::thread::sleep(locked);
            other.execute_batch("COMMIT").unwrap();
            std::thread::sleep(free);
        }
    })
}

pub fn postgres(fault: Fault) -> CellReport {
    let dir = TestDir::new();
    let disk = match fault {
        Fault::Full => match small_disk() {
            Ok(disk) => Some(disk),
            Err(error) => return CellReport::skipped(error),
        },
        _ => None,
    };
    let mut server = match &disk {
        Some((_folder, disk)) => PrivatePostgres::start_below(disk.path()).unwrap(),
        None => PrivatePostgres::start().unwrap(),
    };
    let proxy = FaultProxy::start(format!("127.0.0.1:{}", server.port())).unwrap();
    // Checks connect to the server, workers to the proxy.
    dir.write("longshore.toml", format!("store = \"{}\"\n", server.url()));
    let cell = StoreCell::start(&dir, &server.url_at_port(proxy.address().port()));
    cell.run(fault, || match (fault, &disk) {
        (Fault::Restart, _) => server.restart().unwrap(),
        (Fault::Full, Some((_, disk))) => {
            disk.fill().unwrap();
            std::thread::sleep(Fault::duration());
            disk.free().unwrap();
            // A server without space for its log ends.
            server.restart().unwrap();
        }
        _ => fault.inject(&proxy),
    })
}

/// A disk that the server's user can reach.
fn small_disk() -> std::io::Result<(tempfile::TempDir, SmallDisk)> {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir()?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711))?;
    let disk = SmallDisk::mount(&folder.path().join("disk"), 200)?;
    Ok((folder, disk))
}

/// Workers that run a batch.
struct StoreCell<'a> {
    dir: &'a TestDir,
    workers: Vec<ChildGuard>,
}

impl<'a> StoreCell<'a> {
    /// Submits the batch, starts workers on `store`, and waits until they are at work.
    fn start(dir: &'a TestDir, store: &str) -> Self {
        let lines: String = (0..UNITS).map(|n| format!("{{\"n\":{n},\"ms\":25}}\n")).collect();
        // A used attempt fails its unit.
        let args = ["submit", "chaos", "--lines", "-", "--batch", "b", "--max-attempts", "1"];
        dir.run_with(&args, lines).ok();
        let workers = (0..WORKERS).map(|n| start_worker(dir, store, n)).collect();
        let cell = Self { dir, workers };
        eventually(TIMEOUT, || (cell.runs() >= UNITS / 10).then_some(()));
        cell
    }

    /// How many runs have left a line.
    fn runs(&self) -> usize {
        self.dir.read("runs").lines().count()
    }

    fn done(&self) -> usize {
        usize::try_from(self.dir.batch("b")["done"].as_u64().unwrap()).unwrap()
    }

    /// Injects the fault and checks what it left.
    fn run(mut self, fault: Fault, inject: impl FnOnce()) -> CellReport {
        let bystanders = Bystanders::new(&self.workers);
        inject();
        let recovery = recovery(|| self.runs(), UNITS);
        eventually(RUN_LIMIT, || (self.runs() >= UNITS && self.done() == UNITS).then_some(()));
        bystanders.assert_alive_and_bounded();
        for worker in &mut self.workers {
            worker.signal("TERM");
            assert_eq!(worker.ends_within(TIMEOUT), 0);
        }
        self.assert_exact(fault);
        CellReport { recovery, notes: self.check_log(fault) }
    }

    fn assert_exact(&self, fault: Fault) {
        let batch = self.dir.batch("b");
        assert_eq!((&batch["total"], &batch["failed"]), (&UNITS.into(), &0.into()), "{batch}");
        let done = self.dir.units("done");
        let odd = done.iter().filter(|unit| unit["attempt"] != 1 || unit["lost"] != 0).collect::<Vec<_>>();
        assert!(odd.is_empty(), "attempts were used: {odd:?}");
        let mut runs: Vec<usize> = self.dir.read("runs").lines().map(|line| line.parse().unwrap()).collect();
        runs.sort_unstable();
        // A server that ends without space may lose claims of its last moments, and their units run again.
        if fault == Fault::Full {
            runs.dedup();
        }
        assert!(runs.iter().copied().eq(0..UNITS), "{} runs of {UNITS} units", runs.len());
        self.dir.run(&["verify"]).ok();
    }

    /// An outage is one line of each worker, and its end another.
    fn check_log(&self, fault: Fault) -> String {
        let mut notes = Vec::new();
        for n in 0..WORKERS {
            let log = self.dir.read(&format!("stderr-{n}"));
            let begins = count_log_lines(&log, "keeping leases and retrying");
            let ends = count_log_lines(&log, "the store is available again");
            assert_eq!(begins, ends, "worker {n}");
            let outage = matches!(fault, Fault::Cut | Fault::Restart | Fault::Full);
            assert!(begins >= usize::from(outage), "worker {n} logged no outage");
            assert!(begins <= 2, "worker {n} logged one outage {begins} times");
            let other = count_log_lines(&log, " WARN ") + count_log_lines(&log, " ERROR ") - begins;
            assert!(other <= 4, "worker {n} logged {other} other lines");
            notes.push(format!("worker {n} logged {begins} outages"));
        }
        notes.join(", ")
    }
}

impl Drop for StoreCell<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for n in 0..WORKERS {
                eprintln!("--- worker {n}:\n{}", self.dir.read(&format!("stderr-{n}")));
            }
        }
    }
}

fn start_worker(dir: &TestDir, store: &str, n: usize) -> ChildGuard {
    let mut command = dir.command(&["worker", "--slots", "4", "--chaos-log", "runs"]);
    let log = File::create(dir.path(&format!("stderr-{n}"))).unwrap();
    command.env("LONGSHORE_STORE", store).stdout(Stdio::null()).stderr(log);
    ChildGuard(command.spawn().unwrap())
}
