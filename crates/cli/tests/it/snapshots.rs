//! Snapshots of help, tables, records and errors, in `tests/it/snapshots/`.
//!
//! After an intended change, rewrite the files with `SNAPSHOTS=write cargo nextest run -p
//! longshore-cli snapshots` and read the diff before committing.

use std::path::Path;

use crate::support::TestDir;

/// Asserts that `text` equals the snapshot of this name.
#[track_caller]
fn assert_snapshot(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/snapshots").join(name);
    if std::env::var_os("SNAPSHOTS").is_some_and(|mode| mode == "write") {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
    }
    let wanted = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(wanted == text, "{name} looks different.\n--- wanted\n{wanted}\n--- found\n{text}");
}

/// Replaces varying times by `…`.
fn mask_times(record: &str) -> String {
    let line = |line: &str| {
        let name = line.split(' ').next().unwrap_or_default();
        let changes = ["initiated", "started", "completed", "took", "rate"].contains(&name);
        if changes { format!("{name:<10} …\n") } else { format!("{line}\n") }
    };
    record.lines().map(line).collect()
}

/// A test directory where one batch has ended with a failure, and no unit waits.
fn dir_with_finished_batch() -> TestDir {
    let dir = TestDir::new();
    let lines = "{\"argv\":[\"true\"]}\n".repeat(11) + "{\"argv\":[\"false\"]}\n";
    let args = ["submit", "exec", "--lines", "-", "--batch", "naps", "--notes", "for the cook"];
    dir.run_with(&args, lines).ok();
    dir.work();
    dir
}

#[test]
fn the_help_of_the_whole() {
    let dir = TestDir::new();
    let mut help = dir.command(&["--help"]);
    let help = help.env("COLUMNS", "100").output().unwrap();
    assert_snapshot("help.txt", &String::from_utf8(help.stdout).unwrap());
}

#[test]
fn the_help_of_a_worker() {
    let dir = TestDir::new();
    let mut help = dir.command(&["worker", "-h"]);
    let help = help.env("COLUMNS", "100").output().unwrap();
    assert_snapshot("help-worker.txt", &String::from_utf8(help.stdout).unwrap());
}

#[test]
fn a_list_of_queues() {
    let dir = dir_with_finished_batch();
    dir.run(&["queue", "pause", "reports"]).ok();
    assert_snapshot("queue-list.txt", &dir.run(&["queue", "list"]).ok().out);
}

#[test]
fn the_status_of_a_batch() {
    let dir = dir_with_finished_batch();
    let status = dir.run(&["batch", "status", "naps"]).ok().out;
    assert_snapshot("batch-status.txt", &mask_times(&status));
}

#[test]
fn a_batch_tells_who_sent_it() {
    let dir = TestDir::new();
    let mut submit = dir.command(&["submit", "exec", "--lines", "lines", "--batch", "b"]);
    dir.write("lines", "");
    assert!(submit.env("USER", "ada").status().unwrap().success());
    let by = dir.batch("b")["initiated_by"].as_str().unwrap().to_owned();
    assert!(by.starts_with("ada@") && by.len() > 4, "{by}");
}

#[test]
fn errors_with_their_causes_and_hints() {
    let dir = TestDir::new();
    let mut all = String::new();
    let mut note = |args: &[&str]| {
        let run = dir.run(args);
        assert_eq!(run.out, "", "stdout is for data");
        all += &format!("$ longshore {}\n{}exit code {}\n\n", args.join(" "), run.err, run.code);
    };
    note(&["batch", "status", "naps"]);
    note(&["queue", "show", "nowhere"]);
    note(&["queue", "purge", "nowhere"]);
    note(&["submit", "exec", "{oops"]);
    note(&["submit", "exec", "1", "--resource", "gpu"]);
    note(&["--store", "sqllite:x.db", "queue", "list"]);
    note(&["--store", "sqlite:no/such/x.db", "queue", "list"]);
    note(&["worker", "--kind", "mail"]);
    dir.write("longshore.toml", "[worker]\nslot = 3\n");
    note(&["queue", "list"]);
    assert_snapshot("errors.txt", &all);
}
