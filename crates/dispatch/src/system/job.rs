//! A job: what is to be started, where, with what, and on whose account.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::SystemError;

/// What a system is to start.
#[derive(Debug, Clone)]
pub struct Job {
    /// What people see in the system's lists. A system that is picky about names sees a tame one.
    pub name: String,
    /// What it runs.
    pub program: Program,
    /// Where it runs.
    pub dir: PathBuf,
    /// Threads, all on one node.
    pub threads: NonZeroU32,
    /// Memory in MiB, for the whole job.
    pub memory: Option<u64>,
    /// How long it may run.
    pub time: Option<Duration>,
    /// Where its standard output goes; nowhere if not said. Folders that are missing are made. A
    /// task of an array has a file of its own, with `.` and its index at the end.
    pub stdout: Option<PathBuf>,
    /// Where its errors go; to its output if not said.
    pub stderr: Option<PathBuf>,
    /// Variables beside those that it inherits.
    pub env: BTreeMap<String, String>,
    /// Run it many times.
    pub array: Option<Array>,
    /// What the site wants to know.
    pub terms: Terms,
    /// More of the system's own options, a line each, as they are: `--constraint=haswell`.
    pub options: Vec<String>,
}

impl Job {
    /// A job of one thread that runs `program` in `dir`, and nothing beside.
    pub fn new(name: impl Into<String>, program: Program, dir: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            program,
            dir: dir.into(),
            threads: NonZeroU32::MIN,
            memory: None,
            time: None,
            stdout: None,
            stderr: None,
            env: BTreeMap::new(),
            array: None,
            terms: Terms::default(),
            options: Vec::new(),
        }
    }

    /// Where its output goes, and its errors if elsewhere: one file must not be opened twice, since each
    /// would write over the other.
    pub(super) fn output_files(&self) -> (Option<&Path>, Option<&Path>) {
        let (out, err) = (self.stdout.as_deref(), self.stderr.as_deref());
        (out, err.filter(|err| Some(*err) != out))
    }

    /// Makes the folders of its output: a scheduler fails a job without them, some without a word.
    pub(super) fn create_output_folders(&self) -> Result<(), SystemError> {
        let files = [&self.stdout, &self.stderr].into_iter().flatten();
        for folder in files.filter_map(|file| file.parent()) {
            std::fs::create_dir_all(folder).map_err(|error| {
                SystemError::io(format!("no folder {}", folder.display()), error)
            })?;
        }
        Ok(())
    }
}

/// What a job runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// A script, as `bash PATH ARGUMENTS`: it need not be executable.
    Script {
        /// The script.
        path: PathBuf,
        /// Its arguments.
        args: Vec<String>,
    },
    /// A program and its arguments.
    Command(Vec<String>),
}

impl Program {
    /// A script without arguments.
    pub fn script(path: impl Into<PathBuf>) -> Self {
        Self::Script { path: path.into(), args: Vec::new() }
    }

    /// The words of its command line; `None` where a path cannot be written as text.
    pub(super) fn argv(&self) -> Option<Vec<String>> {
        match self {
            Self::Command(words) => Some(words.clone()),
            Self::Script { path, args } => {
                let mut words = vec!["bash".to_owned(), path.to_str()?.to_owned()];
                words.extend(args.iter().cloned());
                Some(words)
            }
        }
    }
}

/// One job, many times: each task has an index of its own, in `LONGSHORE_ARRAY_INDEX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Array {
    /// The first index.
    pub first: u32,
    /// The last index.
    pub last: u32,
    /// How many may run at once, if not all.
    pub throttle: Option<NonZeroU32>,
}

impl Array {
    /// The indices as all systems write them.
    pub(super) fn range(self) -> String {
        format!("{}-{}", self.first, self.last)
    }

    /// What a system that writes `%4` appends for the throttle.
    pub(super) fn throttle_suffix(self) -> String {
        self.throttle.map_or_else(String::new, |most| format!("%{most}"))
    }
}

/// What a site wants to know about a job. A system that has no such thing refuses the job: what was
/// asked for is not left out in silence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Terms {
    /// Whom it is charged to.
    pub account: Option<String>,
    /// Whom to write to if it fails.
    pub email: Option<String>,
    /// Where it waits: Slurm's partition, everybody else's queue.
    pub queue: Option<String>,
    /// The quality of service.
    pub qos: Option<String>,
    /// A reservation to run in.
    pub reservation: Option<String>,
    /// The project it belongs to.
    pub project: Option<String>,
}
