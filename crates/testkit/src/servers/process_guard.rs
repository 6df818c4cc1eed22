//! Guards a server of several processes: a script starts them, executes commands from its input, and
//! kills and removes everything when its input ends: on drop, or when the test process ends.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use tempfile::TempDir;

/// Functions for all guard scripts. `clean` finds the processes of a server by its folder, which is their
/// working directory or the value of an inherited environment variable.
const SCRIPT_FUNCTIONS: &str = r#"folder=$1; shift
export PATH="$PATH:/usr/sbin:/sbin"
left() {
  find /proc -maxdepth 2 -name cwd -lname "$folder/*" -printf '%h\n'
  grep -lsF "=$folder" /proc/[0-9]*/environ
}
clean() {
  cd /
  kill -9 $(jobs -p)
  looks=0
  while [ "$looks" -lt 2 ]; do
    looks=$((looks + 1))
    for found in $(left); do
      found=${found#/proc/}
      kill -9 "${found%%/*}" && looks=0
    done
  done
  wait
  rm -rf "$folder"
}
trap '' INT TERM HUP
trap 'clean >/dev/null 2>&1' EXIT
within() { # retries for a minute
  local looks=0
  until "$@" >/dev/null 2>&1; do
    looks=$((looks + 1))
    [ "$looks" -lt 600 ] || { tail -n 40 "$folder/log/main" >&2; exit 1; }
    sleep 0.1
  done
}
ready() { # ready FUNCTION: calls it for each command
  echo ready
  while read -r order; do "$1" $order 2>>"$folder/log/orders"; echo done; done
}
"#;

/// The guard of a running server.
#[derive(Debug)]
pub(super) struct ProcessGuard {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    folder: TempDir,
}

impl ProcessGuard {
    /// Makes a temporary folder for a server, with a path that every server accepts.
    pub(super) fn folder(name: &str) -> io::Result<TempDir> {
        let folder = tempfile::Builder::new().prefix(&format!("longshore-{name}-")).tempdir()?;
        std::fs::create_dir(folder.path().join("log"))?;
        Ok(folder)
    }

    /// Runs a script that ends with `ready`, and waits until it prints that.
    pub(super) fn start(folder: TempDir, script: &str, args: &[String]) -> io::Result<Self> {
        let mut command = Command::new("/bin/bash");
        let script = format!("{SCRIPT_FUNCTIONS}{script}");
        command.args(["-c", &script, "keep"]).arg(folder.path()).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let missing = || io::Error::other("the guard script has no pipe");
        let input = child.stdin.take().ok_or_else(missing)?;
        let output = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        let mut guard = Self { child, input: Some(input), output, folder };
        guard.expect_line("ready")?;
        Ok(guard)
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Sends a command to the script and waits until it is done.
    pub(super) fn send(&mut self, command: &str) -> io::Result<()> {
        let input = self.input.as_mut().ok_or_else(|| io::Error::other("the server is stopped"))?;
        writeln!(input, "{command}")?;
        self.expect_line("done")
    }

    fn expect_line(&mut self, expected: &str) -> io::Result<()> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line.trim() == expected {
            return Ok(());
        }
        drop(self.input.take());
        let mut log = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut log)?;
        }
        Err(io::Error::other(format!("the server did not start: {line}{log}")))
    }
}

impl Drop for ProcessGuard {
    fn drop(&mut self) {
        drop(self.input.take());
        // An error of wait cannot be handled.
        let _ = self.child.wait();
    }
}
