//! The sections that every build has.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use longshore::{ByteSize, Kind, PoolName, QueueName, TenantId, duration};
use longshore_ai::MasterSource;
use longshore_sqlite::Synchronous;
use serde::{Deserialize, Deserializer, de};

use super::value;
use crate::alert_sinks::{SentryDsn, WebhookUrl};
use crate::http::allowlist::{Allowlist, DestinationRules};
use crate::http::secrets::AllowedVariables;
use crate::store::PostgresStoreUrl;

section! {
    /// `[log]`: level, format and destination of the log.
    LogConfig {
        /// A level, or a filter by module; empty for the command's default.
        level: String = String::new(),
        /// Format of the lines.
        format: LogFormat = LogFormat::Human,
        /// Folder of daily files; `None` for stderr.
        #[serde(deserialize_with = "value::optional")]
        dir: Option<PathBuf> = None,
        /// Number of daily files to keep.
        #[serde(deserialize_with = "value::at_least_one")]
        keep: usize = 7,
    }
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    Human,
    /// For programs.
    Json,
}

section! {
    /// `[telemetry]`: export of traces.
    TelemetryConfig {
        /// The OTLP collector's URL.
        #[serde(deserialize_with = "collector_url")]
        otlp: Option<String> = None,
    }
}

fn collector_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let url: Option<String> = value::optional(deserializer)?;
    match url {
        Some(url) if !url.starts_with("http://") && !url.starts_with("https://") => {
            Err(de::Error::custom("is a URL that begins with http:// or https://"))
        }
        url => Ok(url),
    }
}

section! {
    /// `[sqlite]`: the embedded store.
    SqliteConfig {
        /// When it syncs to disk.
        synchronous: Synchronous = Synchronous::Full,
        /// Time limit of the effects of one unit.
        #[serde(with = "duration")]
        effect_timeout: Duration = Duration::from_secs(5),
    }
}

section! {
    /// `[postgres]`: connections to a PostgreSQL store.
    PostgresConfig {
        /// The server's own URL for LISTEN, if the store's URL leads to a pooler.
        #[serde(deserialize_with = "value::optional")]
        listen_url: Option<PostgresStoreUrl> = None,
        /// Maximum connections, not counting one for LISTEN and one for heartbeats.
        #[serde(deserialize_with = "value::at_least_one")]
        connections: usize = 8,
        /// With a larger difference between this machine's clock and the server's, the store does not open.
        #[serde(with = "duration")]
        max_clock_skew: Duration = Duration::from_secs(300),
        /// Whether a newer program migrates an older schema when it opens the store.
        migrate_on_open: bool = false,
        /// Time limit of the effects of one unit.
        #[serde(with = "duration")]
        effect_timeout: Duration = Duration::from_secs(10),
    }
}

section! {
    /// `[worker]`: defaults of workers.
    WorkerConfig {
        /// Units to run concurrently. The settings replace 0 by the number of cores.
        slots: u32 = 0,
        /// Queues to claim from; empty means all.
        queues: Vec<QueueName> = Vec::new(),
        /// Kinds to claim; empty means all.
        kinds: Vec<Kind> = Vec::new(),
        /// Maximum time of a drain.
        #[serde(with = "duration")]
        drain_timeout: Duration = Duration::from_secs(30),
        /// A worker counts as dead after this long without a heartbeat.
        #[serde(with = "duration")]
        ttl: Duration = Duration::from_secs(15),
        /// Working directory of commands.
        #[serde(deserialize_with = "value::folder")]
        exec_dir: PathBuf = ".".into(),
        /// The user that commands of kind `exec` run as; `None` for the worker's own.
        #[serde(deserialize_with = "value::optional")]
        exec_user: Option<String> = None,
        /// Variables that commands of kind `exec` inherit.
        exec_env: Vec<String> = Vec::new(),
        /// Whether the worker's processes may not gain privileges, as by `sudo`.
        no_new_privs: bool = true,
        /// Folders with the batch files that tenants' units of kind `batch.start` may start.
        batch_dirs: Vec<PathBuf> = Vec::new(),
        /// Variables that commands of batches inherit.
        env: Vec<String> = Vec::new(),
        /// Bounded pools of which units of a kind hold a permit.
        pools: BTreeMap<Kind, PoolName> = BTreeMap::new(),
    }
}

section! {
    /// `[workers.NAME]`: worker processes in any language.
    WorkerProcessConfig {
        /// The program and its arguments; required.
        command: Vec<String> = Vec::new(),
        /// The kinds it handles; empty means all its operations.
        kinds: Vec<Kind> = Vec::new(),
        /// Its working directory.
        #[serde(deserialize_with = "value::folder")]
        dir: PathBuf = ".".into(),
        /// Variables set in its environment.
        env: BTreeMap<String, String> = BTreeMap::new(),
        /// Minimum number of processes.
        min: u32 = 1,
        /// Maximum number of processes; 0 means one per slot.
        max: u32 = 0,
        /// Time limit of a call.
        #[serde(deserialize_with = "duration::positive")]
        timeout: Duration = Duration::from_secs(30),
        /// Time limit for a process to become ready.
        #[serde(deserialize_with = "duration::positive")]
        start_timeout: Duration = Duration::from_secs(30),
        /// A process above `min` ends after this time without a call.
        #[serde(with = "duration")]
        idle_timeout: Duration = Duration::from_secs(60),
        /// Maximum number of calls per process; 0 means no limit.
        max_calls: u64 = 5000,
        /// A process that uses more memory is replaced.
        #[serde(deserialize_with = "value::optional")]
        max_memory: Option<ByteSize> = None,
        /// A bounded pool of which each call holds a permit.
        #[serde(deserialize_with = "value::optional")]
        pool: Option<PoolName> = None,
    }
}

section! {
    /// `[pools.NAME]`: a bounded pool.
    BoundedPoolConfig {
        /// The number of permits; required.
        max: u32 = 0,
        /// Maximum wait for a permit; zero is for ever.
        #[serde(with = "duration")]
        wait: Duration = Duration::ZERO,
        /// How long a dead holder keeps its permit.
        #[serde(deserialize_with = "duration::positive")]
        lease: Duration = Duration::from_secs(30),
        /// Interval between two alerts of one kind.
        #[serde(with = "duration")]
        alert_every: Duration = Duration::from_secs(300),
        /// What to do while the permits' store is unavailable.
        on_outage: OnOutageName = OnOutageName::FailClosed,
        /// Permits that each process grants by itself then; 0 is as many as `max`.
        own_max: u32 = 0,
        /// Bounds of an adaptive maximum.
        adaptive: AdaptiveConfig = AdaptiveConfig::default(),
    }
}

/// What to do while the permits' store is unavailable.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnOutageName {
    FailClosed,
    FailOpen,
}

section! {
    /// `adaptive` of `[pools.NAME]`; with `max = 0` there is none.
    AdaptiveConfig {
        min: u32 = 1,
        max: u32 = 0,
        /// Over which permits' hold times are compared.
        #[serde(deserialize_with = "duration::positive")]
        window: Duration = Duration::from_secs(5),
    }
}

section! {
    /// `[alerts]`: where alerts are sent, beside the log. Both are secrets, which no error repeats.
    AlertsConfig {
        /// A URL that gets a JSON document.
        #[serde(deserialize_with = "value::optional")]
        webhook: Option<WebhookUrl> = None,
        /// A project on a Sentry server.
        #[serde(deserialize_with = "value::optional")]
        sentry: Option<SentryDsn> = None,
    }
}

section! {
    /// `[submit]`: defaults of submitted units.
    SubmitConfig {
        /// The queue of units that name none.
        queue: QueueName = QueueName::default(),
    }
}

section! {
    /// `[http]`: permissions of HTTP requests.
    HttpConfig {
        /// Allowed destinations.
        allow: Allowlist = Allowlist::default(),
        /// Destinations in private networks that tenants' units may call.
        allow_private: Allowlist = Allowlist::default(),
        /// Variables that header values may name, with their destinations.
        env: AllowedVariables = AllowedVariables::default(),
    }
}

impl HttpConfig {
    /// Where requests may go.
    pub fn rules(&self) -> DestinationRules {
        DestinationRules { allow: self.allow.clone(), allow_private: self.allow_private.clone() }
    }
}

section! {
    /// `[vault]`: locations of the master keys.
    VaultConfig {
        /// The key that encrypts; without it the default locations are searched.
        #[serde(deserialize_with = "value::optional")]
        key_file: Option<MasterSource> = None,
        /// Previous keys, which still decrypt.
        #[serde(deserialize_with = "value::list")]
        older: Vec<MasterSource> = Vec::new(),
    }
}

section! {
    /// `[ai]`: settings of `ai worker`.
    AiConfig {
        /// A folder of prompts …
        #[serde(deserialize_with = "value::optional")]
        prompts_dir: Option<PathBuf> = None,
        /// … or a database of prompts; empty for the store's own …
        prompts_db: String = String::new(),
        /// … and the query that finds one.
        prompts_sql: String = String::new(),
        /// Suffixes of a tenant's name in the name of a library.
        library_suffixes: Vec<String> = vec!["_5DTA".into()],
        /// The tenants of libraries with other names.
        libraries: BTreeMap<String, TenantId> = BTreeMap::new(),
        /// Whether error messages may quote prompts.
        quote_prompts: bool = false,
    }
}
