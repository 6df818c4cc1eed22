//! Resolves the settings: flags over environment over file over defaults, checked once.
//!
//! [`crate::args`] defines the flags; commands see only these settings.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::Context;
use longshore::store::Retention;
use longshore::{AdaptiveMax, Kind, OnOutage, PoolName, QueueName, Scope, TenantId};
use longshore_ai::contract::Libraries;
use longshore_batch::definition::Database;
#[cfg(feature = "standard")]
use longshore_web::client::ApiClient;

use crate::alert_sinks::AlertSettings;
use crate::args::GlobalArgs;
use crate::byte_size::ByteSize;
use crate::config::{self, Config};
use crate::duration_arg::DurationArg;
use crate::error::{WithHint, hinted, suggestion, usage};
use crate::external_workers::{ExternalWorkerSettings, both_handle};
use crate::http::allowlist::Allowlist;
use crate::keyring::VaultSettings;
#[cfg(feature = "standard")]
use crate::mail::MailSettings;
use crate::output::{Output, OutputForm};
use crate::semaphore_backend::{BoundedPoolSettings, BoundedSettings};
use crate::store::{PostgresUrl, StoreUrl, SynchronousMode};

#[cfg(feature = "standard")]
mod mail;
#[cfg(feature = "standard")]
mod standard;
#[cfg(feature = "standard")]
mod supervise;

#[cfg(feature = "standard")]
pub use standard::{DispatchSettings, WebSettings};
#[cfg(feature = "standard")]
pub use supervise::{SuperviseSettings, SupervisedCommand, SupervisedSection};

/// The settings of all commands.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The flags, for a later reload of the file.
    pub typed: GlobalArgs,
    /// The store's URL.
    pub store: StoreUrl,
    /// Whether a flag, the environment or the file names that store.
    pub store_named: bool,
    /// The server to use instead, if the command runs through one.
    #[cfg(feature = "standard")]
    pub server: Option<ApiClient>,
    /// How the embedded store syncs.
    pub synchronous: SynchronousMode,
    /// Connections to a PostgreSQL store.
    pub postgres: PostgresSettings,
    /// The tenant to which commands are restricted, if any.
    pub tenant: Option<TenantId>,
    /// How long to wait for an unavailable store.
    pub patience: Duration,
    /// Form of the output.
    pub output: Output,
    /// The configuration file, if there is one.
    pub config_file: Option<PathBuf>,
    /// Log settings.
    pub log: LogSettings,
    /// The OTLP collector's URL, if there is one.
    pub otlp: Option<String>,
    /// Defaults of `worker`.
    pub worker: WorkerDefaults,
    /// Worker processes in any language.
    pub pools: Vec<ExternalWorkerSettings>,
    /// Bounded pools.
    pub bounded: BoundedSettings,
    /// Destinations of alerts, beside the log.
    pub alerts: AlertSettings,
    /// The queue of units that name none.
    pub queue: QueueName,
    /// Permissions of HTTP requests.
    pub http: HttpSettings,
    /// Location of the vault's master key.
    pub vault: VaultSettings,
    /// Settings of `ai worker`.
    pub ai: AiSettings,
    /// Location and defaults of a pool of script workers.
    #[cfg(feature = "standard")]
    pub dispatch: DispatchSettings,
    /// Spool, renderer and server of mail.
    #[cfg(feature = "standard")]
    pub mail: MailSettings,
    /// Settings of the API server.
    #[cfg(feature = "standard")]
    pub web: WebSettings,
    /// Processes that `supervise` runs.
    #[cfg(feature = "standard")]
    pub supervise: SuperviseSettings,
    /// Retention of ended units, batches and audit entries.
    pub retention: Retention,
}

/// Settings of `ai worker`.
#[derive(Debug, Clone)]
pub struct AiSettings {
    /// Where the prompts are that requests refer to.
    pub prompts: PromptSource,
    /// The tenants of the libraries of reply queues.
    pub libraries: Libraries,
}

/// Where the prompts are that requests refer to.
#[derive(Debug, Clone)]
pub enum PromptSource {
    /// Nowhere.
    Nothing,
    /// In files below a folder.
    Files(PathBuf),
    /// In a database, found by a query.
    Table {
        /// The database.
        database: Database,
        /// The query.
        sql: String,
    },
}

/// Connections to a PostgreSQL store.
#[derive(Debug, Clone)]
pub struct PostgresSettings {
    /// The server's own URL for LISTEN, if the store's URL leads to a pooler.
    pub listen: Option<PostgresUrl>,
    /// Maximum connections, not counting the one for LISTEN.
    pub connections: usize,
}

/// Log settings.
#[derive(Debug, Clone)]
pub struct LogSettings {
    /// A level, or a filter by module; empty for the command's default.
    pub level: String,
    /// Format of the lines.
    pub format: LogFormat,
    /// Folder of daily files; `None` for stderr.
    pub dir: Option<PathBuf>,
    /// Number of daily files to keep.
    pub keep: u32,
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Human,
    /// For programs.
    Json,
}

/// Defaults of `worker`.
#[derive(Debug, Clone)]
pub struct WorkerDefaults {
    /// Units to run concurrently.
    pub slots: u32,
    /// Queues to claim from; empty means all.
    pub queues: Vec<QueueName>,
    /// Kinds to claim; empty means all.
    pub kinds: Vec<Kind>,
    /// Maximum time of a drain.
    pub drain_timeout: Duration,
    /// A worker counts as dead after this long without a heartbeat.
    pub ttl: Duration,
    /// Working directory of commands.
    pub exec_dir: PathBuf,
    /// Variables that commands of batches inherit.
    pub env: Vec<String>,
    /// Bounded pools of which units of a kind hold a permit.
    pub pools: BTreeMap<Kind, PoolName>,
}

/// Permissions of HTTP requests.
#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// Allowed destinations.
    pub allowlist: Arc<Allowlist>,
    /// Variables that header values may name.
    pub env: Vec<String>,
}

impl Settings {
    /// Resolves all settings.
    pub fn resolve(typed: &GlobalArgs) -> anyhow::Result<Self> {
        let config = config::load(typed.config.as_deref())?;
        let store = typed.store.as_ref().unwrap_or(&config.store);
        Ok(Self {
            typed: typed.clone(),
            store: store.parse()?,
            store_named: typed.store.is_some() || config.store_named,
            #[cfg(feature = "standard")]
            server: None,
            synchronous: parse_choice("sqlite.synchronous", &config.sqlite.synchronous)?,
            postgres: postgres(&config)?,
            tenant: tenant(typed, &config)?,
            patience: duration("patience", &config.patience)?,
            output: output(typed),
            config_file: config.file.clone(),
            log: log(typed, &config)?,
            otlp: otlp(&config)?,
            worker: worker(&config)?,
            pools: pools(&config)?,
            bounded: bounded(&config)?,
            alerts: alerts(&config)?,
            queue: parse_name("submit.queue", &config.submit.queue)?,
            http: http(&config)?,
            vault: vault(&config)?,
            ai: ai(&config)?,
            #[cfg(feature = "standard")]
            dispatch: standard::dispatch(&config)?,
            #[cfg(feature = "standard")]
            mail: mail::mail(&config)?,
            #[cfg(feature = "standard")]
            web: standard::web(&config)?,
            #[cfg(feature = "standard")]
            supervise: supervise::supervise(typed, &config)?,
            retention: retention(&config)?,
        })
    }

    /// The scope of queries: one tenant, or all.
    pub fn scope(&self) -> Scope {
        self.tenant.clone().map_or(Scope::All, Scope::Tenant)
    }
}

/// The form of the output, which does not depend on the configuration.
pub fn output(typed: &GlobalArgs) -> Output {
    Output::new(form(typed))
}

fn form(typed: &GlobalArgs) -> OutputForm {
    match (typed.json, typed.quiet) {
        (true, _) => OutputForm::Json,
        (false, true) => OutputForm::Quiet,
        (false, false) => OutputForm::Human,
    }
}

fn tenant(typed: &GlobalArgs, config: &Config) -> anyhow::Result<Option<TenantId>> {
    match (&typed.tenant, config.tenant.as_str()) {
        (Some(tenant), _) => Ok(Some(tenant.clone())),
        (None, "") => Ok(None),
        (None, name) => parse_name("tenant", name).map(Some),
    }
}

fn postgres(config: &Config) -> anyhow::Result<PostgresSettings> {
    let config::PostgresConfig { listen_url, connections } = &config.postgres;
    let listen = Some(listen_url).filter(|url| !url.is_empty()).map(|url| url.parse());
    let listen = listen.transpose().with_context(|| in_key("postgres.listen_url"))?;
    Ok(PostgresSettings { listen, connections: usize::try_from((*connections).max(1))? })
}

fn log(typed: &GlobalArgs, config: &Config) -> anyhow::Result<LogSettings> {
    let log = &config.log;
    let dir = typed.log_dir.clone().or_else(|| path(&log.dir));
    Ok(LogSettings {
        level: typed.log_level.clone().unwrap_or_else(|| log.level.clone()),
        format: match typed.log_format {
            Some(format) => format,
            None => parse_choice("log.format", &log.format)?,
        },
        dir,
        keep: log.keep.max(1),
    })
}

fn worker(config: &Config) -> anyhow::Result<WorkerDefaults> {
    let worker = &config.worker;
    Ok(WorkerDefaults {
        slots: if worker.slots == 0 { cores() } else { worker.slots },
        queues: parse_names("worker.queues", &worker.queues)?,
        kinds: parse_names("worker.kinds", &worker.kinds)?,
        drain_timeout: duration("worker.drain_timeout", &worker.drain_timeout)?,
        ttl: duration("worker.ttl", &worker.ttl)?,
        exec_dir: path(&worker.exec_dir).unwrap_or_else(|| ".".into()),
        env: worker.env.clone(),
        pools: kind_pools(config)?,
    })
}

/// The bounded pools of which units of a kind hold a permit.
fn kind_pools(config: &Config) -> anyhow::Result<BTreeMap<Kind, PoolName>> {
    let pools = config.worker.pools.iter().map(|(kind, pool)| {
        let key = format!("worker.pools.{kind}");
        Ok((parse_name("worker.pools", kind)?, pool_name(&key, pool, config)?))
    });
    pools.collect()
}

/// Resolves the name of a configured bounded pool.
fn pool_name(key: &str, name: &str, config: &Config) -> anyhow::Result<PoolName> {
    if config.pools.contains_key(name) {
        return parse_name(key, name);
    }
    let suggestion = suggestion(name, config.pools.keys().map(String::as_str));
    let error = usage(format!("`{key}` names pool `{name}`, which does not exist{suggestion}"));
    Err(hinted(error, format!("write [pools.{name}] max = N")))
}

fn pools(config: &Config) -> anyhow::Result<Vec<ExternalWorkerSettings>> {
    let pools = config.workers.iter().map(|(name, written)| pool(name, written, config));
    let pools = pools.collect::<anyhow::Result<Vec<_>>>()?;
    let mut taken: Vec<(&Kind, &str)> = Vec::new();
    for pool in &pools {
        for kind in &pool.kinds {
            match taken.iter().find(|(known, _)| *known == kind) {
                Some((_, other)) if *other == pool.name => {
                    let key = format!("workers.{other}.kinds");
                    return Err(usage(format!("`{key}` names `{kind}` twice")))
                        .hint("name it once");
                }
                Some((_, other)) => return Err(both_handle(other, &pool.name, kind)),
                None => {}
            }
            taken.push((kind, &pool.name));
        }
    }
    Ok(pools)
}

fn pool(
    name: &str,
    written: &config::WorkerProcessConfig,
    config: &Config,
) -> anyhow::Result<ExternalWorkerSettings> {
    let key = |key: &str| format!("workers.{name}.{key}");
    let config::WorkerProcessConfig { command, min, max, max_calls, .. } = written;
    if command.first().is_none_or(|program| program.trim().is_empty()) {
        let missing = usage(format!("`{}` is missing", key("command")));
        return Err(missing).hint("as command = [\"python3\", \"worker.py\"]");
    }
    if *max > 0 && min > max {
        let above = usage(format!("`{}` is above `{}`", key("min"), key("max")));
        return Err(above).hint("`max = 0` is one for each slot, and at least `min`");
    }
    let memory = Some(&written.max_memory)
        .filter(|text| !text.is_empty())
        .map(|text| at_key(&key("max_memory"), text.parse().map_err(usage)));
    let shape = longshore_pool::Settings {
        min: *min as usize,
        max: *max as usize,
        timeout: positive_duration(&key("timeout"), &written.timeout)?,
        start_timeout: positive_duration(&key("start_timeout"), &written.start_timeout)?,
        idle_timeout: duration(&key("idle_timeout"), &written.idle_timeout)?,
        max_calls: Some(*max_calls).filter(|most| *most > 0),
        max_memory: memory.transpose()?.map(|ByteSize(bytes)| bytes),
        ..longshore_pool::Settings::default()
    };
    Ok(ExternalWorkerSettings {
        name: name.to_owned(),
        command: command.clone(),
        kinds: parse_names(&key("kinds"), &written.kinds)?,
        dir: path(&written.dir).unwrap_or_else(|| ".".into()),
        env: written.env.clone(),
        holds: match written.pool.as_str() {
            "" => None,
            pool => Some(pool_name(&key("pool"), pool, config)?),
        },
        shape,
    })
}

fn bounded(config: &Config) -> anyhow::Result<BoundedSettings> {
    let mut pools = BTreeMap::new();
    for (name, written) in &config.pools {
        pools.insert(parse_name("pools", name)?, bounded_pool(name, written)?);
    }
    Ok(BoundedSettings { at: at_key("permits", config.permits.parse())?, pools })
}

/// What to do while the permits' store is unavailable.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
enum OnOutageName {
    FailClosed,
    FailOpen,
}

fn bounded_pool(
    name: &str,
    written: &config::BoundedPoolConfig,
) -> anyhow::Result<BoundedPoolSettings> {
    let key = |key: &str| format!("pools.{name}.{key}");
    if written.max == 0 {
        return Err(usage(format!("`{}` is missing", key("max")))).hint("as max = 20");
    }
    let own = if written.own_max == 0 { written.max } else { written.own_max };
    Ok(BoundedPoolSettings {
        max: written.max,
        wait: duration(&key("wait"), &written.wait)?,
        lease: positive_duration(&key("lease"), &written.lease)?,
        alert_every: duration(&key("alert_every"), &written.alert_every)?,
        on_outage: match parse_choice(&key("on_outage"), &written.on_outage)? {
            OnOutageName::FailClosed => OnOutage::FailClosed,
            OnOutageName::FailOpen => OnOutage::FailOpen { most: own },
        },
        adaptive: adaptive(name, written)?,
    })
}

fn adaptive(
    name: &str,
    written: &config::BoundedPoolConfig,
) -> anyhow::Result<Option<AdaptiveMax>> {
    let config::AdaptiveConfig { least, most, window } = &written.adaptive;
    let key = |key: &str| format!("pools.{name}.{key}");
    let window = positive_duration(&key("adaptive.window"), window)?;
    let min = (*least).max(1);
    match *most {
        0 => Ok(None),
        most if min <= written.max && written.max <= most => {
            Ok(Some(AdaptiveMax { min, max: most, window }))
        }
        most => {
            let (key, max) = (key("max"), written.max);
            Err(usage(format!("`{key}` is {max}, which is not within {min} and {most}")))
                .hint("an adaptive maximum begins with `max`: between `least` and `most`")
        }
    }
}

/// The destinations of alerts. No error repeats their values: both are secrets.
fn alerts(config: &Config) -> anyhow::Result<AlertSettings> {
    let config::AlertsConfig { webhook, sentry } = &config.alerts;
    Ok(AlertSettings {
        webhook: secret("alerts.webhook", webhook)?,
        sentry: secret("alerts.sentry", sentry)?,
    })
}

fn secret<T: std::str::FromStr<Err = anyhow::Error>>(
    key: &str,
    text: &str,
) -> anyhow::Result<Option<T>> {
    let text = Some(text).filter(|text| !text.is_empty());
    text.map(|text| text.parse().with_context(|| in_key(key))).transpose()
}

fn http(config: &Config) -> anyhow::Result<HttpSettings> {
    let allowlist = Allowlist::new(&config.http.allow).map_err(usage);
    let allowlist = Arc::new(allowlist.with_context(|| in_key("http.allow"))?);
    Ok(HttpSettings { allowlist, env: config.http.env.clone() })
}

fn vault(config: &Config) -> anyhow::Result<VaultSettings> {
    let config::VaultConfig { key_file, older } = &config.vault;
    let key_file = Some(key_file).filter(|text| !text.is_empty());
    let key_file = key_file.map(|text| parse_name("vault.key_file", text));
    Ok(VaultSettings { key_file: key_file.transpose()?, older: parse_names("vault.older", older)? })
}

fn ai(config: &Config) -> anyhow::Result<AiSettings> {
    let config::AiConfig { prompts_dir, prompts_db, prompts_sql, library_suffixes, .. } =
        &config.ai;
    let database = match prompts_db.as_str() {
        "" => Database::Store,
        url => Database::Url(url.to_owned()),
    };
    let prompts = match (path(prompts_dir), prompts_sql.as_str()) {
        (None, "") if !prompts_db.is_empty() => {
            return Err(usage("ai.prompts_db is set without ai.prompts_sql"))
                .hint("write the query in ai.prompts_sql");
        }
        (None, "") => PromptSource::Nothing,
        (Some(dir), "") => PromptSource::Files(dir),
        (None, sql) => PromptSource::Table { database, sql: sql.to_owned() },
        (Some(_), _) => {
            return Err(usage("ai.prompts_dir and ai.prompts_sql are both set"))
                .hint("prompts are in files or in a table: leave one of them out");
        }
    };
    let libraries =
        Libraries { suffixes: library_suffixes.clone(), map: libraries(&config.ai.libraries)? };
    Ok(AiSettings { prompts, libraries })
}

/// The tenant of each library. Names are case-insensitive, so none may occur twice.
fn libraries(written: &BTreeMap<String, String>) -> anyhow::Result<BTreeMap<String, TenantId>> {
    let mut libraries = BTreeMap::new();
    for (library, tenant) in written {
        let known = |name: &&String| name.eq_ignore_ascii_case(library);
        if let Some(other) = libraries.keys().find(known) {
            let problem = format!("ai.libraries names `{other}` and `{library}`");
            return Err(usage(problem)).hint("their names are case-insensitive");
        }
        libraries.insert(library.clone(), parse_name("ai.libraries", tenant)?);
    }
    Ok(libraries)
}

fn otlp(config: &Config) -> anyhow::Result<Option<String>> {
    let url = &config.telemetry.otlp;
    match url.is_empty() || url.starts_with("http://") || url.starts_with("https://") {
        true => Ok(Some(url.clone()).filter(|url| !url.is_empty())),
        false => {
            at_key("telemetry.otlp", Err(usage("is a URL that begins with http:// or https://")))
        }
    }
}

fn retention(config: &Config) -> anyhow::Result<Retention> {
    Ok(Retention {
        done: duration("keep.done", &config.keep.done)?,
        failed: duration("keep.failed", &config.keep.failed)?,
        batches: duration("keep.batches", &config.keep.batches)?,
        deeds: duration("keep.audit", &config.keep.audit)?,
    })
}

/// Computed once: it reads a dozen files.
fn cores() -> u32 {
    static CORES: LazyLock<u32> = LazyLock::new(|| {
        std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1))
    });
    *CORES
}

fn path(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(text))
}

fn duration(key: &str, text: &str) -> anyhow::Result<Duration> {
    let DurationArg(time) = at_key(key, text.parse().map_err(usage))?;
    Ok(time)
}

/// A positive duration.
fn positive_duration(key: &str, text: &str) -> anyhow::Result<Duration> {
    match duration(key, text)? {
        Duration::ZERO => at_key(key, Err(usage("must be longer than 0"))),
        time => Ok(time),
    }
}

fn parse_name<T: std::str::FromStr<Err = E>, E>(key: &str, text: &str) -> anyhow::Result<T>
where
    E: std::error::Error + Send + Sync + 'static,
{
    at_key(key, text.parse().map_err(anyhow::Error::from))
}

fn parse_names<T: std::str::FromStr<Err = E>, E>(
    key: &str,
    texts: &[String],
) -> anyhow::Result<Vec<T>>
where
    E: std::error::Error + Send + Sync + 'static,
{
    texts.iter().map(|text| parse_name(key, text)).collect()
}

fn parse_choice<T: clap::ValueEnum>(key: &str, text: &str) -> anyhow::Result<T> {
    T::from_str(text, false).map_err(|_| {
        let values: Vec<_> = T::value_variants().iter().filter_map(T::to_possible_value).collect();
        let names: Vec<&str> = values.iter().map(clap::builder::PossibleValue::get_name).collect();
        let suggestion = suggestion(text, names.iter().copied());
        let problem =
            format!("`{text}` is not a value of `{key}` ({}){suggestion}", names.join(", "));
        hinted(usage(problem), "longshore.reference.toml shows every key with its default")
    })
}

/// Adds the key, and where correct values are documented, to the error of a value.
fn at_key<T>(key: &str, value: anyhow::Result<T>) -> anyhow::Result<T> {
    let value = value.hint("longshore.reference.toml shows every key with its default");
    value.with_context(|| in_key(key))
}

fn in_key(key: &str) -> String {
    format!("in configuration key `{key}`")
}
