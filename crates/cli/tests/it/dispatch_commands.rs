//! Further dispatch commands: streamed output, units of a pool, job files, scripts without a pool,
//! the live view.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{CliOutput, TIMEOUT, TestDir};

/// A test directory with a pool that is stopped on drop.
struct DetachedPool {
    dir: TestDir,
}

impl DetachedPool {
    fn start() -> Self {
        let dir = TestDir::new();
        let args = ["dispatch", "start", "--dir", "pool", "--nthr", "2", "--workers", "1"];
        dir.run(&[&args[..], &["--detach"]].concat()).ok();
        Self { dir }
    }

    fn run(&self, args: &[&str]) -> CliOutput {
        self.dir.run(&[args, &["--dir", "pool"]].concat())
    }

    /// Submits a script and returns what was printed: its id, or its array's name.
    fn submit(&self, text: &str, more: &[&str]) -> String {
        self.dir.write("job.sh", text);
        let args = [&["submit", "--dir", "pool", "--script", "job.sh"], more].concat();
        self.dir.run(&args).ok().out.trim().to_owned()
    }
}

impl Drop for DetachedPool {
    fn drop(&mut self) {
        self.run(&["dispatch", "stop", "--now"]);
    }
}

fn wait_for_failures(pool: &DetachedPool, count: u64) {
    wait_until(|| pool.run(&["dispatch", "status", "--json"]).ok().json()["failed"] == count);
}

#[test]
fn what_cannot_be_meant_is_refused_and_no_success_is_silent() {
    let pool = DetachedPool::start();
    pool.submit("exit 0", &["--array", "1-3", "--name", "nightly", "--wait"]);
    // The same array again is known; another script under its name is not taken for it.
    pool.submit("exit 0", &["--array", "1-3", "--name", "nightly", "--wait"]);
    pool.dir.write("job.sh", "exit 1");
    let submit = |more: &[&str]| pool.run(&[&["submit", "--script", "job.sh"], more].concat());
    submit(&["--array", "1-3", "--name", "nightly", "--wait"]).ends(1).says("exists with another script");
    submit(&["--array", "1-2000000000"]).ends(2).says("2000000000 indices, of 10000000 at most");
    submit(&["--env", "1X=3"]).ends(2).says("`1X` is not the name of a variable");
    submit(&["--qsys", "slurm_worker"]).ends(2).says("started by local, not by slurm");
    // Sentinels in a file's place are refused; where the folder is lost at run time, the script fails.
    pool.dir.write("file", "");
    submit(&["--sentinels", "file"]).ends(2).says("it is not a folder");
    pool.dir.write("job.sh", "rm -rf marks; touch marks");
    std::fs::create_dir(pool.dir.path("marks")).unwrap();
    let lost = submit(&["--sentinels", "marks", "--wait", "--json"]).ends(3).json();
    assert_eq!(lost["failure"]["code"], "unrecorded", "{lost}");
    // Deleted between two submissions, the folder of the output is made again; while the script runs, it fails.
    pool.dir.write("job.sh", "echo hello");
    for _ in 0..2 {
        submit(&["--output", "stream:logs", "--wait"]).ok();
        assert_eq!(std::fs::read_dir(pool.dir.path("logs")).unwrap().count(), 2);
        std::fs::remove_dir_all(pool.dir.path("logs")).unwrap();
    }
    pool.dir.write("job.sh", "echo hello; rm -rf logs");
    let lost = submit(&["--output", "stream:logs", "--wait", "--json"]).ends(3).json();
    assert!(lost["failure"].to_string().contains("was deleted while it ran"), "{lost}");
    // An array that is given up has ended only once the rest is cancelled.
    pool.dir.write("job.sh", "exit 1");
    let array = ["--array", "1-3000", "--max-fails", "1", "--wait", "--json"];
    let ended = submit(&array).ends(3).json();
    let sum = ["done", "failed", "cancelled"].map(|state| ended[state].as_u64().unwrap()).iter().sum::<u64>();
    assert_eq!(sum, 3000, "{ended}");
}

#[test]
fn streamed_output_is_printed_in_the_order_of_the_array() {
    let pool = DetachedPool::start();
    let text = "echo out $LONGSHORE_ARRAY_INDEX; echo err $LONGSHORE_ARRAY_INDEX >&2";
    let more = ["--array", "1-20", "--name", "demo", "--output", "stream:logs", "--wait"];
    pool.submit(text, &more);
    let print = |more: &[&str]| {
        let args = [&["dispatch", "output", "demo", "--from", "logs"], more].concat();
        pool.dir.run(&args).ok().out
    };
    let wanted: String = (1..=20).map(|n| format!("out {n}\n")).collect();
    assert_eq!(print(&["--stdout"]), wanted);
    assert_eq!(print(&["--stderr", "--index", "3"]), "err 3\n");
    let lines = print(&["--json"]);
    let first: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!((&first["index"], &first["stdout"]), (&1.into(), &"out 1\n".into()));
    let files = std::fs::read_dir(pool.dir.path("logs")).unwrap().count();
    assert_eq!(files, 2, "two files of the one worker");
    let unknown = pool.dir.run(&["dispatch", "output", "nobody", "--from", "logs"]).ends(1);
    assert!(unknown.err.contains("no output of it found"), "{}", unknown.err);
}

#[test]
fn units_of_a_pool_are_shown_listed_retried_and_cancelled_through_its_server() {
    let pool = DetachedPool::start();
    let failed = pool.submit(r"echo hello; printf '\033[2Jbye\n'; [ -e good ] || exit 42", &[]);
    wait_for_failures(&pool, 1);
    let shown = pool.run(&["unit", "show", &failed]).ok().out;
    for words in ["exit code 42", "peak memory", "job.sh", "host", "\nhello\n [2Jbye\n"] {
        assert!(shown.contains(words), "{words} in {shown}");
    }
    let listed = pool.run(&["unit", "list", "--state", "failed", "--json"]).ok().json();
    assert_eq!(listed[0]["unit"], failed.as_str());
    pool.dir.write("good", "");
    pool.run(&["unit", "retry", &failed]).ok();
    pool.run(&["dispatch", "wait"]).ok();
    let long = pool.submit("sleep 300", &[]);
    let began = || pool.run(&["dispatch", "status", "--json"]).ok().json()["running"] == 1;
    wait_until(began);
    pool.run(&["unit", "cancel", &long]).ok();
    let state = || pool.run(&["unit", "show", &long, "--json"]).ok().json()["state"].clone();
    wait_until(|| state() == "cancelled");
    pool.submit("true", &["--array", "1-3", "--name", "three", "--wait"]);
    let array = pool.run(&["batch", "status", "three", "--json"]).ok().json();
    assert_eq!((&array["done"], &array["total"]), (&3.into(), &3.into()));
    assert!(pool.run(&["batch", "list"]).ok().out.contains("three"));
}

#[test]
fn an_array_of_a_pool_is_watched_drained_listed_and_reported_through_its_server() {
    let pool = DetachedPool::start();
    let text = "echo >> runs; [ $LONGSHORE_ARRAY_INDEX -lt 3 ] || exit 42";
    pool.submit(text, &["--array", "1-4", "--name", "four"]);
    let watched = pool.run(&["batch", "watch", "four"]).ends(3).out;
    assert!(watched.contains("2/4 done, 2 failed"), "{watched}");
    let rows = pool.run(&["batch", "rows", "four", "--failed", "--json"]).ok().json();
    let keys: Vec<u64> = rows.as_array().unwrap().iter().map(|row| row["key"].as_u64().unwrap()).collect();
    assert!(keys == [3, 4] || keys == [4, 3], "{rows}");
    assert_eq!(rows[0]["code"], "exit-42");
    assert!(pool.run(&["batch", "rows", "four"]).ok().out.contains("exit-42"));
    let report = pool.run(&["batch", "report", "four"]).ok().out;
    for words in ["# Batch four", "| 2 | exit-42 |"] {
        assert!(report.contains(words), "{words} in {report}");
    }
    let held = "echo >> held; until [ -e go ]; do sleep 0.05; done";
    pool.submit(held, &["--array", "1-40", "--name", "held"]);
    let runs = || pool.dir.read("held").lines().count();
    wait_until(|| runs() == 2);
    pool.run(&["batch", "drain", "held", "--limit", "500ms"]).ends(1).says("still has running");
    pool.run(&["batch", "watch", "held"]).ends(4);
    pool.dir.write("go", "");
    let drained = pool.run(&["batch", "drain", "held", "--json"]).ok().json();
    assert_eq!((&drained["status"], &drained["leased"]), (&"paused".into(), &0.into()));
    assert_eq!((&drained["ready"], runs()), (&38.into(), 2), "{drained}");
    pool.run(&["batch", "watch", "nobody"]).ends(1).says("nobody");
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < until, "condition not reached in time");
        std::thread::sleep(Duration::from_millis(20));
    }
}

const JOB_FILE: &str = "
name = 'etl'
[defaults]
env = { GREETING = 'hello' }
[[task]]
id = 'load'
script = 'load.sh'
after = ['clean']
[[task]]
id = 'fetch'
script = 'fetch.sh'
array = '1-4'
[[task]]
id = 'clean'
script = 'clean.sh'
args = ['all']
after = ['fetch']
";

#[test]
fn the_tasks_of_a_job_file_run_each_after_those_it_waits_for() {
    let pool = DetachedPool::start();
    pool.dir.write("job.toml", JOB_FILE);
    pool.dir.write("fetch.sh", "echo fetch >> seen");
    pool.dir.write("clean.sh", "echo clean $1 $GREETING >> seen");
    let submit = ["submit", "--job", "job.toml", "--wait"];
    // All scripts are checked before any is sent.
    let missing = pool.run(&submit).ends(1);
    assert!(missing.err.contains("load.sh") && missing.err.contains("task `load`"), "{}", missing.err);
    assert!(!pool.dir.path("seen").exists());
    pool.dir.write("load.sh", "echo load >> seen");
    let done = pool.run(&submit).ok();
    assert!(done.out.contains("4 done"), "{}", done.out);
    assert_eq!(pool.dir.read("seen"), "fetch\nfetch\nfetch\nfetch\nclean all hello\nload\n");
    // With a failure, the dependent task is cancelled.
    pool.dir.write("clean.sh", "exit 1");
    pool.run(&submit).ends(3);
    assert!(!pool.dir.read("seen").ends_with("load\nload\n"));
}

#[test]
fn without_a_terminal_the_live_view_is_one_frame() {
    let pool = DetachedPool::start();
    pool.submit("exit 42", &["--name", "unlucky"]);
    wait_for_failures(&pool, 1);
    let frame = pool.run(&["dispatch", "top"]).ok().out;
    for words in ["workers 1 of 1, by local", "[........................] 0/2", "exit-42", "unlucky"] {
        assert!(frame.contains(words), "{words} in {frame}");
    }
    let seen = pool.run(&["dispatch", "top", "--json"]).ok().json();
    assert_eq!(seen["status"]["failed"], 1);
}

#[test]
fn the_live_view_lists_failures_by_when_they_failed() {
    let pool = DetachedPool::start();
    let text = "[ $1 = quick ] || until [ -e go ]; do sleep 0.05; done; exit 1";
    let first = pool.submit(text, &["--", "slow"]);
    let second = pool.submit(text, &["--", "quick"]);
    wait_for_failures(&pool, 1);
    let mut waiting = pool.dir.start(&["dispatch", "wait", "--dir", "pool"]);
    wait_until(|| pool.dir.read("stderr").contains("waiting for 1 script"));
    pool.dir.write("go", "");
    assert_eq!(waiting.ends_within(TIMEOUT), 3);
    let later = pool.run(&["dispatch", "wait"]).ok();
    assert!(later.out.contains("0 done, 0 failed"), "{}", later.out);
    let seen = pool.run(&["dispatch", "top", "--json"]).ok().json();
    let units = seen["failures"].as_array().unwrap().iter().map(|unit| unit["unit"].as_str());
    assert_eq!(units.flatten().collect::<Vec<_>>(), [first, second], "the last failure first");
}

#[test]
fn a_wait_reports_a_script_that_failed_before_it_began() {
    let pool = DetachedPool::start();
    let other_session = || {
        let wait = pool.dir.command(&["dispatch", "wait", "--dir", "pool"]);
        let mut command = pool.dir.program(Path::new("setsid"), &["--wait"]);
        CliOutput::of(command.arg(wait.get_program()).args(wait.get_args()).spawn().unwrap())
    };
    other_session().ok();
    pool.submit("exit 1", &[]);
    wait_for_failures(&pool, 1);
    // The wait of another session takes no failure away from the session that submitted the script.
    assert!(other_session().ends(3).out.contains("1 failed"));
    assert!(pool.run(&["dispatch", "wait"]).ends(3).out.contains("1 failed"));
    // A failure is reported once.
    other_session().ok();
    pool.run(&["dispatch", "wait"]).ok();
}

#[test]
fn a_script_goes_straight_to_the_base_system_and_its_exit_code_is_ours() {
    let dir = TestDir::new();
    dir.write("job.sh", "echo $1 $MODE; exit 42");
    let submit = ["submit", "--script", "job.sh", "--qsys", "local"];
    let more = ["--output", "files:said", "--env", "MODE=fast", "--wait", "--", "one"];
    dir.run(&[&submit[..], &more].concat()).ends(42);
    assert_eq!(dir.read("said"), "one fast\n");
    dir.write("job.sh", "true");
    dir.run(&[&submit[..], &["--wait"]].concat()).ok();
    let job = dir.run(&submit).ok().out;
    assert!(!job.trim().is_empty());
    let refused = dir.run(&[&submit[..], &["--retries", "3"]].concat()).ends(2);
    assert!(refused.err.contains("--retries needs a pool"), "{}", refused.err);
}

#[test]
fn options_that_scripts_do_not_know_are_refused_and_a_wait_may_end() {
    let dir = TestDir::new();
    dir.write("job.sh", "exit 0");
    for option in [["--queue", "q"], ["--timeout", "5s"], ["--max-attempts", "3"]] {
        let run = dir.run(&[&["submit", "--script", "job.sh"], &option[..]].concat()).ends(2);
        run.says(&format!("{} is not for scripts", option[0])).says("hint:");
    }
    let pool = DetachedPool::start();
    pool.dir.write("slow.sh", "sleep 60");
    let wait = ["submit", "--script", "slow.sh", "--wait", "--wait-limit", "300ms"];
    pool.run(&wait).ends(1).says("it continues");
}
