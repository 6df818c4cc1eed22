//! Runs a command of a base system: with a timeout, in its own process group, and without
//! environment variables of Longshore or of an outer job.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;
use std::pin::pin;
use std::process::Stdio;

use longshore_process::ProcessGroup;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::config::{RetryBackoff, SystemConfig};
use super::error::SystemError;
use super::job::Job;
use super::job_state::JobId;
use super::queue_system::BaseSystem;

/// Prefixes of variables that belong to Longshore or to an outer job, and the variables among them
/// that the system's commands need.
const STRIPPED_PREFIXES: [&str; 9] =
    ["LONGSHORE_", "SLURM_", "SBATCH_", "PBS_", "SGE_TASK_", "LSB_", "JOB_ID", "JOB_NAME", "TASK_ID"];
const PRESERVED: [&str; 6] =
    ["SLURM_CONF", "PBS_CONF_FILE", "PBS_DEFAULT", "PBS_SERVER", "PBS_EXEC", "LSB_NTRIES"];

/// Maximum number of ids per command line.
pub(super) const MAX_IDS: usize = 1000;

/// Result of a command.
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

    /// Its error message on one line.
    pub(super) fn message(&self) -> String {
        let text = if self.err.trim().is_empty() { &self.out } else { &self.err };
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let message = lines.collect::<Vec<_>>().join("; ");
        if message.is_empty() { format!("no message, exit code {:?}", self.code) } else { message }
    }
}

/// Runs the commands of one base system.
#[derive(Debug)]
pub(super) struct CommandRunner {
    pub(super) system: BaseSystem,
    pub(super) site: SystemConfig,
}

impl CommandRunner {
    pub(super) fn new(system: BaseSystem, site: SystemConfig) -> Self {
        Self { system, site }
    }

    /// Runs a command and returns its result, whether it succeeded or not.
    pub(super) async fn run(&self, program: &str, args: &[&str]) -> Result<CommandOutput, SystemError> {
        self.execute(self.command(program, args), program, "").await
    }

    /// Runs a command in a folder, with an input.
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
        // The output is parsed, so it must not be localised.
        command.env("LC_ALL", "C").envs(&self.site.env);
        command.kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn locate(&self, program: &str) -> OsString {
        let own = self.site.bin.as_ref().map(|folder| folder.join(program));
        own.filter(|path| path.is_file()).map_or_else(|| program.into(), Into::into)
    }

    /// The system's commands call each other, so its folder is first in `PATH`.
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
        let spawned = ProcessGroup::spawn(&mut command);
        let (mut child, group) = spawned.map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                SystemError::CommandNotFound { system: self.system, command: program.to_owned() }
            }
            _ => SystemError::io(format!("cannot start {program}"), error),
        })?;
        let stdin = child.stdin.take();
        let mut exchange = pin!(async move {
            if let Some(mut stdin) = stdin {
                // A command that does not read its input reports the reason itself.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
            child.wait_with_output().await
        });
        let output = tokio::time::timeout(self.site.command_timeout, exchange.as_mut()).await;
        let Ok(output) = output else {
            // The leader has not been waited for, so its process group id is still valid.
            drop(group);
            return Err(SystemError::timed_out(self.system, program, self.site.command_timeout));
        };
        // The leader has been waited for. Its id may be reused, so the group must not be killed.
        group.detach();
        let output = output.map_err(|error| SystemError::io(format!("cannot wait for {program}"), error))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let code = output.status.code();
        Ok(CommandOutput { code, out: text(&output.stdout), err: text(&output.stderr) })
    }

    /// The error of a failed command. `patterns` tell whether the system is unreachable, or may
    /// have executed the command.
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

    /// Submits a job to a program that reads the script and prints the id. Retries while the system
    /// is unreachable.
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

    /// The error for output that cannot be parsed.
    pub(super) fn unexpected_output(&self, command: &str, output: &str) -> SystemError {
        let output = output.trim().chars().take(300).collect();
        SystemError::UnexpectedOutput { system: self.system, command: command.to_owned(), output }
    }
}

/// Texts in a system's error messages.
pub(super) struct ErrorPatterns {
    /// The system is unreachable or overloaded: the command was not executed.
    pub(super) unreachable: &'static [&'static str],
    /// The answer was lost: the command may have been executed.
    pub(super) ambiguous: &'static [&'static str],
}

/// Retries retryable errors, with pauses.
pub(super) async fn retry<T, F>(
    retries: RetryBackoff,
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
        tracing::warn!(%error, ?pause, "submission failed; retrying after a pause");
        tokio::time::sleep(pause).await;
    }
}

/// Removes environment variables that a job must not inherit.
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
        CommandRunner::new(
            BaseSystem::Slurm,
            SystemConfig { command_timeout: limit, ..SystemConfig::default() },
        )
    }

    #[test]
    fn a_job_inherits_neither_our_secrets_nor_an_outer_job() {
        for name in ["LONGSHORE_STORE", "LONGSHORE_REAPER", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"] {
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
        // A killed process takes a moment to disappear.
        let stat = || std::fs::read_to_string(format!("/proc/{}/stat", child.trim()));
        while stat().is_ok_and(|stat| !stat.contains(") Z ")) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn a_command_that_is_not_there_is_told() {
        let answer = runner(SystemConfig::default().command_timeout).run("no-such-command", &[]).await;
        let message = answer.unwrap_err().to_string();
        assert_eq!(message, "slurm is not installed: there is no command `no-such-command`");
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_may_succeed_later_is_tried_again() {
        let second = std::time::Duration::from_secs(1);
        let retries = RetryBackoff { max_attempts: 3, first_pause: second, max_pause: second };
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
