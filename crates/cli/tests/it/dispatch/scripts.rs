//! Scripts of every kind, most of them bad: how each ends, and that the scripts beside it are
//! unaffected.

use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::Value;

use super::fixture::{POOL_TIMEOUT, PoolFixture};
use crate::support::{CliOutput, eventually, is_alive};

fn start_pool() -> PoolFixture {
    PoolFixture::start(&["--workers", "1", "--nthr", "2"])
}

/// Runs a script that must fail; returns its failure's code and message.
fn run_failing(pool: &PoolFixture, text: &str, more: &[&str]) -> (String, String) {
    let (code, view) = pool.wait_for("bad.sh", text, more);
    assert_eq!((code, &view["state"]), (3, &"failed".into()), "{view}");
    let words = |name: &str| view["failure"][name].as_str().unwrap().to_owned();
    (words("code"), words("message"))
}

#[test]
fn an_end_is_told_as_it_was() {
    let pool = start_pool();
    let (code, view) = pool.wait_for("good.sh", "echo fine", &[]);
    assert_eq!((code, &view["report"]["tail"]), (0, &"fine\n".into()), "{view}");
    for (text, code) in [
        ("exit 42", "exit-42"),
        ("no-such-command-here", "exit-127"),
        ("kill -SEGV $$; sleep 60", "signal-11"),
        ("exec sh -c 'kill -9 $$'", "signal-9"),
    ] {
        assert_eq!(run_failing(&pool, text, &[]).0, code, "{text}");
    }
    pool.stop();
}

#[test]
fn what_a_script_leaves_behind_ends_with_it_even_if_it_has_left_its_group() {
    let pool = start_pool();
    // Another script that still runs keeps its processes, in whatever process group.
    let held = "setsid sleep 1000 & echo $! > kept; until [ -e go ]; do sleep 0.05; done";
    pool.submit("held.sh", held, &[]);
    pool.wait_for_lines("kept", 1);
    let deep = "sleep 1000 & echo $! > deep; wait";
    let text = format!(
        "sleep 1000 & echo $! > in-group; setsid sleep 1000 & echo $! > alone
         setsid setsid -f bash -c '{deep}'; until [ -s deep ]; do sleep 0.05; done; exit 0"
    );
    assert_eq!(pool.wait_for("job.sh", &text, &[]).0, 0);
    let is_over = |name: &str| !is_alive(pool.dir.read(name).trim());
    let all = ["in-group", "alone", "deep"];
    eventually(POOL_TIMEOUT, || all.iter().all(|name| is_over(name)).then_some(()));
    assert!(!is_over("kept"));
    pool.dir.write("go", "");
    eventually(POOL_TIMEOUT, || is_over("kept").then_some(()));
    // The worker has reaped the orphans: its only child is the orphan reaper.
    let worker = pool.worker_pids()[0];
    let children = format!("/proc/{worker}/task/{worker}/children");
    let children = || std::fs::read_to_string(&children).unwrap();
    eventually(POOL_TIMEOUT, || (children().split_whitespace().count() == 1).then_some(()));
    pool.stop();
}

#[test]
fn one_that_has_left_its_group_and_cleared_its_environment_ends_with_nobody() {
    let pool = start_pool();
    let text = "env -i /usr/bin/setsid /bin/sleep 1000 & echo $! > alone; sleep 0.1";
    assert_eq!(pool.wait_for("job.sh", text, &[]).0, 0);
    let alone = pool.dir.read("alone").trim().to_owned();
    pool.run(&["dispatch", "stop"]).ok();
    assert!(is_alive(&alone), "docs/dispatch.md documents this limit");
    super::fixture::signal(alone.parse().unwrap(), "KILL");
}

#[test]
fn a_gigabyte_of_output_is_not_held_in_memory() {
    let pool = start_pool();
    let text = "head -c 1000000000 /dev/zero | tr '\\0' x; echo; echo the end";
    let (code, view) = pool.wait_for("job.sh", text, &[]);
    assert_eq!(code, 0, "{view}");
    let tail = view["report"]["tail"].as_str().unwrap();
    assert!(tail.ends_with("x\nthe end\n") && tail.len() < 10_000);
    let status = std::fs::read_to_string(format!("/proc/{}/status", pool.worker_pids()[0])).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().split(' ').next().unwrap().parse().unwrap();
    assert!(peak < 200 * 1024, "the worker took {peak} kB");
    pool.stop();
}

#[test]
fn a_script_that_ignores_term_is_killed_when_its_time_is_over() {
    let pool = start_pool();
    let polite = "trap 'echo cleaned up; exit 7' TERM; sleep 1000 & wait";
    let (code, words) = run_failing(&pool, polite, &["--time", "4s"]);
    assert_eq!(code, "timeout");
    assert!(words.contains("cleaned up"), "{words}");
    let deaf = "trap '' TERM; echo $$ > deaf; while :; do sleep 0.1; done";
    assert_eq!(run_failing(&pool, deaf, &["--time", "4s"]).0, "timeout");
    assert!(!is_alive(pool.dir.read("deaf").trim()));
    pool.stop();
}

#[test]
fn a_script_that_sleeps_for_ever_can_be_cancelled() {
    let pool = start_pool();
    let unit = pool.unit("job.sh", "echo $$ > sleeper; exec sleep 1000", &[]);
    pool.wait_for_lines("sleeper", 1);
    pool.run_on_store(&["unit", "cancel", &unit]).ok();
    let status = pool.wait_until_idle();
    assert_eq!((&status["cancelled"], &status["failed"]), (&1.into(), &0.into()));
    assert!(!is_alive(pool.dir.read("sleeper").trim()));
    pool.stop();
}

#[test]
fn odd_but_honest_scripts_run() {
    let pool = start_pool();
    // A script needs no execute permission, and its path may have spaces.
    let script = pool.dir.write("my job.sh", "echo \"$1\" | wc -c; printf 'a\\377b\\n'");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o400)).unwrap();
    let long = "x".repeat(100_000);
    let run = pool.run(&["submit", "--wait", "--json", "--script", "my job.sh", "--", &long]);
    let view = run.ok().json();
    assert_eq!(view["report"]["tail"], "100001\na\u{fffd}b\n");
    pool.stop();
}

#[test]
fn what_must_not_run_is_refused_when_it_is_submitted() {
    let pool = start_pool();
    let outside = crate::support::TestDir::new();
    let other = outside.write("other.sh", "touch ran");
    symlink(&other, pool.dir.path("link.sh")).unwrap();
    let other = other.to_str().unwrap();
    for (script, code, words) in [
        ("missing.sh", 1, "missing.sh"),
        ("pool", 2, "not a regular file"),
        (other, 2, "is not inside"),
        ("link.sh", 2, "is not inside"),
    ] {
        pool.run(&["submit", "--script", script]).ends(code).says(words);
    }
    let root = outside.path("");
    let (code, _) = {
        let root = ["--root", root.to_str().unwrap()];
        let run = pool.run(&[&["submit", "--wait", "--json", "--script", other], &root[..]].concat());
        (run.code, run)
    };
    assert_eq!(code, 0, "its root allows it");
    pool.stop();
}

#[test]
fn launched_workers_keep_to_the_roots_that_their_pool_was_started_with() {
    let pool = PoolFixture::prepare(Box::new(super::launcher::LocalLauncher), &[]);
    std::fs::create_dir(pool.dir.path("jobs")).unwrap();
    pool.dir.write("jobs/good.sh", "echo $SEED");
    pool.start_with(&["--workers", "1", "--root", "no-such-folder"]).ends(1).says("--root no-such-folder");
    pool.start_with(&["--workers", "1", "--root", "jobs", "--allow-env", "SEED"]).ok();
    let submit = |script: &str, more: &[&str]| {
        let args = ["submit", "--wait", "--json", "--script", script, "--env", "SEED=7"];
        CliOutput::of(
            pool.command(&[&args[..], more].concat()).current_dir(pool.dir.path("jobs")).spawn().unwrap(),
        )
    };
    assert_eq!(submit("good.sh", &[]).ok().json()["report"]["tail"], "7\n");
    assert!(submit("good.sh", &["--env", "BASH_ENV=x"]).ends(3).out.contains("--allow-env"));
    pool.dir.write("outside.sh", "touch ran");
    let outside = ["--root", ".."];
    assert!(submit("../outside.sh", &outside).ends(3).out.contains("is not inside"));
    assert!(!pool.dir.path("jobs/ran").exists());
    pool.stop();
}

#[test]
fn what_became_of_a_script_after_it_was_submitted_is_looked_at_again_when_it_runs() {
    let pool = start_pool();
    let outside = crate::support::TestDir::new();
    let other = outside.write("other.sh", "touch ran");
    pool.dir.write("gate.sh", "until [ -e go ]; do sleep 0.05; done");
    let gate = pool.unit("gate.sh", &pool.dir.read("gate.sh"), &[]);
    let removed = pool.unit("removed.sh", "touch ran", &["--after", &gate]);
    let replaced = pool.unit("replaced.sh", "touch ran", &["--after", &gate]);
    std::fs::remove_file(pool.dir.path("removed.sh")).unwrap();
    std::fs::remove_file(pool.dir.path("replaced.sh")).unwrap();
    symlink(&other, pool.dir.path("replaced.sh")).unwrap();
    pool.dir.write("go", "");
    let status = pool.wait_until_idle();
    assert_eq!((&status["done"], &status["failed"]), (&1.into(), &2.into()));
    let why = |unit: &str| {
        let unit: Value = pool.run_on_store(&["unit", "show", unit, "--json"]).ok().json();
        unit["failure"].to_string()
    };
    assert!(why(&removed).contains("No such file"), "{}", why(&removed));
    assert!(why(&replaced).contains("is not inside"), "{}", why(&replaced));
    assert!(!pool.dir.path("ran").exists() && !outside.path("ran").exists());
    pool.stop();
}

#[test]
fn a_script_that_kills_its_worker_is_found_out_and_innocents_beside_it_end_well() {
    let pool = PoolFixture::start(&["--workers", "1", "--nthr", "4"]);
    let more = ["--array", "1-20", "--name", "innocents"];
    pool.submit("innocent.sh", "sleep 0.3; echo $LONGSHORE_ARRAY_INDEX >> ran", &more);
    let (code, words) = run_failing(&pool, "sleep 0.1; kill -9 $PPID", &["--crash-limit", "2"]);
    assert_eq!(code, "lost", "{words}");
    assert!(words.contains("was lost"), "{words}");
    let status = pool.wait_until_idle();
    assert_eq!((&status["done"], &status["failed"]), (&20.into(), &1.into()));
    pool.stop();
}

#[test]
fn losses_by_request_and_at_the_end_of_a_workers_time_do_not_count() {
    // The server's stop interrupts the script more often than its crash limit.
    let pool = start_pool();
    let text = "echo x >> runs; until [ -e go ]; do sleep 0.05; done";
    let unit = pool.unit("job.sh", text, &["--crash-limit", "1"]);
    for times in 1..=3 {
        pool.wait_for_lines("runs", times);
        pool.run(&["dispatch", "stop", "--now"]).ok();
        pool.assert_nothing_left();
        pool.start_server().ok();
    }
    pool.wait_for_lines("runs", 4);
    // Nor does the end of a worker that is released.
    pool.dir.write("go", "");
    let status = pool.wait_until_idle();
    assert_eq!((&status["done"], &status["failed"]), (&1.into(), &0.into()));
    let shown = pool.run_on_store(&["unit", "show", &unit, "--json"]).ok().json();
    assert_eq!(shown["lost"], 0, "{shown}");
    pool.stop();
}
