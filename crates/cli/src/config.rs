//! `longshore.toml`: its schema and its parser.
//!
//! Unknown keys are rejected with file, line and a suggestion. [`crate::settings`] interprets the
//! values. Every key and its default are documented in `longshore.reference.toml`, which a test
//! compares with this module.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::env::{self, EnvVar};
use crate::error::{hinted, suggestion};

mod mail;
mod supervise;

pub use mail::MailConfig;
pub use supervise::{SuperviseConfig, SupervisedConfig};

/// The file name in the working directory.
const FILE_NAME: &str = "longshore.toml";

/// The whole file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The store's URL.
    pub store: String,
    /// Whether the file or the environment names the store.
    #[serde(skip)]
    pub store_named: bool,
    /// The file itself, if there is one.
    #[serde(skip)]
    pub file: Option<PathBuf>,
    /// The tenant; empty for all.
    pub tenant: String,
    /// How long to wait for an unavailable store.
    pub patience: String,
    /// The store of bounded pools' permits; empty for the units' store.
    pub permits: String,
    /// Level, format and destination of the log.
    pub log: LogConfig,
    /// Export of traces.
    pub telemetry: TelemetryConfig,
    /// Settings of the embedded store.
    pub sqlite: SqliteConfig,
    /// Connections to a PostgreSQL store.
    pub postgres: PostgresConfig,
    /// Defaults of workers.
    pub worker: WorkerConfig,
    /// Worker processes in any language, by their names.
    pub workers: BTreeMap<String, WorkerProcessConfig>,
    /// Bounded pools, by their names.
    pub pools: BTreeMap<String, BoundedPoolConfig>,
    /// Destinations of alerts, beside the log.
    pub alerts: AlertsConfig,
    /// Defaults of submitted units.
    pub submit: SubmitConfig,
    /// Permissions of kind `http`.
    pub http: HttpConfig,
    /// Location of the vault's master key.
    pub vault: VaultConfig,
    /// Settings of `ai worker`.
    pub ai: AiConfig,
    /// Location and defaults of a pool of script workers.
    pub dispatch: DispatchConfig,
    /// Spool, renderer and server of mail.
    pub mail: MailConfig,
    /// Settings of the API server.
    pub web: WebConfig,
    /// Supervised processes.
    pub supervise: SuperviseConfig,
    /// Retention of ended units, batches and audit entries.
    pub keep: RetentionConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            store: "sqlite:longshore.db".into(),
            store_named: false,
            file: None,
            tenant: String::new(),
            patience: "30s".into(),
            permits: String::new(),
            log: LogConfig::default(),
            telemetry: TelemetryConfig::default(),
            sqlite: SqliteConfig::default(),
            postgres: PostgresConfig::default(),
            worker: WorkerConfig::default(),
            workers: BTreeMap::new(),
            pools: BTreeMap::new(),
            alerts: AlertsConfig::default(),
            submit: SubmitConfig::default(),
            http: HttpConfig::default(),
            vault: VaultConfig::default(),
            ai: AiConfig::default(),
            dispatch: DispatchConfig::default(),
            mail: MailConfig::default(),
            web: WebConfig::default(),
            supervise: SuperviseConfig::default(),
            keep: RetentionConfig::default(),
        }
    }
}

/// `[log]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    pub level: String,
    pub format: String,
    pub dir: String,
    pub keep: u32,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { level: String::new(), format: "human".into(), dir: String::new(), keep: 7 }
    }
}

/// `[telemetry]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    pub otlp: String,
}

/// `[sqlite]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SqliteConfig {
    pub synchronous: String,
}

impl Default for SqliteConfig {
    fn default() -> Self {
        Self { synchronous: "full".into() }
    }
}

/// `[postgres]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PostgresConfig {
    pub listen_url: String,
    pub connections: u32,
}

impl Default for PostgresConfig {
    fn default() -> Self {
        Self { listen_url: String::new(), connections: 8 }
    }
}

/// `[worker]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerConfig {
    pub slots: u32,
    pub queues: Vec<String>,
    pub kinds: Vec<String>,
    pub drain_timeout: String,
    pub ttl: String,
    pub exec_dir: String,
    pub env: Vec<String>,
    pub pools: BTreeMap<String, String>,
}

impl Default for WorkerConfig {
    fn default() -> Self {
        Self {
            slots: 0,
            queues: vec![],
            kinds: vec![],
            drain_timeout: "30s".into(),
            ttl: "15s".into(),
            exec_dir: ".".into(),
            env: vec![],
            pools: BTreeMap::new(),
        }
    }
}

/// `[workers.NAME]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerProcessConfig {
    pub command: Vec<String>,
    pub kinds: Vec<String>,
    pub dir: String,
    pub env: BTreeMap<String, String>,
    pub min: u32,
    pub max: u32,
    pub timeout: String,
    pub start_timeout: String,
    pub idle_timeout: String,
    pub max_calls: u64,
    pub max_memory: String,
    pub pool: String,
}

impl Default for WorkerProcessConfig {
    fn default() -> Self {
        Self {
            command: vec![],
            kinds: vec![],
            dir: ".".into(),
            env: BTreeMap::new(),
            min: 1,
            max: 0,
            timeout: "30s".into(),
            start_timeout: "30s".into(),
            idle_timeout: "60s".into(),
            max_calls: 5000,
            max_memory: String::new(),
            pool: String::new(),
        }
    }
}

/// `[pools.NAME]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BoundedPoolConfig {
    pub max: u32,
    pub wait: String,
    pub lease: String,
    pub alert_every: String,
    pub on_outage: String,
    pub own_max: u32,
    pub adaptive: AdaptiveConfig,
}

impl Default for BoundedPoolConfig {
    fn default() -> Self {
        Self {
            max: 0,
            wait: "0s".into(),
            lease: "30s".into(),
            alert_every: "300s".into(),
            on_outage: "fail_closed".into(),
            own_max: 0,
            adaptive: AdaptiveConfig::default(),
        }
    }
}

/// `adaptive` of `[pools.NAME]`; with `most = 0` there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdaptiveConfig {
    pub least: u32,
    pub most: u32,
    pub window: String,
}

impl Default for AdaptiveConfig {
    fn default() -> Self {
        Self { least: 1, most: 0, window: "5s".into() }
    }
}

/// `[alerts]`: both are secrets, so they are not printed.
#[derive(Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AlertsConfig {
    pub webhook: String,
    pub sentry: String,
}

impl std::fmt::Debug for AlertsConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Alerts(…)")
    }
}

/// `[submit]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SubmitConfig {
    pub queue: String,
}

impl Default for SubmitConfig {
    fn default() -> Self {
        Self { queue: "default".into() }
    }
}

/// `[http]`
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    pub allow: Vec<String>,
    pub env: Vec<String>,
}

/// `[vault]`
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VaultConfig {
    pub key_file: String,
    pub older: Vec<String>,
}

/// `[ai]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AiConfig {
    pub prompts_dir: String,
    pub prompts_db: String,
    pub prompts_sql: String,
    pub library_suffixes: Vec<String>,
    pub libraries: BTreeMap<String, String>,
}

impl Default for AiConfig {
    fn default() -> Self {
        Self {
            prompts_dir: String::new(),
            prompts_db: String::new(),
            prompts_sql: String::new(),
            library_suffixes: vec!["_5DTA".into()],
            libraries: BTreeMap::new(),
        }
    }
}

/// `[dispatch]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DispatchConfig {
    pub dir: String,
    pub qsys: String,
    pub workers: u32,
    pub nthr: u32,
}

impl Default for DispatchConfig {
    fn default() -> Self {
        Self { dir: String::new(), qsys: "local_worker".into(), workers: 1, nthr: 0 }
    }
}

/// `[web]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebConfig {
    pub listen: String,
    pub tls_cert: String,
    pub tls_key: String,
    pub locked: bool,
    pub max_body: String,
    pub time_limit: String,
    pub connections: u32,
    pub dispatch: bool,
    pub dispatch_listen: Vec<String>,
    pub wrong_tokens: u32,
    pub shared_pools: Vec<String>,
}

impl Default for WebConfig {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7717".into(),
            tls_cert: String::new(),
            tls_key: String::new(),
            locked: false,
            max_body: "17MiB".into(),
            time_limit: "30s".into(),
            connections: 10_000,
            dispatch: false,
            dispatch_listen: Vec::new(),
            wrong_tokens: 20,
            shared_pools: Vec::new(),
        }
    }
}

/// `[keep]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetentionConfig {
    pub done: String,
    pub failed: String,
    pub batches: String,
    pub audit: String,
}

impl Default for RetentionConfig {
    fn default() -> Self {
        Self {
            done: "1d".into(),
            failed: "30d".into(),
            batches: "30d".into(),
            audit: "400d".into(),
        }
    }
}

/// Loads the configuration from the file and the environment.
pub fn load(flag: Option<&Path>) -> anyhow::Result<Config> {
    let file = find(flag)?;
    let mut table = match &file {
        Some(path) => read(path)?,
        None => Table::new(),
    };
    for var in env::VARS {
        if let Some(value) = std::env::var_os(var.name) {
            let value = value.into_string().ok().with_context(|| not_text(var))?;
            apply_variable(&mut table, var, &value)?;
        }
    }
    let store_named = table.contains_key("store");
    Ok(Config { store_named, file, ..table.try_into()? })
}

fn not_text(var: EnvVar) -> String {
    format!("environment variable {} is not valid UTF-8", var.name)
}

fn find(flag: Option<&Path>) -> anyhow::Result<Option<PathBuf>> {
    let named = flag.map(Path::to_owned);
    let named = named.or_else(|| std::env::var_os(env::CONFIG).map(PathBuf::from));
    match named {
        Some(path) if path.is_file() => Ok(Some(path)),
        Some(path) => bail!("there is no configuration file {}", path.display()),
        None => Ok(Some(PathBuf::from(FILE_NAME)).filter(|path| path.is_file())),
    }
}

fn read(path: &Path) -> anyhow::Result<Table> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read configuration file {}", path.display()))?;
    parse(&text, &path.display().to_string())
}

/// Checks `text` against [`Config`] and returns it as written, so that the environment can set what
/// it leaves out.
fn parse(text: &str, name: &str) -> anyhow::Result<Table> {
    if let Err(error) = toml::from_str::<Config>(text) {
        let at = error.span().map_or(0, |span| span.start).min(text.len());
        let line = text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        let known = unnamed_section_error(text).or_else(|| worker_list_error(text));
        let error = known.unwrap_or_else(|| explain(error.message()));
        return Err(error).with_context(|| format!("in {name}, line {line}"));
    }
    Ok(text.parse()?)
}

/// A key directly in `[workers]` or `[pools]` belongs into a named section. The parser would only
/// report its type.
fn unnamed_section_error(text: &str) -> Option<anyhow::Error> {
    let table = text.parse::<Table>().ok()?;
    ["workers", "pools"].into_iter().find_map(|name| {
        let section = table.get(name)?.as_table()?;
        let (key, _) = section.iter().find(|(_, value)| !value.is_table())?;
        let error = anyhow!("`{key}` stands in [{name}], which has sections only");
        Some(hinted(error, format!("write [{name}.NAME] above it")))
    })
}

/// `[[worker]]` is how other programs list supervised processes.
fn worker_list_error(text: &str) -> Option<anyhow::Error> {
    let table = text.parse::<Table>().ok()?;
    table.get("worker")?.as_array()?;
    let error =
        anyhow!("[[worker]] is a list, but [worker] is one section with the workers' defaults");
    Some(hinted(error, "supervised processes are sections [supervise.workers.NAME]"))
}

/// The parser's message, with a suggestion for an unknown key.
fn explain(message: &str) -> anyhow::Error {
    let words: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let [given, known @ ..] = words.as_slice() else { return type_error(message.trim()) };
    if !message.starts_with("unknown field") {
        return type_error(message.trim());
    }
    let suggestion = suggestion(given, known.iter().copied());
    hinted(anyhow!("unknown key `{given}`{suggestion}"), "longshore.reference.toml lists every key")
}

/// The parser's message for a value of the wrong type, with a hint.
fn type_error(message: &str) -> anyhow::Error {
    let hint = match message.rsplit_once("expected ") {
        Some((_, "a sequence")) => "a list is written as [\"one\", \"two\"]",
        Some((_, "a string")) => "text is written in quotes",
        _ => "longshore.reference.toml shows every key with its default",
    };
    hinted(anyhow!("{message}"), hint)
}

/// Sets a key to its variable's value.
fn apply_variable(table: &mut Table, var: EnvVar, text: &str) -> anyhow::Result<()> {
    let bad = || format!("in environment variable {}", var.name);
    let defaults = Table::try_from(Config::default())?;
    let value = match lookup(&defaults, var.key) {
        Some(Value::Integer(_)) => {
            Value::Integer(text.parse().with_context(|| format!("`{text}`")).with_context(bad)?)
        }
        Some(Value::Array(_)) => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            Value::Array(items.map(|item| Value::String(item.to_owned())).collect())
        }
        _ => Value::String(text.to_owned()),
    };
    let (section, key) = var.key.split_once('.').unwrap_or(("", var.key));
    let target = match section {
        "" => table,
        section => {
            let entry = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
            entry.as_table_mut().with_context(bad)?
        }
    };
    target.insert(key.to_owned(), value);
    Ok(())
}

fn lookup<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    match key.split_once('.') {
        Some((section, key)) => table.get(section)?.get(key),
        None => table.get(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFERENCE: &str = include_str!("../../../longshore.reference.toml");

    fn keys(table: &Table, under: &str) -> Vec<String> {
        let mut all = Vec::new();
        for (key, value) in table {
            match value {
                Value::Table(table) => all.extend(keys(table, &format!("{under}{key}."))),
                _ => all.push(format!("{under}{key}")),
            }
        }
        all.sort();
        all
    }

    #[test]
    fn the_reference_file_names_every_key_with_its_default() {
        let written = parse(REFERENCE, "longshore.reference.toml").unwrap();
        let defaults = Table::try_from(Config::default()).unwrap();
        assert_eq!(keys(&written, ""), keys(&defaults, ""));
        assert_eq!(written.try_into::<Config>().unwrap(), Config::default());
    }

    /// A section named by the user is documented there as a comment.
    fn commented(heading: &str) -> Table {
        let from = REFERENCE.lines().skip_while(|line| *line != format!("# {heading}"));
        let section: String = from
            .take_while(|line| line.starts_with('#'))
            .filter_map(|line| line.strip_prefix("# "))
            .filter(|line| line.starts_with('[') || line.contains(" = "))
            .map(|line| format!("{line}\n"))
            .collect();
        parse(&section, "longshore.reference.toml").unwrap()
    }

    #[test]
    fn the_reference_file_names_every_key_of_a_worker_process_with_its_default() {
        let written =
            commented("[workers.images]")["workers"]["images"].as_table().unwrap().clone();
        let defaults = Table::try_from(WorkerProcessConfig::default()).unwrap();
        assert_eq!(keys(&written, ""), keys(&defaults, ""));
        let mut written: WorkerProcessConfig = written.try_into().unwrap();
        assert!(!written.command.is_empty());
        written.command.clear();
        assert_eq!(written, WorkerProcessConfig::default());
    }

    #[test]
    fn the_reference_file_names_every_key_of_what_is_kept_alive_with_its_default() {
        let written = commented("[supervise.workers.mail]");
        let written = written["supervise"]["workers"]["mail"].as_table().unwrap().clone();
        let defaults = Table::try_from(SupervisedConfig::default()).unwrap();
        assert_eq!(keys(&written, ""), keys(&defaults, ""));
        let mut written: SupervisedConfig = written.try_into().unwrap();
        assert_eq!(std::mem::take(&mut written.kinds), ["mail"]);
        assert_eq!(written, SupervisedConfig::default());
    }

    #[test]
    fn a_list_of_workers_is_told_where_it_belongs() {
        let error = parse("[[worker]]\nkinds = [\"mail\"]\n", "t").unwrap_err();
        let shown = format!("{error:#}");
        assert!(shown.contains("[[worker]] is a list"), "{shown}");
    }

    #[test]
    fn the_reference_file_names_every_key_of_a_bounded_pool_with_two_examples() {
        let written = commented("[pools.mjml]")["pools"]["mjml"].as_table().unwrap().clone();
        let defaults = Table::try_from(BoundedPoolConfig::default()).unwrap();
        assert_eq!(keys(&written, ""), keys(&defaults, ""));
        let written: BoundedPoolConfig = written.try_into().unwrap();
        let example =
            BoundedPoolConfig { max: 20, wait: "30s".into(), ..BoundedPoolConfig::default() };
        assert_eq!(written, example);
        let written = commented("[pools.digest]")["pools"]["digest"].as_table().unwrap().clone();
        let written: BoundedPoolConfig = written.try_into().unwrap();
        assert_eq!(
            written,
            BoundedPoolConfig { max: 10, ..BoundedPoolConfig::default() },
            "it waits for ever"
        );
    }

    #[test]
    fn every_variable_stands_for_a_key_and_is_in_the_reference_file() {
        let defaults = Table::try_from(Config::default()).unwrap();
        for var in env::VARS {
            assert!(lookup(&defaults, var.key).is_some(), "{}", var.key);
            assert!(REFERENCE.contains(var.name), "{} is not documented", var.name);
        }
    }

    #[test]
    fn an_unknown_key_is_refused_with_line_and_suggestion() {
        let text = "store = \"sqlite:x.db\"\n\n[worker]\nslot = 3\n";
        let error = format!("{:#}", parse(text, "longshore.toml").unwrap_err());
        assert!(error.contains("longshore.toml, line 4"), "{error}");
        assert!(error.contains("did you mean `slots`?"), "{error}");
    }

    #[test]
    fn a_variable_overrides_its_key_and_nothing_else() {
        let mut table = parse("[worker]\nslots = 3\nttl = \"9s\"\n", "t").unwrap();
        let var = |key| env::VARS.into_iter().find(|var| var.key == key).unwrap();
        apply_variable(&mut table, var("worker.slots"), "5").unwrap();
        apply_variable(&mut table, var("worker.queues"), "a, b").unwrap();
        assert!(apply_variable(&mut table, var("worker.slots"), "many").is_err());
        let config: Config = table.try_into().unwrap();
        assert_eq!((config.worker.slots, config.worker.ttl.as_str()), (5, "9s"));
        assert_eq!(config.worker.queues, ["a", "b"]);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_its_line_is_named(
            lines in proptest::collection::vec(
                r#"\[(worker|log|keep|x)\]|(slots|ttl|level|[a-z]{1,3}) ?= ?["0-9a-z\[\]]{0,5}|\PC*"#,
                0..6,
            ),
        ) {
            if let Err(error) = parse(&lines.join("\n"), "t") {
                let error = format!("{error:#}");
                let line = error.strip_prefix("in t, line ").and_then(|at| at.split(':').next());
                let line: usize = line.expect(&error).parse().expect(&error);
                proptest::prop_assert!((1..=lines.len().max(1)).contains(&line), "{}", error);
            }
        }

        #[test]
        fn any_value_of_a_variable_is_taken_or_the_variable_named(text: String) {
            for var in env::VARS {
                if let Err(error) = apply_variable(&mut Table::new(), var, &text) {
                    let words = format!("{error:#}");
                    proptest::prop_assert!(words.contains(var.name), "{}", words);
                }
            }
        }
    }
}
