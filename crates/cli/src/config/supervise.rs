//! `[supervise]` and its workers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use longshore::{ByteSize, Kind, QueueName, duration};

use super::value;

section! {
    /// `[supervise]`: processes that `supervise` runs.
    SuperviseConfig {
        /// The file with its PID, locked against a second supervisor.
        #[serde(deserialize_with = "value::path")]
        pid_file: PathBuf = "longshore-supervise.pid".into(),
        /// Whether unfinished batches are resumed at the start.
        recover: bool = false,
        /// A process that ends sooner has failed to start.
        #[serde(with = "duration")]
        min_uptime: Duration = Duration::from_secs(5),
        /// After this many failures to start …
        start_failures: u32 = 5,
        /// … within this window, the section is given up.
        #[serde(deserialize_with = "duration::positive")]
        start_window: Duration = Duration::from_secs(300),
        /// The delay of the first restart; it doubles with each.
        #[serde(with = "duration")]
        restart_base: Duration = Duration::from_secs(1),
        /// The maximum delay.
        #[serde(with = "duration")]
        restart_max: Duration = Duration::from_secs(60),
        /// A file with the installed version in its first line.
        #[serde(deserialize_with = "value::optional")]
        version_file: Option<PathBuf> = None,
        /// How long that line must stay the same.
        #[serde(with = "duration")]
        settle: Duration = Duration::from_secs(300),
        /// Supervised processes, by their names.
        workers: BTreeMap<String, SupervisedConfig> = BTreeMap::new(),
    }
}

section! {
    /// `[supervise.workers.NAME]`: identical worker processes.
    SupervisedConfig {
        /// The command; empty for `longshore worker`.
        command: Vec<String> = Vec::new(),
        kinds: Vec<Kind> = Vec::new(),
        queues: Vec<QueueName> = Vec::new(),
        slots: u32 = 0,
        /// The working directory.
        #[serde(deserialize_with = "value::folder")]
        dir: PathBuf = ".".into(),
        /// Variables set in the environment.
        env: BTreeMap<String, String> = BTreeMap::new(),
        /// Number of processes at the start; 0 means `min`, and at least one.
        count: u32 = 0,
        /// Minimum number.
        min: u32 = 1,
        /// Maximum number; 0 means the number at the start.
        max: u32 = 0,
        /// A process that uses more memory is replaced.
        #[serde(deserialize_with = "value::optional")]
        max_memory: Option<ByteSize> = None,
        /// An older process is replaced; zero means never.
        #[serde(with = "duration")]
        max_age: Duration = Duration::ZERO,
        /// A `longshore worker` is replaced after about this number of units; 0 means never.
        max_units: u64 = 0,
        /// How long a process may take to stop; zero means `worker.drain_timeout`.
        #[serde(with = "duration")]
        drain_timeout: Duration = Duration::ZERO,
    }
}
