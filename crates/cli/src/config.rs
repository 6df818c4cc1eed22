//! `longshore.toml`: what may be written there, and how it is read.
//!
//! Unknown keys are refused, with file, line and the key that was probably meant. The meaning of
//! the values is [`crate::settings`]' business; every key and its default are documented in
//! `longshore.reference.toml`, which a test compares with this module.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::env::{self, Var};
use crate::error::{did_you_mean, hinted};

mod mail;
mod supervise;

pub use mail::Mail;
pub use supervise::{Supervise, Supervised};

/// The name looked for in the working directory.
const FILE: &str = "longshore.toml";

/// The whole file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where the units are.
    pub store: String,
    /// Whether file or environment say so.
    #[serde(skip)]
    pub store_named: bool,
    /// The file itself, if there is one.
    #[serde(skip)]
    pub file: Option<PathBuf>,
    /// Whose; empty means everybody's.
    pub tenant: String,
    /// How long a store that is away is waited for.
    pub patience: String,
    /// Where permits of bounded pools are kept; empty means the store.
    pub permits: String,
    /// What is logged, and where.
    pub log: Log,
    /// Who follows traces.
    pub telemetry: Telemetry,
    /// How the embedded store writes.
    pub sqlite: Sqlite,
    /// How a PostgreSQL store is reached.
    pub postgres: Postgres,
    /// How workers work.
    pub worker: Worker,
    /// Worker processes in any language, by their names.
    pub workers: BTreeMap<String, WorkerCommand>,
    /// Bounded pools, by their names.
    pub pools: BTreeMap<String, Bounded>,
    /// Who is told of alerts, beside the log.
    pub alerts: Alerts,
    /// How units are sent.
    pub submit: Submit,
    /// What kind `http` may do.
    pub http: Http,
    /// Where the master key of the vault is.
    pub vault: Vault,
    /// What `ai worker` has to know.
    pub ai: Ai,
    /// Where a pool of script workers is, and what it is like.
    pub dispatch: Dispatch,
    /// Where mail is kept, rendered and sent.
    pub mail: Mail,
    /// How the API is served.
    pub web: Web,
    /// What is kept alive, and how.
    pub supervise: Supervise,
    /// How long ended things are kept.
    pub keep: Keep,
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
            log: Log::default(),
            telemetry: Telemetry::default(),
            sqlite: Sqlite::default(),
            postgres: Postgres::default(),
            worker: Worker::default(),
            workers: BTreeMap::new(),
            pools: BTreeMap::new(),
            alerts: Alerts::default(),
            submit: Submit::default(),
            http: Http::default(),
            vault: Vault::default(),
            ai: Ai::default(),
            dispatch: Dispatch::default(),
            mail: Mail::default(),
            web: Web::default(),
            supervise: Supervise::default(),
            keep: Keep::default(),
        }
    }
}

/// `[log]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    pub level: String,
    pub format: String,
    pub dir: String,
    pub keep: u32,
}

impl Default for Log {
    fn default() -> Self {
        Self { level: String::new(), format: "human".into(), dir: String::new(), keep: 7 }
    }
}

/// `[telemetry]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Telemetry {
    pub otlp: String,
}

/// `[sqlite]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sqlite {
    pub synchronous: String,
}

impl Default for Sqlite {
    fn default() -> Self {
        Self { synchronous: "full".into() }
    }
}

/// `[postgres]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Postgres {
    pub listen_url: String,
    pub connections: u32,
}

impl Default for Postgres {
    fn default() -> Self {
        Self { listen_url: String::new(), connections: 8 }
    }
}

/// `[worker]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Worker {
    pub slots: u32,
    pub queues: Vec<String>,
    pub kinds: Vec<String>,
    pub drain_timeout: String,
    pub ttl: String,
    pub exec_dir: String,
    pub env: Vec<String>,
    pub pools: BTreeMap<String, String>,
}

impl Default for Worker {
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
pub struct WorkerCommand {
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

impl Default for WorkerCommand {
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
pub struct Bounded {
    pub max: u32,
    pub wait: String,
    pub lease: String,
    pub alert_every: String,
    pub on_outage: String,
    pub own_max: u32,
    pub adaptive: Adaptive,
}

impl Default for Bounded {
    fn default() -> Self {
        Self {
            max: 0,
            wait: "0s".into(),
            lease: "30s".into(),
            alert_every: "300s".into(),
            on_outage: "fail_closed".into(),
            own_max: 0,
            adaptive: Adaptive::default(),
        }
    }
}

/// `adaptive` of `[pools.NAME]`; a `most` of 0 is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Adaptive {
    pub least: u32,
    pub most: u32,
    pub window: String,
}

impl Default for Adaptive {
    fn default() -> Self {
        Self { least: 1, most: 0, window: "5s".into() }
    }
}

/// `[alerts]`: both are secrets, so they are not shown.
#[derive(Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Alerts {
    pub webhook: String,
    pub sentry: String,
}

impl std::fmt::Debug for Alerts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Alerts(…)")
    }
}

/// `[submit]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Submit {
    pub queue: String,
}

impl Default for Submit {
    fn default() -> Self {
        Self { queue: "default".into() }
    }
}

/// `[http]`
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    pub allow: Vec<String>,
    pub env: Vec<String>,
}

/// `[vault]`
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Vault {
    pub key_file: String,
    pub older: Vec<String>,
}

/// `[ai]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ai {
    pub prompts_dir: String,
    pub prompts_db: String,
    pub prompts_sql: String,
    pub library_suffixes: Vec<String>,
    pub libraries: BTreeMap<String, String>,
}

impl Default for Ai {
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
pub struct Dispatch {
    pub dir: String,
    pub qsys: String,
    pub workers: u32,
    pub nthr: u32,
}

impl Default for Dispatch {
    fn default() -> Self {
        Self { dir: String::new(), qsys: "local_worker".into(), workers: 1, nthr: 0 }
    }
}

/// `[web]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Web {
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

impl Default for Web {
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
pub struct Keep {
    pub done: String,
    pub failed: String,
    pub batches: String,
    pub audit: String,
}

impl Default for Keep {
    fn default() -> Self {
        Self {
            done: "1d".into(),
            failed: "30d".into(),
            batches: "30d".into(),
            audit: "400d".into(),
        }
    }
}

/// The configuration as file and environment give it.
pub fn load(flag: Option<&Path>) -> anyhow::Result<Config> {
    let file = find(flag)?;
    let mut table = match &file {
        Some(path) => read(path)?,
        None => Table::new(),
    };
    for var in env::VARS {
        if let Some(value) = std::env::var_os(var.name) {
            let value = value.into_string().ok().with_context(|| not_text(var))?;
            overlay(&mut table, var, &value)?;
        }
    }
    let store_named = table.contains_key("store");
    Ok(Config { store_named, file, ..table.try_into()? })
}

fn not_text(var: Var) -> String {
    format!("environment variable {} is not valid UTF-8", var.name)
}

fn find(flag: Option<&Path>) -> anyhow::Result<Option<PathBuf>> {
    let named = flag.map(Path::to_owned);
    let named = named.or_else(|| std::env::var_os(env::CONFIG).map(PathBuf::from));
    match named {
        Some(path) if path.is_file() => Ok(Some(path)),
        Some(path) => bail!("there is no configuration file {}", path.display()),
        None => Ok(Some(PathBuf::from(FILE)).filter(|path| path.is_file())),
    }
}

fn read(path: &Path) -> anyhow::Result<Table> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read configuration file {}", path.display()))?;
    parse(&text, &path.display().to_string())
}

/// Checks `text` against [`Config`] and returns it as written, so that what it leaves out stays
/// open.
fn parse(text: &str, name: &str) -> anyhow::Result<Table> {
    if let Err(error) = toml::from_str::<Config>(text) {
        let at = error.span().map_or(0, |span| span.start).min(text.len());
        let line = text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        let known = nameless(text).or_else(|| listed(text));
        let error = known.unwrap_or_else(|| explain(error.message()));
        return Err(error).with_context(|| format!("in {name}, line {line}"));
    }
    Ok(text.parse()?)
}

/// What stands in `[workers]` or `[pools]` itself belongs to a section with a name. The parser would
/// complain of its type.
fn nameless(text: &str) -> Option<anyhow::Error> {
    let table = text.parse::<Table>().ok()?;
    ["workers", "pools"].into_iter().find_map(|name| {
        let section = table.get(name)?.as_table()?;
        let (key, _) = section.iter().find(|(_, value)| !value.is_table())?;
        let error = anyhow!("`{key}` stands in [{name}], which has sections only");
        Some(hinted(error, format!("write [{name}.NAME] above it")))
    })
}

/// `[[worker]]` is how others write what is kept alive.
fn listed(text: &str) -> Option<anyhow::Error> {
    let table = text.parse::<Table>().ok()?;
    table.get("worker")?.as_array()?;
    let error = anyhow!("[[worker]] is a list, and there is one [worker]: how workers work");
    Some(hinted(error, "what is kept alive is written as [supervise.workers.NAME]"))
}

/// The parser's message, with a guess at what was meant if a word is unknown.
fn explain(message: &str) -> anyhow::Error {
    let words: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let [given, known @ ..] = words.as_slice() else { return of_type(message.trim()) };
    if !message.starts_with("unknown field") {
        return of_type(message.trim());
    }
    let meant = did_you_mean(given, known.iter().copied());
    let meant = meant.map_or(String::new(), |meant| format!(", did you mean `{meant}`?"));
    hinted(anyhow!("unknown key `{given}`{meant}"), "longshore.reference.toml lists every key")
}

/// The parser's message on a value that is not what its key takes, with what would be.
fn of_type(message: &str) -> anyhow::Error {
    let hint = match message.rsplit_once("expected ") {
        Some((_, "a sequence")) => "a list is written as [\"one\", \"two\"]",
        Some((_, "a string")) => "text is written in quotes",
        _ => "longshore.reference.toml shows every key with its default",
    };
    hinted(anyhow!("{message}"), hint)
}

/// Puts a variable's value in the place of its key.
fn overlay(table: &mut Table, var: Var, text: &str) -> anyhow::Result<()> {
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

    /// A section that people name themselves is written there as a comment.
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
        let defaults = Table::try_from(WorkerCommand::default()).unwrap();
        assert_eq!(keys(&written, ""), keys(&defaults, ""));
        let mut written: WorkerCommand = written.try_into().unwrap();
        assert!(!written.command.is_empty());
        written.command.clear();
        assert_eq!(written, WorkerCommand::default());
    }

    #[test]
    fn the_reference_file_names_every_key_of_what_is_kept_alive_with_its_default() {
        let written = commented("[supervise.workers.mail]");
        let written = written["supervise"]["workers"]["mail"].as_table().unwrap().clone();
        let defaults = Table::try_from(Supervised::default()).unwrap();
        assert_eq!(keys(&written, ""), keys(&defaults, ""));
        let mut written: Supervised = written.try_into().unwrap();
        assert_eq!(std::mem::take(&mut written.kinds), ["mail"]);
        assert_eq!(written, Supervised::default());
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
        let defaults = Table::try_from(Bounded::default()).unwrap();
        assert_eq!(keys(&written, ""), keys(&defaults, ""));
        let written: Bounded = written.try_into().unwrap();
        let example = Bounded { max: 20, wait: "30s".into(), ..Bounded::default() };
        assert_eq!(written, example);
        let written = commented("[pools.digest]")["pools"]["digest"].as_table().unwrap().clone();
        let written: Bounded = written.try_into().unwrap();
        assert_eq!(written, Bounded { max: 10, ..Bounded::default() }, "it waits for ever");
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
        overlay(&mut table, var("worker.slots"), "5").unwrap();
        overlay(&mut table, var("worker.queues"), "a, b").unwrap();
        assert!(overlay(&mut table, var("worker.slots"), "many").is_err());
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
                if let Err(error) = overlay(&mut Table::new(), var, &text) {
                    let words = format!("{error:#}");
                    proptest::prop_assert!(words.contains(var.name), "{}", words);
                }
            }
        }
    }
}
