//! Kinds handled by worker processes: `[workers.NAME]` of the configuration.

use std::collections::BTreeSet;
use std::path::Path;

use crate::batch_job::Dice;
use crate::support::{Place, Run, Running, SOON, eventually, limit, soaked};

/// A worker in Python, with this repository's SDK.
const WORKER: &str = r#"
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

fn place(config: &str) -> Place {
    let place = Place::new();
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/python");
    place.write("worker.py", WORKER.replace("SDK", &format!("{:?}", sdk.display().to_string())));
    place.write("longshore.toml", config);
    place
}

const PYTHON: &str = "[workers.maths]\ncommand = [\"python3\", \"worker.py\"]\n";

#[test]
fn a_worker_hands_units_to_a_process_in_another_language() {
    let place = place(PYTHON);
    let send = |kind: &str, payload: &str| {
        place.run(&["submit", kind, payload, "--max-attempts", "1"]).ok().out.trim().to_owned()
    };
    let double = send("double", "21");
    let bad = send("double", "\"many\"");
    let refused = send("refuse", r#"{"outcome": "fail", "code": "closed"}"#);
    place.work();
    let unit = place.unit(&double);
    assert_eq!((&unit["state"], &unit["result"]), (&"done".into(), &42.into()), "{unit}");
    let code = |id: &str| place.unit(id)["failure"]["code"].clone();
    assert_eq!((code(&bad), code(&refused)), ("bad-input".into(), "closed".into()));
    assert_nobody_is_left(&place);
}

#[test]
fn a_worker_process_inherits_all_but_what_leads_to_the_master_key() {
    let place = place(PYTHON);
    let names = r#"["LONGSHORE_MASTER_KEY", "CREDENTIALS_DIRECTORY", "BESIDE"]"#;
    let unit = place.run(&["submit", "variables", names]).ok().out.trim().to_owned();
    let mut worker = place.command(&["worker", "--slots", "1", "--until-idle"]);
    worker.env("LONGSHORE_MASTER_KEY", "00".repeat(32)).env("CREDENTIALS_DIRECTORY", ".");
    Run::of(worker.env("BESIDE", "1").spawn().unwrap()).ok();
    assert_eq!(place.unit(&unit)["result"], serde_json::json!(["BESIDE"]));
    assert_nobody_is_left(&place);
}

/// The live worker processes.
fn living(place: &Place) -> Vec<String> {
    let pids = place.read("pids");
    pids.lines().filter(|pid| place.is_running("worker.py", pid)).map(str::to_owned).collect()
}

fn assert_nobody_is_left(place: &Place) {
    eventually(SOON, || living(place).is_empty().then_some(()));
}

/// Starts a worker that runs a unit which sleeps until the file `wake` exists.
fn napping(config: &str) -> (Place, Running, String) {
    let place = place(&format!("{config}{PYTHON}"));
    let args = ["submit", "nap", "\"wake\"", "--max-attempts", "1"];
    let id = place.run(&args).ok().out.trim().to_owned();
    let worker = place.start(&["worker", "--slots", "2"]);
    eventually(SOON, || (!place.read("napping").is_empty()).then_some(()));
    (place, worker, id)
}

#[test]
fn a_worker_that_is_told_to_end_lets_its_processes_finish_first() {
    let (place, mut worker, id) = napping("");
    worker.signal("TERM");
    eventually(SOON, || place.read("stderr").contains("draining").then_some(()));
    assert_eq!(worker.0.try_wait().unwrap(), None);
    place.write("wake", "");
    assert_eq!(worker.ends_within(SOON), 0, "{}", place.read("stderr"));
    let unit = place.unit(&id);
    assert_eq!((&unit["state"], &unit["result"]), (&"done".into(), &"rested".into()), "{unit}");
    assert_nobody_is_left(&place);
}

#[test]
fn a_call_that_outlasts_the_drain_is_given_back_and_its_process_ended() {
    let (place, mut worker, id) = napping("[worker]\ndrain_timeout = \"100ms\"\n");
    worker.signal("TERM");
    assert_eq!(worker.ends_within(SOON), 130, "{}", place.read("stderr"));
    assert_nobody_is_left(&place);
    let unit = place.unit(&id);
    assert_eq!((&unit["state"], &unit["attempt"]), (&"ready".into(), &0.into()), "{unit}");
    place.write("wake", "");
    place.work();
    assert_eq!(place.unit(&id)["state"], "done", "by another, with its only attempt");
}

#[test]
fn a_killed_worker_leaves_no_process_behind() {
    let (place, mut worker, _) = napping("");
    worker.kill();
    assert_nobody_is_left(&place);
}

#[test]
fn processes_may_be_started_only_when_they_are_needed() {
    for more in ["min = 0\n", "min = 0\nmax = 1\nkinds = [\"double\"]\n"] {
        let place = place(&format!("{PYTHON}{more}"));
        let id = place.run(&["submit", "double", "4"]).ok().out.trim().to_owned();
        place.work();
        assert_eq!(place.unit(&id)["result"], 8);
        assert_nobody_is_left(&place);
    }
}

/// Kills worker processes repeatedly, and the workers that feed them now and then.
#[test]
fn no_unit_lost_in_a_storm_of_killed_worker_processes() {
    let units = soaked(300, 5_000);
    let place = place(&format!("[worker]\nttl = \"1s\"\n{PYTHON}"));
    let lines: String = (0..units).map(|n| format!("{n}\n")).collect();
    let args = ["submit", "note", "--lines", "-", "--batch", "storm", "--max-attempts", "50"];
    place.run_with(&args, lines).ok();
    let noted = || place.read("notes").lines().count() as u64;
    let work = || place.start(&["worker", "--slots", "3"]);
    let mut workers: [Running; 2] = std::array::from_fn(|_| work());
    let (mut dice, mut kills) = (Dice(5), 0);
    for death in 1..=4 {
        eventually(limit(6 * SOON), || {
            dice.moment(100);
            // Only processes that have handled a unit: a process killed before it is ready counts as
            // a failed start, and its worker ends.
            let notes = place.read("notes");
            let at_work: BTreeSet<&str> =
                notes.lines().filter_map(|line| line.split(' ').nth(1)).collect();
            let living: Vec<&str> =
                at_work.into_iter().filter(|pid| place.is_running("worker.py", pid)).collect();
            if !living.is_empty() {
                let victim = usize::try_from(dice.roll(living.len() as u64)).unwrap();
                let _ = std::process::Command::new("kill").args(["-KILL", living[victim]]).status();
                kills += 1;
            }
            (noted() >= units * death / 5).then_some(())
        });
        let victim = &mut workers[usize::try_from(death % 2).unwrap()];
        assert_eq!(victim.0.try_wait().unwrap(), None, "{}", place.read("stderr"));
        victim.kill();
        *victim = work();
    }
    assert!(kills >= 4, "{kills} kills are no storm");
    eventually(limit(6 * SOON), || (place.batch("storm")["status"] == "complete").then_some(()));
    for worker in &mut workers {
        worker.signal("TERM");
        assert_eq!(worker.ends_within(SOON), 0, "{}", place.read("stderr"));
    }
    let batch = place.batch("storm");
    assert_eq!((&batch["done"], &batch["failed"]), (&units.into(), &0.into()), "{batch}");
    let notes = place.read("notes");
    let all: BTreeSet<&str> = notes.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(all.len() as u64, units, "each was done, some more than once");
    place.run(&["verify"]).ok();
    assert_nobody_is_left(&place);
}

#[test]
fn only_what_is_wanted_is_started() {
    let place = place(&format!("{PYTHON}kinds = [\"double\"]\n"));
    let args = ["worker", "--slots", "1", "--until-idle", "--kind", "exec"];
    place.run(&args).ok();
    assert_eq!(place.read("pids"), "", "nobody asked for it");
    place.run(&["worker", "--slots", "1", "--until-idle", "--kind", "double"]).ok();
    assert_ne!(place.read("pids"), "");
    place
        .run(&["worker", "--slots", "1", "--until-idle", "--kind", "refuse"])
        .ends(2)
        .says("no handler for kind `refuse`")
        .says("[workers.NAME]");
}

#[test]
fn bad_sections_are_refused_with_what_helps() {
    let refused = |config: &str, words: &str, hint: &str| {
        let place = place(config);
        let run = place.run(&["worker", "--slots", "1", "--until-idle"]);
        assert!((1..=2).contains(&run.code), "{config}: {}", run.err);
        let err = run.says("error: ").says(words).says("hint: ").says(hint).err;
        assert_eq!(err.matches("error: ").count(), 1, "{err}");
        assert_nobody_is_left(&place);
    };
    let with = |more: &str| format!("{PYTHON}{more}\n");
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
    let twice = PYTHON.replace("maths", "more");
    let kinds = "kinds = [\"double\"]\n";
    let both = "`workers.maths` and `workers.more` both handle kind `double`";
    refused(&format!("{PYTHON}{kinds}{twice}{kinds}"), both, "`kinds`");
    refused(&format!("{PYTHON}{twice}"), both, "`kinds`");
    refused(&runs("[\"pyhton3\"]"), "[workers.a]: `pyhton3` does not work", "run in `dir`");
    refused(&with("dir = \"nowhere\""), "there is no directory nowhere", "run in `dir`");
    let (ended, check) = ("before it was ready", "python3 -m longshore.check");
    refused(&runs("[\"true\"]"), ended, check);
    refused(&runs("[\"cat\"]\nstart_timeout = \"200ms\""), "not ready within 200ms", check);
    let imports = "[\"python3\", \"-c\", \"import walrus\"]";
    refused(&runs(imports), "No module named 'walrus'", check);
}
