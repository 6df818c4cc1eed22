//! What `[supervise]` means.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use longshore::QueueName;

use super::{all_named, at_key, length, path, span};
use crate::args::Global;
use crate::config::{self, Config};
use crate::env;
use crate::error::{WithHint, usage};
use crate::size::Size;
use crate::supervise::{Rules, Shape};

/// What `supervise` keeps alive, and how.
#[derive(Debug, Clone)]
pub struct SuperviseSettings {
    /// Where its number is, and the lock that keeps a second one out.
    pub pid_file: PathBuf,
    /// Whether batches that were left unfinished are taken up at the start.
    pub recover: bool,
    /// When it starts, restarts and gives up.
    pub rules: Rules,
    /// A file whose first line changes with what is installed.
    pub version_file: Option<PathBuf>,
    /// How long that line must stay the same.
    pub settle: Duration,
    /// What is kept alive.
    pub workers: Vec<Supervised>,
    /// What was typed for this program and holds for those that it starts, as variables: a store's URL
    /// may hold a password, and arguments are for everybody to see.
    pub handed_down: Vec<(String, String)>,
}

impl SuperviseSettings {
    /// What the file says now. Sections keep the places that they have, those that are gone included:
    /// of these nobody is wanted any more.
    pub fn again(&self, typed: &Global) -> anyhow::Result<Self> {
        let mut now = super::Settings::resolve(typed)?.supervise;
        if now.workers.is_empty() {
            return Err(usage("there would be nothing to keep alive"));
        }
        let mut workers = Vec::with_capacity(self.workers.len());
        for before in &self.workers {
            let at = now.workers.iter().position(|worker| worker.shape.name == before.shape.name);
            workers.push(match at {
                Some(at) => now.workers.remove(at),
                None => Supervised { shape: before.shape.gone(), ..before.clone() },
            });
        }
        workers.append(&mut now.workers);
        Ok(Self { workers, ..now })
    }

    /// What is other than before, in words: a line for each section.
    pub fn changes(&self, now: &Self) -> Vec<String> {
        let before = self.workers.iter().map(Some).chain(std::iter::repeat(None));
        let told = now.workers.iter().zip(before).filter_map(|(now, before)| {
            let is_gone = now.shape.max == 0;
            let was_gone = before.is_none_or(|before| before.shape.max == 0);
            let what = match (was_gone, is_gone) {
                (true, true) => return None,
                (true, false) => "is new",
                (false, true) => "is gone",
                (false, false) if before == Some(now) => return None,
                (false, false) => "has changed",
            };
            Some(format!("section {} {what}", now.shape.name))
        });
        told.collect()
    }
}

/// Worker processes that are alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Supervised {
    /// How many.
    pub shape: Shape,
    /// What is run.
    pub run: Run,
    /// Where.
    pub dir: PathBuf,
    /// What is set in its environment.
    pub env: BTreeMap<String, String>,
    /// A process that uses more bytes of memory is replaced.
    pub max_memory: Option<u64>,
    /// What waits for it, if it is a worker of ours.
    pub load: Option<Load>,
}

/// What waits for workers of ours.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// The queues that they take from; none means all.
    pub queues: Vec<QueueName>,
    /// How many units each of them runs at once.
    pub slots: u32,
}

impl Supervised {
    /// Whether their number follows what waits for them.
    pub fn grows(&self) -> bool {
        self.load.is_some() && self.shape.min < self.shape.max
    }
}

/// What is run.
#[derive(Debug, Clone, PartialEq)]
pub enum Run {
    /// A program and its arguments.
    Command(Vec<String>),
    /// `longshore` with these arguments.
    Longshore(Vec<String>),
}

/// Finds out what is meant.
pub fn supervise(typed: &Global, config: &Config) -> anyhow::Result<SuperviseSettings> {
    let written = &config.supervise;
    let key = |key: &str| format!("supervise.{key}");
    if written.start_failures == 0 {
        return Err(usage(format!("`{}` is 0", key("start_failures"))))
            .hint("1 gives up at the first failure to start");
    }
    let rules = Rules {
        start_time: span(&key("start_time"), &written.start_time)?,
        start_failures: written.start_failures,
        start_window: length(&key("start_window"), &written.start_window)?,
        restart_after: span(&key("restart_after"), &written.restart_after)?,
        restart_most: span(&key("restart_most"), &written.restart_most)?,
        // A worker of ours sees to its own drain; it only has to be ended if it does not.
        drain: span("worker.drain_timeout", &config.worker.drain_timeout)? + SLACK,
    };
    let workers = written.workers.iter().map(|(name, written)| worker(name, written, config));
    Ok(SuperviseSettings {
        pid_file: path(&written.pid_file).unwrap_or_else(|| "longshore-supervise.pid".into()),
        recover: written.recover,
        rules,
        version_file: path(&written.version_file),
        settle: span(&key("settle"), &written.settle)?,
        workers: workers.collect::<anyhow::Result<_>>()?,
        handed_down: handed_down(typed),
    })
}

fn handed_down(typed: &Global) -> Vec<(String, String)> {
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

/// What a worker may need beyond its drain to write down what it did.
const SLACK: Duration = Duration::from_secs(10);

fn worker(name: &str, written: &config::Supervised, config: &Config) -> anyhow::Result<Supervised> {
    let key = |key: &str| format!("supervise.workers.{name}.{key}");
    if name.is_empty() || name.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(usage(format!("`supervise.workers` has a section called `{name}`")))
            .hint("its lines of output begin with the name: use a word");
    }
    let memory = Some(&written.max_memory)
        .filter(|text| !text.is_empty())
        .map(|text| at_key(&key("max_memory"), text.parse().map_err(usage)));
    Ok(Supervised {
        shape: shape(name, written)?,
        run: run(name, written)?,
        dir: path(&written.dir).unwrap_or_else(|| ".".into()),
        env: written.env.clone(),
        max_memory: memory.transpose()?.map(|Size(bytes)| bytes),
        load: match written.command.is_empty() {
            true => Some(load(name, written, config)?),
            false => None,
        },
    })
}

fn load(name: &str, written: &config::Supervised, config: &Config) -> anyhow::Result<Load> {
    let defaults = super::worker(config)?;
    let queues = all_named(&format!("supervise.workers.{name}.queues"), &written.queues)?;
    Ok(Load {
        queues: if queues.is_empty() { defaults.queues } else { queues },
        slots: if written.slots == 0 { defaults.slots } else { written.slots },
    })
}

fn shape(name: &str, written: &config::Supervised) -> anyhow::Result<Shape> {
    let config::Supervised { count, min, max, .. } = *written;
    let key = |key: &str| format!("supervise.workers.{name}.{key}");
    let begin = if count == 0 { min.max(1) } else { count };
    let max = if max == 0 { begin } else { max };
    if !(min..=max).contains(&begin) {
        let problem = format!("`{}` begins with {begin}, not within {min} and {max}", key("count"));
        return Err(usage(problem))
            .hint("write `count`, or `min` and `max`, or `count` between them");
    }
    let max_age = span(&key("max_age"), &written.max_age)?;
    let max_age = Some(max_age).filter(|age| !age.is_zero());
    Ok(Shape { name: name.to_owned(), begin, min, max, max_age })
}

fn run(name: &str, written: &config::Supervised) -> anyhow::Result<Run> {
    let key = |key: &str| format!("supervise.workers.{name}.{key}");
    let config::Supervised { command, kinds, queues, slots, max_units, .. } = written;
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
        // Whatever is first on the PATH may be another version.
        (Some((program, rest)), None) if program == "longshore" => {
            return Ok(Run::Longshore(rest.to_vec()));
        }
        (Some(_), None) => return Ok(Run::Command(command.clone())),
    }
    // Only checked here: the worker reads them again.
    all_named::<longshore::Kind, _>(&key("kinds"), kinds)?;
    let mut words = vec!["worker".to_owned()];
    let flags = |flag: &'static str| move |text: &String| [flag.to_owned(), text.clone()];
    words.extend(kinds.iter().flat_map(flags("--kind")));
    words.extend(queues.iter().flat_map(flags("--queue")));
    for (flag, number) in [("--slots", u64::from(*slots)), ("--max-units", *max_units)] {
        if number > 0 {
            words.extend([flag.to_owned(), number.to_string()]);
        }
    }
    Ok(Run::Longshore(words))
}
