//! The benchmark itself works: everything once and small. How fast it is, nobody asks here.

use std::process::Command;

#[test]
fn everything_runs_once() {
    let run = Command::new(env!("CARGO_BIN_EXE_bench-mail")).arg("--once").output();
    let run = run.expect("it starts");
    let said = [run.stdout, run.stderr].concat();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&said));
}
