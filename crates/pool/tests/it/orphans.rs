//! A killed program leaves no process behind, whatever its workers are.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::helpers::{eventually, example, fixture, runs};

#[tokio::test]
async fn no_process_outlives_a_program_that_was_killed() {
    for how in ["plain", "hooked"] {
        let mut parent = Command::new(example("pool_parent"))
            .arg(how)
            .arg("python3")
            .arg(fixture("worker.py"))
            // Ignores the end of its input, and SIGTERM.
            .args(["json", "stubborn"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(parent.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pids: Vec<u32> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
        assert_eq!(pids.len(), 3, "{line:?}");
        assert!(pids.iter().all(|pid| runs(*pid)), "{how}");
        parent.kill().unwrap();
        parent.wait().unwrap();
        eventually("worker, grandchild and daemon are gone", || !pids.iter().any(|pid| runs(*pid))).await;
    }
}
