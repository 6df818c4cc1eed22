//! Resolves the settings: flags over environment over file over defaults.
//!
//! [`crate::args`] defines the flags, [`crate::config`] the keys; commands see only these settings.
//! Checks keys that depend on each other.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use longshore::store::Retention;
use longshore::{AdaptiveMax, ByteSize, Kind, OnOutage, PoolName, QueueName, Scope, TenantId};
use longshore_ai::contract::Libraries;
use longshore_batch::definition::Database;
use longshore_sqlite::Synchronous;
#[cfg(feature = "standard")]
use longshore_web::client::ApiClient;

use crate::args::GlobalArgs;
use crate::config::{
    self, AiConfig, AlertsConfig, BoundedPoolConfig, Config, HttpConfig, LogConfig, OnOutageName,
    PostgresConfig, VaultConfig, WorkerConfig, WorkerProcessConfig,
};
#[cfg(feature = "standard")]
use crate::config::{DispatchConfig, MailConfig, WebConfig};
use crate::error::{WithHint, did_you_mean, usage};
use crate::external_workers::{ExternalWorkerSettings, both_handle};
use crate::output::{Output, OutputForm};
use crate::semaphore_backend::{BoundedPoolSettings, BoundedSettings};
use crate::store::StoreUrl;

#[cfg(feature = "standard")]
mod supervise;

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
    pub synchronous: Synchronous,
    /// Whether opening the store may change nothing, not even its schema.
    pub inspect_only: bool,
    /// Time limit of a unit's effects in an SQLite store.
    pub sqlite_effect_timeout: Duration,
    /// Connections to a PostgreSQL store.
    pub postgres: PostgresConfig,
    /// The tenant to which commands are restricted, if any.
    pub tenant: Option<TenantId>,
    /// How long to wait for an unavailable store.
    pub patience: Duration,
    /// Form of the output.
    pub output: Output,
    /// The configuration file, if there is one.
    pub config_file: Option<PathBuf>,
    /// Log settings.
    pub log: LogConfig,
    /// The OTLP collector's URL, if there is one.
    pub otlp: Option<String>,
    /// Defaults of `worker`.
    pub worker: WorkerConfig,
    /// Worker processes in any language.
    pub pools: Vec<ExternalWorkerSettings>,
    /// Bounded pools.
    pub bounded: BoundedSettings,
    /// Destinations of alerts, beside the log.
    pub alerts: AlertsConfig,
    /// The queue of units that name none.
    pub queue: QueueName,
    /// Permissions of HTTP requests.
    pub http: HttpConfig,
    /// Location of the vault's master key.
    pub vault: VaultConfig,
    /// Settings of `ai worker`.
    pub ai: AiSettings,
    /// Location and defaults of a pool of script workers.
    #[cfg(feature = "standard")]
    pub dispatch: DispatchConfig,
    /// Spool, renderer and server of mail.
    #[cfg(feature = "standard")]
    pub mail: MailConfig,
    /// Settings of the API server.
    #[cfg(feature = "standard")]
    pub web: WebConfig,
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
    /// Whether error messages may quote prompts.
    pub quote_prompts: bool,
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

impl Settings {
    /// Resolves all settings.
    pub fn resolve(typed: &GlobalArgs) -> anyhow::Result<Self> {
        let mut config = config::load(typed.config.as_deref())?;
        if config.worker.slots == 0 {
            config.worker.slots = cores();
        }
        #[cfg(feature = "standard")]
        if config.dispatch.threads == 0 {
            config.dispatch.threads = cores();
        }
        check_pools(&config)?;
        Ok(Self {
            typed: typed.clone(),
            store_named: typed.store.is_some() || config.store_named,
            #[cfg(feature = "standard")]
            server: None,
            output: output(typed),
            pools: pools(&config)?,
            bounded: bounded(&config)?,
            #[cfg(feature = "standard")]
            supervise: supervise::supervise(typed, &config)?,
            store: typed.store.as_ref().map_or(Ok(config.store), |url| url.parse())?,
            synchronous: config.sqlite.synchronous,
            inspect_only: false,
            sqlite_effect_timeout: config.sqlite.effect_timeout,
            postgres: config.postgres,
            tenant: typed.tenant.clone().or(config.tenant),
            patience: config.patience,
            config_file: config.file,
            log: log(typed, config.log),
            otlp: config.telemetry.otlp,
            worker: config.worker,
            alerts: config.alerts,
            queue: config.submit.queue,
            http: config.http,
            vault: config.vault,
            ai: ai(config.ai)?,
            #[cfg(feature = "standard")]
            dispatch: config.dispatch,
            #[cfg(feature = "standard")]
            mail: config.mail,
            #[cfg(feature = "standard")]
            web: config.web,
            retention: config.keep,
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

fn log(typed: &GlobalArgs, config: LogConfig) -> LogConfig {
    LogConfig {
        level: typed.log_level.clone().unwrap_or(config.level),
        format: typed.log_format.unwrap_or(config.format),
        dir: typed.log_dir.clone().or(config.dir),
        ..config
    }
}

/// Rejects the name of a bounded pool without a section.
fn check_pools(config: &Config) -> anyhow::Result<()> {
    let kinds = config.worker.pools.iter();
    let kinds = kinds.map(|(kind, pool)| (format!("worker.pools.{kind}"), pool));
    let workers = config
        .workers
        .iter()
        .filter_map(|(name, worker)| Some((format!("workers.{name}.pool"), worker.pool.as_ref()?)));
    let named = kinds.chain(workers);
    #[cfg(feature = "standard")]
    let named = named.chain(config.mail.pool.as_ref().map(|pool| ("mail.pool".to_owned(), pool)));
    for (key, pool) in named {
        if !config.pools.contains_key(pool) {
            let known = config.pools.keys().map(PoolName::as_str);
            let suggestion = did_you_mean(pool.as_str(), known)
                .map_or(String::new(), |suggestion| format!(", did you mean `{suggestion}`?"));
            return Err(usage(format!("`{key}` names pool `{pool}`, which does not exist{suggestion}")))
                .hint(format!("write [pools.{pool}] max = N"));
        }
    }
    Ok(())
}

fn pools(config: &Config) -> anyhow::Result<Vec<ExternalWorkerSettings>> {
    let pools = config.workers.iter().map(|(name, written)| pool(name, written));
    let pools = pools.collect::<anyhow::Result<Vec<_>>>()?;
    let mut taken: Vec<(&Kind, &str)> = Vec::new();
    for pool in &pools {
        for kind in &pool.kinds {
            match taken.iter().find(|(known, _)| *known == kind) {
                Some((_, other)) if *other == pool.name => {
                    let key = format!("workers.{other}.kinds");
                    return Err(usage(format!("`{key}` names `{kind}` twice"))).hint("name it once");
                }
                Some((_, other)) => return Err(both_handle(other, &pool.name, kind)),
                None => {}
            }
            taken.push((kind, &pool.name));
        }
    }
    Ok(pools)
}

fn pool(name: &str, written: &WorkerProcessConfig) -> anyhow::Result<ExternalWorkerSettings> {
    let key = |key: &str| format!("workers.{name}.{key}");
    let WorkerProcessConfig { command, min, max, max_calls, .. } = written;
    if command.first().is_none_or(|program| program.trim().is_empty()) {
        let missing = usage(format!("`{}` is missing", key("command")));
        return Err(missing).hint("as command = [\"python3\", \"worker.py\"]");
    }
    if *max > 0 && min > max {
        let above = usage(format!("`{}` is above `{}`", key("min"), key("max")));
        return Err(above).hint("`max = 0` is one for each slot, and at least `min`");
    }
    let shape = longshore_pool::PoolSettings {
        min: *min as usize,
        max: *max as usize,
        timeout: written.timeout,
        start_timeout: written.start_timeout,
        idle_timeout: written.idle_timeout,
        max_calls: Some(*max_calls).filter(|most| *most > 0),
        max_memory: written.max_memory.map(|ByteSize(bytes)| bytes),
        ..longshore_pool::PoolSettings::default()
    };
    Ok(ExternalWorkerSettings {
        name: name.to_owned(),
        command: command.clone(),
        kinds: written.kinds.clone(),
        dir: written.dir.clone(),
        env: written.env.clone(),
        holds: written.pool.clone(),
        shape,
    })
}

fn bounded(config: &Config) -> anyhow::Result<BoundedSettings> {
    let pools = config.pools.iter();
    let pools = pools.map(|(name, written)| Ok((name.clone(), bounded_pool(name, written)?)));
    Ok(BoundedSettings { at: config.permits.clone(), pools: pools.collect::<anyhow::Result<_>>()? })
}

fn bounded_pool(name: &PoolName, written: &BoundedPoolConfig) -> anyhow::Result<BoundedPoolSettings> {
    if written.max == 0 {
        return Err(usage(format!("`pools.{name}.max` is missing"))).hint("as max = 20");
    }
    let own = if written.own_max == 0 { written.max } else { written.own_max };
    Ok(BoundedPoolSettings {
        max: written.max,
        wait: written.wait,
        lease: written.lease,
        alert_every: written.alert_every,
        on_outage: match written.on_outage {
            OnOutageName::FailClosed => OnOutage::FailClosed,
            OnOutageName::FailOpen => OnOutage::FailOpen { max_weight: own },
        },
        adaptive: adaptive(name, written)?,
    })
}

fn adaptive(name: &PoolName, written: &BoundedPoolConfig) -> anyhow::Result<Option<AdaptiveMax>> {
    let config::AdaptiveConfig { min, max, window } = written.adaptive;
    let (min, initial) = (min.max(1), written.max);
    match max {
        0 => Ok(None),
        max if (min..=max).contains(&initial) => Ok(Some(AdaptiveMax { min, max, window })),
        max => {
            let problem = format!("`pools.{name}.max` is {initial}, which is not within {min} and {max}");
            Err(usage(problem)).hint("it is the initial maximum: between `adaptive.min` and `adaptive.max`")
        }
    }
}

fn ai(config: AiConfig) -> anyhow::Result<AiSettings> {
    let AiConfig { prompts_dir, prompts_db, prompts_sql: sql, library_suffixes, libraries, quote_prompts } =
        config;
    let prompts = match (prompts_dir, sql.is_empty()) {
        (None, true) if !prompts_db.is_empty() => {
            return Err(usage("ai.prompts_db is set without ai.prompts_sql"))
                .hint("write the query in ai.prompts_sql");
        }
        (None, true) => PromptSource::Nothing,
        (Some(dir), true) => PromptSource::Files(dir),
        (None, false) if prompts_db.is_empty() => PromptSource::Table { database: Database::Store, sql },
        (None, false) => PromptSource::Table { database: Database::Url(prompts_db), sql },
        (Some(_), false) => {
            return Err(usage("ai.prompts_dir and ai.prompts_sql are both set"))
                .hint("prompts are in files or in a table: leave one of them out");
        }
    };
    check_libraries(&libraries)?;
    let libraries = Libraries { suffixes: library_suffixes, map: libraries };
    Ok(AiSettings { prompts, libraries, quote_prompts })
}

/// Names of libraries are case-insensitive, so none may occur twice.
fn check_libraries(libraries: &BTreeMap<String, TenantId>) -> anyhow::Result<()> {
    let mut known = BTreeMap::new();
    for library in libraries.keys() {
        if let Some(other) = known.insert(library.to_ascii_lowercase(), library) {
            let problem = format!("ai.libraries names `{other}` and `{library}`");
            return Err(usage(problem)).hint("their names are case-insensitive");
        }
    }
    Ok(())
}

/// Computed once: it reads a dozen files.
fn cores() -> u32 {
    static CORES: LazyLock<u32> = LazyLock::new(|| {
        std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1))
    });
    *CORES
}
