//! A script as it is submitted, and the report of its run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use longshore::{Failure, Outcome, Payload, Policy, RetryPolicy, UnitId};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The unit kind of scripts.
pub const KIND: &str = "script";

/// The text of a script that runs a command: `path` is the program, `args` its arguments.
pub const COMMAND_TEXT: &str = "exec \"$0\" \"$@\"";

/// Maximum length of a script's text. It is one argument of bash, and the kernel limits these to 128 KiB.
pub const MAX_TEXT: usize = 100 * 1024;

/// The default retry policy of scripts. A run that was lost with its worker is repeated. A failed
/// run is not, because it may have done half its work.
pub fn default_policy() -> Policy {
    Policy { retry: RetryPolicy::never(), ..Policy::default() }
}

/// What to run: the payload of a single unit, or the shared definition of an array's units.
///
/// It is sent as JSON and as postcard. Postcard has no field names, so every field is always
/// written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Script {
    /// Absolute path, unless there is a text. Run as `bash PATH`, so the file need not be executable.
    pub path: PathBuf,
    /// Its text when it was submitted, if that is run and not the file: of a snapshot, of a script from
    /// standard input, or of a command ([`COMMAND_TEXT`]). `path` is then `$0`.
    #[serde(default)]
    pub text: Option<String>,
    /// Its arguments.
    #[serde(default)]
    pub args: Vec<String>,
    /// Working directory.
    pub dir: PathBuf,
    /// The script must be inside this folder; `None` skips the check.
    #[serde(default)]
    pub root: Option<PathBuf>,
    /// Name to show.
    #[serde(default)]
    pub name: Option<String>,
    /// Hash of its text when it was submitted: an array is recognised by its name and this.
    #[serde(default)]
    pub content: Option<String>,
    /// Additional environment variables.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Where its output goes.
    #[serde(default)]
    pub output: ScriptOutput,
    /// Run time limit.
    #[serde(default)]
    pub time: Option<Duration>,
    /// Folder for the sentinel files that report the end of the run.
    #[serde(default)]
    pub sentinels: Option<PathBuf>,
    /// Resource limits, as `cpu` → 60.
    #[serde(default)]
    pub limits: BTreeMap<String, u64>,
    /// Run it on processors of its own: as many as its threads.
    #[serde(default)]
    pub pin: bool,
}

impl Script {
    /// The [`content`](Self::content) of a script with this text.
    pub fn content_hash(text: &[u8]) -> String {
        Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Where the output of a script goes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptOutput {
    /// It is discarded.
    Nothing,
    /// The end of the output is stored with the result.
    #[default]
    Tail,
    /// Files; `%u` is the unit's id, `%i` its array index, `%a` the attempt.
    Files {
        /// File for standard output.
        stdout: PathBuf,
        /// File for standard error; with `None`, both go to `stdout`.
        stderr: Option<PathBuf>,
    },
    /// One data file per worker in this folder, with an index.
    Stream(PathBuf),
}

/// Replaces `%u`, `%i` and `%a` in the path of an output file.
pub fn expand_placeholders(path: &Path, unit: UnitId, index: Option<u64>, attempt: u32) -> PathBuf {
    let text = path.to_string_lossy();
    if !text.contains('%') {
        return path.to_path_buf();
    }
    let text = text.replace("%u", &unit.to_string()).replace("%i", &index.unwrap_or(0).to_string());
    text.replace("%a", &attempt.to_string()).into()
}

/// Payload of an array's unit: its index, its line, and in a job the position of its task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayItem(
    pub u64,
    #[serde(default)] pub Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")] pub Option<u32>,
);

/// What the units of a batch share: its definition in the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum BatchDefinition {
    /// The tasks of a job, in the order of their dependencies.
    Job {
        /// The tasks.
        tasks: Vec<StoredTask>,
    },
    /// The script of an array.
    Array(Box<Script>),
}

/// A task of a job, as the batch's definition has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredTask {
    /// Its name in the job.
    pub id: String,
    /// Number of its units. Their ids follow each other, task by task.
    pub units: u64,
    /// The script of an array. A single script is the payload of its unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<Box<Script>>,
    /// The indices of an array that is not numbered from 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<(u64, u64)>,
}

impl StoredTask {
    /// The position of an array's index among its units.
    pub fn position(&self, index: u64) -> Option<u64> {
        if self.ranges.is_empty() {
            return Some(index).filter(|index| *index < self.units);
        }
        let mut before = 0;
        for (first, last) in &self.ranges {
            if (*first..=*last).contains(&index) {
                return Some(before + index - first);
            }
            before += last - first + 1;
        }
        None
    }
}

impl BatchDefinition {
    /// The script of an array's unit.
    pub fn script(&self, item: &ArrayItem) -> Option<&Script> {
        match self {
            Self::Array(script) => Some(script),
            Self::Job { tasks } => tasks.get(item.2? as usize)?.script.as_deref(),
        }
    }

    /// The task of a job's unit: of an array by its item, of a single script by its name.
    pub fn task(&self, item: Option<&ArrayItem>) -> Option<&StoredTask> {
        let Self::Job { tasks } = self else { return None };
        tasks.get(item?.2? as usize)
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEnd {
    /// The script exited with this code.
    Exited(i32),
    /// A signal ended the script.
    Signalled(i32),
    /// The script exceeded its time limit.
    TimedOut,
    /// The run was cancelled.
    Cancelled,
    /// The worker had to stop.
    Interrupted,
    /// The script could not be started, for a permanent reason.
    Refused(String),
    /// The script could not be started this time.
    #[serde(rename = "hindered")]
    NotStarted(String),
    /// The script ended well, but what it was to leave behind is not there: its output, or its sentinel
    /// files.
    Unrecorded(String),
}

/// A worker's report of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// How the run ended.
    pub end: RunEnd,
    /// Host name of the worker.
    pub host: String,
    /// When the unit was submitted, in microseconds since 1970 like the next two.
    pub queued: i64,
    /// When the run started.
    pub started: i64,
    /// When the run ended.
    pub ended: i64,
    /// CPU time of the script and of all children that it waited for.
    pub cpu: Duration,
    /// Peak memory of the largest process, in bytes. It is at least the worker's own memory,
    /// because a script shares that until it has been executed.
    pub peak_memory: u64,
    /// The end of the output.
    pub tail: String,
    /// Minor errors, such as output or sentinel files that could not be written.
    pub remarks: Vec<String>,
    /// Location of the complete output, if it was stored.
    pub output: Option<OutputLocation>,
}

/// Location of a run's output in a worker's data file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputLocation {
    /// The data file.
    pub file: PathBuf,
    /// The first index entry of the output.
    pub entry: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl RunReport {
    /// The unit's outcome.
    pub fn outcome(&self) -> Outcome {
        let failure = |code: String, reason: String| {
            let host = &self.host;
            let tail = self.tail.trim_end();
            let output_note = if tail.is_empty() { String::new() } else { format!("; output: {tail}") };
            Failure::new(code, format!("{reason} on {host}{output_note}"))
        };
        let retry = |failure| Outcome::Retry { failure, after: None };
        match &self.end {
            RunEnd::Exited(0) => Outcome::Done(Payload::json(self).ok()),
            RunEnd::Exited(code) => {
                retry(failure(format!("exit-{code}"), format!("it ended with exit code {code}")))
            }
            RunEnd::Signalled(signal) => {
                retry(failure(format!("signal-{signal}"), format!("signal {signal} ended it")))
            }
            RunEnd::TimedOut => retry(failure("timeout".into(), "it exceeded its time limit".into())),
            RunEnd::Cancelled => Outcome::Cancel,
            RunEnd::Interrupted => Outcome::Interrupted,
            RunEnd::Refused(reason) => Outcome::Fail(failure("refused".into(), reason.clone())),
            RunEnd::NotStarted(reason) => retry(failure("not-started".into(), reason.clone())),
            RunEnd::Unrecorded(reason) => retry(failure("unrecorded".into(), reason.clone())),
        }
    }
}
