//! Snapshots of help, tables, records and errors, in `tests/it/snapshots/`.
//!
//! After an intended change, rewrite the files with `SNAPSHOTS=write cargo nextest run -p
//! longshore-cli snapshots` and read the diff before committing.

use std::path::Path;

use crate::support::Place;

/// Asserts that `text` equals the snapshot of this name.
#[track_caller]
fn looks_like(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/looks").join(name);
    if std::env::var_os("LOOKS").is_some_and(|mode| mode == "write") {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
    }
    let wanted = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(wanted == text, "{name} looks different.\n--- wanted\n{wanted}\n--- found\n{text}");
}

/// Replaces varying times by `…`.
fn without_times(record: &str) -> String {
    let line = |line: &str| {
        let name = line.split(' ').next().unwrap_or_default();
        let changes = ["initiated", "started", "completed", "took"].contains(&name);
        if changes { format!("{name:<10} …\n") } else { format!("{line}\n") }
    };
    record.lines().map(line).collect()
}

/// A test directory where one batch has ended with a failure, and no unit waits.
fn after_work() -> Place {
    let place = Place::new();
    let lines = "{\"argv\":[\"true\"]}\n".repeat(11) + "{\"argv\":[\"false\"]}\n";
    let args = ["submit", "exec", "--lines", "-", "--batch", "naps", "--notes", "for the cook"];
    place.run_with(&args, lines).ok();
    place.work();
    place
}

#[test]
fn the_help_of_the_whole() {
    let place = Place::new();
    let mut help = place.command(&["--help"]);
    let help = help.env("COLUMNS", "100").output().unwrap();
    looks_like("help.txt", &String::from_utf8(help.stdout).unwrap());
}

#[test]
fn the_help_of_a_worker() {
    let place = Place::new();
    let mut help = place.command(&["worker", "-h"]);
    let help = help.env("COLUMNS", "100").output().unwrap();
    looks_like("help-worker.txt", &String::from_utf8(help.stdout).unwrap());
}

#[test]
fn a_list_of_queues() {
    let place = after_work();
    place.run(&["queue", "pause", "reports"]).ok();
    looks_like("queue-list.txt", &place.run(&["queue", "list"]).ok().out);
}

#[test]
fn the_status_of_a_batch() {
    let place = after_work();
    let status = place.run(&["batch", "status", "naps"]).ok().out;
    looks_like("batch-status.txt", &without_times(&status));
}

#[test]
fn a_batch_tells_who_sent_it() {
    let place = Place::new();
    let mut submit = place.command(&["submit", "exec", "--lines", "lines", "--batch", "b"]);
    place.write("lines", "");
    assert!(submit.env("USER", "ada").status().unwrap().success());
    let by = place.batch("b")["initiated_by"].as_str().unwrap().to_owned();
    assert!(by.starts_with("ada@") && by.len() > 4, "{by}");
}

#[test]
fn errors_with_their_causes_and_hints() {
    let place = Place::new();
    let mut all = String::new();
    let mut note = |args: &[&str]| {
        let run = place.run(args);
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
    place.write("longshore.toml", "[worker]\nslot = 3\n");
    note(&["queue", "list"]);
    looks_like("errors.txt", &all);
}
