//! A server process: start waits until its log reports readiness, and it ends with the test process.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::os_user;

/// Stops the server when its own input ends: on drop, or when the test process ends. A line of input names
/// another signal to stop it with.
const WATCH_SCRIPT: &str = r#"signal=$1; shift; "$@" </dev/null & server=$!
exec 2>/dev/null; read -r other; kill "-${other:-$signal}" "$server"; wait "$server""#;
/// Log lines in the error if the server does not start.
const MAX_LOG_TAIL: usize = 30;
/// The server's whole log, in its folder.
const LOG_FILE: &str = "server.log";
/// The limit for the start of a server.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// A running server.
#[derive(Debug)]
pub(super) struct ServerProcess {
    watcher: Child,
    input: Option<ChildStdin>,
    log: Option<JoinHandle<()>>,
}

impl ServerProcess {
    /// Starts a server and waits until a line of its log contains `ready`. `signal` must stop it without
    /// waiting for its clients.
    pub(super) fn start<S: AsRef<OsStr>>(
        program: &Path,
        args: &[S],
        folder: &Path,
        ready: &'static str,
        signal: &str,
    ) -> io::Result<Self> {
        let mut command = os_user::command(Path::new("/bin/sh"), folder);
        command.args(["-c", WATCH_SCRIPT, "watch", signal]).arg(program).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut watcher = command.spawn()?;
        let input = watcher.stdin.take();
        let (event_sender, events) = channel();
        let copy = OpenOptions::new().create(true).append(true).open(folder.join(LOG_FILE))?;
        let log = watcher
            .stderr
            .take()
            .map(|log| std::thread::spawn(move || read_log(log, copy, ready, &event_sender)));
        let process = Self { watcher, input, log };
        await_ready(&events)?;
        Ok(process)
    }

    /// All that servers in this folder have logged.
    pub(super) fn log(folder: &Path) -> io::Result<String> {
        std::fs::read_to_string(folder.join(LOG_FILE))
    }

    /// Stops the server with another signal and waits for its end.
    pub(super) fn stop_with(mut self, signal: &str) -> io::Result<()> {
        let input = self.input.as_mut().ok_or_else(|| io::Error::other("the server is stopped"))?;
        writeln!(input, "{signal}")
    }

    /// Stops the server and waits for its end.
    pub(super) fn stop(&mut self) {
        drop(self.input.take());
        // An error of wait cannot be handled.
        let _ = self.watcher.wait();
        if let Some(log) = self.log.take() {
            let _ = log.join();
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What the log reader reports.
enum LogEvent {
    Ready,
    /// The log ended; its last lines.
    End(String),
}

/// Reads the log to its end, so that the server never blocks on a full pipe.
fn read_log(log: ChildStderr, mut copy: File, ready: &str, event_sender: &Sender<LogEvent>) {
    let mut tail = VecDeque::new();
    for mut line in BufReader::new(log).split(b'\n').map_while(Result::ok) {
        line.push(b'\n');
        // Only tests that read the log need it; the disk of others may be full.
        let _ = copy.write_all(&line);
        line.pop();
        let line = String::from_utf8_lossy(&line).into_owned();
        if line.contains(ready) {
            // The receiver is gone after a timeout.
            let _ = event_sender.send(LogEvent::Ready);
        }
        tail.push_back(line);
        if tail.len() > MAX_LOG_TAIL {
            tail.pop_front();
        }
    }
    let _ = event_sender.send(LogEvent::End(tail.make_contiguous().join("\n")));
}

fn await_ready(events: &Receiver<LogEvent>) -> io::Result<()> {
    match events.recv_timeout(START_TIMEOUT) {
        Ok(LogEvent::Ready) => Ok(()),
        Ok(LogEvent::End(log)) if log.contains("Address already in use") => {
            Err(io::Error::new(io::ErrorKind::AddrInUse, log))
        }
        Ok(LogEvent::End(log)) => Err(io::Error::other(format!("the server did not start:\n{log}"))),
        Err(_) => Err(io::Error::other("the server is not ready after two minutes")),
    }
}
