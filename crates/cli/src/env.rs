//! Every environment variable that Longshore reads, and none elsewhere.
//!
//! A variable overrides the configuration file's key and is overridden by the flag.

/// Where the configuration file is.
pub const CONFIG: &str = "LONGSHORE_CONFIG";
/// Where the units are.
pub const STORE: &str = "LONGSHORE_STORE";
/// Whose things may be touched.
pub const TENANT: &str = "LONGSHORE_TENANT";
/// Which server is asked instead of a store, by commands that can go over one.
pub const SERVER: &str = "LONGSHORE_SERVER";
/// The token for it; a secret.
pub const TOKEN: &str = "LONGSHORE_TOKEN";
/// What is logged.
pub const LOG: &str = "LONGSHORE_LOG";
/// How log lines look.
pub const LOG_FORMAT: &str = "LONGSHORE_LOG_FORMAT";
/// Where daily files of the log go.
pub const LOG_DIR: &str = "LONGSHORE_LOG_DIR";
/// Where systemd wants to hear how a service is.
pub const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";
/// After how many microseconds it misses a sign of life, …
pub const WATCHDOG_USEC: &str = "WATCHDOG_USEC";
/// … and of which process.
pub const WATCHDOG_PID: &str = "WATCHDOG_PID";
/// Where a PostgreSQL store listens for changes.
pub const LISTEN_URL: &str = "LONGSHORE_LISTEN_URL";
/// Who runs us, by the login; the first that is set counts.
pub const USER: [&str; 2] = ["USER", "LOGNAME"];
/// The master key of the vault itself, in hex or base64.
pub const MASTER_KEY: &str = "LONGSHORE_MASTER_KEY";
/// Where alerts go; both are secrets.
pub const WEBHOOK: &str = "LONGSHORE_ALERTS_WEBHOOK";
/// The same, on a Sentry server.
pub const SENTRY: &str = "LONGSHORE_ALERTS_SENTRY";
/// The password of the mail server; a secret.
pub const SMTP_PASSWORD: &str = "LONGSHORE_SMTP_PASSWORD";
/// Where systemd keeps the credentials of a service.
pub const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";
/// Where the user is at home: the folder of a pool is there unless one is named.
pub const HOME: &str = "HOME";
/// Where programs are looked for.
pub const PATH: &str = "PATH";
/// Set and not empty: no colours (<https://no-color.org>).
pub const NO_COLOR: &str = "NO_COLOR";

/// Which part of whose trace a command is that only sends.
pub const TRACEPARENT: &str = "TRACEPARENT";
/// What collectors of traces know us by.
#[cfg(feature = "otel")]
pub const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";

/// A variable that stands for a key of the configuration file.
#[derive(Debug, Clone, Copy)]
pub struct Var {
    /// The variable.
    pub name: &'static str,
    /// The key, as `worker.slots`.
    pub key: &'static str,
}

/// All of them. Lists are separated by commas.
pub const VARS: [Var; 38] = [
    Var { name: STORE, key: "store" },
    Var { name: TENANT, key: "tenant" },
    Var { name: "LONGSHORE_PATIENCE", key: "patience" },
    Var { name: "LONGSHORE_PERMITS", key: "permits" },
    Var { name: LOG, key: "log.level" },
    Var { name: LOG_FORMAT, key: "log.format" },
    Var { name: LOG_DIR, key: "log.dir" },
    Var { name: "LONGSHORE_LOG_KEEP", key: "log.keep" },
    Var { name: "OTEL_EXPORTER_OTLP_ENDPOINT", key: "telemetry.otlp" },
    Var { name: "LONGSHORE_SQLITE_SYNCHRONOUS", key: "sqlite.synchronous" },
    Var { name: LISTEN_URL, key: "postgres.listen_url" },
    Var { name: "LONGSHORE_CONNECTIONS", key: "postgres.connections" },
    Var { name: "LONGSHORE_SLOTS", key: "worker.slots" },
    Var { name: "LONGSHORE_QUEUES", key: "worker.queues" },
    Var { name: "LONGSHORE_KINDS", key: "worker.kinds" },
    Var { name: "LONGSHORE_DRAIN_TIMEOUT", key: "worker.drain_timeout" },
    Var { name: "LONGSHORE_TTL", key: "worker.ttl" },
    Var { name: "LONGSHORE_EXEC_DIR", key: "worker.exec_dir" },
    Var { name: "LONGSHORE_ENV", key: "worker.env" },
    Var { name: "LONGSHORE_QUEUE", key: "submit.queue" },
    Var { name: "LONGSHORE_HTTP_ALLOW", key: "http.allow" },
    Var { name: "LONGSHORE_HTTP_ENV", key: "http.env" },
    Var { name: WEBHOOK, key: "alerts.webhook" },
    Var { name: SENTRY, key: "alerts.sentry" },
    Var { name: "LONGSHORE_KEY_FILE", key: "vault.key_file" },
    Var { name: "LONGSHORE_OLDER_KEY_FILES", key: "vault.older" },
    Var { name: "LONGSHORE_PROMPTS_DIR", key: "ai.prompts_dir" },
    Var { name: "LONGSHORE_PROMPTS_DB", key: "ai.prompts_db" },
    Var { name: "LONGSHORE_PROMPTS_SQL", key: "ai.prompts_sql" },
    Var { name: "LONGSHORE_LIBRARY_SUFFIXES", key: "ai.library_suffixes" },
    Var { name: "LONGSHORE_SPOOL", key: "mail.spool" },
    Var { name: "LONGSHORE_LISTEN", key: "web.listen" },
    Var { name: "LONGSHORE_TLS_CERT", key: "web.tls_cert" },
    Var { name: "LONGSHORE_TLS_KEY", key: "web.tls_key" },
    Var { name: "LONGSHORE_DISPATCH_DIR", key: "dispatch.dir" },
    Var { name: "LONGSHORE_QSYS", key: "dispatch.qsys" },
    Var { name: "LONGSHORE_DISPATCH_WORKERS", key: "dispatch.workers" },
    Var { name: "LONGSHORE_DISPATCH_NTHR", key: "dispatch.nthr" },
];

/// What a worker process of ours may inherit: all but what leads to the master key, where alerts
/// go, the mail server's password, and the server's token.
pub fn inheritable() -> impl Iterator<Item = std::ffi::OsString> {
    let names = std::env::vars_os().map(|(name, _)| name);
    let ours = [MASTER_KEY, CREDENTIALS, WEBHOOK, SENTRY, SMTP_PASSWORD, TOKEN];
    names.filter(move |name| !ours.iter().any(|own| name == own))
}

/// A variable that holds a secret: of those that `http.env` lists, or our own.
pub fn secret(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// What a command run by kind `exec` learns about its unit.
pub mod exec {
    /// The unit's id.
    pub const UNIT_ID: &str = "LONGSHORE_UNIT_ID";
    /// Which attempt this is, from 1.
    pub const ATTEMPT: &str = "LONGSHORE_ATTEMPT";
    /// The unit's batch; unset without one.
    pub const BATCH: &str = "LONGSHORE_BATCH";
    /// The unit's dedup key; unset without one.
    pub const KEY: &str = "LONGSHORE_KEY";

    /// What a command inherits from its worker, beside all of `LC_*`. Everything else stays
    /// behind: a worker's environment may hold secrets that its units have no business with.
    pub const INHERITED: [&str; 6] = ["PATH", "HOME", "USER", "LANG", "TZ", "TMPDIR"];
}
