//! Runs one command, until the last process it left behind has ended.
//!
//! It decides nothing about the unit: it returns how the command ended.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore::Verdict;
use longshore_process::{BoundedOutput, ExitWatcher, OrphanReaper, OutputReader, ProcessGroup};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, Command};

use super::payload::ExecPayload;
use super::{ExecResult, OsUser};
use crate::env;

/// Bytes kept of each end of an output.
const MAX_OUTPUT_END: usize = 512 * 1024;
/// Time between SIGTERM and SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(2);

/// What all commands have in common.
pub struct CommandSettings {
    dir: PathBuf,
    inherit: Vec<String>,
    user: Option<OsUser>,
    reaper: Arc<OrphanReaper>,
}

impl CommandSettings {
    /// Commands run in `dir` unless they name another directory.
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, inherit: Vec::new(), user: None, reaper: OrphanReaper::shared() }
    }

    /// Commands also inherit these variables of the worker.
    pub fn inherit(self, inherit: Vec<String>) -> Self {
        Self { inherit, ..self }
    }

    /// Commands run as this user.
    pub fn user(self, user: Option<OsUser>) -> Self {
        Self { user, ..self }
    }

    fn inherited(&self) -> impl Iterator<Item = (String, String)> {
        let is_inherited = |name: &str| {
            let is_known = env::exec::INHERITED.contains(&name) || name.starts_with("LC_");
            is_known || self.inherit.iter().any(|listed| listed == name)
        };
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(move |(name, _)| is_inherited(name))
    }
}

/// The inputs of a run.
pub struct CommandRun<'a> {
    pub exec: &'a ExecPayload,
    pub settings: &'a CommandSettings,
    pub env: Vec<(&'static str, String)>,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandEnd {
    /// It exited, or a signal killed it.
    Exited,
    /// Its own timeout expired.
    TimedOut,
    /// Its unit was cancelled, its worker stopped or the unit's time limit was reached.
    Cancelled,
}

impl CommandRun<'_> {
    /// Runs the command; an error if it cannot be started. If this future is dropped, the whole process group
    /// is killed.
    pub async fn perform(
        self,
        cancelled: impl Future<Output = ()>,
    ) -> Result<(CommandEnd, ExecResult), Verdict> {
        let (mut child, group) = self.spawn()?;
        let began = Instant::now();
        let [mut out, mut err] = [(); 2].map(|()| BoundedOutput::new(MAX_OUTPUT_END, MAX_OUTPUT_END));
        let end = self.drive(&mut child, &group, cancelled, &mut out, &mut err).await;
        // Release before `wait`: reaping frees the PID for reuse.
        group.release();
        let status = child.wait().await.ok();
        Ok((end, result(status, &out, &err, began.elapsed().as_secs_f64())))
    }

    fn spawn(&self) -> Result<(Child, ProcessGroup), Verdict> {
        let own = &self.settings.dir;
        let dir = self.exec.cwd.as_ref().map_or(own.clone(), |cwd| own.join(cwd));
        if !dir.is_dir() {
            // The worker's own path is not the sender's business.
            let named = self.exec.cwd.as_ref().map_or(String::new(), |cwd| format!(" `{}`", cwd.display()));
            return Err(Verdict::fail("bad-input", format!("there is no directory{named}")));
        }
        let stdin = if self.exec.stdin.is_some() { Stdio::piped() } else { Stdio::null() };
        let mut command = Command::new(&self.exec.argv[0]);
        command.args(&self.exec.argv[1..]).current_dir(dir);
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env_clear().envs(self.settings.inherited());
        if let Some(user) = &self.settings.user {
            user.apply_to(&mut command);
        }
        command.envs(&self.exec.env).envs(self.env.iter().cloned());
        self.settings.reaper.spawn(&mut command).map_err(|error| not_started(&self.exec.argv[0], &error))
    }

    /// Writes the input and reads the output until the command has ended. Leaves it to be reaped.
    async fn drive(
        &self,
        child: &mut Child,
        group: &ProcessGroup,
        cancelled: impl Future<Output = ()>,
        out: &mut BoundedOutput,
        err: &mut BoundedOutput,
    ) -> CommandEnd {
        let feed = feed(child.stdin.take(), self.exec.stdin.as_deref());
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let mut reader = OutputReader::new(async {
            tokio::join!(feed, out.read_from(stdout), err.read_from(stderr));
        });
        let limit = async {
            match self.exec.timeout {
                Some(limit) => tokio::time::sleep(limit.0).await,
                None => std::future::pending().await,
            }
        };
        let exit = ExitWatcher::new(group.leader());
        let ended = async {
            tokio::select! {
                () = exit.wait() => CommandEnd::Exited,
                () = limit => CommandEnd::TimedOut,
                () = cancelled => CommandEnd::Cancelled,
            }
        };
        let end = reader.read_during(ended).await;
        if end != CommandEnd::Exited {
            // Output is still read: a command that is told to stop may print much.
            group.terminate();
            let _ = reader.read_during(tokio::time::timeout(TERM_GRACE, exit.wait())).await;
        }
        reader.finish().await;
        end
    }
}

async fn feed(pipe: Option<ChildStdin>, text: Option<&str>) {
    if let (Some(mut pipe), Some(text)) = (pipe, text) {
        // A command need not read all its input: a closed pipe is no error.
        let _ = pipe.write_all(text.as_bytes()).await;
    }
}

fn not_started(program: &str, error: &std::io::Error) -> Verdict {
    match error.kind() {
        ErrorKind::NotFound => Verdict::fail("not-found", format!("`{program}` does not exist")),
        ErrorKind::PermissionDenied => {
            Verdict::fail("not-executable", format!("`{program}` is not executable"))
        }
        ErrorKind::ArgumentListTooLong | ErrorKind::InvalidInput => {
            Verdict::fail("bad-input", format!("cannot start `{program}`: {error}"))
        }
        // Out of processes or memory: retry later.
        _ => Verdict::retry("spawn", format!("cannot start `{program}`: {error}")),
    }
}

fn result(status: Option<ExitStatus>, out: &BoundedOutput, err: &BoundedOutput, seconds: f64) -> ExecResult {
    use std::os::unix::process::ExitStatusExt;
    ExecResult {
        exit_code: status.and_then(|status| status.code()),
        signal: status.and_then(|status| status.signal()),
        truncated: out.left_out() + err.left_out() > 0,
        stdout: out.text(gap),
        stderr: err.text(gap),
        seconds,
    }
}

/// Stands in place of the bytes that were left out.
fn gap(left_out: u64) -> String {
    format!("\n… {left_out} bytes left out …\n")
}
