//! `pool`: bounded pools from the shell, with real processes.

use serde_json::Value;

use crate::support::{TIMEOUT, TestDir, eventually, is_alive};

fn pool_status(dir: &TestDir, pool: &str) -> Value {
    dir.run(&["pool", "status", pool, "--json"]).ok().json()
}

fn wait_for_status(dir: &TestDir, pool: &str, key: &str, count: u64) {
    eventually(TIMEOUT, || {
        let status = dir.run(&["pool", "status", pool, "--json"]);
        let number = |value: &Value| match value {
            Value::Array(all) => all.len() as u64,
            other => other.as_u64().unwrap_or(0),
        };
        (status.code == 0 && number(&status.json()[key]) == count).then_some(())
    });
}

#[test]
fn a_command_runs_with_a_permit_and_gives_its_exit_code_back() {
    let dir = TestDir::new();
    let exec =
        |command: &[&str]| dir.run(&[&["pool", "exec", "licence", "--max", "2", "--"], command].concat());
    assert_eq!(exec(&["echo", "hello"]).ok().out, "hello\n");
    exec(&["sh", "-c", "exit 42"]).ends(42);
    exec(&["sh", "-c", "kill -SEGV $$"]).ends(128 + 11);
    exec(&["no-such-command"]).ends(127).says("`no-such-command` does not exist");
    let file = dir.write("plain", "");
    exec(&[file.to_str().unwrap()]).ends(126);
    let print_fence = || exec(&["sh", "-c", "echo $LONGSHORE_POOL $LONGSHORE_FENCE"]).ok().out;
    let fence = |line: &str| line.trim().strip_prefix("licence ").unwrap().parse::<u64>().unwrap();
    let (first, second) = (print_fence(), print_fence());
    assert!(fence(&first) < fence(&second), "{first}{second}");
    let status = pool_status(&dir, "licence");
    assert_eq!((&status["max"], &status["in_use"]), (&2.into(), &0.into()));
    assert_eq!(status["acquired"], 7);
}

#[test]
fn without_a_permit_in_time_it_ends_with_75_and_counts_a_timeout() {
    let dir = TestDir::new();
    let hold = ["pool", "exec", "licence", "--max", "1", "--", "sleep", "60"];
    let _holder = dir.start(&hold);
    wait_for_status(&dir, "licence", "in_use", 1);
    let late = dir.run(&["pool", "exec", "licence", "--wait", "300ms", "--", "true"]);
    late.ends(75).says("error: no permit of pool `licence` within 300 ms").says("hint:");
    let status = pool_status(&dir, "licence");
    assert_eq!((&status["timeouts"], &status["acquired"]), (&1.into(), &1.into()));
    let seen = dir.run(&["pool", "status", "licence"]).ok();
    assert!(seen.out.contains("UTILIZATION") && seen.out.contains("100 %"), "{}", seen.out);
    seen.says("warning: pool `licence` has no permit left");
}

#[test]
fn a_permit_comes_back_from_a_killed_holder_and_its_command_ends() {
    let dir = TestDir::new();
    dir.write("longshore.toml", "[pools.licence]\nmax = 1\nlease = \"5s\"\n");
    let script = "echo $$ > pid; exec sleep 300";
    let mut holder = dir.start(&["pool", "exec", "licence", "--", "sh", "-c", script]);
    let pid = eventually(TIMEOUT, || Some(dir.read("pid").trim().to_owned()).filter(|it| !it.is_empty()));
    holder.kill();
    dir.run(&["pool", "exec", "licence", "--wait", "20s", "--", "true"]).ok();
    eventually(TIMEOUT, || (!is_alive(&pid)).then_some(()));
    assert_eq!(pool_status(&dir, "licence")["expired"], 1);
}

#[test]
fn a_signal_reaches_the_command_and_one_who_waits_leaves_the_line() {
    let dir = TestDir::new();
    let script = "trap 'exit 7' TERM; echo > ready; while :; do sleep 0.05; done";
    let hold = ["pool", "exec", "licence", "--max", "1", "--", "sh", "-c", script];
    let mut holder = dir.start(&hold);
    eventually(TIMEOUT, || dir.path("ready").exists().then_some(()));
    let mut waiter = dir.start(&["pool", "exec", "licence", "--", "true"]);
    wait_for_status(&dir, "licence", "waiting", 1);
    waiter.signal("TERM");
    assert_eq!(waiter.ends_within(TIMEOUT), 130);
    wait_for_status(&dir, "licence", "waiting", 0);
    holder.signal("TERM");
    assert_eq!(holder.ends_within(TIMEOUT), 7);
    assert_eq!(pool_status(&dir, "licence")["in_use"], 0);
}

#[test]
fn a_command_ends_when_its_permit_is_lost_unless_it_is_to_keep_going() {
    let dir = TestDir::new();
    dir.write("longshore.toml", "[pools.licence]\nmax = 2\nlease = \"5s\"\n");
    let exec = ["pool", "exec", "licence"];
    let mut heeds = dir.start(&[&exec[..], &["--", "sleep", "60"]].concat());
    let script = "echo > there; while [ ! -e done ]; do sleep 0.05; done";
    let mut goes_on = dir.start(&[&exec[..], &["--keep-going", "--", "sh", "-c", script]].concat());
    wait_for_status(&dir, "licence", "in_use", 2);
    dir.run(&["pool", "reset", "licence"]).ends(2).says("--yes");
    dir.run(&["pool", "reset", "licence", "--yes"]).ok();
    assert_eq!(heeds.ends_within(TIMEOUT), 76);
    dir.write("done", "");
    assert_eq!(goes_on.ends_within(TIMEOUT), 0);
}

/// `init` only shows the pool; it never creates permits.
#[test]
fn init_any_number_of_times_never_mints_and_resize_takes_hold() {
    let dir = TestDir::new();
    dir.run(&["pool", "init"]).ends(2).says("the configuration has no pools");
    dir.write("longshore.toml", "[pools.mjml]\nmax = 3\n[pools.digest]\nmax = 10\n");
    let both = dir.run(&["pool", "init"]).ok().out;
    assert!(both.contains("digest has 10 permits") && both.contains("mjml has 3"), "{both}");
    let _holder = dir.start(&["pool", "exec", "mjml", "--weight", "3", "--", "sleep", "60"]);
    wait_for_status(&dir, "mjml", "in_use", 3);
    for _ in 0..3 {
        let again = dir.run(&["pool", "init", "mjml"]).ok().out;
        assert!(again.contains("known before"), "{again}");
    }
    assert_eq!(pool_status(&dir, "mjml")["available"], 0);
    dir.run(&["pool", "exec", "mjml", "--wait", "100ms", "--", "true"]).ends(75);
    dir.run(&["pool", "resize", "mjml", "4"]).ok();
    dir.run(&["pool", "exec", "mjml", "--wait", "10s", "--", "true"]).ok();
    dir.run(&["pool", "resize", "mjml", "1"]).ok();
    let status = pool_status(&dir, "mjml");
    assert_eq!((&status["max"], &status["in_use"]), (&1.into(), &3.into()));
    let heavy = dir.run(&["pool", "exec", "mjml", "--weight", "2", "--", "true"]);
    heavy.ends(1).says("a weight of 2 is more than pool `mjml` has (1)").says("hint:");
}

#[test]
fn what_makes_no_sense_is_answered_with_a_hint() {
    let dir = TestDir::new();
    dir.run(&["pool", "exec", "mjml", "--", "true"]).ends(2).says("[pools.mjml] max = N");
    dir.run(&["pool", "exec", "mjml", "--max", "1"]).ends(2).says("hint:");
    dir.run(&["pool", "exec", "mjml", "--max", "1", "--weight", "0", "--", "true"]).ends(2);
    dir.run(&["pool", "status", "mjml"]).ends(1).says("there is no pool `mjml`");
    assert_eq!(dir.run(&["pool", "status"]).ok().out, "no pools\n");
    for (config, words) in [
        ("[pools.mjml]\nwait = \"30s\"\n", "`pools.mjml.max` is missing"),
        ("[pools.mjml]\nmax = 3\nwait = \"soon\"\n", "`soon` is not a length of time"),
        ("[pools.mjml]\nmax = 3\nlease = \"0s\"\n", "longer than zero"),
        ("[pools.mjml]\nmax = 3\non_outage = \"fail_opn\"\n", "did you mean `fail_open`?"),
        ("[pools]\nmax = 3\n", "which has sections only"),
        ("permits = \"http://here\"\n", "not a supported URL"),
        ("[alerts]\nwebhook = \"ftp://secret\"\n", "not a webhook URL"),
        ("[alerts]\nsentry = \"https://secret\"\n", "not a Sentry DSN"),
        ("permits = \"postgres://u:secret@h/d\"\n", "permits are kept in the store, or on Redis"),
    ] {
        dir.write("longshore.toml", config);
        let run = dir.run(&["pool", "status"]);
        assert_ne!(run.code, 0, "{config}");
        assert!(!run.err.contains("secret"), "{}", run.err);
        run.says(words).says("hint:");
    }
}

#[test]
fn one_after_the_other_when_there_is_one_permit() {
    let dir = TestDir::new();
    let script = "mkdir busy && sleep 0.1 && rmdir busy && echo >> done";
    let exec = ["pool", "exec", "one", "--max", "1", "--", "sh", "-c", script];
    let mut all: Vec<_> = (0..5).map(|_| dir.start(&exec)).collect();
    for run in &mut all {
        assert_eq!(run.ends_within(TIMEOUT * 2), 0);
    }
    assert_eq!(dir.read("done").lines().count(), 5);
}

#[test]
fn permits_on_redis_are_used_the_same_way_and_one_that_is_away_is_named() {
    let dir = TestDir::new();
    let redis = longshore_testkit::servers::PrivateRedis::start(
        longshore_testkit::servers::RedisPersistence::Nothing,
    )
    .unwrap();
    dir.write("longshore.toml", format!("permits = \"{}\"\n[pools.mjml]\nmax = 20\n", redis.url()));
    dir.run(&["pool", "exec", "mjml", "--", "true"]).ok();
    let all = dir.run(&["pool", "status", "--json"]).ok().json();
    assert_eq!((&all[0]["pool"], &all[0]["acquired"]), (&"mjml".into(), &1.into()));
    assert!(!dir.path("longshore.db").exists(), "the store has nothing to do with it");
    drop(redis);
    let away = dir.run(&["pool", "status"]);
    away.ends(1).says("error:").says("hint:");
}
