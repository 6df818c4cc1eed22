//! Kinds handled by worker processes: `[workers.NAME]` of the configuration.

use std::collections::BTreeSet;
use std::path::Path;

use crate::batch_job::Rng;
use crate::support::{ChildGuard, CliOutput, TIMEOUT, TestDir, eventually, pick_size, stretch};

/// A worker in Python, with this repository's SDK.
const WORKER_PROGRAM: &str = r#"
import os, sys, time
sys.path.insert(0, SDK)
from longshore.worker import OperationError, Worker
with open("pids", "a") as pids:
    pids.write(f"{os.getpid()}\n")
worker = Worker()

@worker.operation("double")
def double(number: int) -> int:
    return 2 * number

@worker.operation("refuse")
def refuse(data):
    raise OperationError("not today", data=data)

@worker.operation("nap")
def nap(until: str):
    with open("napping", "a") as napping:
        napping.write(f"{os.getpid()}\n")
    while not os.path.exists(until):
        time.sleep(0.01)
    return "rested"

@worker.operation("variables")
def variables(names: list) -> list:
    return [name for name in names if name in os.environ]

@worker.operation("note")
def note(number: int):
    time.sleep(0.01)
    with open("notes", "a") as notes:
        notes.write(f"{number} {os.getpid()}\n")

worker.run()
"#;

fn dir_with_worker(config: &str) -> TestDir {
    let dir = TestDir::new();
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/python");
    dir.write("worker.py", WORKER_PROGRAM.replace("SDK", &format!("{:?}", sdk.display().to_string())));
    dir.write("longshore.toml", config);
    dir
}

const PYTHON_SECTION: &str = "[workers.maths]\ncommand = [\"python3\", \"worker.py\"]\n";

#[test]
fn a_worker_hands_units_to_a_process_in_another_language() {
    let dir = dir_with_worker(PYTHON_SECTION);
    let send = |kind: &str, payload: &str| {
        dir.run(&["submit", kind, payload, "--max-attempts", "1"]).ok().out.trim().to_owned()
    };
    let double = send("double", "21");
    let bad = send("double", "\"many\"");
    let refused = send("refuse", r#"{"outcome": "fail", "code": "closed"}"#);
    dir.work();
    let unit = dir.unit(&double);
    assert_eq!((&unit["state"], &unit["result"]), (&"done".into(), &42.into()), "{unit}");
    let code = |id: &str| dir.unit(id)["failure"]["code"].clone();
    assert_eq!((code(&bad), code(&refused)), ("bad-input".into(), "closed".into()));
    assert_no_process_left(&dir);
}

#[test]
fn a_process_performs_no_more_calls_than_its_section_allows() {
    let dir = dir_with_worker(&format!("{PYTHON_SECTION}max_calls = 1\n"));
    for number in 0..8 {
        dir.run(&["submit", "note", &number.to_string(), "--max-attempts", "1"]).ok();
    }
    dir.work();
    let notes = dir.read("notes");
    let pids: BTreeSet<&str> = notes.lines().filter_map(|note| note.split(' ').nth(1)).collect();
    assert_eq!((notes.lines().count(), pids.len()), (8, 8), "{notes}");
    assert_no_process_left(&dir);
}

#[test]
fn a_worker_process_inherits_no_secret_of_its_parent() {
    let dir = dir_with_worker(PYTHON_SECTION);
    let names = r#"["LONGSHORE_MASTER_KEY", "CREDENTIALS_DIRECTORY", "LONGSHORE_STORE", "BESIDE"]"#;
    let unit = dir.run(&["submit", "variables", names]).ok().out.trim().to_owned();
    let mut worker = dir.command(&["worker", "--slots", "1", "--until-idle"]);
    worker.env("LONGSHORE_MASTER_KEY", "00".repeat(32)).env("CREDENTIALS_DIRECTORY", ".");
    worker.env("LONGSHORE_STORE", format!("sqlite:{}", dir.path("longshore.db").display()));
    CliOutput::of(worker.env("BESIDE", "1").spawn().unwrap()).ok();
    assert_eq!(dir.unit(&unit)["result"], serde_json::json!(["BESIDE"]));
    assert_no_process_left(&dir);
}

/// The live worker processes.
fn live_processes(dir: &TestDir) -> Vec<String> {
    let pids = dir.read("pids");
    pids.lines().filter(|pid| dir.is_running("worker.py", pid)).map(str::to_owned).collect()
}

fn assert_no_process_left(dir: &TestDir) {
    eventually(TIMEOUT, || live_processes(dir).is_empty().then_some(()));
}

/// Starts a worker that runs a unit which sleeps until the file `wake` exists.
fn start_sleeping_unit(config: &str) -> (TestDir, ChildGuard, String) {
    let dir = dir_with_worker(&format!("{config}{PYTHON_SECTION}"));
    let args = ["submit", "nap", "\"wake\"", "--max-attempts", "1"];
    let id = dir.run(&args).ok().out.trim().to_owned();
    let worker = dir.start(&["worker", "--slots", "2"]);
    eventually(TIMEOUT, || (!dir.read("napping").is_empty()).then_some(()));
    (dir, worker, id)
}

#[test]
fn a_worker_that_is_told_to_end_lets_its_processes_finish_first() {
    let (dir, mut worker, id) = start_sleeping_unit("");
    worker.signal("TERM");
    eventually(TIMEOUT, || dir.read("stderr").contains("draining").then_some(()));
    assert_eq!(worker.0.try_wait().unwrap(), None);
    dir.write("wake", "");
    assert_eq!(worker.ends_within(TIMEOUT), 0, "{}", dir.read("stderr"));
    let unit = dir.unit(&id);
    assert_eq!((&unit["state"], &unit["result"]), (&"done".into(), &"rested".into()), "{unit}");
    assert_no_process_left(&dir);
}

#[test]
fn a_call_that_outlasts_the_drain_is_given_back_and_its_process_ended() {
    let (dir, mut worker, id) = start_sleeping_unit("[worker]\ndrain_timeout = \"100ms\"\n");
    worker.signal("TERM");
    assert_eq!(worker.ends_within(TIMEOUT), 130, "{}", dir.read("stderr"));
    assert_no_process_left(&dir);
    let unit = dir.unit(&id);
    assert_eq!((&unit["state"], &unit["attempt"]), (&"ready".into(), &0.into()), "{unit}");
    dir.write("wake", "");
    dir.work();
    assert_eq!(dir.unit(&id)["state"], "done", "another worker used the only attempt");
}

#[test]
fn a_killed_worker_leaves_no_process_behind() {
    let (dir, mut worker, _) = start_sleeping_unit("");
    worker.kill();
    assert_no_process_left(&dir);
}

#[test]
fn processes_may_be_started_only_when_they_are_needed() {
    for more in ["min = 0\n", "min = 0\nmax = 1\nkinds = [\"double\"]\n"] {
        let dir = dir_with_worker(&format!("{PYTHON_SECTION}{more}"));
        let id = dir.run(&["submit", "double", "4"]).ok().out.trim().to_owned();
        dir.work();
        assert_eq!(dir.unit(&id)["result"], 8);
        assert_no_process_left(&dir);
    }
}

/// Kills worker processes repeatedly, and the workers that feed them now and then.
#[test]
fn no_unit_lost_in_a_storm_of_killed_worker_processes() {
    let units = pick_size(300, 5_000);
    let dir = dir_with_worker(&format!("[worker]\nttl = \"1s\"\n{PYTHON_SECTION}"));
    let lines: String = (0..units).map(|n| format!("{n}\n")).collect();
    let args = ["submit", "note", "--lines", "-", "--batch", "storm", "--max-attempts", "50"];
    dir.run_with(&args, lines).ok();
    let noted = || dir.read("notes").lines().count() as u64;
    let work = || dir.start(&["worker", "--slots", "3"]);
    let mut workers: [ChildGuard; 2] = std::array::from_fn(|_| work());
    let (mut rng, mut kills) = (Rng(5), 0);
    for death in 1..=4 {
        eventually(stretch(6 * TIMEOUT), || {
            rng.sleep_up_to(100);
            // Only processes that have handled a unit: a process killed before it is ready counts as
            // a failed start, and its worker ends.
            let notes = dir.read("notes");
            let at_work: BTreeSet<&str> = notes.lines().filter_map(|line| line.split(' ').nth(1)).collect();
            let living: Vec<&str> =
                at_work.into_iter().filter(|pid| dir.is_running("worker.py", pid)).collect();
            if !living.is_empty() {
                let victim = usize::try_from(rng.below(living.len() as u64)).unwrap();
                let _ = std::process::Command::new("kill").args(["-KILL", living[victim]]).status();
                kills += 1;
            }
            (noted() >= units * death / 5).then_some(())
        });
        let victim = &mut workers[usize::try_from(death % 2).unwrap()];
        assert_eq!(victim.0.try_wait().unwrap(), None, "{}", dir.read("stderr"));
        victim.kill();
        *victim = work();
    }
    assert!(kills >= 4, "only {kills} kills");
    eventually(stretch(6 * TIMEOUT), || (dir.batch("storm")["status"] == "complete").then_some(()));
    for worker in &mut workers {
        worker.signal("TERM");
        assert_eq!(worker.ends_within(TIMEOUT), 0, "{}", dir.read("stderr"));
    }
    let batch = dir.batch("storm");
    assert_eq!((&batch["done"], &batch["failed"]), (&units.into(), &0.into()), "{batch}");
    let notes = dir.read("notes");
    let all: BTreeSet<&str> = notes.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(all.len() as u64, units, "each was done, some more than once");
    dir.run(&["verify"]).ok();
    assert_no_process_left(&dir);
}

#[test]
fn only_what_is_wanted_is_started() {
    let dir = dir_with_worker(&format!("{PYTHON_SECTION}kinds = [\"double\"]\n"));
    let args = ["worker", "--slots", "1", "--until-idle", "--kind", "exec"];
    dir.run(&args).ok();
    assert_eq!(dir.read("pids"), "", "the kind was not requested");
    dir.run(&["worker", "--slots", "1", "--until-idle", "--kind", "double"]).ok();
    assert_ne!(dir.read("pids"), "");
    dir.run(&["worker", "--slots", "1", "--until-idle", "--kind", "refuse"])
        .ends(2)
        .says("no handler for kind `refuse`")
        .says("[workers.NAME]");
}

#[test]
fn bad_sections_are_refused_with_what_helps() {
    let refused = |config: &str, words: &str, hint: &str| {
        let dir = dir_with_worker(config);
        let run = dir.run(&["worker", "--slots", "1", "--until-idle"]);
        assert!((1..=2).contains(&run.code), "{config}: {}", run.err);
        let err = run.says("error: ").says(words).says("hint: ").says(hint).err;
        assert_eq!(err.matches("error: ").count(), 1, "{err}");
        assert_no_process_left(&dir);
    };
    let with = |more: &str| format!("{PYTHON_SECTION}{more}\n");
    let runs = |command: &str| format!("[workers.a]\ncommand = {command}\n");
    refused("[workers.a]\n", "`workers.a.command` is missing", "command = [\"python3\"");
    refused(&runs("[]"), "`workers.a.command` is missing", "command = [\"python3\"");
    refused(&runs("\"python3 w.py\""), "line 2", "a list is written as [");
    refused(&runs("[1]"), "line 2", "text is written in quotes");
    refused("[workers]\ncommand = [\"true\"]\n", "`command` stands in [workers]", "[workers.NAME]");
    refused("[workers.a]\ncomand = []\n", "unknown key `comand`, did you mean `command`?", "");
    refused(&with("max_calls = \"many\""), "line 3", "longshore.reference.toml");
    refused(&with("min = 3\nmax = 2"), "`workers.maths.min` is above", "`max = 0`");
    refused(&with("timeout = \"soon\""), "workers.maths.timeout", "");
    refused(&with("timeout = \"0s\""), "workers.maths.timeout", "");
    refused(&with("kinds = [\"a b\"]"), "workers.maths.kinds", "");
    refused(&with("kinds = [\"dubble\"]"), "no operation for kind `dubble`", "`double`?");
    refused(&with("kinds = [\"double\", \"double\"]"), "names `double` twice", "");
    let twice = PYTHON_SECTION.replace("maths", "more");
    let kinds = "kinds = [\"double\"]\n";
    let both = "`workers.maths` and `workers.more` both handle kind `double`";
    refused(&format!("{PYTHON_SECTION}{kinds}{twice}{kinds}"), both, "`kinds`");
    refused(&format!("{PYTHON_SECTION}{twice}"), both, "`kinds`");
    refused(&runs("[\"pyhton3\"]"), "[workers.a]: `pyhton3` does not work", "run in `dir`");
    refused(&with("dir = \"nowhere\""), "there is no directory nowhere", "run in `dir`");
    let (ended, check) = ("before it was ready", "python3 -m longshore.check");
    refused(&runs("[\"true\"]"), ended, check);
    refused(&runs("[\"cat\"]\nstart_timeout = \"200ms\""), "not ready within 200ms", check);
    let imports = "[\"python3\", \"-c\", \"import walrus\"]";
    refused(&runs(imports), "No module named 'walrus'", check);
}
