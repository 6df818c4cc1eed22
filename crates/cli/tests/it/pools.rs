//! Kinds that worker processes handle: `[workers.NAME]` of the configuration.

use std::path::Path;

use crate::support::{Place, SOON, eventually, is_alive};

/// A worker in Python, by the SDK of this repository.
const WORKER: &str = r#"
import os, sys
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
    let alive = || place.read("pids").lines().any(is_alive);
    eventually(SOON, || (!alive()).then_some(()));
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
        let run = place(config).run(&["worker", "--slots", "1", "--until-idle"]);
        assert!((1..=2).contains(&run.code), "{config}: {}", run.err);
        run.says(words).says(hint);
    };
    refused("[workers.a]\n", "`workers.a.command` is missing", "command = [\"python3\"");
    refused("[workers.a]\ncomand = []\n", "unknown key `comand`", "did you mean `command`?");
    refused(&format!("{PYTHON}min = 3\nmax = 2\n"), "`workers.maths.min` is above", "");
    refused(&format!("{PYTHON}timeout = \"soon\"\n"), "workers.maths.timeout", "");
    refused(
        &format!("{PYTHON}kinds = [\"dubble\"]\n"),
        "no operation for kind `dubble`",
        "`double`?",
    );
    let twice = PYTHON.replace("maths", "more");
    let kinds = "kinds = [\"double\"]\n";
    refused(&format!("{PYTHON}{kinds}{twice}{kinds}"), "both handle kind `double`", "");
    refused(
        "[workers.a]\ncommand = [\"pyhton3\"]\n",
        "[workers.a]: `pyhton3` does not work",
        "hint:",
    );
    refused(
        "[workers.a]\ncommand = [\"python3\", \"-c\", \"import walrus\"]\n",
        "No module named 'walrus'",
        "python3 -m longshore.check",
    );
}
