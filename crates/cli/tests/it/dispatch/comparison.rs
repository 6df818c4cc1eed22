//! Every command of ours in the table beside HyperQueue's is run.

use std::process::{Command, Stdio};

use crate::support::{CliOutput, TestDir};

/// The commands in the last column, without their quotes.
fn commands(text: &str) -> Vec<&str> {
    let (_, table) = text.split_once("## HyperQueue's commands and ours").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let cells = rows.map(|row| row.rsplit(" | ").next().unwrap());
    cells.filter_map(|cell| cell.strip_prefix('`')?.strip_suffix('`')).collect()
}

#[test]
fn every_command_beside_hyperqueues_does_what_it_is_there_for() {
    let text = include_str!("../../../../../docs/guides/comparison.md");
    let commands = commands(text);
    assert!(commands.len() > 45, "{commands:#?}");
    let dir = TestDir::new();
    dir.write("job.sh", "echo task $LONGSHORE_ARRAY_INDEX $LONGSHORE_LINE\n");
    dir.write("directives.sh", "#LONGSHORE --nthr 2 --time 1h\ntest $LONGSHORE_NTHR = 2\n");
    dir.write("list", "one\ntwo\n");
    dir.write(
        "job.toml",
        "[[task]]\nid = 'a'\nscript = 'job.sh'\n[[task]]\nid = 'b'\nscript = 'job.sh'\nafter = ['a']\n",
    );
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_longshore"));
    let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
    // One shell runs all, so that the pool has an owner, and says where each command ends.
    let mut script =
        String::from("trap 'kill $(jobs -p) 2> /dev/null; longshore dispatch stop --now' EXIT\n");
    for (number, command) in commands.iter().enumerate() {
        script += &format!("{command}\n[ $? = 0 ] || {{ echo \"command {number} failed\" >&2; exit 1; }}\n");
    }
    script += "trap - EXIT\n";
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]).current_dir(dir.path("")).env("PATH", path).env("HOME", dir.path(""));
    bash.env("LONGSHORE_DISPATCH_DIR", dir.path("pool")).stdin(Stdio::null());
    let run = CliOutput::of(bash.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let failed =
        run.err.lines().find_map(|line| line.strip_prefix("command ")?.split(' ').next()?.parse().ok());
    let failed = failed.map(|number: usize| commands[number]);
    assert_eq!((run.code, failed), (0, None), "{}\n{}", run.out, run.err);
}
