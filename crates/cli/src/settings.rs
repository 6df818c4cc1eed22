//! What the user means: flags over environment over file over defaults, checked once.
//!
//! [`crate::args`] is what was typed; commands see only this.

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

use crate::alarms::AlertSettings;
use crate::args::Global;
use crate::config::{self, Config};
use crate::error::{WithHint, did_you_mean, hinted, usage};
use crate::http::rules::Rules;
#[cfg(feature = "standard")]
use crate::mail::MailSettings;
use crate::output::{Form, Output};
use crate::permits::{BoundedSettings, BoundedShape};
use crate::pools::{PoolSettings, both_handle};
use crate::size::Size;
use crate::span::Span;
use crate::store::{PostgresUrl, StoreUrl, Synchronous};
use crate::vault::VaultSettings;

#[cfg(feature = "standard")]
mod mail;
#[cfg(feature = "standard")]
mod standard;
#[cfg(feature = "standard")]
mod supervise;

#[cfg(feature = "standard")]
pub use standard::{DispatchSettings, WebSettings};
#[cfg(feature = "standard")]
pub use supervise::{Run, SuperviseSettings, Supervised};

/// Everything that holds for all commands.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What was typed, for whoever reads the file again.
    pub typed: Global,
    /// Where the units are.
    pub store: StoreUrl,
    /// Whether somebody chose that store: by flag, environment or file.
    pub store_named: bool,
    /// The server that is asked instead, if the command goes over one.
    #[cfg(feature = "standard")]
    pub server: Option<ApiClient>,
    /// How the embedded store writes.
    pub synchronous: Synchronous,
    /// How a PostgreSQL store is reached.
    pub postgres: PostgresSettings,
    /// The only tenant, if there is only one.
    pub tenant: Option<TenantId>,
    /// How long a store that is away is waited for.
    pub patience: Duration,
    /// How we print.
    pub output: Output,
    /// The configuration file, if there is one.
    pub config_file: Option<PathBuf>,
    /// How we log.
    pub log: LogSettings,
    /// The collector of traces, if there is one.
    pub otlp: Option<String>,
    /// Defaults of `worker`.
    pub worker: WorkerSettings,
    /// Worker processes in any language.
    pub pools: Vec<PoolSettings>,
    /// Bounded pools.
    pub bounded: BoundedSettings,
    /// Who is told of alerts, beside the log.
    pub alerts: AlertSettings,
    /// The queue of units that name none.
    pub queue: QueueName,
    /// What calls of URLs may do.
    pub http: HttpSettings,
    /// Where the master key of the vault is.
    pub vault: VaultSettings,
    /// What `ai worker` has to know.
    pub ai: AiSettings,
    /// Where a pool of script workers is, and what it is like.
    #[cfg(feature = "standard")]
    pub dispatch: DispatchSettings,
    /// Where mail is kept, rendered and sent.
    #[cfg(feature = "standard")]
    pub mail: MailSettings,
    /// How the API is served.
    #[cfg(feature = "standard")]
    pub web: WebSettings,
    /// What `supervise` keeps alive, and how.
    #[cfg(feature = "standard")]
    pub supervise: SuperviseSettings,
    /// How long ended things are kept.
    pub retention: Retention,
}

/// What `ai worker` has to know.
#[derive(Debug, Clone)]
pub struct AiSettings {
    /// Where prompts are that requests refer to.
    pub prompts: PromptsIn,
    /// Whose the libraries of reply queues are.
    pub libraries: Libraries,
}

/// Where prompts are that requests refer to.
#[derive(Debug, Clone)]
pub enum PromptsIn {
    /// Nowhere.
    Nothing,
    /// In files below a folder.
    Files(PathBuf),
    /// In a database, found by a query.
    Table {
        /// Which one.
        database: Database,
        /// The query.
        sql: String,
    },
}

/// How a PostgreSQL store is reached.
#[derive(Debug, Clone)]
pub struct PostgresSettings {
    /// Where the server itself is, for who listens, if the store's URL leads to a pooler.
    pub listen: Option<PostgresUrl>,
    /// Connections at most, not counting the one that listens.
    pub connections: usize,
}

/// How we log.
#[derive(Debug, Clone)]
pub struct LogSettings {
    /// A level, or a filter by module; empty leaves it to the command.
    pub level: String,
    /// How lines look.
    pub format: LogFormat,
    /// Where daily files go; stderr without.
    pub dir: Option<PathBuf>,
    /// How many daily files are kept.
    pub keep: u32,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Human,
    /// For programs.
    Json,
}

/// Defaults of `worker`.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// Units run at once.
    pub slots: u32,
    /// Queues taken from; none means all.
    pub queues: Vec<QueueName>,
    /// Kinds taken; none means all.
    pub kinds: Vec<Kind>,
    /// How long a drain may take.
    pub drain_timeout: Duration,
    /// Without a sign of life for this long a worker counts as dead.
    pub ttl: Duration,
    /// Where commands run.
    pub exec_dir: PathBuf,
    /// Variables that commands of batches get.
    pub env: Vec<String>,
    /// Bounded pools that units of a kind hold permits of.
    pub pools: BTreeMap<Kind, PoolName>,
}

/// What calls of URLs may do.
#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// Where they may go.
    pub rules: Arc<Rules>,
    /// Variables that header values may name.
    pub env: Vec<String>,
}

impl Settings {
    /// Finds out what is meant.
    pub fn resolve(typed: &Global) -> anyhow::Result<Self> {
        let config = config::load(typed.config.as_deref())?;
        let store = typed.store.as_ref().unwrap_or(&config.store);
        Ok(Self {
            typed: typed.clone(),
            store: store.parse()?,
            store_named: typed.store.is_some() || config.store_named,
            #[cfg(feature = "standard")]
            server: None,
            synchronous: choice("sqlite.synchronous", &config.sqlite.synchronous)?,
            postgres: postgres(&config)?,
            tenant: tenant(typed, &config)?,
            patience: span("patience", &config.patience)?,
            output: output(typed),
            config_file: config.file.clone(),
            log: log(typed, &config)?,
            otlp: otlp(&config)?,
            worker: worker(&config)?,
            pools: pools(&config)?,
            bounded: bounded(&config)?,
            alerts: alerts(&config)?,
            queue: named("submit.queue", &config.submit.queue)?,
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

    /// Whose things may be touched.
    pub fn scope(&self) -> Scope {
        self.tenant.clone().map_or(Scope::All, Scope::Tenant)
    }
}

/// How we print, whatever the configuration says.
pub fn output(typed: &Global) -> Output {
    Output::new(form(typed))
}

fn form(typed: &Global) -> Form {
    match (typed.json, typed.quiet) {
        (true, _) => Form::Json,
        (false, true) => Form::Quiet,
        (false, false) => Form::Human,
    }
}

fn tenant(typed: &Global, config: &Config) -> anyhow::Result<Option<TenantId>> {
    match (&typed.tenant, config.tenant.as_str()) {
        (Some(tenant), _) => Ok(Some(tenant.clone())),
        (None, "") => Ok(None),
        (None, name) => named("tenant", name).map(Some),
    }
}

fn postgres(config: &Config) -> anyhow::Result<PostgresSettings> {
    let config::Postgres { listen_url, connections } = &config.postgres;
    let listen = Some(listen_url).filter(|url| !url.is_empty()).map(|url| url.parse());
    let listen = listen.transpose().with_context(|| in_key("postgres.listen_url"))?;
    Ok(PostgresSettings { listen, connections: usize::try_from((*connections).max(1))? })
}

fn log(typed: &Global, config: &Config) -> anyhow::Result<LogSettings> {
    let log = &config.log;
    let dir = typed.log_dir.clone().or_else(|| path(&log.dir));
    Ok(LogSettings {
        level: typed.log_level.clone().unwrap_or_else(|| log.level.clone()),
        format: match typed.log_format {
            Some(format) => format,
            None => choice("log.format", &log.format)?,
        },
        dir,
        keep: log.keep.max(1),
    })
}

fn worker(config: &Config) -> anyhow::Result<WorkerSettings> {
    let worker = &config.worker;
    Ok(WorkerSettings {
        slots: if worker.slots == 0 { cores() } else { worker.slots },
        queues: all_named("worker.queues", &worker.queues)?,
        kinds: all_named("worker.kinds", &worker.kinds)?,
        drain_timeout: span("worker.drain_timeout", &worker.drain_timeout)?,
        ttl: span("worker.ttl", &worker.ttl)?,
        exec_dir: path(&worker.exec_dir).unwrap_or_else(|| ".".into()),
        env: worker.env.clone(),
        pools: held(config)?,
    })
}

/// What units of a kind hold permits of.
fn held(config: &Config) -> anyhow::Result<BTreeMap<Kind, PoolName>> {
    let pools = config.worker.pools.iter().map(|(kind, pool)| {
        let key = format!("worker.pools.{kind}");
        Ok((named("worker.pools", kind)?, known_pool(&key, pool, config)?))
    });
    pools.collect()
}

/// The name of a bounded pool that the configuration has.
fn known_pool(key: &str, name: &str, config: &Config) -> anyhow::Result<PoolName> {
    if config.pools.contains_key(name) {
        return named(key, name);
    }
    let meant = did_you_mean(name, config.pools.keys().map(String::as_str));
    let meant = meant.map_or(String::new(), |meant| format!(", did you mean `{meant}`?"));
    let error = usage(format!("`{key}` names pool `{name}`, which there is not{meant}"));
    Err(hinted(error, format!("write [pools.{name}] max = N")))
}

fn pools(config: &Config) -> anyhow::Result<Vec<PoolSettings>> {
    let pools = config.workers.iter().map(|(name, written)| pool(name, written, config));
    let pools = pools.collect::<anyhow::Result<Vec<_>>>()?;
    let mut taken: Vec<(&Kind, &str)> = Vec::new();
    for pool in &pools {
        for kind in &pool.kinds {
            match taken.iter().find(|(known, _)| *known == kind) {
                Some((_, other)) if *other == pool.name => {
                    let key = format!("workers.{other}.kinds");
                    return Err(usage(format!("`{key}` names `{kind}` twice")))
                        .hint("once will do");
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
    written: &config::WorkerCommand,
    config: &Config,
) -> anyhow::Result<PoolSettings> {
    let key = |key: &str| format!("workers.{name}.{key}");
    let config::WorkerCommand { command, min, max, max_calls, .. } = written;
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
        timeout: length(&key("timeout"), &written.timeout)?,
        start_timeout: length(&key("start_timeout"), &written.start_timeout)?,
        idle_timeout: span(&key("idle_timeout"), &written.idle_timeout)?,
        max_calls: Some(*max_calls).filter(|most| *most > 0),
        max_memory: memory.transpose()?.map(|Size(bytes)| bytes),
        ..longshore_pool::Settings::default()
    };
    Ok(PoolSettings {
        name: name.to_owned(),
        command: command.clone(),
        kinds: all_named(&key("kinds"), &written.kinds)?,
        dir: path(&written.dir).unwrap_or_else(|| ".".into()),
        env: written.env.clone(),
        holds: match written.pool.as_str() {
            "" => None,
            pool => Some(known_pool(&key("pool"), pool, config)?),
        },
        shape,
    })
}

fn bounded(config: &Config) -> anyhow::Result<BoundedSettings> {
    let mut pools = BTreeMap::new();
    for (name, written) in &config.pools {
        pools.insert(named("pools", name)?, bounded_pool(name, written)?);
    }
    Ok(BoundedSettings { at: at_key("permits", config.permits.parse())?, pools })
}

/// What to do while permits cannot be reached.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
enum Outage {
    FailClosed,
    FailOpen,
}

fn bounded_pool(name: &str, written: &config::Bounded) -> anyhow::Result<BoundedShape> {
    let key = |key: &str| format!("pools.{name}.{key}");
    if written.max == 0 {
        return Err(usage(format!("`{}` is missing", key("max")))).hint("as max = 20");
    }
    let own = if written.own_max == 0 { written.max } else { written.own_max };
    Ok(BoundedShape {
        max: written.max,
        wait: span(&key("wait"), &written.wait)?,
        lease: length(&key("lease"), &written.lease)?,
        alert_every: span(&key("alert_every"), &written.alert_every)?,
        on_outage: match choice(&key("on_outage"), &written.on_outage)? {
            Outage::FailClosed => OnOutage::FailClosed,
            Outage::FailOpen => OnOutage::FailOpen { most: own },
        },
        adaptive: adaptive(name, written)?,
    })
}

fn adaptive(name: &str, written: &config::Bounded) -> anyhow::Result<Option<AdaptiveMax>> {
    let config::Adaptive { least, most, window } = &written.adaptive;
    let key = |key: &str| format!("pools.{name}.{key}");
    let window = length(&key("adaptive.window"), window)?;
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

/// Who is told of alerts. Nothing that is wrong with them is repeated: both are secrets.
fn alerts(config: &Config) -> anyhow::Result<AlertSettings> {
    let config::Alerts { webhook, sentry } = &config.alerts;
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
    let rules = Rules::new(&config.http.allow).map_err(usage);
    let rules = Arc::new(rules.with_context(|| in_key("http.allow"))?);
    Ok(HttpSettings { rules, env: config.http.env.clone() })
}

fn vault(config: &Config) -> anyhow::Result<VaultSettings> {
    let config::Vault { key_file, older } = &config.vault;
    let key_file = Some(key_file).filter(|text| !text.is_empty());
    let key_file = key_file.map(|text| named("vault.key_file", text));
    Ok(VaultSettings { key_file: key_file.transpose()?, older: all_named("vault.older", older)? })
}

fn ai(config: &Config) -> anyhow::Result<AiSettings> {
    let config::Ai { prompts_dir, prompts_db, prompts_sql, library_suffixes, .. } = &config.ai;
    let database = match prompts_db.as_str() {
        "" => Database::Store,
        url => Database::Url(url.to_owned()),
    };
    let prompts = match (path(prompts_dir), prompts_sql.as_str()) {
        (None, "") if !prompts_db.is_empty() => {
            return Err(usage("ai.prompts_db is set, but not what is looked for there"))
                .hint("write the query in ai.prompts_sql");
        }
        (None, "") => PromptsIn::Nothing,
        (Some(dir), "") => PromptsIn::Files(dir),
        (None, sql) => PromptsIn::Table { database, sql: sql.to_owned() },
        (Some(_), _) => {
            return Err(usage("ai.prompts_dir and ai.prompts_sql are both set"))
                .hint("prompts are in files or in a table: leave one of them out");
        }
    };
    let libraries =
        Libraries { suffixes: library_suffixes.clone(), map: libraries(&config.ai.libraries)? };
    Ok(AiSettings { prompts, libraries })
}

/// Whose each library is. Small and capital letters are the same, so none may be there twice.
fn libraries(written: &BTreeMap<String, String>) -> anyhow::Result<BTreeMap<String, TenantId>> {
    let mut libraries = BTreeMap::new();
    for (library, tenant) in written {
        let known = |name: &&String| name.eq_ignore_ascii_case(library);
        if let Some(other) = libraries.keys().find(known) {
            let problem = format!("ai.libraries names `{other}` and `{library}`");
            return Err(usage(problem)).hint("small and capital letters are the same there");
        }
        libraries.insert(library.clone(), named("ai.libraries", tenant)?);
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
        done: span("keep.done", &config.keep.done)?,
        failed: span("keep.failed", &config.keep.failed)?,
        batches: span("keep.batches", &config.keep.batches)?,
        deeds: span("keep.audit", &config.keep.audit)?,
    })
}

/// Found out once: it takes a dozen files.
fn cores() -> u32 {
    static CORES: LazyLock<u32> = LazyLock::new(|| {
        std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1))
    });
    *CORES
}

fn path(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(text))
}

fn span(key: &str, text: &str) -> anyhow::Result<Duration> {
    let Span(time) = at_key(key, text.parse().map_err(usage))?;
    Ok(time)
}

/// A length of time, longer than nothing.
fn length(key: &str, text: &str) -> anyhow::Result<Duration> {
    match span(key, text)? {
        Duration::ZERO => at_key(key, Err(usage("must be longer than nothing"))),
        time => Ok(time),
    }
}

fn named<T: std::str::FromStr<Err = E>, E>(key: &str, text: &str) -> anyhow::Result<T>
where
    E: std::error::Error + Send + Sync + 'static,
{
    at_key(key, text.parse().map_err(anyhow::Error::from))
}

fn all_named<T: std::str::FromStr<Err = E>, E>(
    key: &str,
    texts: &[String],
) -> anyhow::Result<Vec<T>>
where
    E: std::error::Error + Send + Sync + 'static,
{
    texts.iter().map(|text| named(key, text)).collect()
}

fn choice<T: clap::ValueEnum>(key: &str, text: &str) -> anyhow::Result<T> {
    T::from_str(text, false).map_err(|_| {
        let values: Vec<_> = T::value_variants().iter().filter_map(T::to_possible_value).collect();
        let names: Vec<&str> = values.iter().map(clap::builder::PossibleValue::get_name).collect();
        let meant = did_you_mean(text, names.iter().copied());
        let meant = meant.map_or(String::new(), |meant| format!(", did you mean `{meant}`?"));
        let problem = format!("`{text}` is not a value of `{key}` ({}){meant}", names.join(", "));
        hinted(usage(problem), "longshore.reference.toml shows every key with its default")
    })
}

/// Says of a value that is wrong where it stands, and where the right ones are shown.
fn at_key<T>(key: &str, value: anyhow::Result<T>) -> anyhow::Result<T> {
    let value = value.hint("longshore.reference.toml shows every key with its default");
    value.with_context(|| in_key(key))
}

fn in_key(key: &str) -> String {
    format!("in configuration key `{key}`")
}
