//! Runs one command, until the last process it left behind has ended.
//!
//! It decides nothing about the unit: it returns how the command ended.

use std::io::ErrorKind;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore::Verdict;
use longshore_pool::warden::{Group, Warden};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, Command};

use super::ExecResult;
use super::capture::OutputCapture;
use super::payload::ExecPayload;
use crate::env;

/// How long output is read after the command ended, while processes it left behind still hold the
/// pipe; then they are killed.
const OUTPUT_LINGER: Duration = Duration::from_millis(200);

/// The inputs of a run.
pub struct CommandRun<'a> {
    pub exec: &'a ExecPayload,
    pub dir: &'a Path,
    pub env: Vec<(&'static str, String)>,
    pub warden: &'a Arc<Warden>,
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
        let mut child = match self.spawn() {
            Ok(child) => child,
            Err(verdict) => return CommandEnd::NotStarted(verdict),
        };
        let Some(group) = Group::of(child.id()) else {
            return CommandEnd::NotStarted(Verdict::retry(
                "spawn",
                "the command has no process id",
            ));
        };
        let _watched = self.warden.watch(group.id());
        let began = Instant::now();
        let (mut out, mut err) = (OutputCapture::default(), OutputCapture::default());
        let why = self.drive(&mut child, &group, cancelled, &mut out, &mut err).await;
        let seconds = began.elapsed().as_secs_f64();
        let result = |status: Option<ExitStatus>| result(status, out, err, seconds);
        match why {
            RunEnd::Exited(status) => CommandEnd::Exited(result(status)),
            RunEnd::TimedOut => CommandEnd::TimedOut(result(None)),
            RunEnd::Cancelled => CommandEnd::Cancelled(result(None)),
        }
    }

    fn spawn(&self) -> Result<Child, Verdict> {
        let dir = self.exec.cwd.as_ref().map_or(self.dir.to_owned(), |cwd| self.dir.join(cwd));
        if !dir.is_dir() {
            return Err(Verdict::fail("bad-input", format!("no directory {}", dir.display())));
        }
        let stdin = if self.exec.stdin.is_some() { Stdio::piped() } else { Stdio::null() };
        let mut command = Command::new(&self.exec.argv[0]);
        command.args(&self.exec.argv[1..]).current_dir(dir).process_group(0);
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env_clear().envs(inherited()).envs(&self.exec.env).envs(self.env.iter().cloned());
        command.envs([self.warden.mark()]);
        command.spawn().map_err(|error| not_started(&self.exec.argv[0], &error))
    }

    /// Writes the input and reads the output until the command has ended, then kills what it left
    /// behind.
    async fn drive(
        &self,
        child: &mut Child,
        group: &Group,
        cancelled: impl Future<Output = ()>,
        out: &mut OutputCapture,
        err: &mut OutputCapture,
    ) -> RunEnd {
        let feed = feed(child.stdin.take(), self.exec.stdin.as_deref());
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let listen = async {
            tokio::join!(feed, fill(out, stdout), fill(err, stderr));
        };
        let mut listen = std::pin::pin!(listen);
        let mut heard_all = false;
        let limit = async {
            match self.exec.timeout {
                Some(limit) => tokio::time::sleep(limit.0).await,
                None => std::future::pending().await,
            }
        };
        let (mut limit, mut cancelled) = (std::pin::pin!(limit), std::pin::pin!(cancelled));
        let why = loop {
            tokio::select! {
                () = &mut listen, if !heard_all => heard_all = true,
                status = child.wait() => break RunEnd::Exited(status.ok()),
                () = &mut limit => break RunEnd::TimedOut,
                () = &mut cancelled => break RunEnd::Cancelled,
            }
        };
        if !matches!(why, RunEnd::Exited(_)) {
            // Output is still read: a command that is told to stop may print much.
            tokio::select! {
                ((), _) = async { tokio::join!(group.end(), child.wait()) } => {}
                () = async { (&mut listen).await; std::future::pending().await }, if !heard_all => {}
            }
        } else if !heard_all {
            let _ = tokio::time::timeout(OUTPUT_LINGER, &mut listen).await;
        }
        group.kill();
        why
    }
}

async fn fill(capture: &mut OutputCapture, from: Option<impl tokio::io::AsyncRead + Unpin>) {
    if let Some(from) = from {
        capture.fill(from).await;
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
        .filter(|(name, _)| {
            env::exec::INHERITED.contains(&name.as_str()) || name.starts_with("LC_")
        })
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

fn result(
    status: Option<ExitStatus>,
    out: OutputCapture,
    err: OutputCapture,
    seconds: f64,
) -> ExecResult {
    use std::os::unix::process::ExitStatusExt;
    ExecResult {
        exit_code: status.and_then(|status| status.code()),
        signal: status.and_then(|status| status.signal()),
        truncated: out.is_truncated() || err.is_truncated(),
        stdout: out.into_text(),
        stderr: err.into_text(),
        seconds,
    }
}
