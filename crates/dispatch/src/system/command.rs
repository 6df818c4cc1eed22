//! One command of a system, run to its end: with a time limit, in a process group that dies with it,
//! and without the variables that are ours or an outer job's.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;
use std::pin::pin;
use std::process::Stdio;

use longshore_pool::warden::Group;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::config::{Retries, Site};
use super::error::SystemError;
use super::job::Job;
use super::job_state::JobId;
use super::queue_system::BaseSystem;

/// Variables that belong to an outer job or to us, and what of them a system's commands do need.
const STRIPPED_PREFIXES: [&str; 9] = [
    "LONGSHORE_",
    "SLURM_",
    "SBATCH_",
    "PBS_",
    "SGE_TASK_",
    "LSB_",
    "JOB_ID",
    "JOB_NAME",
    "TASK_ID",
];
const PRESERVED: [&str; 6] =
    ["SLURM_CONF", "PBS_CONF_FILE", "PBS_DEFAULT", "PBS_SERVER", "PBS_EXEC", "LSB_NTRIES"];

/// How many ids are told to one command: a command line has its limits.
pub(super) const MAX_IDS: usize = 1000;

/// What a command left.
#[derive(Debug, Clone)]
pub(super) struct CommandOutput {
    pub(super) code: Option<i32>,
    pub(super) out: String,
    pub(super) err: String,
}

impl CommandOutput {
    pub(super) fn is_ok(&self) -> bool {
        self.code == Some(0)
    }

    /// What it complains about, on one line.
    pub(super) fn message(&self) -> String {
        let text = if self.err.trim().is_empty() { &self.out } else { &self.err };
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let message = lines.collect::<Vec<_>>().join("; ");
        if message.is_empty() { format!("no words, exit code {:?}", self.code) } else { message }
    }
}

/// Who runs the commands of one system.
#[derive(Debug)]
pub(super) struct CommandRunner {
    pub(super) system: BaseSystem,
    pub(super) site: Site,
}

impl CommandRunner {
    pub(super) fn new(system: BaseSystem, site: Site) -> Self {
        Self { system, site }
    }

    /// Runs a command and returns what it left, whatever that is.
    pub(super) async fn run(
        &self,
        program: &str,
        args: &[&str],
    ) -> Result<CommandOutput, SystemError> {
        self.execute(self.command(program, args), program, "").await
    }

    /// The same in a folder, with an input.
    pub(super) async fn run_with_input(
        &self,
        program: &str,
        args: &[&str],
        dir: &Path,
        input: &str,
    ) -> Result<CommandOutput, SystemError> {
        let mut command = self.command(program, args);
        command.current_dir(dir);
        self.execute(command, program, input).await
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(self.locate(program));
        command.args(args);
        remove_job_variables(command.as_std_mut());
        if let Some(path) = self.path() {
            command.env("PATH", path);
        }
        // What systems say is read by us.
        command.env("LC_ALL", "C").envs(&self.site.env);
        command.process_group(0).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn locate(&self, program: &str) -> OsString {
        let own = self.site.bin.as_ref().map(|folder| folder.join(program));
        own.filter(|path| path.is_file()).map_or_else(|| program.into(), Into::into)
    }

    /// Commands call each other.
    fn path(&self) -> Option<OsString> {
        let own = self.site.bin.clone()?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::join_paths(std::iter::once(own).chain(std::env::split_paths(&path))).ok()
    }

    async fn execute(
        &self,
        mut command: Command,
        program: &str,
        input: &str,
    ) -> Result<CommandOutput, SystemError> {
        let mut child = command.spawn().map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                SystemError::CommandNotFound { system: self.system, command: program.to_owned() }
            }
            _ => SystemError::io(format!("{program} does not start"), error),
        })?;
        let group = Group::of(child.id());
        let stdin = child.stdin.take();
        let mut exchange = pin!(async move {
            if let Some(mut stdin) = stdin {
                // A command that does not read its input says why.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
            child.wait_with_output().await
        });
        let output = tokio::time::timeout(self.site.limit, exchange.as_mut()).await;
        let Ok(output) = output else {
            // While nobody has waited for the leader, the group's number is its own.
            drop(group);
            return Err(SystemError::timed_out(self.system, program, self.site.limit));
        };
        // It has been waited for: the number may be another's already, and must not be killed.
        std::mem::forget(group);
        let output = output
            .map_err(|error| SystemError::io(format!("{program} cannot be waited for"), error))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let code = output.status.code();
        Ok(CommandOutput { code, out: text(&output.stdout), err: text(&output.stderr) })
    }

    /// What an answer means that is not the one that was hoped for. `signs` are words by which the
    /// system says that it cannot be reached, or that it may or may not have done what it was asked.
    pub(super) fn failure(&self, output: &CommandOutput, patterns: &ErrorPatterns) -> SystemError {
        let (system, message) = (self.system, output.message());
        let matches = |patterns: &[&str]| patterns.iter().any(|pattern| message.contains(pattern));
        if matches(patterns.unreachable) {
            SystemError::Unreachable { system, message }
        } else if matches(patterns.ambiguous) {
            SystemError::NoAnswer { system, message }
        } else {
            SystemError::Refused { system, message }
        }
    }

    /// Submits a job whose script the program reads and whose id it prints, again while the system is
    /// away.
    pub(super) async fn submit(
        &self,
        (program, args): (&str, &[&str]),
        job: &Job,
        script: &str,
        patterns: &ErrorPatterns,
        id: fn(&str) -> Option<JobId>,
    ) -> Result<JobId, SystemError> {
        job.create_output_folders()?;
        retry(self.site.retries, move || async move {
            let output = self.run_with_input(program, args, &job.dir, script).await?;
            if !output.is_ok() {
                return Err(self.failure(&output, patterns));
            }
            id(&output.out).ok_or_else(|| self.unexpected_output(program, &output.out))
        })
        .await
    }

    /// An answer that makes no sense to us.
    pub(super) fn unexpected_output(&self, command: &str, output: &str) -> SystemError {
        let output = output.trim().chars().take(300).collect();
        SystemError::UnexpectedOutput { system: self.system, command: command.to_owned(), output }
    }
}

/// Words by which a system's troubles are known.
pub(super) struct ErrorPatterns {
    /// It cannot be reached, or is too busy: nothing was done.
    pub(super) unreachable: &'static [&'static str],
    /// The answer was lost: it may have been done.
    pub(super) ambiguous: &'static [&'static str],
}

/// Does something again while it may succeed later, with pauses.
pub(super) async fn retry<T, F>(
    retries: Retries,
    mut attempt: impl FnMut() -> F,
) -> Result<T, SystemError>
where
    F: Future<Output = Result<T, SystemError>>,
{
    let mut attempts = 0;
    loop {
        let error = match attempt().await {
            Err(error) if error.is_retryable() => error,
            answer => return answer,
        };
        attempts += 1;
        let Some(pause) = retries.pause(attempts) else { return Err(error) };
        tracing::warn!(%error, ?pause, "submitted again after a pause");
        tokio::time::sleep(pause).await;
    }
}

/// Takes away what a job must not inherit.
pub(super) fn remove_job_variables(command: &mut std::process::Command) {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in names.filter(|name| !is_inherited(name)) {
        command.env_remove(name);
    }
}

fn is_inherited(name: &str) -> bool {
    PRESERVED.contains(&name) || !STRIPPED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runner(limit: std::time::Duration) -> CommandRunner {
        CommandRunner::new(BaseSystem::Slurm, Site { limit, ..Site::default() })
    }

    #[test]
    fn a_job_inherits_neither_our_secrets_nor_an_outer_job() {
        for name in
            ["LONGSHORE_STORE", "LONGSHORE_WARDEN", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"]
        {
            assert!(!is_inherited(name), "{name}");
        }
        for name in ["PATH", "HOME", "SLURM_CONF", "SGE_ROOT", "LSF_ENVDIR", "SIMPLE_PATH"] {
            assert!(is_inherited(name), "{name}");
        }
    }

    #[tokio::test]
    async fn a_command_that_takes_too_long_is_ended_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let script = "sleep 600 & echo $! > pid; mv pid child; wait";
        let runner = runner(std::time::Duration::from_secs(1));
        let answer = runner.run_with_input("bash", &["-c", script], folder.path(), "").await;
        assert!(matches!(answer, Err(SystemError::NoAnswer { .. })), "{answer:?}");
        let child = std::fs::read_to_string(folder.path().join("child")).unwrap();
        // Killed is not yet gone: the system takes a moment.
        let stat = || std::fs::read_to_string(format!("/proc/{}/stat", child.trim()));
        while stat().is_ok_and(|stat| !stat.contains(") Z ")) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn a_command_that_is_not_there_is_told() {
        let answer = runner(Site::default().limit).run("no-such-command", &[]).await;
        let message = answer.unwrap_err().to_string();
        assert_eq!(message, "slurm is not here: there is no command `no-such-command`");
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_may_succeed_later_is_tried_again() {
        let second = std::time::Duration::from_secs(1);
        let retries = Retries { tries: 3, first_pause: second, max_pause: second };
        let system = BaseSystem::Slurm;
        let message = || "down".to_owned();
        let unreachable = || SystemError::Unreachable { system, message: message() };
        let no_answer = || SystemError::NoAnswer { system, message: message() };
        let kinds: [(&dyn Fn() -> SystemError, u32); 2] = [(&unreachable, 3), (&no_answer, 1)];
        for (error, wanted) in kinds {
            let mut tries = 0;
            let answer: Result<(), _> = retry(retries, || {
                tries += 1;
                std::future::ready(Err(error()))
            })
            .await;
            assert!(answer.is_err());
            assert_eq!(tries, wanted);
        }
    }
}
