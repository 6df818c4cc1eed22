//! Workers on a store that fails: SQLite by a foreign lock or a full disk, PostgreSQL behind a proxy.

use std::fs::File;
use std::process::Stdio;
use std::time::{Duration, Instant};

use longshore_sqlite::rusqlite::Connection;
use longshore_testkit::fault_proxy::FaultProxy;
use longshore_testkit::servers::{PrivatePostgres, SmallDisk};

use super::cell::{AlertReceiver, Bystanders, CellReport, Fault, count_log_lines, recovery};
use super::shim::{IO_ERROR, READ_ONLY, Shim};
use crate::support::{ChildGuard, TIMEOUT, TestDir, eventually};

const UNITS: usize = 800;
const WORKERS: usize = 2;
const SLOTS: usize = 4;
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
        return StoreCell::start(&dir, store, store, None, fault).run(fault, || {
            disk.fill().unwrap();
            std::thread::sleep(Fault::duration());
            disk.free().unwrap();
        });
    }
    let store = "sqlite:longshore.db";
    if matches!(fault, Fault::ReadOnly | Fault::IoError | Fault::Clock) {
        let shim = Shim::build(&dir, "longshore.db");
        return StoreCell::start(&dir, store, store, Some(&shim), fault).run(fault, || match fault {
            Fault::ReadOnly => shim.fail_writes(READ_ONLY, Fault::duration()),
            Fault::IoError => shim.fail_writes(IO_ERROR, Fault::duration()),
            _ => shim.jump(Fault::duration(), || runs(&dir)),
        });
    }
    let cell = StoreCell::start(&dir, store, store, None, fault);
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
    let shim = (fault == Fault::Clock).then(|| Shim::build(&dir, "none"));
    // Checks connect to the server, workers to the proxy.
    let workers = server.url_at_port(proxy.address().port());
    let cell = StoreCell::start(&dir, &server.url(), &workers, shim.as_ref(), fault);
    cell.run(fault, || match (fault, &disk) {
        (Fault::Clock, _) => shim.iter().for_each(|shim| shim.jump(Fault::duration(), || runs(&dir))),
        (Fault::ReadOnly, _) => {
            let set = |value| {
                let sql = format!("ALTER SYSTEM SET default_transaction_read_only = {value}");
                server.run(&sql).unwrap();
                server.run("SELECT pg_reload_conf()").unwrap();
            };
            set("on");
            std::thread::sleep(Fault::duration());
            set("off");
        }
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

/// The clock of a client is 200 s behind, and the server's decides.
#[test]
fn delays_and_deadlines_of_a_client_count_by_the_clock_of_the_server() {
    let (dir, server) = (TestDir::new(), PrivatePostgres::start().unwrap());
    dir.write("longshore.toml", format!("store = \"{}\"\n", server.url()));
    let shim = Shim::build(&dir, "none");
    shim.set_clock(-200);
    for option in ["--deadline", "--delay"] {
        let mut command = dir.command(&["submit", "chaos", "{}", option, "2m"]);
        shim.load(&mut command);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let later = "coalesce(deadline, sort_key) - longshore_now_micros() BETWEEN 60000000 AND 130000000";
    let found = server.run(&format!("SELECT count(*) FROM longshore_unit WHERE {later}")).unwrap();
    assert_eq!(found.trim(), "2", "{}", server.run("TABLE longshore_unit").unwrap());
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
    alerts: AlertReceiver,
}

impl<'a> StoreCell<'a> {
    /// Submits the batch, starts workers that reach the store at `link`, and waits until they are at work.
    fn start(dir: &'a TestDir, store: &str, link: &str, shim: Option<&Shim>, fault: Fault) -> Self {
        let alerts = AlertReceiver::start();
        dir.write("longshore.toml", format!("store = \"{store}\"\n{}", alerts.config()));
        let per_slot = u32::try_from(UNITS / WORKERS / SLOTS).unwrap();
        let ms = fault.unit_time(per_slot, Duration::from_millis(25)).as_millis();
        let lines: String = (0..UNITS).map(|n| format!("{{\"n\":{n},\"ms\":{ms}}}\n")).collect();
        // A used attempt fails its unit.
        let args = ["submit", "chaos", "--lines", "-", "--batch", "b", "--max-attempts", "1"];
        dir.run_with(&args, lines).ok();
        let workers = (0..WORKERS).map(|n| start_worker(dir, link, n, shim)).collect();
        let cell = Self { dir, workers, alerts };
        eventually(TIMEOUT, || (cell.runs() >= UNITS / 10).then_some(()));
        cell
    }

    fn runs(&self) -> usize {
        runs(self.dir)
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
        CellReport { recovery, notes: self.check_log(fault), skipped: None }
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

    /// An outage is one line and one alert of each worker, and its end another line.
    fn check_log(&self, fault: Fault) -> String {
        let outage =
            matches!(fault, Fault::Cut | Fault::Restart | Fault::Full | Fault::ReadOnly | Fault::IoError);
        let mut notes = Vec::new();
        let mut outages = 0;
        for n in 0..WORKERS {
            let log = self.dir.read(&format!("stderr-{n}"));
            let begins = count_log_lines(&log, "keeping leases and retrying");
            let ends = count_log_lines(&log, "the store is available again");
            assert_eq!(begins, ends, "worker {n}");
            assert!(begins >= usize::from(outage), "worker {n} logged no outage");
            assert!(begins <= 2, "worker {n} logged one outage {begins} times");
            let other = count_log_lines(&log, " WARN ") + count_log_lines(&log, " ERROR ") - begins;
            assert!(other <= 4, "worker {n} logged {other} other lines");
            outages += begins;
            notes.push(format!("worker {n} logged {begins} outages"));
        }
        let alerts = self.alerts.count("keeping leases and retrying", if outage { WORKERS } else { 0 });
        assert!(alerts <= outages, "{alerts} alerts of {outages} outages");
        notes.push(format!("{alerts} alerts"));
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

/// How many runs have left a line.
fn runs(dir: &TestDir) -> usize {
    dir.read("runs").lines().count()
}

fn start_worker(dir: &TestDir, store: &str, n: usize, shim: Option<&Shim>) -> ChildGuard {
    let mut command = dir.command(&["worker", "--slots", &SLOTS.to_string(), "--chaos-log", "runs"]);
    let log = File::create(dir.path(&format!("stderr-{n}"))).unwrap();
    command.env("LONGSHORE_STORE", store).stdout(Stdio::null()).stderr(log);
    shim.iter().for_each(|shim| shim.load(&mut command));
    ChildGuard(command.spawn().unwrap())
}
