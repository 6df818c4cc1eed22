//! `doctor` finds problems, says how to fix them, and reveals no secret.

use std::os::unix::fs::PermissionsExt;

use longshore_testkit::servers::PrivatePostgres;
use serde_json::Value;

use crate::support::{CliOutput, TestDir};

/// The findings about an area.
#[track_caller]
fn findings(run: &CliOutput, area: &str) -> Vec<Value> {
    let all = run.json();
    let of_area = |finding: &&Value| finding["area"] == area;
    all.as_array().unwrap().iter().filter(of_area).cloned().collect()
}

/// Asserts that an area has a finding of this state with these words and a fix.
#[track_caller]
fn finds(run: &CliOutput, area: &str, state: &str, words: &str) {
    let findings = findings(run, area);
    let is_it =
        |finding: &&Value| finding["state"] == state && finding["says"].as_str().unwrap().contains(words);
    let finding = findings.iter().find(is_it).unwrap_or_else(|| panic!("{words}: {}", run.out));
    assert!(!finding["mend"].as_str().unwrap().is_empty(), "{finding}");
}

fn set_mode(dir: &TestDir, name: &str, mode: u32) {
    std::fs::set_permissions(dir.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_healthy_place_is_found_healthy_and_nothing_is_made() {
    let dir = TestDir::new();
    let run = dir.run(&["doctor", "--json"]).ok();
    assert_eq!(findings(&run, "store")[0]["state"], "good", "{}", run.out);
    assert!(!dir.path("longshore.db").exists(), "looking makes nothing");
    dir.write("longshore.db", "");
    std::fs::set_permissions(dir.path("longshore.db"), PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(findings(&dir.run(&["doctor", "--json"]).ok(), "store")[0]["state"], "good");
    assert_eq!(dir.read("longshore.db"), "", "nor does it create tables");
    dir.submit_script("true", &[]);
    let run = dir.run(&["doctor", "--json"]).ok();
    finds(&run, "workers", "doubtful", "1 units are ready, and no worker runs");
    dir.work();
    let run = dir.run(&["doctor"]).ok();
    assert!(run.out.contains("integrity") && run.out.contains("every counter is right"), "{}", run.out);
    assert!(!run.out.contains("wrong ") && !run.out.contains('\u{1b}'), "{}", run.out);
}

#[test]
fn a_configuration_that_cannot_be_read_is_a_finding() {
    let dir = TestDir::new();
    dir.write("longshore.toml", "[worker]\nslot = 3\n");
    let run = dir.run(&["doctor", "--json"]).ends(1);
    finds(&run, "configuration", "wrong", "did you mean `slots`?");
    let shown = dir.run(&["doctor"]).ends(1).out;
    assert!(shown.contains("wrong") && shown.contains("mend: "), "{shown}");
}

#[test]
fn files_that_others_may_read_or_write_are_found() {
    let dir = TestDir::new();
    dir.write("longshore.toml", "[alerts]\nwebhook = 'https://example.com/hook/SECRET'\n");
    set_mode(&dir, "longshore.toml", 0o644);
    let run = dir.run(&["doctor", "--json"]).ends(1);
    finds(&run, "configuration", "wrong", "holds a secret and is readable by other users");
    assert!(!run.out.contains("SECRET"), "{}", run.out);
    set_mode(&dir, "longshore.toml", 0o622);
    finds(&dir.run(&["doctor", "--json"]).ends(1), "configuration", "wrong", "can be changed by other users");
    set_mode(&dir, "longshore.toml", 0o600);
    dir.write("longshore.key", [7; 32]);
    set_mode(&dir, "longshore.key", 0o644);
    finds(&dir.run(&["doctor", "--json"]).ends(1), "master key", "wrong", "readable by other users");
    set_mode(&dir, "longshore.key", 0o600);
    let run = dir.run(&["doctor", "--json"]).ok();
    assert_eq!(findings(&run, "master key")[0]["state"], "good");
}

#[test]
fn a_store_that_is_broken_or_away_is_found() {
    let dir = TestDir::new();
    dir.write("longshore.db", "this is no database, and long enough to be seen to be none. ".repeat(99));
    finds(&dir.run(&["doctor", "--json"]).ends(1), "store", "wrong", "cannot open");
    let away = ["doctor", "--json", "--store", "postgres://me:SECRET@127.0.0.1:1/nowhere"];
    let run = dir.run(&away).ends(1);
    finds(&run, "store", "wrong", "cannot open the store");
    assert!(!run.out.contains("SECRET") && !run.err.contains("SECRET"), "{}", run.out);
}

#[test]
fn the_clock_of_a_server_is_compared_with_ours() {
    let server = PrivatePostgres::start().unwrap();
    let dir = TestDir::new();
    let url = server.url();
    let run = dir.run(&["doctor", "--json", "--store", &url]).ok();
    assert!(findings(&run, "store")[0]["says"].as_str().unwrap().contains("is empty"), "{}", run.out);
    let tables = server.run("SELECT count(*) FROM pg_class WHERE relname LIKE 'longshore%'").unwrap();
    assert_eq!(tables.trim(), "0", "looking makes nothing");
    dir.run(&["migrate", "--store", &url]).ok();
    let run = dir.run(&["doctor", "--json", "--store", &url]).ok();
    assert_eq!(findings(&run, "clock")[0]["says"], "this clock and the server's are the same");
    assert_eq!(findings(&run, "integrity")[0]["state"], "good");
}

#[test]
fn programs_that_are_not_there_are_found() {
    let dir = TestDir::new();
    let text = "[workers.a]\ncommand = ['./missing']\n\
                [supervise.workers.b]\ncommand = ['no-such-program-anywhere']\n\
                [supervise.workers.c]\ncommand = ['sh', '-c', 'true']\n\
                [dispatch]\nqsys = 'lsf_worker'\n";
    dir.write("longshore.toml", text);
    set_mode(&dir, "longshore.toml", 0o600);
    let mut doctor = dir.command(&["doctor", "--json"]);
    let run = CliOutput::of(doctor.env("PATH", "/usr/bin:/bin").spawn().unwrap()).ends(1);
    finds(&run, "programs", "wrong", "`workers.a.command` names `./missing`");
    finds(&run, "programs", "wrong", "`supervise.workers.b.command`");
    finds(&run, "scheduler", "wrong", "bsub");
    let good = findings(&run, "programs").iter().filter(|one| one["state"] == "good").count();
    assert_eq!(good, 1, "sh is there");
}

#[test]
fn few_files_at_once_are_found() {
    let dir = TestDir::new();
    let binary = env!("CARGO_BIN_EXE_longshore");
    let script = format!("ulimit -n 200; exec {binary} doctor --json");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &script]).current_dir(dir.path(""));
    shell.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    finds(&CliOutput::of(shell.spawn().unwrap()).ends(1), "files", "wrong", "only 200 files");
}

#[test]
fn a_provider_without_its_key_is_found() {
    let dir = TestDir::new();
    let url = "http://127.0.0.1:1/v1";
    let add = ["profile", "add", "gone", "--provider", "openai", "--model", "m"];
    dir.run(&[&add[..], &["--endpoint", url]].concat()).ok();
    let profiles = dir.run(&["profile", "list", "--json"]).ok().json();
    assert_eq!(profiles.as_array().unwrap().len(), 1, "{profiles}");
    let run = dir.run(&["doctor", "--json"]).ends(1);
    finds(&run, "providers", "wrong", "gone");
    let without = dir.run(&["doctor", "--json", "--no-providers"]).ok();
    assert_eq!(findings(&without, "providers"), Vec::<Value>::new());
}
