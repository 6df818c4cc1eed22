//! What cannot be meant is answered: what is wrong, and what would be right.

use std::process::Command;

use super::fixture::{PoolFixture, signal};
use crate::support::CliOutput;

/// Arguments, exit code, and words of the error or its hint.
const WRONG: [(&[&str], i32, &[&str]); 33] = [
    (&["submit", "ok.sh"], 2, &["submit --script ok.sh"]),
    (&["submit", "--script", "missing.sh"], 1, &["cannot find script missing.sh", "No such file"]),
    (&["submit", "--script", "ok.sh", "--wait-limit", "5s"], 2, &["--wait"]),
    (
        &["submit", "--wait", "--wait-limit", "100ms", "--", "sleep", "9"],
        1,
        &["not ended within 100ms", "it continues"],
    ),
    (&["submit", "--script", "ok.sh", "--progress"], 2, &["--wait"]),
    (&["submit", "--script", "ok.sh", "--at", "tomorrow"], 2, &["`tomorrow` is not a time", "--delay"]),
    (&["submit", "--script", "ok.sh", "--time", "1:30"], 2, &["`1:30` is not a length of time"]),
    (&["submit", "--script", "ok.sh", "--mem", "lots"], 2, &["`lots` is not an amount of bytes"]),
    (&["submit", "--script", "ok.sh", "--nthr", "0"], 2, &["--nthr"]),
    (
        &["submit", "--script", "ok.sh", "--env", "1X=3"],
        2,
        &["`1X` is not the name of a variable", "--env NAME=VALUE"],
    ),
    (
        &["submit", "--script", "ok.sh", "--env", "NOT_SET_HERE"],
        1,
        &["is not set here", "--env NOT_SET_HERE=VALUE"],
    ),
    (&["submit", "--script", "ok.sh", "--limit", "nofile"], 2, &["not a limit as cpu=60"]),
    (&["submit", "--script", "ok.sh", "--array", "5-1"], 2, &["`5-1` is not a range"]),
    (&["submit", "--script", "ok.sh", "--array", "1-2000000000"], 2, &["of 10000000 at most"]),
    (&["submit", "--script", "ok.sh", "--max-fails", "3"], 2, &["--max-fails is for arrays", "--array"]),
    (&["submit", "--script", "ok.sh", "--qsys", "slurm_worker"], 2, &["started by local, not by slurm"]),
    (&["submit", "--script", "ok.sh", "--after", "4711"], 1, &["no batch `4711`", "unit list"]),
    (
        &["submit", "--script", "ok.sh", "--after", "01980f6e-0000-7000-8000-000000000000"],
        1,
        &["does not exist"],
    ),
    (
        &["submit", "--script", "ok.sh", "--dir", "nowhere"],
        1,
        &["no server is running", "dispatch start --dir nowhere"],
    ),
    (&["unit", "cancel", "123"], 1, &["no batch `123`", "unit list"]),
    (&["unit", "show", "a b"], 2, &["neither the id of a unit"]),
    (&["batch", "status", "nobody"], 1, &["no batch `nobody`", "batch list"]),
    (&["batch", "cat", "last", "--stdout", "--stderr"], 2, &["--stdout"]),
    (&["batch", "compare", "a", "b", "--dir", "pool"], 2, &["batches of rows are in a store"]),
    (&["dispatch", "scale", "5", "2"], 2, &["maximum of 2 workers is below the minimum of 5"]),
    (&["dispatch", "scale", "--", "-1"], 2, &["-1 is not in"]),
    (&["dispatch", "start", "--dir", "other", "--workers", "-1"], 2, &["--workers is -1"]),
    (&["dispatch", "start", "--dir", "other", "--workers", "many"], 2, &["invalid value 'many'"]),
    (
        &["dispatch", "start", "--dir", "other", "--workers", "5", "--max-workers", "2"],
        2,
        &["--max-workers 2 is below"],
    ),
    (&["dispatch", "start", "--dir", "other", "--before", "nofile"], 1, &["cannot find --before nofile"]),
    (&["dispatch", "start", "--dir", "other", "--resource", "gpu"], 2, &["not a resource as gpu=2"]),
    (&["dispatch", "wait", "--wait-limit", "soon"], 2, &["`soon` is not a length of time"]),
    (&["dispatch", "stop", "--drain-timeout", "never"], 2, &["`never` is not a length of time"]),
];

#[test]
fn what_cannot_be_meant_is_an_error_with_its_cause_and_a_hint() {
    let pool = PoolFixture::start(&["--nthr", "1"]);
    pool.dir.write("ok.sh", "true");
    for (args, code, words) in WRONG {
        let run = pool.run(args);
        assert_eq!(run.code, code, "{args:?}: {}", run.err);
        assert!(run.err.contains("error: "), "{args:?}: {}", run.err);
        for word in words {
            assert!(run.err.contains(word), "{args:?} without {word}: {}", run.err);
        }
    }
    assert!(!pool.dir.path("other").exists(), "nothing was started");
    // Nothing but the script that is waited for was submitted.
    assert_eq!(pool.run(&["unit", "list", "--json"]).ok().json().as_array().unwrap().len(), 1);

    // Of another user.
    if pool.dir.is_root() {
        let outside = pool.command(&["dispatch", "status"]);
        let mut other = Command::new("setpriv");
        other.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(outside.get_program());
        other.args(outside.get_args()).env("LONGSHORE_DISPATCH_DIR", pool.dir.path("pool"));
        other.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let refused = CliOutput::of(other.spawn().unwrap());
        let words = refused.err.contains("a pool is for one user") || refused.err.contains("setpriv");
        assert!(refused.code != 0 && words, "{}", refused.err);
    }
    // A server that is frozen.
    let server = pool.server_pid();
    signal(server, "STOP");
    let (status, shown) = (pool.run(&["dispatch", "status"]), pool.run(&["unit", "show", "last"]));
    signal(server, "CONT");
    for frozen in [status, shown] {
        assert!(frozen.code == 1 && frozen.err.contains("no answer within"), "{}", frozen.err);
        assert!(frozen.err.contains("a server that hangs"), "{}", frozen.err);
    }
    pool.wait_until_idle();
    pool.stop();
}

#[test]
fn a_dependency_is_named_by_its_number_or_as_a_task() {
    let pool = PoolFixture::start(&["--nthr", "2"]);
    pool.submit("first.sh", "sleep 0.3; echo first >> order", &["--array", "1-2", "--name", "first"]);
    pool.submit(
        "second.sh",
        "echo second >> order",
        &["--after", "first.1", "--after", "last.2", "--name", "second"],
    );
    pool.submit("third.sh", "echo third >> order", &["--after", "second"]);
    pool.wait_until_idle();
    assert_eq!(pool.lines("order"), ["first", "first", "second", "third"]);
    pool.stop();
}
