//! A script as it is submitted, and how its run ended.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use longshore::{Failure, Outcome, Payload, Policy, RetryPolicy};
use serde::{Deserialize, Serialize};

/// The kind of units that are scripts.
pub const KIND: &str = "script";

/// How runs of scripts are repeated unless their submitter says otherwise: one that was lost with its
/// worker is, one that failed is not, since it may have done half its work.
pub fn policy() -> Policy {
    Policy { retry: RetryPolicy::never(), ..Policy::default() }
}

/// What is run. The payload of a lone unit, or what the units of an array have in common.
///
/// Travels in JSON and in a form without names, so every field is always written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Script {
    /// The script: absolute. Run as `bash PATH`, so it need not be executable.
    pub path: PathBuf,
    /// Its arguments.
    #[serde(default)]
    pub args: Vec<String>,
    /// Where it runs.
    pub dir: PathBuf,
    /// The script must be below this folder; `None` if that is not to be checked.
    #[serde(default)]
    pub root: Option<PathBuf>,
    /// For people.
    #[serde(default)]
    pub name: Option<String>,
    /// Variables that it gets beside those which every script gets.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Where its output goes.
    #[serde(default)]
    pub output: Output,
    /// How long it may run.
    #[serde(default)]
    pub time: Option<Duration>,
    /// Where files are left that say that it has ended.
    #[serde(default)]
    pub sentinels: Option<PathBuf>,
    /// What the system is to hold it to, as `cpu` → 60.
    #[serde(default)]
    pub limits: BTreeMap<String, u64>,
}

/// Where the output of a script goes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// Nowhere.
    Nothing,
    /// The last of it is kept with the unit's end.
    #[default]
    Tail,
    /// Into files; `%u` is the unit's id, `%i` its place in an array, `%a` the attempt.
    Files {
        /// Of standard output.
        stdout: PathBuf,
        /// Of standard error; with `None` both go into one.
        stderr: Option<PathBuf>,
    },
    /// All of it into one file of the worker's in this folder, with an index.
    Stream(PathBuf),
}

/// A unit's own part of an array: its payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item(pub u64, #[serde(default)] pub Option<String>);

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// By itself, with this code.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
    /// It ran longer than it might.
    TimedOut,
    /// It was cancelled.
    Cancelled,
    /// Its worker had to stop.
    Interrupted,
    /// It could not be begun, for a reason that will not go away.
    Refused(String),
    /// It could not be begun this time.
    Hindered(String),
}

/// What a worker tells about a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// How it ended.
    pub end: End,
    /// Where it ran.
    pub host: String,
    /// When it was sent, in microseconds since 1970; so are the next two.
    pub queued: i64,
    /// When it began.
    pub started: i64,
    /// When it ended.
    pub ended: i64,
    /// CPU time of it and of all it waited for.
    pub cpu: Duration,
    /// The most memory one of its processes used, in bytes. No less than its worker uses itself: until
    /// a script has begun, it lives in its worker's memory.
    pub peak_memory: u64,
    /// The last of its output.
    pub tail: String,
    /// What went wrong beside: output that could not be written, files that could not be left.
    pub remarks: Vec<String>,
    /// Where all of its output is, if it was kept.
    pub output: Option<OutputLocation>,
}

/// Where in a worker's file the output of a run is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputLocation {
    /// The file.
    pub file: PathBuf,
    /// The entry of the index that leads to it.
    pub entry: u64,
    /// How many bytes it is in all.
    pub bytes: u64,
}

impl Report {
    /// What a unit's holder says of this end.
    pub fn outcome(&self) -> Outcome {
        let failure = |code: String, reason: String| {
            let host = &self.host;
            let tail = self.tail.trim_end();
            let output_note =
                if tail.is_empty() { String::new() } else { format!("; it said: {tail}") };
            Failure::new(code, format!("{reason} on {host}{output_note}"))
        };
        let retry = |failure| Outcome::Retry { failure, after: None };
        match &self.end {
            End::Exited(0) => Outcome::Done(Payload::json(self).ok()),
            End::Exited(code) => {
                retry(failure(format!("exit-{code}"), format!("it ended with exit code {code}")))
            }
            End::Signalled(signal) => {
                retry(failure(format!("signal-{signal}"), format!("signal {signal} ended it")))
            }
            End::TimedOut => retry(failure("timeout".into(), "it ran longer than it might".into())),
            End::Cancelled => Outcome::Cancel,
            End::Interrupted => Outcome::Interrupted,
            End::Refused(reason) => Outcome::Fail(failure("refused".into(), reason.clone())),
            End::Hindered(reason) => retry(failure("not-started".into(), reason.clone())),
        }
    }
}
