//! One task of a job file: its schema, and its meaning.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use longshore::{ByteSize, HumanDuration, Priority, ResourceAmount};
use serde::{Deserialize, Deserializer};

use crate::args::dispatch_pool::DispatchPoolArg;
use crate::args::script::{ArrayRange, OutputTarget, ScriptArgs, parse_rlimit};
use crate::error::{WithHint, usage};

/// The schema of a task, and of `[defaults]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskSpec {
    id: Option<String>,
    script: Option<PathBuf>,
    args: Option<Vec<String>>,
    after: Option<Vec<String>>,
    #[serde(default, deserialize_with = "typed")]
    array: Option<ArrayRange>,
    each_line: Option<String>,
    max_fails: Option<u64>,
    nthr: Option<u32>,
    pin: Option<bool>,
    mem: Option<ByteSize>,
    time: Option<HumanDuration>,
    priority: Option<String>,
    retries: Option<u32>,
    crash_limit: Option<u32>,
    #[serde(default, deserialize_with = "typed")]
    output: Option<OutputTarget>,
    stderr: Option<PathBuf>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    resources: BTreeMap<String, ResourceAmount>,
    #[serde(default)]
    limits: BTreeMap<String, u64>,
    sentinels: Option<PathBuf>,
    root: Option<PathBuf>,
}

/// Parses a value in the command line's syntax.
fn typed<'de, T: FromStr<Err = String>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(serde::de::Error::custom)
}

impl TaskSpec {
    /// Rejects keys in the defaults that belong to one task.
    pub(super) fn check_defaults(&self) -> anyhow::Result<()> {
        let own = [
            ("id", self.id.is_some()),
            ("script", self.script.is_some()),
            ("after", self.after.is_some()),
            ("array", self.array.is_some()),
            ("each_line", self.each_line.is_some()),
        ];
        match own.iter().find(|(_, written)| *written) {
            Some((key, _)) => Err(usage(format!("`{key}` belongs to one task"))),
            None => Ok(()),
        }
    }

    /// Merges the defaults into a task; the task's own values take precedence.
    pub(super) fn with_defaults(self, defaults: &Self) -> anyhow::Result<Self> {
        let both = |own: BTreeMap<String, String>, more: &BTreeMap<String, String>| {
            more.clone().into_iter().chain(own).collect()
        };
        let defaults = defaults.clone();
        Ok(Self {
            args: self.args.or(defaults.args),
            max_fails: self.max_fails.or(defaults.max_fails),
            nthr: self.nthr.or(defaults.nthr),
            pin: self.pin.or(defaults.pin),
            mem: self.mem.or(defaults.mem),
            time: self.time.or(defaults.time),
            priority: self.priority.or(defaults.priority),
            retries: self.retries.or(defaults.retries),
            crash_limit: self.crash_limit.or(defaults.crash_limit),
            output: self.output.or(defaults.output),
            stderr: self.stderr.or(defaults.stderr),
            env: both(self.env, &defaults.env),
            resources: defaults.resources.into_iter().chain(self.resources).collect(),
            limits: defaults.limits.into_iter().chain(self.limits).collect(),
            sentinels: self.sentinels.or(defaults.sentinels),
            root: self.root.or(defaults.root),
            ..self
        })
    }
}

/// A resolved task.
#[derive(Debug)]
pub struct JobTask {
    /// Its name in the file.
    pub id: String,
    /// The names of its dependencies.
    pub after: Vec<String>,
    /// Its priority.
    pub priority: Priority,
    /// The resources it needs beside threads and memory.
    pub resources: BTreeMap<String, u32>,
    /// The other options, as on the command line.
    pub call: ScriptArgs,
}

impl JobTask {
    pub(super) fn new(written: TaskSpec) -> anyhow::Result<Self> {
        let id = written.id.filter(|id| !id.is_empty());
        let id = id.ok_or_else(|| usage("a task has no id"))?;
        let script = written.script.ok_or_else(|| usage(format!("task `{id}` has no script")))?;
        if written.array.is_some() && written.each_line.is_some() {
            return Err(usage(format!("task `{id}` has both `array` and `each_line`")));
        }
        if written.max_fails.is_some() {
            return Err(usage("`max_fails` counts failures of the whole job"))
                .hint("write it above the tasks, beside `name`");
        }
        for (name, most) in &written.limits {
            parse_rlimit(&format!("{name}={most}")).map_err(usage)?;
        }
        let at_least_one = |key: &str, given: Option<u32>| match given {
            Some(0) => Err(usage(format!("`{key}` of task `{id}` must be at least 1"))),
            given => Ok(given),
        };
        let nthr = at_least_one("nthr", written.nthr)?;
        let crash_limit = at_least_one("crash_limit", written.crash_limit)?;
        let priority = match &written.priority {
            Some(text) => super::priority(text)?,
            None => Priority::NORMAL,
        };
        let call = ScriptArgs {
            script: Some(script),
            job: None,
            qsys: None,
            base_option: Vec::new(),
            pool: DispatchPoolArg { dir: None },
            nthr,
            mem: written.mem,
            time: written.time,
            name: Some(id.clone()),
            array: written.array,
            each_line: written.each_line,
            max_fails: None,
            retries: written.retries.unwrap_or(0),
            crash_limit: crash_limit.unwrap_or(5),
            output: written.output.unwrap_or(OutputTarget::Tail),
            stderr: written.stderr,
            env: written.env.iter().map(|(name, value)| format!("{name}={value}")).collect(),
            sentinels: written.sentinels,
            root: written.root,
            limit: written.limits.into_iter().collect(),
            pin: written.pin.unwrap_or(false),
            snapshot: false,
            cwd: None,
            progress: false,
            args: written.args.unwrap_or_default(),
            stdin_text: None,
        };
        let after = written.after.unwrap_or_default();
        let resources = written.resources.iter().map(|(name, amount)| amount.to_weight(name)).collect();
        Ok(Self { id, after, priority, resources, call })
    }
}
