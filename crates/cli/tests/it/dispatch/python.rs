//! The Python API, with a real pool.

use std::path::Path;
use std::process::Command;

#[test]
fn the_python_api_submits_waits_and_runs_functions() {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/python");
    let mut command = Command::new("python3");
    command.args(["-m", "unittest", "-v", "tests.test_dispatch"]).current_dir(&sdk);
    command.env("LONGSHORE_PROGRAM", env!("CARGO_BIN_EXE_longshore")).env("PYTHONPATH", &sdk);
    let ran = command.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    let err = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && err.contains("Ran 5 tests") && !err.contains("skipped"), "{err}");
}
