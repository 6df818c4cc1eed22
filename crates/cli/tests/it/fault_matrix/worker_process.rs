//! Units that run in a worker process, a Python program, which is stopped or killed.

use std::path::Path;
use std::time::Duration;

use super::cell::{AlertReceiver, Bystanders, CellReport, Fault, freeze, recovery};
use super::shim::Shim;
use crate::support::{TIMEOUT, TestDir, eventually, signal, stretch};

const UNITS: usize = 150;
const PROGRAM: &str = r#"
import os, sys, time
sys.path.insert(0, SDK)
from longshore.worker import Worker
with open("pids", "a") as pids:
    pids.write(f"{os.getpid()}\n")
worker = Worker()

@worker.operation("note")
def note(number: int):
    time.sleep(SECONDS)
    with open("notes", "a") as notes:
        notes.write(f"{number}\n")

worker.run()
"#;
const CONFIG: &str = "[workers.notes]\ncommand = [\"python3\", \"worker.py\"]\nmax = 1\ntimeout = \"120s\"\n";

pub fn run(fault: Fault) -> CellReport {
    let dir = TestDir::new();
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/python");
    let seconds = fault.unit_time(u32::try_from(UNITS).unwrap(), Duration::from_millis(20)).as_secs_f64();
    let program = PROGRAM.replace("SDK", &format!("{:?}", sdk.display().to_string()));
    let program = program.replace("SECONDS", &seconds.to_string());
    dir.write("worker.py", program);
    let alerts = AlertReceiver::start();
    dir.write("longshore.toml", alerts.config() + CONFIG);
    let lines: String = (0..UNITS).map(|n| format!("{n}\n")).collect();
    dir.run_with(&["submit", "note", "--lines", "-", "--batch", "b"], lines).ok();
    let shim = (fault == Fault::Clock).then(|| Shim::build(&dir, "none"));
    let mut worker = dir.start_with(&["worker", "--slots", "1"], |command| {
        shim.iter().for_each(|shim| shim.load(command));
    });
    let notes = || dir.read("notes").lines().count();
    eventually(TIMEOUT, || (notes() >= UNITS / 10).then_some(()));
    let pid: u32 = dir.read("pids").trim().parse().unwrap();
    assert!(dir.is_running("worker.py", &pid.to_string()));
    let bystanders = Bystanders::new([&worker]);
    match &shim {
        Some(shim) => shim.jump(Fault::duration(), notes),
        None => inject(fault, pid),
    }
    let recovery = recovery(notes, UNITS);
    eventually(stretch(Duration::from_secs(120)), || (dir.batch("b")["done"] == UNITS).then_some(()));
    bystanders.assert_alive_and_bounded();
    worker.signal("TERM");
    assert_eq!(worker.ends_within(TIMEOUT), 0, "{}", dir.read("stderr"));
    assert_exact(&dir, fault);
    let died = usize::from(fault == Fault::Restart);
    let raised = alerts.count("[workers.notes]", died);
    assert_eq!(raised, died, "alerts: {}", dir.read("stderr"));
    CellReport {
        recovery,
        notes: format!("{} processes, {raised} alerts", dir.read("pids").lines().count()),
        skipped: None,
    }
}

fn inject(fault: Fault, pid: u32) {
    match fault {
        Fault::Restart => assert!(signal(pid, "KILL")),
        _ => freeze(pid, fault),
    }
}

fn assert_exact(dir: &TestDir, fault: Fault) {
    let mut notes: Vec<usize> = dir.read("notes").lines().map(|line| line.parse().unwrap()).collect();
    notes.sort_unstable();
    let (processes, used) = (
        dir.read("pids").lines().count(),
        dir.units("done").iter().filter(|unit| unit["attempt"] != 1 || unit["lost"] != 0).count(),
    );
    if fault == Fault::Restart {
        // The killed call has no answer: its unit runs again, and that is an attempt of its own.
        notes.dedup();
        assert!(processes == 2 && used <= 1, "{processes} processes, {used} units ran again");
    } else {
        assert_eq!((processes, used), (1, 0), "a healthy process was replaced, or attempts were used");
    }
    assert!(notes.iter().copied().eq(0..UNITS), "{} notes of {UNITS} units", notes.len());
    let batch = dir.batch("b");
    assert_eq!((&batch["total"], &batch["failed"]), (&UNITS.into(), &0.into()), "{batch}");
    dir.run(&["verify"]).ok();
}
