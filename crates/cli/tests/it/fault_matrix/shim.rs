//! Faults of the system that a library injects into a process (`shim.c`): failing writes, and a wall clock that is set.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::support::{TIMEOUT, TestDir, eventually};

/// `EIO`: the disk fails.
pub const IO_ERROR: i64 = 5;
/// `EROFS`: the kernel mounts a failing disk read-only.
pub const READ_ONLY: i64 = 30;
/// How far the clock is set: an hour ahead, then an hour back.
const JUMP: i64 = 3_600;

/// The library, and the file that switches its faults.
pub struct Shim {
    library: PathBuf,
    files: PathBuf,
    control: (PathBuf, File),
}

impl Shim {
    /// Compiles the library. Writes to files can fail if their path begins with `files`.
    pub fn build(dir: &TestDir, files: &str) -> Self {
        let (library, source) =
            (dir.path("shim.so"), concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fault_matrix/shim.c"));
        let built =
            Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).status();
        assert!(built.unwrap().success(), "the shim does not compile");
        let path = dir.write("shim-control", [0; 16]);
        let control = File::options().write(true).open(&path).unwrap();
        // The library compares the kernel's names of open files.
        let files = dir.path("").canonicalize().unwrap().join(files);
        Self { library, files, control: (path, control) }
    }

    /// Loads the library into a command.
    pub fn load(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library);
        command.env("FAULT_CONTROL", &self.control.0).env("FAULT_FILES", &self.files);
    }

    /// Lets writes fail with this error for a time.
    pub fn fail_writes(&self, error: i64, duration: Duration) {
        self.set(8, error);
        std::thread::sleep(duration);
        self.set(8, 0);
    }

    /// Sets the clock ahead, then back, then right. `progress` must grow under each of them: the work must outlast the
    /// fault, and must not wait for a clock.
    pub fn jump(&self, duration: Duration, mut progress: impl FnMut() -> usize) {
        for offset in [JUMP, -JUMP] {
            self.set(0, offset);
            let before = progress();
            std::thread::sleep(duration / 2);
            // A machine that is busy may need longer.
            eventually(TIMEOUT, || (progress() > before).then_some(()));
        }
        self.set(0, 0);
    }

    /// Sets the clock this many seconds ahead.
    pub fn set_clock(&self, offset: i64) {
        self.set(0, offset);
    }

    fn set(&self, at: u64, value: i64) {
        self.control.1.write_all_at(&value.to_ne_bytes(), at).unwrap();
    }
}
