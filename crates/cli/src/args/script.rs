//! Arguments of `submit --script …`.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use longshore::{ByteSize, HumanDuration};
use longshore_dispatch::request::{ArrayItems, MAX_ARRAY};
use longshore_dispatch::system::QueueSystem;

use super::dispatch_pool::DispatchPoolArg;

/// Options that a job file sets itself, or that scripts of a pool do not have.
const NOT_WITH_JOB: [&str; 17] = [
    "payload",
    "lines",
    "url",
    "script",
    "args",
    "after",
    "resource",
    "weight",
    "priority",
    "delay",
    "at",
    "deadline",
    "key",
    "queue",
    "timeout",
    "max_attempts",
    "cap_key",
];

/// Makes a unit of a script.
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Options for scripts and commands",
    group(ArgGroup::new("runnable").args(["script", "args"]).multiple(true)),
    group(ArgGroup::new("pooled").args(["script", "args", "job"]).multiple(true))
)]
pub struct ScriptArgs {
    /// Script to run with bash on a worker of a pool (see `dispatch start`), `-`: from stdin. Without
    /// it, the words after `--` are a command to run. Lines `#LONGSHORE --nthr 4 --mem 8GB` at the
    /// beginning of the script are options; the same option on the command line replaces them
    #[arg(long, value_name = "FILE", conflicts_with_all = ["payload", "lines", "url"])]
    pub script: Option<PathBuf>,
    /// Job file with tasks to run, each after its dependencies (see docs/dispatch.md)
    #[arg(long, value_name = "FILE", conflicts_with_all = NOT_WITH_JOB)]
    pub job: Option<PathBuf>,
    /// Executor: a pool (local_worker, slurm_worker, …), or a base system itself, without a pool
    /// (local, slurm, sge, pbs, lsf, kubernetes) [env: LONGSHORE_QSYS] [default: local_worker]
    #[arg(long, value_name = "NAME", requires = "runnable")]
    pub qsys: Option<QueueSystem>,
    /// Without a pool: option for the base system, as --base-option=--partition=long (may be
    /// repeated)
    #[arg(long, value_name = "OPTION", requires = "runnable", allow_hyphen_values = true)]
    pub base_option: Vec<String>,
    #[command(flatten)]
    pub pool: DispatchPoolArg,
    /// Threads that the script needs
    #[arg(long, value_name = "N", requires = "runnable", value_parser = clap::value_parser!(u32).range(1..))]
    pub nthr: Option<u32>,
    /// Memory that the script needs, as 4GB
    #[arg(long, value_name = "SIZE", requires = "runnable")]
    pub mem: Option<ByteSize>,
    /// Run on processors of its own, as many as --nthr: no other script of the worker that is pinned
    /// uses them
    #[arg(long, requires = "runnable")]
    pub pin: bool,
    /// Maximum run time: then TERM, and KILL five seconds later
    #[arg(long, value_name = "TIME", requires = "runnable")]
    pub time: Option<HumanDuration>,
    /// Name of the script or array
    #[arg(long, value_name = "NAME", requires = "runnable")]
    pub name: Option<String>,
    /// Run once for each number, as 1-1000, 1-9,20,30-39, or 1-1000%50 with at most 50 concurrently
    #[arg(long, value_name = "RANGE", requires = "runnable", conflicts_with = "each_line")]
    pub array: Option<ArrayRange>,
    /// Run once for each line of this file (`-`: stdin), passed in LONGSHORE_LINE byte for byte without
    /// its line feed. The first line has index 0
    #[arg(long, value_name = "FILE", requires = "runnable")]
    pub each_line: Option<String>,
    /// With an array: cancel the rest after this many failures
    #[arg(long, value_name = "N", requires = "runnable", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_fails: Option<u64>,
    /// Number of retries if the script fails
    #[arg(long, value_name = "N", default_value_t = 0, requires = "runnable")]
    pub retries: u32,
    /// Number of times it may be lost with its worker before it fails
    #[arg(long, value_name = "N", default_value_t = 5, requires = "runnable", value_parser = clap::value_parser!(u32).range(1..))]
    pub crash_limit: u32,
    /// Destination of its output: none, tail (the last of it, shown by `unit show`), files:PATTERN
    /// or stream:DIR; in a pattern %u is the unit, %i its index, %a the attempt
    #[arg(long, value_name = "WHERE", default_value = "tail", requires = "runnable")]
    pub output: OutputTarget,
    /// Separate destination of standard error: a pattern as in files:PATTERN
    #[arg(long, value_name = "PATTERN", requires = "runnable")]
    pub stderr: Option<PathBuf>,
    /// Environment variable for the script, as NAME=VALUE, or NAME to copy it from here (may be
    /// repeated)
    #[arg(long, value_name = "NAME[=VALUE]", requires = "runnable")]
    pub env: Vec<String>,
    /// Folder for the files JOB_FINISHED_N and EXIT_CODE_JOB_N, N being its index or name
    #[arg(long, value_name = "DIR", requires = "runnable")]
    pub sentinels: Option<PathBuf>,
    /// Folder that the script must be inside [default: the working directory]
    #[arg(long, value_name = "DIR", requires = "runnable")]
    pub root: Option<PathBuf>,
    /// Run the script as it is now, even if the file is changed or removed before it starts
    #[arg(long, requires = "script")]
    pub snapshot: bool,
    /// Working directory of the script [default: the one that it is submitted from]
    #[arg(long, value_name = "DIR", requires = "runnable")]
    pub cwd: Option<PathBuf>,
    /// Resource limit (ulimit), as cpu=60, nofile=100 or as=4000000000 (may be repeated)
    #[arg(long, value_name = "NAME=N", requires = "runnable", value_parser = parse_rlimit)]
    pub limit: Vec<(String, u64)>,
    /// With --wait: show progress
    #[arg(long, requires = "pooled", requires = "wait")]
    pub progress: bool,
    /// Arguments of the script; without --script, the command to run
    #[arg(last = true, value_name = "ARGUMENTS")]
    pub args: Vec<String>,
    /// The script that was read from stdin.
    #[arg(skip)]
    pub stdin_text: Option<String>,
}

impl ScriptArgs {
    /// Whether a script or a command is submitted.
    pub fn is_runnable(&self) -> bool {
        self.script.is_some() || !self.args.is_empty()
    }

    /// Whether the script is read from stdin.
    pub fn is_stdin(&self) -> bool {
        self.script.as_deref().is_some_and(|path| path.as_os_str() == "-")
    }
}

pub fn parse_rlimit(text: &str) -> Result<(String, u64), String> {
    const RLIMITS: [&str; 8] = ["as", "core", "cpu", "data", "fsize", "nofile", "nproc", "stack"];
    let bad = || format!("`{text}` is not a limit as cpu=60; known limits: {}", RLIMITS.join(", "));
    let (name, most) = text.split_once('=').ok_or_else(bad)?;
    let most = most.parse().map_err(|_| bad())?;
    if RLIMITS.contains(&name) { Ok((name.to_owned(), most)) } else { Err(bad()) }
}

/// Destination of a script's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputTarget {
    Nothing,
    Tail,
    Files(PathBuf),
    Stream(PathBuf),
}

impl std::str::FromStr for OutputTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "none" => Ok(Self::Nothing),
            None if text == "tail" => Ok(Self::Tail),
            Some(("files", pattern)) if !pattern.is_empty() => Ok(Self::Files(pattern.into())),
            Some(("stream", folder)) if !folder.is_empty() => Ok(Self::Stream(folder.into())),
            _ => Err(format!("`{text}` is none of none, tail, files:PATTERN, stream:DIR")),
        }
    }
}

/// Indices of an array, and how many may run concurrently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayRange {
    pub ranges: Vec<(u64, u64)>,
    pub at_most: Option<u32>,
}

impl std::str::FromStr for ArrayRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not a range as 1-1000, 1-9,20 or 1-1000%50");
        let (numbers, at_most) = match text.split_once('%') {
            Some((numbers, most)) => {
                let most = most.parse().ok().filter(|most| *most > 0).ok_or_else(bad)?;
                (numbers, Some(most))
            }
            None => (text, None),
        };
        let part = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range: (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            Some(range).filter(|(first, last)| first <= last)
        };
        let ranges: Option<Vec<_>> = numbers.split(',').map(part).collect();
        let ranges = ranges.ok_or_else(bad)?;
        let count = ArrayItems::Ranges(ranges.clone()).count();
        if count > MAX_ARRAY {
            return Err(format!("`{text}` has {count} indices, of {MAX_ARRAY} at most"));
        }
        Ok(Self { ranges, at_most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_as_it_is_meant() {
        let read = |text: &str| text.parse::<ArrayRange>().ok().map(|range| (range.ranges, range.at_most));
        assert_eq!(read("1-1000"), Some((vec![(1, 1000)], None)));
        assert_eq!(read("1-9,20,30-39%4"), Some((vec![(1, 9), (20, 20), (30, 39)], Some(4))));
        for bad in [
            "",
            "a",
            "1-2000000000",
            "1-9,0-18446744073709551615",
            "3-1",
            "1-",
            "1-5%0",
            "1-5%",
            "1,,2",
            "-1",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
