//! A job: program, resources, output and attributes.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::SystemError;

/// A job for a base system.
#[derive(Debug, Clone)]
pub struct Job {
    /// Name in the system's lists. It is sanitised for systems that restrict names.
    pub name: String,
    /// The program.
    pub program: JobProgram,
    /// Working directory.
    pub dir: PathBuf,
    /// Threads, all on one node.
    pub threads: NonZeroU32,
    /// Memory in MiB, for the whole job.
    pub memory: Option<u64>,
    /// Time limit.
    pub time: Option<Duration>,
    /// File for standard output; discarded if `None`. Missing folders are created. Each task of an
    /// array has its own file, with `.` and its index appended.
    pub stdout: Option<PathBuf>,
    /// File for standard error; by default it goes to `stdout`.
    pub stderr: Option<PathBuf>,
    /// Additional environment variables.
    pub env: BTreeMap<String, String>,
    /// Run the job as an array.
    pub array: Option<JobArray>,
    /// Attributes that the site requires.
    pub attributes: JobAttributes,
    /// Additional options of the system, one per line, passed on unchanged: `--constraint=haswell`.
    pub options: Vec<String>,
}

impl Job {
    /// A job of one thread that runs `program` in `dir`.
    pub fn new(name: impl Into<String>, program: JobProgram, dir: impl Into<PathBuf>) -> Self {
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
            attributes: JobAttributes::default(),
            options: Vec::new(),
        }
    }

    /// The output file, and the error file if it is another: a file that is opened twice would be
    /// overwritten.
    pub(super) fn output_files(&self) -> (Option<&Path>, Option<&Path>) {
        let (out, err) = (self.stdout.as_deref(), self.stderr.as_deref());
        (out, err.filter(|err| Some(*err) != out))
    }

    /// Creates the folders of the output files. Schedulers fail a job without them, some without a
    /// message.
    pub(super) fn create_output_folders(&self) -> Result<(), SystemError> {
        let files = [&self.stdout, &self.stderr].into_iter().flatten();
        for folder in files.filter_map(|file| file.parent()) {
            std::fs::create_dir_all(folder).map_err(|error| {
                SystemError::io(format!("cannot create folder {}", folder.display()), error)
            })?;
        }
        Ok(())
    }
}

/// The program of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobProgram {
    /// A script, as `bash PATH ARGUMENTS`: it need not be executable.
    Script {
        /// Path of the script.
        path: PathBuf,
        /// Its arguments.
        args: Vec<String>,
    },
    /// A command line.
    Command(Vec<String>),
}

impl JobProgram {
    /// A script without arguments.
    pub fn script(path: impl Into<PathBuf>) -> Self {
        Self::Script { path: path.into(), args: Vec::new() }
    }

    /// The command line; `None` if a path is not valid UTF-8.
    pub(super) fn argv(&self) -> Option<Vec<String>> {
        match self {
            Self::Command(argv) => Some(argv.clone()),
            Self::Script { path, args } => {
                let mut argv = vec!["bash".to_owned(), path.to_str()?.to_owned()];
                argv.extend(args.iter().cloned());
                Some(argv)
            }
        }
    }
}

/// Runs a job once per index; `LONGSHORE_ARRAY_INDEX` holds the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobArray {
    /// First index.
    pub first: u32,
    /// Last index.
    pub last: u32,
    /// Maximum number of tasks that run at the same time.
    pub throttle: Option<NonZeroU32>,
}

impl JobArray {
    /// The range of indices, in a format that all systems share.
    pub(super) fn range(self) -> String {
        format!("{}-{}", self.first, self.last)
    }

    /// The throttle in the format `%4`, for systems that use it.
    pub(super) fn throttle_suffix(self) -> String {
        self.throttle.map_or_else(String::new, |most| format!("%{most}"))
    }
}

/// Attributes of a job that sites require. If the system does not support one, the job is rejected
/// rather than submitted without it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobAttributes {
    /// Account to charge.
    pub account: Option<String>,
    /// Address to notify if the job fails.
    pub email: Option<String>,
    /// Queue; for Slurm, the partition.
    pub queue: Option<String>,
    /// Quality of service.
    pub qos: Option<String>,
    /// Reservation to run in.
    pub reservation: Option<String>,
    /// Project.
    pub project: Option<String>,
}
