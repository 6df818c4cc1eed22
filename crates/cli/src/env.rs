//! Every environment variable that Longshore reads, and none elsewhere.
//!
//! A variable overrides the configuration file's key and is overridden by the flag.

/// Path of the configuration file.
pub const CONFIG: &str = "LONGSHORE_CONFIG";
/// URL of the store.
pub const STORE: &str = "LONGSHORE_STORE";
/// Folder of a pool of script workers.
#[cfg(feature = "standard")]
pub const DISPATCH_DIR: &str = "LONGSHORE_DISPATCH_DIR";
/// Tenant to which commands are restricted.
pub const TENANT: &str = "LONGSHORE_TENANT";
/// URL of a server to use instead of a store, for commands that can.
pub const SERVER: &str = "LONGSHORE_SERVER";
/// The server's token; a secret.
pub const TOKEN: &str = "LONGSHORE_TOKEN";
/// Log level or filter.
pub const LOG: &str = "LONGSHORE_LOG";
/// Log format.
pub const LOG_FORMAT: &str = "LONGSHORE_LOG_FORMAT";
/// Folder of daily log files.
pub const LOG_DIR: &str = "LONGSHORE_LOG_DIR";
/// The socket for notifications to systemd.
pub const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";
/// Systemd's watchdog timeout in microseconds, …
pub const WATCHDOG_USEC: &str = "WATCHDOG_USEC";
/// … and the process that it watches.
pub const WATCHDOG_PID: &str = "WATCHDOG_PID";
/// URL for LISTEN connections of a PostgreSQL store.
pub const LISTEN_URL: &str = "LONGSHORE_LISTEN_URL";
/// The user's login; the first that is set counts.
pub const USER: [&str; 2] = ["USER", "LOGNAME"];
/// The vault's master key itself, in hex or base64.
pub const MASTER_KEY: &str = "LONGSHORE_MASTER_KEY";
/// Webhook for alerts; a secret.
pub const WEBHOOK: &str = "LONGSHORE_ALERTS_WEBHOOK";
/// Sentry DSN for alerts; a secret.
pub const SENTRY: &str = "LONGSHORE_ALERTS_SENTRY";
/// Password for the mail server; a secret.
pub const SMTP_PASSWORD: &str = "LONGSHORE_SMTP_PASSWORD";
/// Folder of a service's credentials, set by systemd.
pub const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";
/// The user's home, which has the default folder of a pool.
pub const HOME: &str = "HOME";
/// Folders of programs.
pub const PATH: &str = "PATH";
/// Set and not empty: no colours (<https://no-color.org>).
pub const NO_COLOR: &str = "NO_COLOR";

/// Parent span of a command that only submits.
pub const TRACEPARENT: &str = "TRACEPARENT";
/// Service name in traces.
#[cfg(feature = "otel")]
pub const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";

/// A variable that overrides a key of the configuration file.
#[derive(Debug, Clone, Copy)]
pub struct EnvVar {
    /// The variable.
    pub name: &'static str,
    /// The key, as `worker.slots`.
    pub key: &'static str,
}

/// Variables with secrets of the worker, which no command or process of its units inherits.
pub const SECRETS: [&str; 10] = [
    MASTER_KEY,
    CREDENTIALS,
    WEBHOOK,
    SENTRY,
    SMTP_PASSWORD,
    TOKEN,
    STORE,
    LISTEN_URL,
    "LONGSHORE_PERMITS",
    "LONGSHORE_PROMPTS_DB",
];

/// All variables of keys. Lists are separated by commas.
pub const VARS: [EnvVar; 39] = [
    EnvVar { name: STORE, key: "store" },
    EnvVar { name: TENANT, key: "tenant" },
    EnvVar { name: "LONGSHORE_PATIENCE", key: "patience" },
    EnvVar { name: "LONGSHORE_PERMITS", key: "permits" },
    EnvVar { name: LOG, key: "log.level" },
    EnvVar { name: LOG_FORMAT, key: "log.format" },
    EnvVar { name: LOG_DIR, key: "log.dir" },
    EnvVar { name: "LONGSHORE_LOG_KEEP", key: "log.keep" },
    EnvVar { name: "OTEL_EXPORTER_OTLP_ENDPOINT", key: "telemetry.otlp" },
    EnvVar { name: "LONGSHORE_SQLITE_SYNCHRONOUS", key: "sqlite.synchronous" },
    EnvVar { name: LISTEN_URL, key: "postgres.listen_url" },
    EnvVar { name: "LONGSHORE_CONNECTIONS", key: "postgres.connections" },
    EnvVar { name: "LONGSHORE_SLOTS", key: "worker.slots" },
    EnvVar { name: "LONGSHORE_QUEUES", key: "worker.queues" },
    EnvVar { name: "LONGSHORE_KINDS", key: "worker.kinds" },
    EnvVar { name: "LONGSHORE_DRAIN_TIMEOUT", key: "worker.drain_timeout" },
    EnvVar { name: "LONGSHORE_TTL", key: "worker.ttl" },
    EnvVar { name: "LONGSHORE_EXEC_DIR", key: "worker.exec_dir" },
    EnvVar { name: "LONGSHORE_ENV", key: "worker.env" },
    EnvVar { name: "LONGSHORE_QUEUE", key: "submit.queue" },
    EnvVar { name: "LONGSHORE_HTTP_ALLOW", key: "http.allow" },
    EnvVar { name: "LONGSHORE_HTTP_ENV", key: "http.env" },
    EnvVar { name: WEBHOOK, key: "alerts.webhook" },
    EnvVar { name: SENTRY, key: "alerts.sentry" },
    EnvVar { name: "LONGSHORE_KEY_FILE", key: "vault.key_file" },
    EnvVar { name: "LONGSHORE_OLDER_KEY_FILES", key: "vault.older" },
    EnvVar { name: "LONGSHORE_PROMPTS_DIR", key: "ai.prompts_dir" },
    EnvVar { name: "LONGSHORE_PROMPTS_DB", key: "ai.prompts_db" },
    EnvVar { name: "LONGSHORE_PROMPTS_SQL", key: "ai.prompts_sql" },
    EnvVar { name: "LONGSHORE_LIBRARY_SUFFIXES", key: "ai.library_suffixes" },
    EnvVar { name: "LONGSHORE_QUOTE_PROMPTS", key: "ai.quote_prompts" },
    EnvVar { name: "LONGSHORE_SPOOL", key: "mail.spool" },
    EnvVar { name: "LONGSHORE_LISTEN", key: "web.listen" },
    EnvVar { name: "LONGSHORE_TLS_CERT", key: "web.tls_cert" },
    EnvVar { name: "LONGSHORE_TLS_KEY", key: "web.tls_key" },
    EnvVar { name: "LONGSHORE_DISPATCH_DIR", key: "dispatch.dir" },
    EnvVar { name: "LONGSHORE_QSYS", key: "dispatch.qsys" },
    EnvVar { name: "LONGSHORE_DISPATCH_WORKERS", key: "dispatch.workers" },
    EnvVar { name: "LONGSHORE_DISPATCH_NTHR", key: "dispatch.nthr" },
];

/// Names of variables that a worker process may inherit: all but [`SECRETS`]. `[workers.NAME] env` can
/// pass one on.
pub fn inheritable() -> impl Iterator<Item = std::ffi::OsString> {
    let names = std::env::vars_os().map(|(name, _)| name);
    names.filter(|name| !SECRETS.iter().any(|secret| name == secret))
}

/// A variable that holds a secret: one listed in `http.env`, or our own.
pub fn secret(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Variables that describe the unit to a command of kind `exec`.
pub mod exec {
    /// The unit's id.
    pub const UNIT_ID: &str = "LONGSHORE_UNIT_ID";
    /// The number of the attempt, from 1.
    pub const ATTEMPT: &str = "LONGSHORE_ATTEMPT";
    /// The unit's batch; unset without one.
    pub const BATCH: &str = "LONGSHORE_BATCH";
    /// The unit's dedup key; unset without one.
    pub const KEY: &str = "LONGSHORE_KEY";

    /// Variables that a command inherits from its worker, beside all of `LC_*`. Others are not
    /// passed on: a worker's environment may hold secrets that do not concern its units.
    pub const INHERITED: [&str; 6] = ["PATH", "HOME", "USER", "LANG", "TZ", "TMPDIR"];
}
