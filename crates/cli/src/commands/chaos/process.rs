//! The storm's child processes: this same binary as worker and as submitter.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::handler::KIND;
use super::run_log;
use crate::env;
use crate::settings::Settings;

/// The batch's name.
pub const BATCH: &str = "chaos";
/// How many units a submitter sends at once: few, so that a kill finds it midway.
const CHUNK: &str = "50";

/// A child that is killed with its guard.
pub struct Process(Child);

impl Process {
    /// A worker.
    pub fn worker(dir: &Path, settings: &Settings, slots: u32) -> io::Result<Self> {
        let mut command = longshore(dir, settings)?;
        let log =
            std::fs::File::options().create(true).append(true).open(dir.join("workers.log"))?;
        command.args(["worker", "--ttl", "2s", "--slots", &slots.to_string(), "--chaos-log"]);
        command.arg(run_log(dir)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.spawn().map(Self)
    }

    /// A submitter that reads the batch's lines from its stdin.
    pub fn submitter(dir: &Path, settings: &Settings) -> io::Result<Self> {
        let mut command = longshore(dir, settings)?;
        command.args(["submit", KIND, "--quiet", "--lines", "-", "--batch", BATCH]);
        command.args(["--chunk", CHUNK]);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        command.spawn().map(Self)
    }

    /// Writes to its stdin. False if it no longer reads.
    pub fn feed(&mut self, text: &[u8]) -> bool {
        self.0.stdin.as_mut().is_some_and(|pipe| pipe.write_all(text).is_ok())
    }

    /// Closes its stdin and waits for its end.
    pub fn finish(mut self) -> io::Result<ExitStatus> {
        self.0.wait()
    }

    /// SIGKILL: it can do nothing about it.
    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// SIGTERM: it drains.
    pub fn terminate(&self) {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().ok().flatten()
    }

    /// How it ended, if it does within `limit`.
    pub async fn ended_within(&mut self, limit: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + limit;
        loop {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            if Instant::now() > until {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// This binary on the storm's store, deaf to the user's own settings. The store is named in the
/// environment: arguments can be read by everybody, and a URL may hold a password.
fn longshore(dir: &Path, settings: &Settings) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    for var in env::VARS {
        command.env_remove(var.name);
    }
    command.env_remove(env::CONFIG).current_dir(dir);
    command.env(env::STORE, settings.store.with_password());
    if let Some(url) = &settings.postgres.listen {
        command.env(env::LISTEN_URL, url.with_password());
    }
    Ok(command)
}
