//! The child processes of a chaos run: this binary as worker and as submitter.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use longshore_process::{ExitWatcher, Pid, Signal, signal_process};

use super::handler::KIND;
use super::run_log;
use crate::env;
use crate::settings::Settings;

/// The batch's name.
pub const BATCH: &str = "chaos";
/// Units per transaction of a submitter: few, so that a kill hits it midway.
const CHUNK_UNITS: &str = "50";

/// A child that is killed on drop.
pub struct ChildProcess(Child);

impl ChildProcess {
    /// Starts a worker.
    pub fn worker(dir: &Path, settings: &Settings, slots: u32) -> io::Result<Self> {
        let mut command = longshore(dir, settings)?;
        let log = std::fs::File::options().create(true).append(true).open(dir.join("workers.log"))?;
        command.args(["worker", "--ttl", "2s", "--slots", &slots.to_string(), "--chaos-log"]);
        command.arg(run_log(dir)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.spawn().map(Self)
    }

    /// Starts a submitter that reads payloads from its stdin.
    pub fn submitter(dir: &Path, settings: &Settings) -> io::Result<Self> {
        let mut command = longshore(dir, settings)?;
        command.args(["submit", KIND, "--quiet", "--lines", "-", "--batch", BATCH]);
        command.args(["--chunk", CHUNK_UNITS]);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        command.spawn().map(Self)
    }

    /// Writes to its stdin. False if it no longer reads.
    pub fn write_stdin(&mut self, text: &[u8]) -> bool {
        self.0.stdin.as_mut().is_some_and(|pipe| pipe.write_all(text).is_ok())
    }

    /// Closes its stdin and waits for its exit.
    pub fn wait(mut self) -> io::Result<ExitStatus> {
        self.0.wait()
    }

    /// Sends SIGKILL, which cannot be handled.
    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// Sends SIGTERM, which drains.
    pub fn terminate(&self) {
        signal_process(self.0.id(), Signal::TERM);
    }

    /// Stops it with SIGSTOP, as a machine that swaps or a debugger does.
    pub fn pause(&self) {
        signal_process(self.0.id(), Signal::STOP);
    }

    /// Continues a stopped process.
    pub fn resume(&self) {
        signal_process(self.0.id(), Signal::CONT);
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// The exit status, if it has exited.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().ok().flatten()
    }

    /// The exit status, if it exits within `limit`.
    pub async fn wait_within(&mut self, limit: Duration) -> Option<ExitStatus> {
        let exit = ExitWatcher::new(Pid::from_child(&self.0));
        let _ = tokio::time::timeout(limit, exit.wait()).await;
        self.exit_status()
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// This binary on the run's store, without the user's own settings. The store's URL is passed in
/// the environment: arguments are readable by every user of the machine, and a URL may hold a
/// password.
fn longshore(dir: &Path, settings: &Settings) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    for var in env::VARS {
        command.env_remove(var.name);
    }
    command.env_remove(env::CONFIG).current_dir(dir);
    command.env(env::STORE, settings.store.with_password());
    if let Some(url) = &settings.postgres.listen_url {
        command.env(env::LISTEN_URL, url.with_password());
    }
    Ok(command)
}
