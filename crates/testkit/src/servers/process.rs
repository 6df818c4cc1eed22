//! A server's process: ready when it says so, gone with whoever started it.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::account;

/// Stops the server once its own input ends: when we say so, or when we are no more. A line of
/// input is another signal to stop it with.
const WATCH: &str = r#"signal=$1; shift; "$@" </dev/null & server=$!
exec 2>/dev/null; read -r other; kill "-${other:-$signal}" "$server"; wait "$server""#;
/// Lines of its log that are told when it does not start.
const TAIL: usize = 30;
/// A server that has said nothing for so long will not start.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running server.
#[derive(Debug)]
pub(super) struct Process {
    watch: Child,
    input: Option<ChildStdin>,
    log: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts a server and waits until a line of its log has the words in `ready`. `signal` is what
    /// stops it without waiting for its clients.
    pub(super) fn start<S: AsRef<OsStr>>(
        program: &Path,
        args: &[S],
        folder: &Path,
        ready: &'static str,
        signal: &str,
    ) -> io::Result<Self> {
        let mut command = account::command(Path::new("/bin/sh"), folder);
        command.args(["-c", WATCH, "watch", signal]).arg(program).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut watch = command.spawn()?;
        let input = watch.stdin.take();
        let (says, heard) = channel();
        let log =
            watch.stderr.take().map(|log| std::thread::spawn(move || listen(log, ready, &says)));
        let process = Self { watch, input, log };
        await_ready(&heard)?;
        Ok(process)
    }

    /// Stops the server with another signal than the usual one and waits for its end.
    pub(super) fn stop_with(mut self, signal: &str) -> io::Result<()> {
        let input = self.input.as_mut().ok_or_else(|| io::Error::other("it is stopped"))?;
        writeln!(input, "{signal}")
    }

    /// Stops the server and waits for its end.
    pub(super) fn stop(&mut self) {
        drop(self.input.take());
        // Nothing can be done about a process that cannot be waited for.
        let _ = self.watch.wait();
        if let Some(log) = self.log.take() {
            let _ = log.join();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What a log has come to.
enum Heard {
    Ready,
    /// It ended; its last lines.
    End(String),
}

/// Reads a log to its end, so that its writer never waits.
fn listen(log: ChildStderr, ready: &str, says: &Sender<Heard>) {
    let mut tail = VecDeque::new();
    for line in BufReader::new(log).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned();
        if line.contains(ready) {
            // Whoever waited may have given up.
            let _ = says.send(Heard::Ready);
        }
        tail.push_back(line);
        if tail.len() > TAIL {
            tail.pop_front();
        }
    }
    let _ = says.send(Heard::End(tail.make_contiguous().join("\n")));
}

fn await_ready(heard: &Receiver<Heard>) -> io::Result<()> {
    match heard.recv_timeout(PATIENCE) {
        Ok(Heard::Ready) => Ok(()),
        Ok(Heard::End(log)) if log.contains("Address already in use") => {
            Err(io::Error::new(io::ErrorKind::AddrInUse, log))
        }
        Ok(Heard::End(log)) => Err(io::Error::other(format!("the server did not start:\n{log}"))),
        Err(_) => Err(io::Error::other("the server is not ready after two minutes")),
    }
}
