//! `pool`: bounded pools from the shell, with real processes.

use serde_json::Value;

use crate::support::{Place, SOON, eventually, is_alive};

fn status(place: &Place, pool: &str) -> Value {
    place.run(&["pool", "status", pool, "--json"]).ok().json()
}

fn has(place: &Place, pool: &str, key: &str, count: u64) {
    eventually(SOON, || {
        let status = place.run(&["pool", "status", pool, "--json"]);
        let number = |value: &Value| match value {
            Value::Array(all) => all.len() as u64,
            other => other.as_u64().unwrap_or(0),
        };
        (status.code == 0 && number(&status.json()[key]) == count).then_some(())
    });
}

#[test]
fn a_command_runs_with_a_permit_and_gives_its_exit_code_back() {
    let place = Place::new();
    let exec = |command: &[&str]| {
        place.run(&[&["pool", "exec", "licence", "--max", "2", "--"], command].concat())
    };
    assert_eq!(exec(&["echo", "hello"]).ok().out, "hello\n");
    exec(&["sh", "-c", "exit 42"]).ends(42);
    exec(&["sh", "-c", "kill -SEGV $$"]).ends(128 + 11);
    exec(&["no-such-command"]).ends(127).says("there is no `no-such-command`");
    let file = place.write("plain", "");
    exec(&[file.to_str().unwrap()]).ends(126);
    let told = || exec(&["sh", "-c", "echo $LONGSHORE_POOL $LONGSHORE_FENCE"]).ok().out;
    let fence = |said: &str| said.trim().strip_prefix("licence ").unwrap().parse::<u64>().unwrap();
    let (first, second) = (told(), told());
    assert!(fence(&first) < fence(&second), "{first}{second}");
    let status = status(&place, "licence");
    assert_eq!((&status["max"], &status["in_use"]), (&2.into(), &0.into()));
    assert_eq!(status["acquired"], 7);
}

#[test]
fn without_a_permit_in_time_it_ends_with_75_and_counts_a_timeout() {
    let place = Place::new();
    let hold = ["pool", "exec", "licence", "--max", "1", "--", "sleep", "60"];
    let _holder = place.start(&hold);
    has(&place, "licence", "in_use", 1);
    let late = place.run(&["pool", "exec", "licence", "--wait", "300ms", "--", "true"]);
    late.ends(75).says("error: no permit of pool `licence` within 300 ms").says("hint:");
    let status = status(&place, "licence");
    assert_eq!((&status["timeouts"], &status["acquired"]), (&1.into(), &1.into()));
    let seen = place.run(&["pool", "status", "licence"]).ok();
    assert!(seen.out.contains("UTILIZATION") && seen.out.contains("100 %"), "{}", seen.out);
    seen.says("warning: pool `licence` has no permit left");
}

#[test]
fn a_permit_comes_back_from_a_killed_holder_and_its_command_ends() {
    let place = Place::new();
    place.write("longshore.toml", "[pools.licence]\nmax = 1\nlease = \"5s\"\n");
    let script = "echo $$ > pid; exec sleep 300";
    let mut holder = place.start(&["pool", "exec", "licence", "--", "sh", "-c", script]);
    let pid =
        eventually(SOON, || Some(place.read("pid").trim().to_owned()).filter(|it| !it.is_empty()));
    holder.kill();
    place.run(&["pool", "exec", "licence", "--wait", "20s", "--", "true"]).ok();
    eventually(SOON, || (!is_alive(&pid)).then_some(()));
    assert_eq!(status(&place, "licence")["expired"], 1);
}

#[test]
fn a_signal_reaches_the_command_and_one_who_waits_leaves_the_line() {
    let place = Place::new();
    let script = "trap 'exit 7' TERM; echo > ready; while :; do sleep 0.05; done";
    let hold = ["pool", "exec", "licence", "--max", "1", "--", "sh", "-c", script];
    let mut holder = place.start(&hold);
    eventually(SOON, || place.path("ready").exists().then_some(()));
    let mut waiter = place.start(&["pool", "exec", "licence", "--", "true"]);
    has(&place, "licence", "waiting", 1);
    waiter.signal("TERM");
    assert_eq!(waiter.ends_within(SOON), 130);
    has(&place, "licence", "waiting", 0);
    holder.signal("TERM");
    assert_eq!(holder.ends_within(SOON), 7);
    assert_eq!(status(&place, "licence")["in_use"], 0);
}

#[test]
fn a_command_ends_when_its_permit_is_lost_unless_it_is_to_keep_going() {
    let place = Place::new();
    place.write("longshore.toml", "[pools.licence]\nmax = 2\nlease = \"5s\"\n");
    let exec = ["pool", "exec", "licence"];
    let mut heeds = place.start(&[&exec[..], &["--", "sleep", "60"]].concat());
    let script = "echo > there; while [ ! -e done ]; do sleep 0.05; done";
    let mut goes_on =
        place.start(&[&exec[..], &["--keep-going", "--", "sh", "-c", script]].concat());
    has(&place, "licence", "in_use", 2);
    place.run(&["pool", "reset", "licence"]).ends(2).says("--yes");
    place.run(&["pool", "reset", "licence", "--yes"]).ok();
    assert_eq!(heeds.ends_within(SOON), 76);
    place.write("done", "");
    assert_eq!(goes_on.ends_within(SOON), 0);
}

/// `init` is for people who want to see the pool; it never makes permits.
#[test]
fn init_any_number_of_times_never_mints_and_resize_takes_hold() {
    let place = Place::new();
    place.run(&["pool", "init"]).ends(2).says("the configuration has no pools");
    place.write("longshore.toml", "[pools.mjml]\nmax = 3\n[pools.digest]\nmax = 10\n");
    let both = place.run(&["pool", "init"]).ok().out;
    assert!(both.contains("digest has 10 permits") && both.contains("mjml has 3"), "{both}");
    let _holder = place.start(&["pool", "exec", "mjml", "--weight", "3", "--", "sleep", "60"]);
    has(&place, "mjml", "in_use", 3);
    for _ in 0..3 {
        let again = place.run(&["pool", "init", "mjml"]).ok().out;
        assert!(again.contains("known before"), "{again}");
    }
    assert_eq!(status(&place, "mjml")["available"], 0);
    place.run(&["pool", "exec", "mjml", "--wait", "100ms", "--", "true"]).ends(75);
    place.run(&["pool", "resize", "mjml", "4"]).ok();
    place.run(&["pool", "exec", "mjml", "--wait", "10s", "--", "true"]).ok();
    place.run(&["pool", "resize", "mjml", "1"]).ok();
    let status = status(&place, "mjml");
    assert_eq!((&status["max"], &status["in_use"]), (&1.into(), &3.into()));
    let heavy = place.run(&["pool", "exec", "mjml", "--weight", "2", "--", "true"]);
    heavy.ends(1).says("a weight of 2 is more than pool `mjml` has (1)").says("hint:");
}

#[test]
fn what_makes_no_sense_is_answered_with_a_hint() {
    let place = Place::new();
    place.run(&["pool", "exec", "mjml", "--", "true"]).ends(2).says("[pools.mjml] max = N");
    place.run(&["pool", "exec", "mjml", "--max", "1"]).ends(2).says("hint:");
    place.run(&["pool", "exec", "mjml", "--max", "1", "--weight", "0", "--", "true"]).ends(2);
    place.run(&["pool", "status", "mjml"]).ends(1).says("there is no pool `mjml`");
    assert_eq!(place.run(&["pool", "status"]).ok().out, "no pools\n");
    for (config, words) in [
        ("[pools.mjml]\nwait = \"30s\"\n", "`pools.mjml.max` is missing"),
        ("[pools.mjml]\nmax = 3\nwait = \"soon\"\n", "`soon` is not a length of time"),
        ("[pools.mjml]\nmax = 3\nlease = \"0s\"\n", "longer than 0"),
        ("[pools.mjml]\nmax = 3\non_outage = \"fail_opn\"\n", "did you mean `fail_open`?"),
        ("[pools]\nmax = 3\n", "which has sections only"),
        ("permits = \"http://here\"\n", "not a supported URL"),
        ("[alerts]\nwebhook = \"ftp://secret\"\n", "not a webhook URL"),
        ("[alerts]\nsentry = \"https://secret\"\n", "not a Sentry DSN"),
        ("permits = \"postgres://u:secret@h/d\"\n", "permits are kept in the store, or on Redis"),
    ] {
        place.write("longshore.toml", config);
        let run = place.run(&["pool", "status"]);
        assert_ne!(run.code, 0, "{config}");
        assert!(!run.err.contains("secret"), "{}", run.err);
        run.says(words).says("hint:");
    }
}

#[test]
fn one_after_the_other_when_there_is_one_permit() {
    let place = Place::new();
    let script = "mkdir busy && sleep 0.1 && rmdir busy && echo >> done";
    let exec = ["pool", "exec", "one", "--max", "1", "--", "sh", "-c", script];
    let mut all: Vec<_> = (0..5).map(|_| place.start(&exec)).collect();
    for run in &mut all {
        assert_eq!(run.ends_within(SOON * 2), 0);
    }
    assert_eq!(place.read("done").lines().count(), 5);
}

#[test]
fn permits_on_redis_are_used_the_same_way_and_one_that_is_away_is_named() {
    let place = Place::new();
    let redis = longshore_testkit::servers::PrivateRedis::start(
        longshore_testkit::servers::Remembers::Nothing,
    )
    .unwrap();
    place.write(
        "longshore.toml",
        format!("permits = \"{}\"\n[pools.mjml]\nmax = 20\n", redis.url()),
    );
    place.run(&["pool", "exec", "mjml", "--", "true"]).ok();
    let all = place.run(&["pool", "status", "--json"]).ok().json();
    assert_eq!((&all[0]["pool"], &all[0]["acquired"]), (&"mjml".into(), &1.into()));
    assert!(!place.path("longshore.db").exists(), "the store has nothing to do with it");
    drop(redis);
    let away = place.run(&["pool", "status"]);
    away.ends(1).says("error:").says("hint:");
}
