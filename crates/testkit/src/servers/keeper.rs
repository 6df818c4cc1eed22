//! Who keeps a server of several processes: a script that starts them, obeys orders, and takes
//! everything away once its input ends: when we say so, or when we are no more.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use tempfile::TempDir;

/// What all keepers can do. What is left of a server is known by its folder, which is where it works
/// or is the value of a variable that everything inherits.
const ABLE: &str = r#"folder=$1; shift
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
within() { # looks for a minute
  local looks=0
  until "$@" >/dev/null 2>&1; do
    looks=$((looks + 1))
    [ "$looks" -lt 600 ] || { tail -n 40 "$folder/log/main" >&2; exit 1; }
    sleep 0.1
  done
}
ready() { # ready ORDERS: obeys them
  echo ready
  while read -r order; do "$1" $order 2>>"$folder/log/orders"; echo done; done
}
"#;

/// A keeper that has started its server.
#[derive(Debug)]
pub(super) struct Keeper {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    folder: TempDir,
}

impl Keeper {
    /// A folder for a server; its path is one that every server can live with.
    pub(super) fn folder(name: &str) -> io::Result<TempDir> {
        let folder = tempfile::Builder::new().prefix(&format!("longshore-{name}-")).tempdir()?;
        std::fs::create_dir(folder.path().join("log"))?;
        Ok(folder)
    }

    /// Runs a script that ends with `ready`, and waits until it is there.
    pub(super) fn start(folder: TempDir, script: &str, args: &[String]) -> io::Result<Self> {
        let mut command = Command::new("/bin/bash");
        let script = format!("{ABLE}{script}");
        command.args(["-c", &script, "keep"]).arg(folder.path()).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let missing = || io::Error::other("the keeper has no pipe");
        let input = child.stdin.take().ok_or_else(missing)?;
        let output = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        let mut keeper = Self { child, input: Some(input), output, folder };
        keeper.hear("ready")?;
        Ok(keeper)
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Has an order obeyed.
    pub(super) fn order(&mut self, order: &str) -> io::Result<()> {
        let input = self.input.as_mut().ok_or_else(|| io::Error::other("it is stopped"))?;
        writeln!(input, "{order}")?;
        self.hear("done")
    }

    fn hear(&mut self, word: &str) -> io::Result<()> {
        let mut said = String::new();
        self.output.read_line(&mut said)?;
        if said.trim() == word {
            return Ok(());
        }
        drop(self.input.take());
        let mut words = String::new();
        if let Some(mut complaints) = self.child.stderr.take() {
            complaints.read_to_string(&mut words)?;
        }
        Err(io::Error::other(format!("the server did not start: {said}{words}")))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.input.take());
        // Nothing can be done about a process that cannot be waited for.
        let _ = self.child.wait();
    }
}
