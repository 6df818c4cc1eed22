//! Runs one command, until the last process it left behind has ended.
//!
//! It decides nothing about the unit: it returns how the command ended.

use std::io::ErrorKind;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore::Verdict;
use longshore_process::{BoundedOutput, OrphanReaper, OutputReader, ProcessGroup};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, Command};

use super::ExecResult;
use super::payload::ExecPayload;
use crate::env;

/// Bytes kept of each end of an output.
const MAX_OUTPUT_END: usize = 512 * 1024;
/// Time between SIGTERM and SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(2);

/// The inputs of a run.
pub struct CommandRun<'a> {
    pub exec: &'a ExecPayload,
    pub dir: &'a Path,
    pub env: Vec<(&'static str, String)>,
    pub reaper: &'a Arc<OrphanReaper>,
}

/// How a command ended.
pub enum CommandEnd {
    /// It exited, or a signal killed it.
    Exited(ExecResult),
    /// Its own timeout expired.
    TimedOut(ExecResult),
    /// Its unit was cancelled, its worker stopped or the unit's time limit was reached.
    Cancelled(ExecResult),
    /// It was not started.
    NotStarted(Verdict),
}

enum RunEnd {
    Exited(Option<ExitStatus>),
    TimedOut,
    Cancelled,
}

impl CommandRun<'_> {
    /// Runs the command. If this future is dropped, the whole process group is killed.
    pub async fn perform(self, cancelled: impl Future<Output = ()>) -> CommandEnd {
        let (mut child, group) = match self.spawn() {
            Ok(started) => started,
            Err(verdict) => return CommandEnd::NotStarted(verdict),
        };
        let began = Instant::now();
        let [mut out, mut err] = [(); 2].map(|()| BoundedOutput::new(MAX_OUTPUT_END, MAX_OUTPUT_END));
        let why = self.drive(&mut child, &group, cancelled, &mut out, &mut err).await;
        group.release();
        let seconds = began.elapsed().as_secs_f64();
        let result = |status: Option<ExitStatus>| result(status, &out, &err, seconds);
        match why {
            RunEnd::Exited(status) => CommandEnd::Exited(result(status)),
            RunEnd::TimedOut => CommandEnd::TimedOut(result(None)),
            RunEnd::Cancelled => CommandEnd::Cancelled(result(None)),
        }
    }

    fn spawn(&self) -> Result<(Child, ProcessGroup), Verdict> {
        let dir = self.exec.cwd.as_ref().map_or(self.dir.to_owned(), |cwd| self.dir.join(cwd));
        if !dir.is_dir() {
            return Err(Verdict::fail("bad-input", format!("no directory {}", dir.display())));
        }
        let stdin = if self.exec.stdin.is_some() { Stdio::piped() } else { Stdio::null() };
        let mut command = Command::new(&self.exec.argv[0]);
        command.args(&self.exec.argv[1..]).current_dir(dir);
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env_clear().envs(inherited()).envs(&self.exec.env).envs(self.env.iter().cloned());
        self.reaper.spawn(&mut command).map_err(|error| not_started(&self.exec.argv[0], &error))
    }

    /// Writes the input and reads the output until the command has ended.
    async fn drive(
        &self,
        child: &mut Child,
        group: &ProcessGroup,
        cancelled: impl Future<Output = ()>,
        out: &mut BoundedOutput,
        err: &mut BoundedOutput,
    ) -> RunEnd {
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
        let ended = async {
            tokio::select! {
                status = child.wait() => RunEnd::Exited(status.ok()),
                () = limit => RunEnd::TimedOut,
                () = cancelled => RunEnd::Cancelled,
            }
        };
        let why = reader.read_during(ended).await;
        if matches!(why, RunEnd::Exited(_)) {
            reader.finish().await;
        } else {
            // Output is still read: a command that is told to stop may print much.
            let stop = async { tokio::join!(group.terminate_and_kill(TERM_GRACE), child.wait()) };
            let _ = reader.read_during(stop).await;
        }
        why
    }
}

async fn feed(pipe: Option<ChildStdin>, text: Option<&str>) {
    if let (Some(mut pipe), Some(text)) = (pipe, text) {
        // A command need not read all its input: a closed pipe is no error.
        let _ = pipe.write_all(text.as_bytes()).await;
    }
}

fn inherited() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| env::exec::INHERITED.contains(&name.as_str()) || name.starts_with("LC_"))
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
