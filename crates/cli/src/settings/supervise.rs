//! Resolves `[supervise]`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use longshore::{ByteSize, HumanDuration, QueueName};

use crate::args::GlobalArgs;
use crate::config::{Config, SupervisedConfig, WorkerConfig};
use crate::env;
use crate::error::{WithHint, usage};
use crate::supervise::{RestartRules, SectionSpec};

/// Processes that `supervise` runs.
#[derive(Debug, Clone)]
pub struct SuperviseSettings {
    /// The file with its PID, locked against a second supervisor.
    pub pid_file: PathBuf,
    /// Whether unfinished batches are resumed at the start.
    pub recover: bool,
    /// When processes are started, restarted and given up.
    pub rules: RestartRules,
    /// A file with the installed version in its first line.
    pub version_file: Option<PathBuf>,
    /// How long that line must stay the same.
    pub settle: Duration,
    /// The sections.
    pub workers: Vec<SupervisedSection>,
    /// Flags of this process that also apply to its children, as variables: a store's URL may hold
    /// a password, and arguments are readable by every user.
    pub inherited_env: Vec<(String, String)>,
}

impl SuperviseSettings {
    /// Reads the file again. Existing sections keep their positions; removed ones stay with a size
    /// of zero.
    pub fn reload(&self, typed: &GlobalArgs) -> anyhow::Result<Self> {
        let mut now = super::Settings::resolve(typed)?.supervise;
        if now.workers.is_empty() {
            return Err(usage("there would be no workers to supervise"));
        }
        let mut workers = Vec::with_capacity(self.workers.len());
        for before in &self.workers {
            let at = now.workers.iter().position(|worker| worker.spec.name == before.spec.name);
            workers.push(match at {
                Some(at) => now.workers.remove(at),
                None => SupervisedSection { spec: before.spec.emptied(), ..before.clone() },
            });
        }
        workers.append(&mut now.workers);
        Ok(Self { workers, ..now })
    }

    /// The differences to `now` as text: a line for each section.
    pub fn changes(&self, now: &Self) -> Vec<String> {
        let before = self.workers.iter().map(Some).chain(std::iter::repeat(None));
        let lines = now.workers.iter().zip(before).filter_map(|(now, before)| {
            let is_gone = now.spec.max == 0;
            let was_gone = before.is_none_or(|before| before.spec.max == 0);
            let what = match (was_gone, is_gone) {
                (true, true) => return None,
                (true, false) => "is new",
                (false, true) => "is removed",
                (false, false) if before == Some(now) => return None,
                (false, false) => "has changed",
            };
            Some(format!("section {} {what}", now.spec.name))
        });
        lines.collect()
    }
}

/// A section: identical worker processes.
#[derive(Debug, Clone, PartialEq)]
pub struct SupervisedSection {
    /// Their number.
    pub spec: SectionSpec,
    /// The command.
    pub run: SupervisedCommand,
    /// The working directory.
    pub dir: PathBuf,
    /// Variables set in the environment.
    pub env: BTreeMap<String, String>,
    /// A process that uses more bytes of memory is replaced.
    pub max_memory: Option<u64>,
    /// The load by which it scales, if it is a Longshore worker.
    pub load: Option<ScaleLoad>,
}

/// The load of Longshore workers.
#[derive(Debug, Clone, PartialEq)]
pub struct ScaleLoad {
    /// The queues that they claim from; empty means all.
    pub queues: Vec<QueueName>,
    /// Units that each of them runs concurrently.
    pub slots: u32,
}

impl SupervisedSection {
    /// Whether the number of processes follows the load.
    pub fn can_scale(&self) -> bool {
        self.load.is_some() && self.spec.min < self.spec.max
    }
}

/// The command of a process.
#[derive(Debug, Clone, PartialEq)]
pub enum SupervisedCommand {
    /// A program and its arguments.
    Command(Vec<String>),
    /// `longshore` with these arguments.
    Longshore(Vec<String>),
}

impl SupervisedCommand {
    /// The drain limit in the arguments of a `longshore` command.
    fn drain_timeout(&self) -> Option<Duration> {
        const FLAG: &str = "--drain-timeout";
        let Self::Longshore(words) = self else { return None };
        let at = words.iter().position(|word| word.starts_with(FLAG))?;
        let inline = words[at].strip_prefix(FLAG)?.strip_prefix('=');
        let value = inline.or_else(|| words.get(at + 1).map(String::as_str))?;
        value.parse::<HumanDuration>().ok().map(|limit| limit.0)
    }
}

/// Resolves `[supervise]`.
pub fn supervise(typed: &GlobalArgs, config: &Config) -> anyhow::Result<SuperviseSettings> {
    let written = &config.supervise;
    if written.start_failures == 0 {
        return Err(usage("`supervise.start_failures` is 0"))
            .hint("with 1 a section is given up at its first failure to start");
    }
    let rules = RestartRules {
        min_uptime: written.min_uptime,
        start_failures: written.start_failures,
        start_window: written.start_window,
        restart_base: written.restart_base,
        restart_max: written.restart_max,
        // A Longshore worker limits its own drain; it is only killed if it fails to.
        drain_timeout: config.worker.drain_timeout + DRAIN_SLACK,
    };
    let workers = written.workers.iter().map(|(name, written)| worker(name, written, config));
    Ok(SuperviseSettings {
        pid_file: written.pid_file.clone(),
        recover: written.recover,
        rules,
        version_file: written.version_file.clone(),
        settle: written.settle,
        workers: workers.collect::<anyhow::Result<_>>()?,
        inherited_env: inherited_env(typed),
    })
}

fn inherited_env(typed: &GlobalArgs) -> Vec<(String, String)> {
    let text = |path: &PathBuf| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        path.to_string_lossy().into_owned()
    };
    let config = typed.config.clone().or_else(|| std::env::var_os(env::CONFIG).map(PathBuf::from));
    let format = typed.log_format.and_then(|format| format.to_possible_value());
    let typed = [
        (env::CONFIG, config.as_ref().map(text)),
        (env::STORE, typed.store.clone()),
        (env::TENANT, typed.tenant.as_ref().map(ToString::to_string)),
        (env::LOG, typed.log_level.clone()),
        (env::LOG_FORMAT, format.map(|format| format.get_name().to_owned())),
        (env::LOG_DIR, typed.log_dir.as_ref().map(text)),
    ];
    typed.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// Time that a worker may need after its drain to record outcomes.
const DRAIN_SLACK: Duration = Duration::from_secs(10);

fn worker(name: &str, written: &SupervisedConfig, config: &Config) -> anyhow::Result<SupervisedSection> {
    if name.is_empty() || name.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(usage(format!("`supervise.workers` has a section called `{name}`")))
            .hint("its lines of output begin with the name: use a word");
    }
    let run = run(name, written)?;
    let drain = run.drain_timeout().or(Some(written.drain_timeout).filter(|limit| !limit.is_zero()));
    Ok(SupervisedSection {
        spec: SectionSpec { drain_timeout: drain.map(|limit| limit + DRAIN_SLACK), ..spec(name, written)? },
        run,
        dir: written.dir.clone(),
        env: written.env.clone(),
        max_memory: written.max_memory.map(|ByteSize(bytes)| bytes),
        load: written.command.is_empty().then(|| load(written, &config.worker)),
    })
}

fn load(written: &SupervisedConfig, defaults: &WorkerConfig) -> ScaleLoad {
    let queues = if written.queues.is_empty() { &defaults.queues } else { &written.queues };
    ScaleLoad {
        queues: queues.clone(),
        slots: if written.slots == 0 { defaults.slots } else { written.slots },
    }
}

fn spec(name: &str, written: &SupervisedConfig) -> anyhow::Result<SectionSpec> {
    let SupervisedConfig { count, min, max, max_age, .. } = *written;
    let begin = if count == 0 { min.max(1) } else { count };
    let max = if max == 0 { begin } else { max };
    if !(min..=max).contains(&begin) {
        let key = format!("supervise.workers.{name}.count");
        let problem = format!("`{key}` begins with {begin}, not within {min} and {max}");
        return Err(usage(problem)).hint("write `count`, or `min` and `max`, or `count` between them");
    }
    let max_age = Some(max_age).filter(|age| !age.is_zero());
    Ok(SectionSpec { name: name.to_owned(), begin, min, max, max_age, drain_timeout: None })
}

fn run(name: &str, written: &SupervisedConfig) -> anyhow::Result<SupervisedCommand> {
    let key = |key: &str| format!("supervise.workers.{name}.{key}");
    let SupervisedConfig { command, kinds, queues, slots, max_units, drain_timeout, .. } = written;
    let of_ours = [
        ("kinds", !kinds.is_empty()),
        ("queues", !queues.is_empty()),
        ("slots", *slots > 0),
        ("max_units", *max_units > 0),
    ];
    match (command.split_first(), of_ours.iter().find(|(_, is_set)| *is_set)) {
        (None, _) => {}
        (Some(_), Some((own, _))) => {
            let problem = format!("`{}` and `{}` are both set", key("command"), key(own));
            return Err(usage(problem)).hint(format!(
                "`{own}` is for `longshore worker`, which is what is run without a `command`"
            ));
        }
        (Some((program, _)), None) if program.trim().is_empty() => {
            return Err(usage(format!("`{}` names no program", key("command"))))
                .hint("as command = [\"longshore\", \"ai\", \"worker\"]");
        }
        // `longshore` on the PATH may be another version.
        (Some((program, rest)), None) if program == "longshore" => {
            return Ok(SupervisedCommand::Longshore(rest.to_vec()));
        }
        (Some(_), None) => return Ok(SupervisedCommand::Command(command.clone())),
    }
    let mut words = vec!["worker".to_owned()];
    words.extend(kinds.iter().flat_map(|kind| ["--kind".to_owned(), kind.to_string()]));
    words.extend(queues.iter().flat_map(|queue| ["--queue".to_owned(), queue.to_string()]));
    if !drain_timeout.is_zero() {
        words.extend(["--drain-timeout".to_owned(), format!("{}ms", drain_timeout.as_millis())]);
    }
    for (flag, number) in [("--slots", u64::from(*slots)), ("--max-units", *max_units)] {
        if number > 0 {
            words.extend([flag.to_owned(), number.to_string()]);
        }
    }
    Ok(SupervisedCommand::Longshore(words))
}
